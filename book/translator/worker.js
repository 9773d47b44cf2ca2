// Runs beside the page, so that the page goes on while the model computes. The page starts it from the text of these
// functions: a page that was opened from a disk may start no worker from a file.

const LONGEST_CAPTION = 60; // subwords, of those that the model learned from: Multi30k's training split
const CHARACTERS_A_SUBWORD = 4.4, WRITTEN_A_READ = 1.1; // German ones, and English subwords for each German one, or so
const WORDS = { // frequent in one language, and hardly to be met in the other
  english: "a the is are of with on to at and his two people while by",
  german: "ein eine einem einen einer eines der die das den dem und mit auf im ist sind zu von vor sich zwei",
};

/** What is unusual about a text for this model, in words, or "": not German, or longer than what it learned from. */
function remark(text, { tokens, ids }) {
  const words = text.toLowerCase().match(/\p{L}+/gu) ?? [];
  const [english, german] = [WORDS.english, WORDS.german].map((list) => {
    const known = new Set(list.split(" "));
    return words.filter((word) => known.has(word)).length;
  });
  const lost = tokens.filter((_, i) => ids[i] === UNK_ID).join("").length / tokens.slice(1, -1).join("").length;
  const isLong = ids.length > LONGEST_CAPTION, stops = text.match(/\p{Ll}{3}[.!?]+\s+\p{Lu}/gu)?.length ?? 0;
  return [
    english > german && "This looks like English. The translator reads German.",
    lost > 0.3 && `${Math.round(100 * lost)} % of these characters are unknown to the model. It learned from German captions.`,
    isLong && `The model learned from captions of one sentence, the longest of ${LONGEST_CAPTION} subwords. `
      + `These are ${ids.length}: it may repeat itself. One sentence at a time goes better.`,
    !isLong && stops > 1 && "The model learned from single sentences, and may leave some of these out. One at a time goes better.",
  ].filter(Boolean).join(" ");
}

/**
 * Answer the page's messages: parts of the weights, then sentences. A newer message ends the work on an older sentence,
 * and one without a text does no more than that.
 */
function serve() {
  const parts = [];
  let newest, start;
  const started = new Promise((resolve) => (start = resolve));

  onmessage = ({ data: request }) => {
    const number = request.number ?? newest, answer = request.weights ? load : translate;
    answer(request).catch(({ message }) => postMessage({ kind: "error", number, text: message }));
  };

  async function load({ weights, isLast }) {
    parts.push(Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0)));
    if (!isLast) return;
    const settings = unpack(await new Blob(parts).arrayBuffer());
    start([new Transformer(settings), new SubwordTokenizer(settings), settings.search.length_penalty]);
  }

  async function translate({ number, text, beamSize, prefix }) {
    newest = number;
    const [model, tokenizer, tuned] = await started, penalty = beamSize > 1 ? tuned : 0, { max_len } = model.config;
    if (newest !== number || text === undefined) return;
    const letters = [...text.replace(/\s+/g, " ")].length;
    const most = `The model can read ${max_len} subwords, some ${Math.round((max_len * CHARACTERS_A_SUBWORD) / 100)}00 characters.`;
    if (letters > max_len * tokenizer.longest) { // before normalising, which takes long for what some texts hold
      throw new Error(`These are ${letters.toLocaleString("en")} characters. ${most}`);
    }
    const { tokens, ids } = tokenizer.encode(text);
    if (ids.length > max_len) throw new Error(`These are ${ids.length} subwords. ${most}`);
    postMessage({ kind: "read", number, tokens, remark: remark(text, { tokens, ids }) });
    const encoded = model.encode(ids), beams = [];
    const about = ({ ids, logProb, score }) =>
      ({ ids, logProb, score, text: tokenizer.decode(ids), token: tokenizer.pieces[ids.at(-1)] });
    let found, breath = performance.now();
    for (found of beamSearch(model, encoded.memory, beamSize, penalty, prefix)) {
      beams.push([...found.open, ...found.ended].map(about).sort((a, b) => b.logProb - a.logProb));
      postMessage({ kind: "step", number, text: beams.at(-1)[0].text,
        share: Math.min(beams.length / (WRITTEN_A_READ * ids.length), 0.95) });
      if (performance.now() - breath < 50) continue;
      await new Promise((resume) => setTimeout(resume)); // look for newer messages
      if (newest !== number) return;
      breath = performance.now();
    }
    const [{ ids: written, steps: said }] = found.finished, hypotheses = found.finished.map(about);
    const steps = said.map(({ stops, logits, logProbs }, i) => {
      const name = (id) => ({ id, token: tokenizer.pieces[id], logit: logits[id], logProb: logProbs[id] });
      const [input, chosen] = [written[i - 1] ?? SOS_ID, written[i]].map(name);
      const best = largest(logProbs, 6).map(name), rank = 1 + logProbs.filter((p) => p > chosen.logProb).length;
      return { input, chosen, rank, stops, best };
    });
    const maps = { encoder: encoded.maps, decoder: gather(said, "own"), cross: gather(said, "source") };
    postMessage({ kind: "done", number, prefix, beamSize, penalty, tokens, beams, hypotheses, steps, maps });
  }
}

/** One kind of a translation's maps: in each layer, each head's [steps, keys]. No step looks at a later one: 0. */
function gather(steps, kind) {
  const longest = steps.at(-1).maps[kind];
  return longest.map((heads, layer) => heads.map((row, head) => {
    const map = new Float32Array(steps.length * row.length);
    steps.forEach(({ maps }, i) => map.set(maps[kind][layer][head], i * row.length));
    return map;
  }));
}
