// Beam search, as in transformer_lib/inference/search.py. With a beam of 1 it is greedy search.

/** Natural logarithms of the probabilities. <pad> and <sos> are ruled out: no training target ever was one. */
const logSoftmax = (logits, { pad, sos }) =>
  softmax(logits.map((logit, id) => (id === pad || id === sos ? -Infinity : logit))).map((p) => Math.log(p));

/** The places of the largest values, the largest first. */
function largest(values, count) {
  const left = values.slice();
  return Array.from({ length: Math.min(count, left.length) }, () => {
    const place = left.reduce((best, value, i) => (value > left[best] ? i : best), 0);
    left[place] = -Infinity;
    return place;
  });
}

const MOST_MORE = 50; // tokens that a translation may be longer than its source, as in the paper

/**
 * Follow the `beamSize` most probable beginnings. One that is among them and ends in <eos> is finished; the others fill
 * the beam. Done when `beamSize` are finished and one of them scores at least as well as the best open one so far.
 *
 * memory: the encoder's. prefix: ids that the translation must begin with, such as an alternative that a reader picked.
 * Yields {open, ended, finished} after each step: lists of {ids, logProb, score, steps: what the model said at each},
 * the last of all that ended so far, best score first.
 */
function* beamSearch(model, memory, beamSize, lengthPenalty, prefix = []) {
  const { config: { d_model, max_len }, specials } = model;
  const limit = Math.min(memory.length / d_model + MOST_MORE, max_len); // the model has max_len positions
  let open = [{ ids: [], logProb: 0, cache: model.startCache(memory), steps: [] }], finished = [];
  for (let length = 1; ; length++) {
    const read = model.step(open.map(({ ids }) => ids.at(-1) ?? specials.sos), open.map(({ cache }) => cache));
    const factor = ((5 + length) / 6) ** lengthPenalty; // GNMT's lp, which keeps beams from being terse
    const candidates = open.flatMap((beginning, row) => {
      const { cache, ...step } = read[row], logProbs = logSoftmax(step.logits, specials);
      const steps = [...beginning.steps, { ...step, logProbs }];
      // twice the beam: even if half of them end here, the other half fills it again
      const next = length <= prefix.length ? [prefix[length - 1]] : largest(logProbs, 2 * beamSize);
      return next.map((id) => {
        const logProb = beginning.logProb + logProbs[id];
        return { ids: [...beginning.ids, id], logProb, score: logProb / factor, cache, steps };
      });
    });
    candidates.sort((a, b) => b.logProb - a.logProb);
    const ends = ({ ids }) => ids.at(-1) === specials.eos || length === limit;
    const ended = candidates.slice(0, beamSize).filter(ends);
    open = candidates.filter((one) => !ends(one)).slice(0, beamSize);
    finished = [...finished, ...ended].sort((a, b) => b.score - a.score);
    yield { open, ended, finished: finished.slice(0, beamSize) };
    if (!open.length || (finished.length >= beamSize && finished[0].score >= open[0].score)) return;
  }
}
