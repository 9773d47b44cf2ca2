// The Transformer of transformer_lib/model/, for one sentence. With no batch there is no padding, and since the decoder
// is only ever asked about its newest position (kv_cache.py), there is no causal mask either: nothing to hide.
// A matrix [rows, columns] is a Float32Array, row after row. A weight is [outputs, inputs], as in PyTorch.

/** Read what write_weights.py packed: {config, search, pieces, charsmap, weights}. */
function unpack(bytes) {
  let at = 4 + new Uint32Array(bytes.slice(0, 4).buffer)[0];
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, at)));
  const charsmap = bytes.slice(at, at + header.charsmap);
  at += Math.ceil(header.charsmap / 4) * 4;
  const weights = {};
  for (const [name, shape] of Object.entries(header.shapes)) {
    const size = shape.reduce((product, length) => product * length, 1);
    const values = fromHalf(new Uint16Array(bytes.slice(at, at + 2 * size).buffer));
    at += 2 * size;
    // "decoder.layers.0.norm1.bias" becomes weights.decoder.layers[0].norm1.bias
    const path = name.split("."), last = path.pop();
    path.reduce((inner, key) => (inner[key] ??= {}), weights)[last] = values;
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

/** W x + b for each row of x: [rows, inputs] → [rows, outputs]. Nearly all the time is spent here. */
function linear(x, { weight, bias }) {
  const outputs = bias.length, inputs = weight.length / outputs, rows = x.length / inputs;
  const y = new Float32Array(rows * outputs);
  for (let o = 0; o < outputs; o++) {
    for (let row = 0; row < rows; row++) {
      let a = 0, b = 0, c = 0, d = 0; // four sums, which do not wait for each other
      for (let i = row * inputs, w = o * inputs, end = i + inputs; i < end; i += 4, w += 4) {
        a += x[i] * weight[w];
        b += x[i + 1] * weight[w + 1];
        c += x[i + 2] * weight[w + 2];
        d += x[i + 3] * weight[w + 3];
      }
      y[row * outputs + o] = a + b + c + d + bias[o];
    }
  }
  return y;
}

/** Each row with mean 0 and variance 1, then scaled and shifted: [rows, d_model] → [rows, d_model]. */
function layerNorm(x, { weight, bias }) {
  const size = bias.length, y = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += size) {
    let mean = 0, variance = 0;
    for (let i = 0; i < size; i++) mean += x[start + i] / size;
    for (let i = 0; i < size; i++) variance += (x[start + i] - mean) ** 2 / size;
    const scale = 1 / Math.sqrt(variance + 1e-5);
    for (let i = 0; i < size; i++) y[start + i] = (x[start + i] - mean) * scale * weight[i] + bias[i];
  }
  return y;
}

const add = (x, y) => x.map((value, i) => value + y[i]);
const rowsOf = (x, size) => Array.from({ length: x.length / size }, (_, i) => x.subarray(i * size, (i + 1) * size));

/** Turn scores into weights that sum to 1, in place. */
function softmax(scores) {
  let largest = -Infinity, sum = 0;
  for (const score of scores) if (score > largest) largest = score;
  for (let i = 0; i < scores.length; i++) sum += scores[i] = Math.exp(scores[i] - largest);
  for (let i = 0; i < scores.length; i++) scores[i] /= sum;
}

/**
 * softmax(Q Kᵀ / √d_k) V in each head. q: [queries, d_model]; keys, values: a vector [d_model] for each position.
 * Head h has the numbers from h · d_k on of every vector. Returns {output: [queries, d_model], maps: [heads, queries,
 * keys]}.
 */
function attention(q, keys, values, heads) {
  const size = keys[0].length, queries = q.length / size, d_k = size / heads;
  const output = new Float32Array(q.length), maps = new Float32Array(heads * queries * keys.length);
  for (let head = 0, map = 0; head < heads; head++) {
    for (let query = 0; query < queries; query++, map += keys.length) {
      const from = query * size + head * d_k;
      const weights = maps.subarray(map, map + keys.length);
      keys.forEach((key, j) => {
        let score = 0;
        for (let i = 0; i < d_k; i++) score += q[from + i] * key[head * d_k + i];
        weights[j] = score / Math.sqrt(d_k);
      });
      softmax(weights);
      values.forEach((value, j) => {
        for (let i = 0; i < d_k; i++) output[from + i] += weights[j] * value[head * d_k + i];
      });
    }
  }
  return { output, maps };
}

