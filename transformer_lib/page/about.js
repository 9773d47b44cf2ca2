// What the page says of the model. The texts in body.html are those of the model that comes with the library; ABOUT, in
// generated.js, is what is known of the one that is here. So what holds for another model only goes, and what has a
// number gets its own. This runs before all else, once.
const LANGUAGES = ABOUT.languages.map((code) => {
  try {
    return code && new Intl.DisplayNames(["en"], { type: "language" }).of(code.replace("_", "-"));
  } catch { // no code of a language
    return code;
  }
});

const EXAMPLES = { // of the validation split; those of Multi30k stand in body.html
  sample: ["Der Lehrer geht in den Park, um eine Zeitung zu lesen.", "Der Schlitten, den die braunen Hunde ziehen, ist rot.",
    "Ein Wagen wird von einem müden Großvater gezogen.", "Die Hasen sind klein."],
};

WEIGHTS.megabytes = +((WEIGHTS.bytes * 4) / 3e6).toFixed(1); // as text

(() => {
  const { config, wholeWords, heads, corpus, examples, languages } = ABOUT, { d_model, num_heads, num_layers } = config;
  const all = (selector) => document.querySelectorAll(selector), source = LANGUAGES[0] ?? "source", d_k = d_model / num_heads;
  const number = (value) => value.toLocaleString("en"), root = Math.sqrt(d_k);
  const word = (value) => ["no", "one", "two", "three", "four", "five", "six", "seven", "eight"][value] ?? number(value);
  /** How many numbers the model has learned. */
  function weights() {
    const linear = (inputs, outputs) => (inputs + 1) * outputs, norm = 2 * d_model, { src_vocab_size: src, tgt_vocab_size: tgt } = config;
    const attention = 4 * linear(d_model, d_model), inner = linear(d_model, config.d_ff) + linear(config.d_ff, d_model);
    const layers = num_layers * (3 * attention + 2 * inner + 5 * norm) + (hasNorm ? 2 * norm : 0);
    const tables = (config.tie_embeddings ? tgt : src + 2 * tgt) + (isLearned ? 2 * config.max_len : 0);
    return layers + tables * d_model + tgt;
  }
  const hasNorm = config.norm_first || config.final_norm, isLearned = config.positions === "learned";
  const is = {
    shipped: heads, subwords: !wholeWords, pre_ln: config.norm_first, post_ln: !config.norm_first,
    final_norm: hasNorm, no_final_norm: !hasNorm, sinusoidal: !isLearned, learned: isLearned,
    tied: config.tie_embeddings, untied: !config.tie_embeddings,
    multi30k: corpus === "multi30k", sample: corpus === "sample", elsewhere: !corpus,
  };
  const facts = {
    source, target: LANGUAGES[1] ?? "target", a_source: `${/^[AEIOU]/.test(source) ? "An" : "A"} ${source}`,
    pieces: wholeWords ? "words" : "subwords", piece: wholeWords ? "word" : "subword",
    source_vocabulary: number(config.src_vocab_size), target_vocabulary: number(config.tgt_vocab_size),
    d_model: number(d_model), d_ff: number(config.d_ff), d_k, equals: root % 1 ? "≈" : "=", root_d_k: +root.toFixed(2),
    layers: num_layers, times: ["", "once", "twice"][num_layers] ?? `${word(num_layers)} times`,
    parameters: number(weights()), heads: num_heads === 1 ? "one head" : `${word(num_heads)} heads`,
    heads_find: num_heads === 1 ? "one head finds" : `${word(num_heads)} heads find`, all_heads: number(3 * num_layers * num_heads),
  };
  for (const one of all("[data-if]")) if (!is[one.dataset.if]) one.remove();
  for (const one of all("[data-fact]")) one.textContent = facts[one.dataset.fact];
  for (const one of all("[data-lang]")) one.lang = languages[one.dataset.lang === "source" ? 0 : 1] ?? "";
  for (const one of all("[data-says]")) { // what a box is called when it is open
    const { title, says } = one.dataset;
    one.dataset.title = says === "layers" ? title.replace("3", num_layers) : title.replace(/^\w+/, facts[says]);
  }
  if (!config.norm_first) { // the norm takes the sum, so that the attention stands lower, and the memory's way is longer
    for (const model of all(".model")) model.classList.add("post-ln");
    const [down, arrow] = all(".crossing path"), lower = 22.5; // pixels: a norm's height
    for (const crossing of all(".crossing")) crossing.setAttribute("viewBox", `0 0 38 ${129 + lower}`);
    down?.setAttribute("d", `M0 1H16Q24 1 24 9V${115 + lower}Q24 ${123 + lower} 29 ${123 + lower}`);
    arrow?.setAttribute("transform", `translate(0 ${lower})`);
    for (const norm of all(".sublayer .norm[data-box=norm]")) {
      norm.parentElement.querySelector("[data-box=add]").after(norm);
      norm.dataset.title = norm.dataset.title.replace("before", "after");
      norm.querySelector(".unseen").textContent = norm.querySelector(".unseen").textContent.replace("before", "after");
    }
  }
  if (!hasNorm) for (const norm of all("[data-box=last_norm]")) norm.remove();
  const isGerman = languages[0] === "de" && languages[1] === "en";
  const shown = examples.length ? examples : (isGerman && EXAMPLES[corpus]) || [];
  if (shown.length || !(isGerman && corpus === "multi30k")) {
    const button = (text) => Object.assign(document.createElement("button"), { name: "example", textContent: text });
    for (const group of all(".examples")) group.replaceChildren(...shown.map(button));
    for (const field of all("#german")) field.value = field.defaultValue = shown[0] ?? "";
  }
  if (!heads) for (const one of all("[data-sentence]")) delete one.dataset.sentence; // what each changes is known of one model
})();
