// The page "Try it": what the reader sees and touches. Its form stands in try_it.md; worker.js does the computing;
// generated.js holds the worker's source, the size of the weights, and the notebooks' attention viewer.
// Text reaches the page as text only, never as HTML.
(() => {
  const host = document.getElementById("translator"), find = (selector) => host.querySelector(selector);
  const form = find("form"), input = find("textarea"), go = find(".go"), progress = find("progress");
  const status = find(".status"), results = find(".results"), sources = find(".source"), targets = find(".target");
  const text = find(".translation"), panel = find(".panel"), tabs = [...find(".tabs").children];
  const TABS = { Alternatives: showAlternatives, Attention: showAttention, Beam: showBeam, "One step": showStep };
  const KINDS = [ // of attention, as in attention_viewer.py; rows and columns name lists of `words`
    ["encoder", "Encoder self-attention", "Source word", "Source words it looks at", "source", "source"],
    ["decoder", "Decoder self-attention", "Target word read", "Words it looks at", "inputs", "inputs"],
    ["cross", "Cross-attention", "Target word being written", "Source words looked at", "target", "source"],
  ];
  const LONGEST_DRAWN = 100; // tokens; larger maps cannot be seen
  let worker, ready = false, waiting; // `waiting`: the request that is sent when the weights are there
  let newest = 0, shown, chosen = 0, tab = "Alternatives"; // `chosen`: the place of a token of the translation `shown`

  /** Make an element; attributes that are functions listen: {onclick: …}. */
  function element(tag, attributes = {}, ...children) {
    const inSvg = ["svg", "path", "text", "rect", "g"].includes(tag);
    const made = document.createElementNS(`http://www.w3.org/${inSvg ? "2000/svg" : "1999/xhtml"}`, tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }
  const button = (label, onclick) => element("button", { type: "button", onclick }, ...[label].flat());
  const p = (...children) => element("p", {}, ...children);
  const scroller = (name, content) =>
    element("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": name }, content);
  const table = (rows, heads = []) => element("table", {},
    element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head))),
    ...rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell)))));
  const fixed = (value, digits = 2) => value.toFixed(digits).replace("-", "−");
  const percent = (logProb) => `${(100 * Math.exp(logProb)).toFixed(1)} %`;
  const order = (values) => values.map((_, i) => i).sort((a, b) => values[b] - values[a]); // the largest first

  /** A token as people read it: ▁ begins a word, · continues one. */
  function readable(token) {
    const text = token.replaceAll("▁", " ").trim();
    return (!token.startsWith("▁") && /^[\p{L}\p{N}]/u.test(text) ? "·" : "") + text || "␣";
  }

  /** Start the worker and load the weights, one script after another. */
  async function load() {
    try {
      worker = new Worker(URL.createObjectURL(new Blob([WORKER_SOURCE, "\nserve();"], { type: "text/javascript" })));
    } catch (error) {
      status.textContent = `This browser lets no worker run here (${error.message}). One of 2022 or later does.`;
      return;
    }
    worker.onmessage = ({ data }) => receive(data);
    worker.onerror = ({ message }) => (status.textContent = `The model stopped: ${message}`);
    window.receiveWeights = (part, weights) => worker.postMessage({ weights, part, parts: WEIGHTS.parts });
    progress.hidden = false;
    progress.max = WEIGHTS.parts;
    go.disabled = true;
    status.textContent = `Loading ${WEIGHTS.megabytes} MB …`;
    for (let part = 0; part < WEIGHTS.parts; part++) {
      const script = element("script", { src: `translator/weights_${`${part}`.padStart(2, "0")}.js` });
      const loaded = new Promise((resolve, reject) => Object.assign(script, { onload: resolve, onerror: reject }));
      document.head.append(script);
      try {
        await loaded;
      } catch {
        status.textContent = "A part of the model could not be loaded. Please load the page again.";
        return;
      }
      progress.value = part + 1;
      script.remove();
    }
  }

  /** Ask for a translation that begins with `prefix`, a list of ids. */
  function send(prefix = []) {
    waiting = { number: ++newest, text: input.value, beamSize: Number(form.elements.search.value), prefix };
    if (!worker) load();
    if (!ready) return;
    status.textContent = "Translating …";
    worker.postMessage(waiting);
  }

  function receive(message) {
    if (message.kind === "ready") {
      [ready, progress.hidden, go.disabled, go.textContent] = [true, true, false, "Translate"];
      status.textContent = "Translating …";
      worker.postMessage(waiting);
    } else if (message.number !== newest) {
      return; // of a sentence that nobody waits for any more
    } else if (message.kind === "error") {
      status.textContent = message.text;
      results.classList.remove("busy");
    } else if (message.kind === "step") {
      results.hidden = false;
      results.classList.add("busy");
      text.ariaBusy = true; // a screen reader waits for the whole
      text.textContent = `${message.text} …`;
    } else {
      show(message);
    }
  }

  function show(result) {
    const { steps, prefix } = (shown = result);
    const [written, read] = [steps.map(({ chosen }) => chosen.token), steps.map(({ token }) => token)];
    const [source, target, inputs] = [result.tokens, written, read].map((tokens) => tokens.map(readable));
    const words = (shown.words = { source, target, inputs });
    results.hidden = false;
    results.classList.remove("busy");
    status.textContent = "";
    text.textContent = result.best.text || "(nothing)";
    text.ariaBusy = false;
    sources.replaceChildren(...words.source.map((word) => element("li", {}, word)));
    targets.replaceChildren(...steps.map(({ chosen: { logProb } }, i) => {
      const made = button([words.target[i], element("small", {}, ` ${percent(logProb)}`)], () => choose(i));
      made.onpointerenter = made.onfocus = () => look(i);
      made.onpointerleave = () => look(chosen);
      return made;
    }));
    choose(Math.max(0, prefix.length - 1));
    find(".again").replaceChildren();
    if (!prefix.length) return;
    const afresh = button("Let the model begin afresh", () => send());
    find(".again").append(`You picked “${words.target[chosen]}”; the model went on from there. `, afresh);
    targets.children[chosen].focus({ preventScroll: true });
  }

  /** Show one token of the translation, and what belongs to it in the open tab. */
  function choose(place) {
    chosen = place;
    [...targets.children].forEach((one, i) => one.setAttribute("aria-pressed", i === place));
    look(place);
    open(tab);
  }

  function open(name) {
    tab = name;
    for (const one of tabs) {
      one.setAttribute("aria-selected", one.textContent === name);
      one.tabIndex = one.textContent === name ? 0 : -1;
    }
    panel.setAttribute("aria-label", name);
    TABS[name]();
  }

  const rowOf = (map, place, words) => map.slice(place * words.length, (place + 1) * words.length);

  /** Shade the source by what a token's step looked at: the mean of the last layer's heads. */
  function look(place) {
    const words = shown.words.source, rows = shown.kinds.cross.at(-1).map((map) => rowOf(map, place, words));
    const weights = words.map((_, j) => rows.reduce((sum, row) => sum + row[j], 0) / rows.length / 1000);
    weights.forEach((weight, j) => sources.children[j].style.setProperty("--weight", weight));
    const most = order(weights).slice(0, 2).map((j) => `“${words[j]}” ${weights[j].toFixed(2)}`).join(" and ");
    find(".looks").textContent =
      `Writing “${shown.words.target[place]}”, it looks most at ${most} (last layer, mean of its heads).`;
  }

  function showAlternatives() {
    const { best, chosen: written } = shown.steps[chosen], before = shown.best.ids.slice(0, chosen);
    const all = best.some(({ id }) => id === written.id) ? best : [...best, written];
    const items = all.map(({ id, token, logProb }) => {
      const bar = element("span", { class: "bar", style: `--share: ${Math.exp(logProb)}` });
      const content = [element("b", {}, readable(token)), ` ${percent(logProb)} `, bar];
      if (id === written.id) return element("li", { class: "written" }, ...content, " written");
      return element("li", {}, button(content, () => send([...before, id])));
    });
    const place = chosen ? `after “${shown.words.target.slice(0, chosen).join(" ")}”` : "at the beginning";
    panel.replaceChildren(p(`What the model might have written ${place}. Pick one, and it goes on from there.`),
      element("ol", { class: "alternatives" }, ...items));
  }

  /** The notebooks' viewer, with this translation's maps, at the kind, layer and head where the reader left it. */
  function showAttention() {
    if (Math.max(shown.tokens.length, shown.steps.length) > LONGEST_DRAWN) {
      return panel.replaceChildren(p(`Maps are drawn for up to ${LONGEST_DRAWN} subwords.`));
    }
    const { words, kinds } = shown;
    const within = (viewer, selector) => [...(viewer?.shadowRoot.querySelectorAll(selector) ?? [])];
    if (!shown.viewer) {
      const before = within(showAttention.last, "select").map((menu) => menu.selectedIndex);
      const data = KINDS.map(([kind, name, rowTitle, columnTitle, rows, columns]) =>
        ({ name, rowTitle, columnTitle, rows: words[rows], columns: words[columns], layers: kinds[kind] }));
      shown.viewer = showAttention.last = element("div", { class: "attention-viewer" },
        element("script", { type: "application/json" }, JSON.stringify(data)));
      panel.replaceChildren(shown.viewer);
      startViewers();
      within(shown.viewer, "select").forEach((menu, i) => {
        if (before.length) menu.selectedIndex = before[i], menu.dispatchEvent(new Event("change"));
      });
    }
    if (!shown.viewer.isConnected) panel.replaceChildren(shown.viewer);
    const ofTarget = within(shown.viewer, "select")[0].selectedIndex > 0; // the encoder's rows are source words
    if (ofTarget) within(shown.viewer, ".queries input")[chosen].click();
  }

  /** The beam as a tree: a column for each step, the most probable beginning on top. */
  function showBeam() {
    const { beams, best, hypotheses, penalty, prefix } = shown;
    if (!beams) return panel.replaceChildren(p("Greedy search follows one beginning. Choose “Beam of 4” above."));
    const WIDTH = 112, HEIGHT = 34, places = new Map(), edges = [], nodes = [];
    const draw = (ids, token, note, [x, y], classes) => {
      places.set(`${ids}`, [x, y]);
      const word = readable(token), label = `${word.length > 8 ? `${word.slice(0, 7)}…` : word} ${note}`;
      const [left, top] = [x * WIDTH, y * HEIGHT];
      nodes.push(element("g", { class: classes },
        element("rect", { x: left + 2, y: top + 3, width: WIDTH - 26, height: HEIGHT - 8, rx: 4 }),
        element("text", { x: left + 8, y: top + 20 }, label)));
    };
    draw(prefix, prefix.length ? shown.steps[prefix.length - 1].chosen.token : "<sos>", "", [0, 0], "best");
    beams.forEach((beginnings, step) => order(beginnings.map((one) => one.logProb)).forEach((i, rank) => {
      const { ids, token, logProb } = beginnings[i], [fromX, fromY] = places.get(`${ids.slice(0, -1)}`);
      const onBest = ids.every((id, at) => id === best.ids[at]);
      const classes = `${onBest ? "best" : ""} ${token === "<eos>" ? "ended" : ""}`;
      draw(ids, token, fixed(logProb, 1), [step + 1, rank], classes);
      const [x1, y1] = [(fromX + 1) * WIDTH - 24, fromY * HEIGHT + 16];
      const [x2, y2] = [(step + 1) * WIDTH + 2, rank * HEIGHT + 16];
      edges.push(element("path", { class: classes, d: `M${x1} ${y1}C${x1 + 14} ${y1} ${x2 - 14} ${y2} ${x2} ${y2}` }));
    }));
    const rows = Math.max(1, ...beams.map(({ length }) => length));
    const svg = element("svg", { class: "tree", role: "img", width: (beams.length + 1) * WIDTH, height: rows * HEIGHT,
      "aria-label": "The beam as a tree, step by step. What it finished is listed below." }, ...edges, ...nodes);
    const lines = hypotheses.map(({ logProb, score, text }) =>
      [fixed(logProb), (logProb / score).toFixed(2), fixed(score), text]);
    panel.replaceChildren(
      p("Each column is a step: the four most probable beginnings with the logarithm of their probability, best on " +
        "top, and what ended (dashed). The translation is blue."),
      scroller("The beam", svg),
      scroller("Finished", table(lines, ["log-probability", "÷ length penalty", "= score", "finished hypothesis"])),
      p(`The length penalty is ((5 + length) / 6)^${penalty}. A score nearer to 0 is better.`),
    );
  }

  /** A vector: its numbers as colours, blue above zero and orange below, and the first few of them in figures. */
  function vector(name, values, note = "") {
    const canvas = element("canvas", { width: values.length, height: 1, "aria-hidden": "true" });
    const image = new ImageData(values.length, 1);
    const strong = 2 * Math.sqrt(values.reduce((sum, value) => sum + value ** 2, 0) / values.length); // not the largest
    values.forEach((value, i) => {
      const colour = value < 0 ? [230, 120, 0] : [47, 126, 216];
      image.data.set([...colour, Math.min(255, (255 * Math.abs(value)) / strong)], 4 * i);
    });
    canvas.getContext("2d").putImageData(image, 0, 0);
    const figures = element("code", {}, `[${[...values.slice(0, 4)].map((v) => fixed(v)).join(", ")}, …]`);
    return element("li", {}, element("span", { class: "name" }, name), canvas, figures, ...(note ? [p(note)] : []));
  }

  /** One step of the decoder as a chain of boxes. */
  function showStep() {
    const { words, steps, kinds, beams, prefix } = shown;
    const { stops, best, chosen: written, input: id } = steps[chosen];
    const values = Object.fromEntries(stops); // the last of each name
    const logSum = best[0].logit - best[0].logProb, rank = best.findIndex((one) => one.id === written.id);
    const move = (name, place) => {
      const made = button(name, () => { if (steps[place]) choose(place), find(`nav button[name="${name}"]`).focus(); });
      made.name = name;
      made.setAttribute("aria-disabled", !steps[place]);
      return made;
    };
    const peak = (kind, words, layer) => { // which head looks at one word most
      const rows = kinds[kind][layer].map((map) => rowOf(map, chosen, words));
      const peaks = rows.map((row) => Math.max(...row)), [head] = order(peaks), [j] = order(rows[head]);
      return `The sharpest look: head ${head + 1} at “${words[j]}”, ${(peaks[head] / 1000).toFixed(2)}`;
    };
    const box = (title, ...content) => element("li", {}, element("p", { class: "title" }, title), ...content);
    const list = (...items) => element("ul", {}, ...items);
    const layers = kinds.cross.map((_, l) => {
      const [own, cross, inner] = stops.slice(3 + 3 * l, 6 + 3 * l).map(([, values]) => values);
      return box(`Decoder layer ${l + 1}`, list(vector("+ self-attention", own, peak("decoder", words.inputs, l)),
        vector("+ cross-attention", cross, peak("cross", words.source, l)), vector("+ feed-forward", inner)));
    });
    const ids = words.inputs.slice(0, chosen + 1).map((word, i) =>
      element("span", { class: i === chosen ? "id newest" : "id" }, `${word} ${steps[i].input}`));
    const how = chosen < prefix.length ? "You picked it, or something after it."
      : beams ? "The best hypothesis of the beam has it here." : "Greedy search takes the most probable token.";
    const place = ["an improbable one", "the most probable"][rank + 1] ?? `number ${rank + 1} by probability`;
    panel.replaceChildren(
      element("nav", { "aria-label": "Steps" }, move("Previous step", chosen - 1),
        element("b", { role: "status" }, `Step ${chosen + 1} of ${steps.length}`), move("Next step", chosen + 1)),
      element("ol", { class: "chain" },
        box("Ids", p(...ids),
          p("Only the newest is read now. Of the others, each layer has kept keys and values.")),
        box("Vectors of 256 numbers", list(vector(`16 × row ${id} of the table`, values.token),
          vector(`+ position ${chosen}`, values.position), vector("= what enters", values.sum))),
        ...layers,
        box("Logits", list(vector("last LayerNorm: x", values.norm)),
          p("x · row of the table + bias, for each token of the vocabulary. The largest:"),
          table(best.map((one) => [readable(one.token), `x · row ${one.id} + bias`, fixed(one.logit)]))),
        box("Softmax", p(`e^(logit − L), where L = ${fixed(logSum)} is the logarithm of the sum of all e^logit:`),
          table(best.map(({ token, logit, logProb }) =>
            [readable(token), `e^(${fixed(logit)} − ${fixed(logSum)})`, percent(logProb)]))),
        box("Choice", p(element("b", {}, readable(written.token)), ` ${percent(written.logProb)}, ${place}. ${how}`)),
      ),
    );
  }

  form.onsubmit = (event) => { event.preventDefault(), send(); };
  form.onchange = (event) => event.target.type === "radio" && shown && send();
  find(".examples").onclick = ({ target }) => {
    if (target.type === "button") input.value = target.textContent, send();
  };
  input.onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) event.preventDefault(), send();
  };
  find(".tabs").onclick = ({ target }) => target.role !== "tablist" && open(target.textContent);
  find(".tabs").onkeydown = ({ key, target }) => {
    const step = { ArrowRight: 1, ArrowLeft: tabs.length - 1 }[key];
    const next = step && tabs[(tabs.indexOf(target) + step) % tabs.length];
    if (next) next.focus(), open(next.textContent);
  };
  go.textContent = `Load the model (${WEIGHTS.megabytes} MB) and translate`;
  find(".needs").hidden = true;
  form.hidden = false;
})();