class Transformer {
  constructor({ config, weights }) {
    this.config = config;
    this.weights = weights;
    this.table = weights.src_embedding.tokens.table.weight; // [vocab, d_model]; both sides and the output share it
    this.output = { weight: this.table, bias: weights.output.bias };
  }

  /** The embedding of a token, times √d_model, and the sines and cosines of its position: two vectors [d_model]. */
  embed(id, position) {
    const size = this.config.d_model;
    const token = this.table.slice(id * size, (id + 1) * size).map((value) => value * Math.sqrt(size));
    const place = token.map((_, i) => {
      const angle = position * 10_000 ** (-(i - (i % 2)) / size);
      return i % 2 ? Math.cos(angle) : Math.sin(angle);
    });
    return [token, place];
  }

  /** Read the source: {memory: [src_len, d_model], maps: each layer's [heads, src_len, src_len]}. */
  encode(ids) {
    const { d_model, num_heads } = this.config, maps = [];
    let x = new Float32Array(ids.length * d_model);
    ids.forEach((id, i) => x.set(add(...this.embed(id, i)), i * d_model));
    for (const layer of Object.values(this.weights.encoder.layers)) {
      const { q_proj, k_proj, v_proj, out_proj } = layer.self_attn;
      const y = layerNorm(x, layer.norm1);
      const [keys, values] = [k_proj, v_proj].map((projection) => rowsOf(linear(y, projection), d_model));
      const looked = attention(linear(y, q_proj), keys, values, num_heads);
      x = add(x, linear(looked.output, out_proj));
      x = add(x, this.feedForward(layerNorm(x, layer.norm2), layer.feed_forward));
      maps.push(looked.maps);
    }
    return { memory: layerNorm(x, this.weights.encoder.norm), maps };
  }

  feedForward(x, { linear1, linear2 }) {
    return linear(linear(x, linear1).map((value) => Math.max(0, value)), linear2); // d_model → d_ff → d_model
  }

  /** What every step needs of the memory, for each layer: {keys, values}, a vector [d_model] a source position. */
  prepare({ memory }) {
    return Object.values(this.weights.decoder.layers).map(({ cross_attn: { k_proj, v_proj } }) => {
      const [keys, values] = [k_proj, v_proj].map((p) => rowsOf(linear(memory, p), this.config.d_model));
      return { keys, values };
    });
  }

  /** An empty cache, for each layer: keys and values of the target so far. */
  emptyCache() {
    return Object.values(this.weights.decoder.layers).map(() => ({ keys: [], values: [] }));
  }

  /**
   * Let the decoder read one more token of each beginning, and predict what follows.
   *
   * ids: the newest token of each row. caches: each row's cache, to which a vector is added. source: what `prepare`
   * returned. note: is told each vector and map on the way. Returns logits, one Float32Array [vocab] a row.
   */
  step(ids, caches, source, note = () => {}) {
    const { d_model, num_heads, tgt_vocab_size } = this.config;
    let x = new Float32Array(ids.length * d_model); // [rows, d_model]
    ids.forEach((id, row) => {
      const [token, place] = this.embed(id, caches[row][0].keys.length);
      x.set(add(token, place), row * d_model);
      note("token", token), note("position", place);
    });
    note("sum", x);
    Object.values(this.weights.decoder.layers).forEach((layer, l) => {
      let y = layerNorm(x, layer.norm1);
      const { q_proj, k_proj, v_proj, out_proj } = layer.self_attn;
      const [q, k, v] = [q_proj, k_proj, v_proj].map((projection) => rowsOf(linear(y, projection), d_model));
      caches.forEach((cache, row) => {
        cache[l].keys.push(k[row]), cache[l].values.push(v[row]);
        const own = attention(q[row], cache[l].keys, cache[l].values, num_heads); // each row has its own past …
        y.set(own.output, row * d_model);
        note("decoder", own.maps);
      });
      x = add(x, linear(y, out_proj));
      note("self-attention", x);
      y = linear(layerNorm(x, layer.norm2), layer.cross_attn.q_proj);
      const cross = attention(y, source[l].keys, source[l].values, num_heads); // … and all have the same source
      x = add(x, linear(cross.output, layer.cross_attn.out_proj));
      note("cross", cross.maps), note("cross-attention", x);
      x = add(x, this.feedForward(layerNorm(x, layer.norm3), layer.feed_forward));
      note("feed-forward", x);
    });
    x = layerNorm(x, this.weights.decoder.norm);
    note("norm", x);
    return rowsOf(linear(x, this.output), tgt_vocab_size);
  }
}
