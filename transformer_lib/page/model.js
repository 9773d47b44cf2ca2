// The Transformer of transformer_lib/model/, for one sentence. With no batch there is no padding, and where the decoder
// is only asked about its newest position, as in kv_cache.py, there is no causal mask either: nothing to hide.
// A matrix [rows, columns] is a Float32Array, row after row. A weight is [outputs, inputs], as in PyTorch.

/** Read what writer.py packed into an ArrayBuffer: {config, search, …, src and tgt: tokenisers, specials, weights}. */
function unpack(buffer) {
  let at = 4 + new Uint32Array(buffer, 0, 1)[0];
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, at - 4))), weights = {};
  for (const [name, size] of Object.entries(header.sizes)) {
    // "decoder.layers.0.norm1.bias" becomes weights.decoder.layers[0].norm1.bias
    const path = name.split("."), last = path.pop(), { half } = header;
    const values = half ? fromHalf(new Uint16Array(buffer, at, size)) : new Float32Array(buffer, at, size);
    path.reduce((inner, key) => (inner[key] ??= {}), weights)[last] = values;
    at += (half ? 2 : 4) * size;
  }
  const { src, tgt } = Object.fromEntries(Object.entries(header.tokenizers).map(([side, said]) => [side, tokenizerOf(said)]));
  return { ...header, src, tgt, specials: tgt.specials, weights };
}

/** Half precision has a sign, 5 bits of exponent and 10 of fraction; single precision has 8 and 23. */
function fromHalf(halves) {
  const bits = new Uint32Array(halves.length), values = new Float32Array(bits.buffer);
  for (let i = 0; i < halves.length; i++) {
    bits[i] = ((halves[i] & 0x8000) << 16) | ((halves[i] & 0x7fff) << 13);
    values[i] *= 2 ** 112; // an exponent of 15 means 1 in the one, of 127 in the other
  }
  return values;
}

/** The dot product of `length` numbers of a, from i on, and of b, from j on. Nearly all the time is spent here. */
function dot(a, i, b, j, length) {
  let sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0; // four sums, which do not wait for each other
  const end = i + length;
  for (; i + 3 < end; i += 4, j += 4) {
    sum0 += a[i] * b[j];
    sum1 += a[i + 1] * b[j + 1];
    sum2 += a[i + 2] * b[j + 2];
    sum3 += a[i + 3] * b[j + 3];
  }
  for (; i < end; i++, j++) sum0 += a[i] * b[j];
  return sum0 + sum1 + sum2 + sum3;
}

/** W x + b for each row of x: [rows, inputs] → [rows, outputs]. */
function linear(x, { weight, bias }) {
  const outputs = bias.length, inputs = weight.length / outputs, rows = x.length / inputs;
  const y = new Float32Array(rows * outputs);
  for (let o = 0; o < outputs; o++) {
    for (let row = 0; row < rows; row++) {
      y[row * outputs + o] = dot(x, row * inputs, weight, o * inputs, inputs) + bias[o];
    }
  }
  return y;
}

/** Each row with mean 0 and variance 1, then scaled and shifted: [rows, d_model] → [rows, d_model]; x, if there is no norm. */
function layerNorm(x, norm) {
  if (!norm) return x;
  const { weight, bias } = norm;
  return join(split(x, bias.length).map((row) => {
    const mean = row.reduce((a, b) => a + b) / row.length;
    const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length;
    const deviation = Math.sqrt(variance + 1e-5);
    return row.map((value, i) => ((value - mean) / deviation) * weight[i] + bias[i]);
  }));
}

const add = (x, y) => x.map((value, i) => value + y[i]);
const split = (x, size) => Array.from({ length: x.length / size }, (_, i) => x.subarray(i * size, (i + 1) * size));
const join = (rows) => {
  const all = new Float32Array(rows.length * rows[0].length);
  rows.forEach((row, i) => all.set(row, i * row.length));
  return all;
};

/** Scores → weights that sum to 1. */
function softmax(scores) {
  const largest = scores.reduce((a, b) => Math.max(a, b));
  const powers = scores.map((score) => Math.exp(score - largest)), sum = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / sum);
}

/**
 * softmax(Q Kᵀ / √d_k) V in each head. q: [queries, d_model]; keys, values: a vector [d_model] for each position.
 * Head h has the numbers from h · d_k on of every vector. With `isCausal`, query i sees keys 0 to i only; without
 * `scale`, nothing is divided by √d_k; heads in `silent`, counted from 0, find nothing.
 * Returns {output: [queries, d_model], and of each head, [queries, keys]: dots, which are Q Kᵀ, and maps, the weights}.
 */
