// Greedy and beam search, as in transformer_lib/inference/search.py. Both are generators: they stop after each step to
// show where they are. `prefix` is what the translation must begin with, such as an alternative that a reader picked.

/** Natural logarithms of the probabilities. <pad> and <sos> are ruled out: no training target ever was one. */
function logSoftmax(logits) {
  logits[PAD_ID] = logits[SOS_ID] = -Infinity;
  let largest = -Infinity, sum = 0;
  for (const logit of logits) if (logit > largest) largest = logit;
  for (const logit of logits) sum += Math.exp(logit - largest);
  return logits.map((logit) => logit - largest - Math.log(sum));
}

/** The places of the largest values, the largest first. */
function largest(values, count) {
  const places = [];
  for (let i = 0; i < values.length; i++) {
    if (places.length === count && !(values[i] > values[places[count - 1]])) continue;
    let at = places.length;
    while (at > 0 && values[i] > values[places[at - 1]]) at--;
    places.splice(at, 0, i);
    places.length = Math.min(places.length, count);
  }
  return places;
}

/** GNMT's lp = ((5 + length) / 6)^α, which keeps beams from being terse. */
const lengthPenaltyFactor = (length, penalty) => ((5 + length) / 6) ** penalty;

/** The paper lets an output be 50 tokens longer than its input, and the model has max_len positions. */
const lengthLimit = (model, srcIds) => Math.min(srcIds.length + 50, model.config.max_len);

/** Read the source and the prefix: {source, cache, logProb: of the prefix, next: log-probabilities of what follows}. */
function begin(model, srcIds, prefix) {
  const source = model.prepare(model.encode(srcIds)), cache = model.emptyCache();
  const read = (id) => logSoftmax(model.step([id], [cache], source)[0]);
  let next = read(SOS_ID), logProb = 0;
  for (const id of prefix) {
    logProb += next[id];
    if (id !== EOS_ID) next = read(id);
  }
  return { source, cache, logProb, next };
}

/** Take the most probable token at each step. Yields {ids} after each, and returns {ids, logProb, score}. */
function* greedySearch(model, srcIds, prefix = []) {
  let { source, cache, logProb, next } = begin(model, srcIds, prefix);
  const ids = [...prefix], limit = lengthLimit(model, srcIds);
  while (ids.at(-1) !== EOS_ID && ids.length < limit) {
    const [id] = largest(next, 1);
    ids.push(id);
    logProb += next[id];
    yield { ids: [...ids] };
    if (id !== EOS_ID) next = logSoftmax(model.step([id], [cache], source)[0]);
  }
  return { ids, logProb, score: logProb };
}

/**
 * Follow the `beamSize` most probable beginnings. One that is among them and ends in <eos> is finished; the others fill
 * the beam. Done when `beamSize` are finished and one of them scores at least as well as the best open one so far.
 * Yields {open, ended} after each step, lists of {ids, logProb, score}; returns all finished ones, best first.
 */
function* beamSearch(model, srcIds, beamSize, lengthPenalty, prefix = []) {
  const { source, cache, logProb, next } = begin(model, srcIds, prefix);
  const limit = lengthLimit(model, srcIds), finished = [];
  const scored = (ids, logProb) => ({ ids, logProb, score: logProb / lengthPenaltyFactor(ids.length, lengthPenalty) });
  if (prefix.at(-1) === EOS_ID || prefix.length >= limit) return [scored(prefix, logProb)];
  let beam = [{ ids: prefix, logProb, cache, next }];
  for (;;) {
    // twice the beam: even if half of them end here, the other half fills it again
    const candidates = beam.flatMap(({ ids, logProb, cache, next }) =>
      largest(next, 2 * beamSize).map((id) => ({ ...scored([...ids, id], logProb + next[id]), cache })),
    );
    candidates.sort((a, b) => b.logProb - a.logProb).splice(2 * beamSize);
    const outOfLength = candidates[0].ids.length >= limit;
    const isEnd = ({ ids }) => ids.at(-1) === EOS_ID;
    const ended = candidates.slice(0, beamSize).filter((one) => isEnd(one) || outOfLength);
    const open = candidates.filter((one) => !isEnd(one)).slice(0, beamSize);
    finished.push(...ended);
    const plain = ({ ids, logProb, score }) => ({ ids, logProb, score });
    yield { open: open.map(plain), ended: ended.map(plain) };
    const best = Math.max(...finished.map(({ score }) => score));
    if (outOfLength || (finished.length >= beamSize && best >= open[0].score)) break;
    // two may continue the same beginning, so each gets a cache of its own; the vectors in it are shared
    const copy = (layers) => layers.map(({ keys, values }) => ({ keys: [...keys], values: [...values] }));
    beam = open.map((one) => ({ ...one, cache: copy(one.cache) }));
    const logits = model.step(beam.map(({ ids }) => ids.at(-1)), beam.map(({ cache }) => cache), source);
    beam.forEach((one, row) => (one.next = logSoftmax(logits[row])));
  }
  finished.sort((a, b) => b.score - a.score);
  return finished.map(({ ids, logProb, score }) => ({ ids, logProb, score }));
}
