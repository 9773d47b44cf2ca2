// Runs beside the page, so that the page goes on while the model computes. The page starts it from the text of these
// functions: a page that was opened from a disk may start no worker from a file.

const LONGEST_CAPTION = 60; // subwords, of those that the model learned from: Multi30k's training split
const UNSURE = 0.38; // of the shipped model, the mean probability of what it writes: one caption in a hundred has less (beam of 4, Multi30k's test)
const CHARACTERS_A_SUBWORD = 4.4, WRITTEN_A_READ = 1.1; // German ones, and English subwords for each German one, or so
const WORDS = { // frequent in one language, and hardly to be met in the other
  english: "a the is are of with on to at and his two people while by",
  german: "ein eine einem einen einer eines der die das den dem und mit auf im ist sind zu von vor sich zwei",
};

/** What is unusual about a text for this model, in words, or "": not German, or longer than what it learned from. */
function remark(written, { tokens, ids }, { src, languages, corpus }) {
  const isOfCaptions = corpus === "multi30k", isGerman = languages[0] === "de" && languages[1] === "en", { unk } = src.specials;
  const pieces = src instanceof WordTokenizer ? "words" : "subwords";
  const text = written.normalize("NFC"), words = text.toLowerCase().match(/[\p{L}\p{M}]+/gu) ?? []; // "ä" is one letter
  const [english, german] = [WORDS.english, WORDS.german].map((list) => {
    const known = new Set(list.split(" "));
    return words.filter((word) => known.has(word)).length;
  });
  const lost = tokens.filter((_, i) => ids[i] === unk).join("").length / tokens.slice(1, -1).join("").length;
  const isLong = isOfCaptions && ids.length > LONGEST_CAPTION, stops = text.match(/\p{Ll}{3}[.!?]+\s+\p{Lu}/gu)?.length ?? 0;
  return [
    isGerman && english > german && "This looks like English. The translator reads German.",
    lost > 0.3 && `${Math.round(100 * lost)} % of these characters are unknown to the model.${isOfCaptions ? " It learned from German captions." : ""}`,
    isLong && `The model learned from captions of one sentence, the longest of ${LONGEST_CAPTION} subwords. `
      + `These ${pieces} are ${ids.length}: it may repeat itself. One sentence at a time goes better.`,
    isOfCaptions && !isLong && stops > 1 && "The model learned from single sentences, and may leave some of these out. One at a time goes better.",
  ].filter(Boolean).join(" ");
}

/** How unsure the model is of what it has written, in words, or "". The mean is geometric, as in a perplexity. */
function doubt({ ids, logProb }) {
  const mean = Math.exp(logProb / ids.length);
  return mean >= UNSURE ? "" : `The model is unsure of this: a word got ${Math.round(100 * mean)} % on average, where most captions `
    + "get more than 60 %. It knows captions of photos: write what a picture could show.";
}

/**
 * Answer the page's messages: parts of the weights, then sentences. A newer message ends the work on an older sentence,
 * and one without a text does no more than that. What the model computed for a token is told when the page asks for it.
 */