function attention(q, { keys, values }, heads, { isCausal = false, scale = true, silent = [] } = {}) {
  const size = keys[0].length, d_k = size / heads, queries = q.length / size, output = new Float32Array(q.length);
  const empty = () => Array.from({ length: heads }, () => new Float32Array(queries * keys.length));
  const dots = empty(), maps = empty();
  for (let head = 0; head < heads; head++) {
    const first = head * d_k;
    for (let at = 0, row = 0; row < queries; at += size, row++) {
      const products = keys.map((key) => dot(q, at + first, key, first, d_k));
      const scores = scale ? products.map((product) => product / Math.sqrt(d_k)) : products;
      const weights = softmax(scores.map((score, j) => (isCausal && j > row ? -Infinity : score)));
      dots[head].set(products, row * keys.length);
      maps[head].set(weights, row * keys.length);
      if (silent.includes(head)) continue; // whose part of the output stays 0
      values.forEach((value, j) => {
        for (let i = first; i < first + d_k; i++) output[at + i] += weights[j] * value[i];
      });
    }
  }
  return { output, dots, maps };
}

const UNCHANGED = { mask: true, scale: true, positions: true, silenced: [] };

class Transformer {
  /**
   * specials: the ids of the target's special tokens.
   * changes: what readers take away to see what it is for: the causal `mask`, the `scale` 1 / √d_k, or the `positions`,
   * each false, and the heads in `silenced`, such as "cross 3.4": encoder, decoder or cross, layer and head from 1.
   */
  constructor({ config, specials, weights }, changes = {}) {
    this.config = config;
    this.specials = specials;
    this.weights = weights;
    const { mask, scale, positions, silenced } = (this.changes = { ...UNCHANGED, ...changes });
    this.isChanged = !(mask && scale && positions) || silenced.length > 0;
    const { src_embedding: src, tgt_embedding: tgt, output } = weights, shared = src.tokens.table.weight;
    this.embeddings = { encoder: src, decoder: { ...tgt, tokens: tgt?.tokens ?? src.tokens } }; // which may be the same
    this.output = { weight: output.weight ?? shared, bias: output.bias }; // [vocab, d_model]; and so may this
  }

  /** The embedding of a token, times √d_model, and the vector of its position, learned or computed: two of [d_model]. */
  embed(kind, id, position) {
    const size = this.config.d_model, { tokens, positions } = this.embeddings[kind];
    const row = (table, i) => table.slice(i * size, (i + 1) * size);
    const token = row(tokens.table.weight, id).map((value) => value * Math.sqrt(size));
    const angle = (i) => position * 10_000 ** (-(i - (i % 2)) / size);
    const place = positions ? row(positions.table, position)
      : token.map((_, i) => (i % 2 ? Math.cos(angle(i)) : Math.sin(angle(i))));
    return [token, this.changes.positions ? place : place.fill(0)];
  }

  /** What positions offer to those that look at them: {keys, values}, a vector [d_model] for each row of x. */
  offer(x, { k_proj, v_proj }) {
    const [keys, values] = [k_proj, v_proj].map((projection) => split(linear(x, projection), this.config.d_model));
    return { keys, values };
  }

  /** The attention of a kind, "encoder", "decoder" or "cross", in layer l. */
  attend(kind, l, q, offered, isCausal = false) {
    const { scale, silenced } = this.changes, heads = this.config.num_heads;
    const silent = [...Array(heads).keys()].filter((head) => silenced.includes(`${kind} ${l + 1}.${head + 1}`));
    return attention(q, offered, heads, { isCausal, scale, silent });
  }

  /** d_model → d_ff → d_model: {inner: [rows, d_ff], out: [rows, d_model]}. */
  feedForward(x, { linear1, linear2 }) {
    const inner = linear(x, linear1).map((value) => Math.max(0, value));
    return { inner, out: linear(inner, linear2) };
  }

  logits(x) {
    return linear(x, this.output); // [rows, d_model] → [rows, vocab]
  }

  /**
   * A sub-layer: what it computes of x is added to x. In pre-LN, it reads x normed; in post-LN, the sum is normed.
   *
   * Returns {enters: x, reads, …, out, sum, leaves}, and {unnormed, norm}, what the norm made of what.
   */
  sublayer(x, norm, compute) {
    const { norm_first } = this.config, reads = norm_first ? layerNorm(x, norm) : x, found = compute(reads);
    const sum = add(x, found.out), leaves = norm_first ? sum : layerNorm(sum, norm);
    const normed = norm_first ? { unnormed: x, norm: reads } : { unnormed: sum, norm: leaves };
    return { enters: x, reads, ...found, sum, leaves, ...normed };
  }

