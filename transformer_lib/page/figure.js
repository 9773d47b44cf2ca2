// Figure 1 of the page "Try it": the reader presses a box, and sees what the model computed there for this sentence.
// Texts and lines of code are in try_it.md. The numbers are those of model.js, by the names of the library's modules.

function figureOne({ find, fill, element, row, fixed, percent, readable, order }, ask) {
  const [BLUE, ORANGE] = [[47, 126, 216], [230, 120, 0]], MOST = 64; // words, of more nobody could read the tables
  const { norm_first, final_norm } = ABOUT.config, ENTERS = norm_first ? "y" : "x", hasNorm = norm_first || final_norm;
  const picked = { layer: 0, head: 0, encoder: 1, decoder: Infinity }; // the last two: words; Infinity is the newest
  let box = find(".model .attention[data-part=cross_attn]"); // which is open
  let isPicked = false; // whether somebody has asked for what is open
  let whenDrawn; // what waits for the panel's numbers
  let shown, words, now, trace; // a translation, its tokens, a place in it, and what was computed there

  /** The numbers of a vector as colours, blue above zero and orange below. */
  function colours(values) {
    const canvas = element("canvas", { width: values.length, height: 1, ariaHidden: true });
    const image = new ImageData(values.length, 1);
    const usual = Math.sqrt(values.reduce((sum, value) => sum + value ** 2, 0) / values.length) || 1;
    values.forEach((value, i) => {
      image.data.set([...(value < 0 ? ORANGE : BLUE), (128 * Math.abs(value)) / usual], 4 * i); // which ends at 255
    });
    canvas.getContext("2d", { willReadFrequently: true }).putImageData(image, 0, 0);
    return canvas;
  }

  /** A list of vectors, each with its name, its colours, its first numbers, how many it has, and a note. */
  const vectors = (...all) => element("ul", { className: "vectors" }, ...all.map(([name, values, note = ""]) => {
    const figures = Array.from(values.slice(0, 4), (value) => fixed(value)).join(", ");
    return element("li", {}, element("span", { className: "name" }, name), colours(values),
      element("code", {}, `[${figures}, …]`), element("small", {}, `${values.length} numbers`), element("p", {}, note));
  }));

  /** Row i of a matrix that has so many. */
  const rowAt = (matrix, i, rows) => matrix.subarray((i * matrix.length) / rows, ((i + 1) * matrix.length) / rows);

  function table(head, rows, chosen) {
    const titles = element("tr", {}, ...head.map((cell) => element("th", { scope: "col" }, cell)));
    const body = element("tbody", {}, ...rows.map((cells) => row(...cells)));
    body.children[chosen]?.classList.add("chosen");
    const made = element("table", {}, element("thead", {}, titles), body);
    return element("div", { className: "scroller", tabIndex: 0, role: "region", ariaLabel: head.join(", ") }, made);
  }

  /** What the steps of the pressed box need: its stack and sub-layer, and `of`, which takes a word's row of a matrix */
  function place() {
    const { stack } = box.closest("[data-stack]").dataset, { part } = box.dataset, isSource = stack === "encoder";
    const all = trace[isSource ? "source" : "target"], read = shown.steps.slice(0, trace.place + 1);
    const names = isSource ? words.source : words.inputs.slice(0, trace.place + 1);
    const ids = isSource ? shown.ids : read.map(({ input }) => input.id);
    const word = Math.min(picked[stack], names.length - 1), of = (matrix, i = word) => rowAt(matrix, i, names.length);
    const passed = [all.x, ...all.layers.map(({ feed_forward }) => feed_forward.leaves)]; // between the layers
    const computed = all.layers[picked.layer][part] ?? { unnormed: passed.at(-1), norm: all.output }; // of the last norm
    return { stack, part, all, names, ids, word, name: names[word], of, passed, ...computed };
  }

  /** What an attention's steps need beside: the chosen head's `own` part of a vector, and its dots and weights. */
  function head({ stack, part, names, word, keys, dots, maps, of }) {
    const isCross = part === "cross_attn", kind = isCross ? "cross" : stack, size = keys[0].length / maps.length;
    const isSilent = (h) => shown.changes.silenced.includes(`${kind} ${picked.layer + 1}.${h + 1}`);
    const own = (vector, h = picked.head) => vector.subarray(h * size, (h + 1) * size);
    const hides = (j) => kind === "decoder" && shown.changes.mask && j > word;
    const title = `head ${picked.head + 1}`, looked = isCross ? words.source : names;
    const [products, weights] = [dots, maps].map((all) => of(all[picked.head]));
    return { kind, size, isSilent, own, hides, title, looked, products, weights };
  }

  const STEPS = { // what is shown under each text of try_it.md, by its data-step
    ids: ({ names, ids, word }) => [table(["token", "id"], names.map((name, i) => [name, ids[i]]), word)],
    embedding({ all, of, ids, word }) {
      const times = Math.sqrt(of(all.tokens).length), rowOfTable = of(all.tokens).map((value) => value / times);
      return [vectors([`row ${ids[word]} of the table`, rowOfTable], [`× √${Math.round(times ** 2)} ${times % 1 ? "≈" : "="} ${+times.toFixed(2)}`, of(all.tokens)])];
    },
    positions: ({ all, of, word, name }) =>
      [vectors([`“${name}”`, of(all.tokens)], [`+ position ${word}`, of(all.places)], ["= what enters", of(all.x)])],
    norm({ unnormed, norm, of }) {
      const x = of(unnormed), mean = x.reduce((a, b) => a + b) / x.length;
      const deviation = Math.sqrt(x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length);
      const note = `mean ${fixed(mean)}, standard deviation ${fixed(deviation)}`;
      return [vectors(["x, what enters", x, note], ["y, normalised", of(norm)])];
    },
    query(at) {
      const { title, own } = head(at);
      return [vectors([`${ENTERS} of “${at.name}”`, at.of(at.reads)], [`q, ${title}`, own(at.of(at.q))])];
    },
    scores(at) {
      const { kind, looked, size, own, hides, products, weights } = head(at), { scale, mask } = shown.changes;
      const masked = (cell) => (kind === "decoder" ? [cell] : []), sees = mask ? "sees" : "no mask";
      const titles = ["looks at", "k", "q · k", scale ? `÷ √${size}` : "not divided", ...masked("mask"), "weight", "v"];
      return [table(titles, looked.map((name, j) => [name, colours(own(at.keys[j])), fixed(products[j]),
        fixed(products[j] / (scale ? Math.sqrt(size) : 1)), ...masked(hides(j) ? "−∞" : sees),
        element("span", { className: "bar", style: `--share: ${weights[j]}` }, fixed(weights[j], 3)),
        colours(own(at.values[j]))]), order(weights)[0])];
    },
    average(at) {
      const { title, looked, own, weights, isSilent } = head(at), best = order(weights).slice(0, 3);
      const parts = best.map((j) => [`${fixed(weights[j], 3)} × v of “${looked[j]}”`, own(at.values[j])]);
      const rest = looked.length > 3 ? `The other ${looked.length - 3} are in it, too.` : "";
      const note = isSilent(picked.head) ? "This head is silenced: it finds nothing." : rest;
      return [vectors(...parts, [`= what ${title} finds`, own(at.of(at.joined)), note])];
    },
    joined(at) {
      const { own, isSilent } = head(at), joined = at.of(at.joined);
      const parts = at.maps.map((_, h) => [`head ${h + 1}${isSilent(h) ? ", silenced" : ""}`, own(joined, h)]);
      return [vectors(...parts, ["end to end", joined], [element("span", {}, "W", element("sub", {}, "O"), " · that + bias"), at.of(at.out)])];
    },
    feed_forward({ reads, inner, out, of }) {
      const note = `${of(inner).filter((value) => value > 0).length} of them are above 0`;
      return [vectors([`${ENTERS}, what enters`, of(reads)], [`max(0, W₁ ${ENTERS} + b₁)`, of(inner), note], ["W₂ · that + b₂", of(out)])];
    },
    add({ part, enters, out, sum, of }) {
      const what = part === "feed_forward" ? "feed-forward" : "attention";
      return [vectors(["x, what entered", of(enters)], [`+ what ${what} found`, of(out)], ["= what goes on", of(sum)])];
    },
    layers: ({ passed, of, name }) =>
      [vectors(...passed.map((x, l) => [l ? `after layer ${l}` : `“${name}” as it enters`, of(x)]))],
    lens({ names, word }) {
      const last = (position) => trace.lens.at(-1)[position][0].id;
      const token = ({ id, token }, position) => element(id === last(position) ? "b" : "span", {}, readable(token));
      const rows = (cells) => trace.lens.map((found, l) => [l ? `layer ${l}` : "embedding", ...cells(found)]);
      const sure = (one) => element("span", {}, token(one, word), ` ${percent(one.logProb)}`);
      return [table(["after", "1st", "2nd", "3rd"], rows((found) => found[word].map(sure))),
        table(["after", ...names.map((name) => `${name} →`)], rows((found) => found.map(([first], i) => token(first, i))))];
    },
    memory: ({ all, of, names }) => [vectors(...names.map((name, i) => [name, of(all.output, i)]))],
    logits({ all, names, of }) {
      const best = ({ id, token, logit }) => [readable(token), `x · row ${id} + bias`, fixed(logit)];
      return [vectors([hasNorm ? "x, after the last norm" : "x", of(all.output, names.length - 1)]),
        table(["token", "how", "logit"], shown.steps[trace.place].best.map(best))];
    },
    softmax() {
      const { best } = shown.steps[trace.place], sum = fixed(best[0].logit - best[0].logProb);
      return [table(["token", `e^(logit − L), L = ${sum}`, "probability"], best.map(({ token, logit, logProb }) =>
        [readable(token), `e^(${fixed(logit)} − ${sum})`, percent(logProb)]))];
    },
    next() {
      const { chosen, rank } = shown.steps[trace.place];
      return [element("b", {}, readable(chosen.token)), ` ${percent(chosen.logProb)}, number ${rank} of all.`];
    },
  };

  /** Fill the panel with the steps of the pressed box. */
  function draw() {
    const at = place(), { stack, part } = at, kind = box.dataset.box;
    const label = (name, i) => (stack === "encoder" ? name : `${name} → ${words.target[i]}`);
    fill(".panel .title", box.dataset.title);
    const menus = { layer: at.all.layers.map((_, l) => l + 1), head: at.maps?.map((_, h) => h + 1), word: at.names.map(label) };
    const isOfOne = { layer: at.all.layers[0][part], head: at.maps && kind === "attention", word: !box.matches(".of-all") };
    for (const name in menus) {
      const menu = find(`.panel [name=${name}]`), option = (label, value) => element("option", { value }, label);
      menu.replaceChildren(...(menus[name] ?? []).map(option));
      menu.value = name === "word" ? at.word : picked[name];
      menu.parentElement.hidden = !isOfOne[name];
    }
    for (const section of find(".panel").querySelectorAll("[data-of]")) {
      const { of, only, step } = section.dataset, names = (list) => list?.split(" ") ?? [];
      section.hidden = !names(of).includes(kind) || !names(only).every((name) => [stack, part].includes(name));
      if (step && !section.hidden) section.querySelector(".numbers").replaceChildren(...STEPS[step](at));
    }
    find(".panel").setAttribute("aria-busy", false);
    whenDrawn?.();
    whenDrawn = undefined;
  }

  /** The words at the bottom of the figure, the probabilities on top, and which box is open. */
  function flow() {
    const { best } = shown.steps[now], read = { encoder: words.source, decoder: words.inputs.slice(0, now + 1) };
    for (const stack in read) {
      const isOpen = !box.matches(".of-all") && box.closest(`[data-stack=${stack}]`);
      const chosen = isOpen && Math.min(picked[stack], read[stack].length - 1);
      const span = (word, i) => element("span", { className: i === chosen ? "chosen" : "" }, word);
      fill(`.words.${stack}`, ...read[stack].map(span));
    }
    const likely = ({ token, logProb }) => element("span", {}, `${readable(token)} ${percent(logProb)}`);
    fill(".likely", ...best.slice(0, 3).map(likely));
    for (const one of find(".model").querySelectorAll("button")) {
      one.setAttribute("aria-pressed", one === box);
      one.tabIndex = one === box ? 0 : -1; // one stop of Tab, and arrows lead on
    }
  }

  /** Say what the menus now lead to: to who listens. */
  function tell() {
    const at = place(), { names, maps, word } = at, [layer, ofHead, ofWord] = ["layer", "head", "word"].map((name) =>
      !find(`.panel [name=${name}]`).parentElement.hidden);
    const where = [layer && `layer ${picked.layer + 1}`, ofHead && `head ${picked.head + 1}`, ofWord && `“${names[word]}”`];
    const { looked, weights } = maps ? head(at) : {}, best = weights && order(weights)[0];
    fill(".now", where.filter(Boolean).join(", "), ofHead ? `: most at “${looked[best]}”, ${fixed(weights[best], 3)}` : "");
  }

  /** The box that an arrow key leads to: the next one above or below, or the one beside. */
  function neighbour(from, key) {
    const middle = (one) => {
      const { left, top, width, height } = one.getBoundingClientRect();
      return [left + width / 2, top + height / 2];
    };
    const [x, y] = middle(from), [right, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key] ?? [];
    const ways = [...find(".model").querySelectorAll("button")].map((one) => {
      const [toX, toY] = middle(one), isBeside = Math.abs(toX - x) > from.offsetWidth / 2;
      const isThere = right ? isBeside && (toX - x) * right > 0 : !isBeside && (toY - y) * down > 0;
      return { one, isThere, far: Math.abs(toY - y) };
    });
    return ways.filter(({ isThere }) => isThere).sort((a, b) => a.far - b.far)[0]?.one;
  }

  find(".model").onkeydown = (event) => {
    const next = neighbour(event.target, event.key);
    if (!next) return;
    event.preventDefault();
    [event.target.tabIndex, next.tabIndex] = [-1, 0];
    next.focus();
  };
  find(".model").onclick = ({ target, detail }) => {
    box = target.closest("button") ?? box;
    isPicked = true;
    if (!trace) return;
    flow();
    draw();
    if (find(".panel").offsetTop > find(".model").offsetTop + 50) find(".panel").scrollIntoView(); // it is below
    if (!detail) find(".panel .title").focus(); // it was a key
  };
  find(".up").onclick = () => box.focus();
  find(".picks").onchange = ({ target: { name, value } }) => {
    picked[name === "word" ? place().stack : name] = Number(value);
    isPicked = true;
    flow();
    draw();
    tell();
  };

  const boxes = Object.fromEntries([...find(".model").querySelectorAll("button")].map((one) => [nameOf(one), one]));

  /** What an address calls a box: its title, without the number of layers. */
  function nameOf({ dataset: { title } }) {
    return title.toLowerCase().replace(/ × \d+/, "").match(/[a-z]+/g).join("-");
  }

  return {
    boxes: Object.keys(boxes),
    /** What is open, for an address: numbers count from 1, and the newest word has none. Nothing, if nobody asked for it. */
    state() {
      if (!isPicked) return {};
      const { stack } = box.closest("[data-stack]").dataset, { part } = box.dataset, found = { box: nameOf(box) };
      if (part && part !== "last") found.layer = picked.layer + 1;
      if (box.dataset.box === "attention") found.head = picked.head + 1;
      if (!box.matches(".of-all") && picked[stack] < Infinity) found.word = picked[stack] + 1;
      return found;
    },
    /** Open what an address says, after `show`, and then go on; what it says nothing of is as on a fresh page. */
    open({ box: name, layer = 1, head = 1, word }, then) {
      isPicked = name !== undefined;
      box = boxes[name ?? "cross-attention"];
      const { stack } = box.closest("[data-stack]").dataset;
      Object.assign(picked, { layer: layer - 1, head: head - 1, [stack]: word ? word - 1 : stack === "encoder" ? 1 : Infinity });
      if (find(".opened").hidden) return;
      whenDrawn = then;
      flow();
      if (trace) draw();
    },
    /** Whether a box belongs to the decoder, whose words are those written. */
    isOfDecoder: (name = "cross-attention") => boxes[name].closest("[data-stack]").dataset.stack === "decoder",
    /** Show what a result says of a place in its translation, and ask for what the model computed there. */
    show(result, names, position) {
      if (shown !== result || now !== position) trace = undefined;
      if (now !== position) picked.decoder = Infinity;
      [shown, words, now] = [result, names, position];
      const isLong = Math.max(words.source.length, words.inputs.length) > MOST;
      find(".too-long").hidden = !(find(".opened").hidden = isLong);
      if (isLong || trace) return;
      flow();
      find(".panel").setAttribute("aria-busy", true);
      ask(position);
    },
    receive(message) {
      if (message.place !== now) return; // the reader has gone on
      trace = message;
      draw();
    },
  };
}
