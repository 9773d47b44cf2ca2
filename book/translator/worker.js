// Runs beside the page, so that the page goes on while the model computes. The page starts it from the text of these
// functions: a page that was opened from a disk may start no worker from a file.

/** Answer the page's messages: parts of the weights, then sentences. A newer sentence ends the work on an older one. */
function serve() {
  const parts = [];
  let model, tokenizer, settings, newest = 1;
  onmessage = async ({ data: request }) => {
    try {
      if (request.weights) await load(request);
      else await translate(request);
    } catch (error) {
      postMessage({ kind: "error", number: newest, text: error.message });
    }
  };

  async function load({ weights, part, parts: count }) {
    parts[part] = fromBase64(weights);
    if (parts.filter(Boolean).length < count) return;
    settings = unpack(new Uint8Array(await new Blob(parts).arrayBuffer()));
    model = new Transformer(settings);
    tokenizer = new SubwordTokenizer(settings.pieces, settings.charsmap);
    postMessage({ kind: "ready" });
  }

  async function translate({ number, text, beamSize, prefix }) {
    newest = number;
    const { tokens, ids } = tokenizer.encode(text);
    const most = model.config.max_len;
    if (ids.length > most) throw new Error(`The sentence has ${ids.length} subwords; the model can read ${most}.`);
    const { length_penalty: penalty } = settings.search;
    const search = beamSize > 1
      ? beamSearch(model, ids, beamSize, penalty, prefix)
      : greedySearch(model, ids, prefix);
    const states = [];
    let state = search.next(), breath = performance.now();
    for (; !state.done; state = search.next()) {
      states.push(state.value);
      const written = state.value.ids ?? (state.value.open[0] ?? state.value.ended[0]).ids;
      postMessage({ kind: "step", number, text: tokenizer.decode(written) });
      if (performance.now() - breath < 50) continue;
      await new Promise((resume) => setTimeout(resume)); // look for newer messages
      if (newest !== number) return;
      breath = performance.now();
    }
    const hypotheses = [state.value].flat(), [best] = hypotheses;
    const name = (id) => tokenizer.pieces[id];
    const { steps, kinds } = explain(model, ids, best.ids, name);
    const withText = (one) => ({ ...one, text: tokenizer.decode(one.ids), token: name(one.ids.at(-1)) });
    const beams = beamSize > 1 && states.map(({ open, ended }) => [...open, ...ended].map(withText));
    const ended = hypotheses.map(withText);
    const about = { tokens, best: ended[0], hypotheses: ended, beams, steps, kinds, penalty };
    postMessage({ kind: "done", number, prefix, ...about });
  }
}

/** base64 → bytes. */
function fromBase64(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/**
 * Write a translation once more, and note everything on the way: for each step the ids read, the vectors that they
 * became, the most probable tokens, and for the attention viewer every map.
 */
function explain(model, srcIds, ids, name) {
  const { num_layers, num_heads } = model.config;
  const encoded = model.encode(srcIds), source = model.prepare(encoded), cache = model.emptyCache();
  const maps = { decoder: [], cross: [] }; // each step's, layer by layer
  const inputs = [SOS_ID, ...ids.slice(0, -1)];
  const steps = inputs.map((input, i) => {
    const stops = [], seen = { decoder: [], cross: [] };
    const [logits] = model.step([input], [cache], source, (what, values) =>
      what in seen ? seen[what].push(values) : stops.push([what, values.slice()]),
    );
    for (const kind in maps) maps[kind].push(seen[kind]);
    const raw = logits.slice(), logProbs = logSoftmax(logits); // which rules out two logits
    const about = (id) => ({ id, token: name(id), logit: raw[id], logProb: logProbs[id] });
    return { input, token: name(input), stops, chosen: about(ids[i]), best: largest(logProbs, 6).map(about) };
  });
  // the viewer's weights: thousandths, for each layer and head row after row. A row of the decoder grows with its step
  const whole = (values, columns) => Array.from({ length: columns }, (_, i) => Math.round(1000 * (values[i] ?? 0)));
  const perHead = (kind, columns) => Array.from({ length: num_layers }, (_, layer) =>
    Array.from({ length: num_heads }, (_, head) => maps[kind].flatMap((step) => {
      const length = step[layer].length / num_heads;
      return whole(step[layer].subarray(head * length, (head + 1) * length), columns);
    })),
  );
  const encoder = encoded.maps.map((map) => rowsOf(map, srcIds.length ** 2).map((head) => whole(head, head.length)));
  return { steps, kinds: { encoder, decoder: perHead("decoder", ids.length), cross: perHead("cross", srcIds.length) } };
}