  /**
   * A whole stack for all positions at once: the encoder, or with a memory to look at, the decoder.
   *
   * Returns all that it computes, [positions, d_model] each: {tokens, places, x: their sum, layers, output}. A layer is
   * {self_attn, cross_attn, feed_forward}, and each of these what `sublayer` returns.
   */
  read(kind, ids, memory) {
    const { layers, norm } = this.weights[kind], isCausal = kind === "decoder" && this.changes.mask;
    const pairs = ids.map((id, i) => this.embed(kind, id, i));
    const [tokens, places] = [0, 1].map((which) => join(pairs.map((pair) => pair[which])));
    let x = add(tokens, places);
    const all = { tokens, places, x };
    all.layers = Object.values(layers).map((layer, l) => {
      const sublayer = (norm, compute) => {
        const found = this.sublayer(x, norm, compute);
        x = found.leaves;
        return found;
      };
      const look = (kind, { q_proj, out_proj, ...projections }, from, isCausal) => (y) => {
        const q = linear(y, q_proj), offered = this.offer(from ?? y, projections);
        const { output: joined, dots, maps } = this.attend(kind, l, q, offered, isCausal);
        return { q, ...offered, dots, maps, joined, out: linear(joined, out_proj) };
      };
      const self_attn = sublayer(layer.norm1, look(kind, layer.self_attn, null, isCausal));
      const cross_attn = memory && sublayer(layer.norm2, look("cross", layer.cross_attn, memory));
      const feed_forward = sublayer(layer.norm3 ?? layer.norm2, (y) => this.feedForward(y, layer.feed_forward));
      return { self_attn, cross_attn, feed_forward };
    });
    return { ...all, output: layerNorm(x, norm) };
  }

  /** Read the source: {memory: [src_len, d_model], maps: in each layer, each head's [src_len, src_len]}. */
  encode(ids) {
    const { output, layers } = this.read("encoder", ids);
    return { memory: output, maps: layers.map(({ self_attn }) => self_attn.maps) };
  }

  /**
   * What both stacks compute when `tgt`, which begins with <sos>, has been written, and the *logit lens*: the logits
   * that the last norm and the output would make of what enters the decoder, and of what leaves each of its layers.
   */
  trace(src, tgt) {
    const source = this.read("encoder", src), target = this.read("decoder", tgt, source.output);
    const passed = [target.x, ...target.layers.map(({ feed_forward }) => feed_forward.leaves)];
    return { source, target, lens: passed.map((x) => this.logits(layerNorm(x, this.weights.decoder.norm))) };
  }

  /** The cache of an empty beginning: for each layer, what the source offers, and that nothing has been written yet. */
  startCache(memory) {
    const start = ({ cross_attn }) => ({ source: this.offer(memory, cross_attn), own: { keys: [], values: [] } });
    return { ids: [], memory, layers: Object.values(this.weights.decoder.layers).map(start) };
  }

  /**
   * Let the decoder read one more token of each beginning, and predict what follows.
   *
   * ids: the newest token of each beginning. caches: of each, without that token; they remain as they are. Returns for
   * each {logits: [vocab], cache, maps: in each layer, each head's [1, keys]}.
   */
  step(ids, caches) {
    if (!this.changes.mask) return ids.map((id, row) => this.reread([...caches[row].ids, id], caches[row]));
    const { d_model } = this.config, { decoder } = this.weights;
    const rows = ids.map((id, row) => {
      const cache = { ...caches[row], ids: [...caches[row].ids, id], layers: [] };
      return { cache, maps: { own: [], source: [] } };
    });
    let x = join(ids.map((id, row) => add(...this.embed("decoder", id, caches[row].ids.length)))); // [rows, d_model]
    Object.values(decoder.layers).forEach((layer, l) => {
      const look = (name, kind, y, weights) => {
        const queries = split(linear(y, weights.q_proj), d_model);
        const found = queries.map((query, row) => this.attend(kind, l, query, rows[row].cache.layers[l][name]));
        found.forEach(({ maps }, row) => rows[row].maps[name].push(maps));
        return { out: linear(join(found.map(({ output }) => output)), weights.out_proj) };
      };
      const remember = (y) => {
        const { keys, values } = this.offer(y, layer.self_attn);
        rows.forEach(({ cache }, row) => {
          const { own, source } = caches[row].layers[l];
          cache.layers.push({ own: { keys: [...own.keys, keys[row]], values: [...own.values, values[row]] }, source });
        });
        return look("own", "decoder", y, layer.self_attn);
      };
      x = this.sublayer(x, layer.norm1, remember).leaves;
      x = this.sublayer(x, layer.norm2, (y) => look("source", "cross", y, layer.cross_attn)).leaves;
      x = this.sublayer(x, layer.norm3, (y) => this.feedForward(y, layer.feed_forward)).leaves;
    });
    const logits = this.logits(layerNorm(x, decoder.norm)), vocab = logits.length / rows.length;
    return rows.map((row, i) => ({ ...row, logits: logits.subarray(i * vocab, (i + 1) * vocab) }));
  }

  /** A step without the mask: what was read before looks at the newest token too, so no keys and values can be kept. */
  reread(ids, cache) {
    const { output, layers } = this.read("decoder", ids, cache.memory);
    const newest = (all) => all.slice(-all.length / ids.length); // the last row
    const maps = (name) => layers.map((layer) => layer[name].maps.map(newest));
    const logits = this.logits(newest(output));
    return { logits, cache: { ...cache, ids }, maps: { own: maps("self_attn"), source: maps("cross_attn") } };
  }
}
