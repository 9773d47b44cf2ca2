// The Transformer of transformer_lib/model/, for one sentence. With no batch there is no padding, and since the decoder
// is only ever asked about its newest position (kv_cache.py), there is no causal mask either: nothing to hide.
// A matrix [rows, columns] is a Float32Array, row after row. A weight is [outputs, inputs], as in PyTorch.

/** Read what write_weights.py packed into an ArrayBuffer: {config, search, pieces, charsmap, weights}. */
function unpack(buffer) {
  let at = 4 + new Uint32Array(buffer, 0, 1)[0];
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, at - 4)));
  const charsmap = buffer.slice(at, at + header.charsmap), weights = {};
  at += header.charsmap;
  for (const [name, size] of Object.entries(header.sizes)) {
    // "decoder.layers.0.norm1.bias" becomes weights.decoder.layers[0].norm1.bias
    const path = name.split("."), last = path.pop();
    path.reduce((inner, key) => (inner[key] ??= {}), weights)[last] = fromHalf(new Uint16Array(buffer, at, size));
    at += 2 * size;
  }
  return { ...header, charsmap, weights };
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
  for (const end = i + length; i < end; i += 4, j += 4) {
    sum0 += a[i] * b[j];
    sum1 += a[i + 1] * b[j + 1];
    sum2 += a[i + 2] * b[j + 2];
    sum3 += a[i + 3] * b[j + 3];
  }
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

/** Each row with mean 0 and variance 1, then scaled and shifted: [rows, d_model] → [rows, d_model]. */
function layerNorm(x, { weight, bias }) {
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
 * Head h has the numbers from h · d_k on of every vector. Returns {output: [queries, d_model], maps: each head's
 * [queries, keys]}.
 */
function attention(q, { keys, values }, heads) {
  const size = keys[0].length, d_k = size / heads, queries = q.length / size, output = new Float32Array(q.length);
  const maps = Array.from({ length: heads }, (_, head) => {
    const map = new Float32Array(queries * keys.length), first = head * d_k;
    for (let at = 0, row = 0; row < queries; at += size, row++) {
      const weights = softmax(keys.map((key) => dot(q, at + first, key, first, d_k) / Math.sqrt(d_k)));
      map.set(weights, row * keys.length);
      values.forEach((value, j) => {
        for (let i = first; i < first + d_k; i++) output[at + i] += weights[j] * value[i];
      });
    }
    return map;
  });
  return { output, maps };
}

class Transformer {
  constructor({ config, weights }) {
    this.config = config;
    this.weights = weights;
    this.table = weights.src_embedding.tokens.table.weight; // [vocab, d_model]; both sides and the output share it
  }

  /** The embedding of a token, times √d_model, and the sines and cosines of its position: two vectors [d_model]. */
  embed(id, position) {
    const size = this.config.d_model;
    const token = this.table.slice(id * size, (id + 1) * size).map((value) => value * Math.sqrt(size));
    const angle = (i) => position * 10_000 ** (-(i - (i % 2)) / size);
    return [token, token.map((_, i) => (i % 2 ? Math.cos(angle(i)) : Math.sin(angle(i))))];
  }

  /** What positions offer to those that look at them: {keys, values}, a vector [d_model] for each row of x. */
  offer(x, { k_proj, v_proj }) {
    const [keys, values] = [k_proj, v_proj].map((projection) => split(linear(x, projection), this.config.d_model));
    return { keys, values };
  }

  feedForward(x, { linear1, linear2 }) {
    return linear(linear(x, linear1).map((value) => Math.max(0, value)), linear2); // d_model → d_ff → d_model
  }

  /** Read the source: {memory: [src_len, d_model], maps: in each layer, each head's [src_len, src_len]}. */
  encode(ids) {
    let x = join(ids.map((id, i) => add(...this.embed(id, i)))); // [src_len, d_model]
    const maps = Object.values(this.weights.encoder.layers).map((layer) => {
      const y = layerNorm(x, layer.norm1), q = linear(y, layer.self_attn.q_proj);
      const { output, maps } = attention(q, this.offer(y, layer.self_attn), this.config.num_heads);
      x = add(x, linear(output, layer.self_attn.out_proj));
      x = add(x, this.feedForward(layerNorm(x, layer.norm2), layer.feed_forward));
      return maps;
    });
    return { memory: layerNorm(x, this.weights.encoder.norm), maps };
  }

  /** The cache of an empty beginning: for each layer, what the source offers, and that nothing has been written yet. */
  startCache(memory) {
    const layers = Object.values(this.weights.decoder.layers);
    return layers.map((layer) => ({ source: this.offer(memory, layer.cross_attn), own: { keys: [], values: [] } }));
  }

  /**
   * Let the decoder read one more token of each beginning, and predict what follows.
   *
   * ids: the newest token of each beginning. caches: of each, without that token; they remain as they are. Returns for
   * each {logits: [vocab], cache, stops: each vector [d_model] on the way, maps: in each layer, each head's [1, keys]}.
   */
  step(ids, caches) {
    const { d_model, num_heads } = this.config, { decoder, output } = this.weights;
    const rows = ids.map((id, row) => {
      const stops = this.embed(id, caches[row][0].own.keys.length);
      return { cache: [], stops, maps: { own: [], source: [] } };
    });
    const note = (x) => split(x, d_model).forEach((vector, row) => rows[row].stops.push(vector.slice()));
    let x = join(rows.map(({ stops: [token, place] }) => add(token, place))); // [rows, d_model]
    note(x);
    Object.values(decoder.layers).forEach((layer, l) => {
      const look = (kind, y, weights) => {
        const queries = split(linear(y, weights.q_proj), d_model);
        const found = queries.map((query, row) => attention(query, rows[row].cache[l][kind], num_heads));
        found.forEach(({ maps }, row) => rows[row].maps[kind].push(maps));
        return linear(join(found.map(({ output }) => output)), weights.out_proj);
      };
      const y = layerNorm(x, layer.norm1), { keys, values } = this.offer(y, layer.self_attn);
      rows.forEach(({ cache }, row) => {
        const { own, source } = caches[row][l];
        cache.push({ own: { keys: [...own.keys, keys[row]], values: [...own.values, values[row]] }, source });
      });
      note((x = add(x, look("own", y, layer.self_attn))));
      note((x = add(x, look("source", layerNorm(x, layer.norm2), layer.cross_attn))));
      note((x = add(x, this.feedForward(layerNorm(x, layer.norm3), layer.feed_forward))));
    });
    note((x = layerNorm(x, decoder.norm)));
    const logits = split(linear(x, { weight: this.table, bias: output.bias }), output.bias.length); // [rows, vocab]
    return rows.map((row, i) => ({ ...row, logits: logits[i] }));
  }
}