function serve() {
  const parts = [];
  let newest, start, last, plain; // the newest number, the last translation, and the last one of an unchanged model
  const started = new Promise((resolve) => (start = resolve));

  onmessage = ({ data: request }) => {
    const number = request.number ?? newest;
    if (request.place !== undefined) return number === last?.number && postMessage(explain(request.place, last));
    const answer = request.weights ? load : translate;
    answer(request).catch(({ message }) => postMessage({ kind: "error", number, text: message }));
  };

  async function load({ weights, isLast }) {
    parts.push(Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0)));
    if (!isLast) return;
    const settings = unpack(await new Blob(parts).arrayBuffer());
    start(settings);
  }

  async function translate({ number, text, beamSize, prefix: begin, changes }) {
    newest = number;
    const settings = await started, { src, tgt } = settings, { max_len } = settings.config, { sos } = settings.specials;
    const penalty = beamSize > 1 ? settings.search.length_penalty : 0;
    if (newest !== number || text === undefined) return;
    const letters = [...text.replace(/\s+/g, " ")].length;
    const pieces = src instanceof WordTokenizer ? "words and signs" : "subwords";
    const some = src instanceof WordTokenizer ? "" : `, some ${Math.max(1, Math.round((max_len * CHARACTERS_A_SUBWORD) / 100))}00 characters`;
    const most = `The model can read ${max_len} ${pieces}${some}.`;
    if (letters > max_len * src.longest) { // before normalising, which takes long for what some texts hold
      throw new Error(`These are ${letters.toLocaleString("en")} characters. ${most}`);
    }
    const { tokens, ids } = src.encode(text), limit = Math.min(ids.length + MOST_MORE, max_len);
    if (ids.length > max_len) throw new Error(`These are ${ids.length} ${pieces}. ${most}`);
    const prefix = beginning(begin, tgt, limit);
    postMessage({ kind: "read", number, tokens, remark: remark(text, { tokens, ids }, settings) });
    const about = ({ ids, logProb, score }) =>
      ({ ids, logProb, score, text: tgt.decode(ids), token: tgt.pieces[ids.at(-1)] });

    /** Search with a model; undefined if there is a newer message. */
    async function search(model) {
      const { memory, maps } = model.encode(ids), beams = [];
      let found, breath = performance.now();
      for (found of beamSearch(model, memory, beamSize, penalty, prefix)) {
        beams.push([...found.open, ...found.ended].map(about).sort((a, b) => b.logProb - a.logProb));
        postMessage({ kind: "step", number, text: beams.at(-1)[0].text,
          share: Math.min(beams.length / (WRITTEN_A_READ * ids.length), 0.95) });
        if (performance.now() - breath < 50) continue;
        await new Promise((resume) => setTimeout(resume)); // look for newer messages
        if (newest !== number) return;
        breath = performance.now();
      }
      return { ...found, beams, maps, memory };
    }

    const model = new Transformer(settings, changes), question = JSON.stringify([ids, beamSize, prefix]);
    if (model.isChanged && plain?.question !== question) {
      const found = await search(new Transformer(settings));
      if (!found) return;
      plain = { question, text: about(found.finished[0]).text };
    }
    const found = await search(model);
    if (!found) return;
    const highest = found.open.length ? found.open[0].logProb / ((5 + limit) / 6) ** penalty : -Infinity; // if the rest were certain
    const [{ ids: written, steps: said }] = found.finished, hypotheses = found.finished.map(about);
    if (!model.isChanged) plain = { question, text: hypotheses[0].text };
    last = { number, model, tgt, ids, written };
    const steps = said.map(({ logits, logProbs }, i) => {
      const name = namer(tgt, logits, logProbs);
      const [input, chosen] = [written[i - 1] ?? sos, written[i]].map(name);
      const best = largest(logProbs, 6).map(name), rank = 1 + logProbs.filter((p) => p > chosen.logProb).length;
      return { input, chosen, rank, best };
    });
    const lastRead = () => model.read("decoder", [sos, ...written.slice(0, -1)], found.memory).layers;
    const decoder = changes.mask ? gather(said, "own") : lastRead().map(({ self_attn }) => self_attn.maps);
    const maps = { encoder: found.maps, decoder, cross: gather(said, "source") };
    const { changes: all, isChanged } = model, asked = { number, prefix, beamSize, penalty, changes: all, isChanged };
    const isItsOwn = settings.heads && !isChanged && !prefix.length, unsure = isItsOwn ? doubt(found.finished[0]) : "";
    const shown = { plain: plain.text, unsure, mightRise: highest > found.finished[0].score, tokens, ids, beams: found.beams, hypotheses, steps, maps };
    postMessage({ kind: "done", ...asked, ...shown });
  }
}

/**
 * The ids that a translation is to begin with, of ids, or of tokens as an address names them: none if the model does not
 * have all of these tokens, or could not write so many.
 */
function beginning(tokens, { ids: known, specials: { unk, eos } }, most) {
  const special = { "<unk>": unk, "<eos>": eos };
  const ids = tokens.map((token) => (typeof token === "string" ? special[token] ?? known.get(token) : token));
  const isWritten = (id, i) => id !== undefined && (id !== eos || i === ids.length - 1);
  return ids.length <= most && ids.every(isWritten) ? ids : [];
}

/** What a token was, by its id, and what a step said of it. */
const namer = ({ pieces }, logits, logProbs) =>
  (id) => ({ id, token: pieces[id], logit: logits[id], logProb: logProbs[id] });

/** All that the model computed for the token at a place of a translation; of the lens, the best 3 at each position. */
function explain(place, { number, model, tgt, ids, written }) {
  const { lens, ...computed } = model.trace(ids, [model.specials.sos, ...written.slice(0, place)]);
  const rows = (logits) => split(logits, tgt.pieces.length).map((row) => {
    const logProbs = logSoftmax(row, model.specials);
    return largest(logProbs, 3).map(namer(tgt, row, logProbs));
  });
  return { kind: "trace", number, place, ...computed, lens: lens.map(rows) };
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
