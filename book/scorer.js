// The search puts chapters before other pages, and solutions, which say the same once more, last.
Scorer.score = ([page, , , , score]) =>
  score + (page.startsWith("notebooks/solutions/") ? -100 : page.startsWith("notebooks/") ? 5 : 0)
