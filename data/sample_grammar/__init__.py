"""The grammar that writes the sample corpus: words, morphology, phrases, clauses, sentence patterns, sampling."""
