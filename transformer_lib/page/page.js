// The page "Try it": what the reader sees and touches. All that stands still is in body.html, and worker.js computes;
// address.js writes what is on show into the page's address; generated.js holds the worker's source, the size of the
// weights, what is said of the model, and the notebooks' viewer.
// Text reaches the page as text only, never as HTML.
(() => {
  const find = (selector) => document.querySelector(`#translator ${selector}`);
  const fill = (selector, ...children) => find(selector).replaceChildren(...children);
  const VIEWS = { figure: showFigure, heads: () => atlas.show(shown, words), alternatives: showAlternatives,
    attention: showAttention, beam: showBeam };
  const KINDS = [ // of attention, as in attention_viewer.py; rows and columns name lists of `words`
    ["encoder", "Encoder self-attention", "Source word", "Source words it looks at", "source", "source"],
    ["decoder", "Decoder self-attention", "Target word read", "Words it looks at", "inputs", "inputs"],
    ["cross", "Cross-attention", "Target word being written", "Source words looked at", "target", "source"],
  ];
  const HEADER = 56; // pixels at the top of the window, which the book's own bar may cover
  const STALE = "What stands below is of the sentence before. Translate brings the new one.";
  const SWITCHES = document.querySelectorAll("#translator .without input");
  let worker, newest = 0; // the number of the newest request
  let loaded = 0, loading, begun; // parts of the weights, a promise while they come, when the translation began
  let asked, begins; // the text that the results belong to, and the ids that its translation had to begin with
  let shown, words, chosen, viewer; // a result of the worker, its tokens, a place in its translation, its maps on show
  let isWanted; // whether the reader waits to see the translation
  let said, wanted; // the text of the translation on show, and what an address asks for until it is there
  let isTurned; // whether the focus goes to the chosen piece, when the translation is there: what was pressed may be gone
  const own = new Map(); // what the model writes by itself, as ids, by the address of the question
  let seen, kept; // the address that the page knows of, and the question that it held

  function element(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  const row = (...cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
  const fixed = (value, digits = 2) => value.toFixed(digits).replace("-", "−");
  const percent = (logProb) => `${(100 * Math.exp(logProb)).toFixed(1)} %`;
  const order = (values) => [...values.keys()].sort((a, b) => values[b] - values[a]); // the largest first

  /** A token as people read it: ▁ begins a word, · continues one. */
  function readable(token) {
    const text = token.replaceAll("▁", " ").trim();
    return (!ABOUT.wholeWords && !token.startsWith("▁") && /^[\p{L}\p{N}]/u.test(text) ? "·" : "") + text || "␣";
  }

  const rowOf = (map, place, columns) => map.subarray(place * columns.length, (place + 1) * columns.length);
  const tools = { find, fill, element, row, fixed, percent, readable, order, rowOf };
  const figure = figureOne(tools, (place) => worker.postMessage({ number: shown.number, place }));
  const silenced = new Set(), atlas = headAtlas(tools, (heads) => { // back again if all are silenced, else silenced
    const change = heads.every((head) => silenced.has(head)) ? "delete" : "add";
    heads.forEach((head) => silenced[change](head));
    send(begins);
  });

  const addresses = addressBook({ views: Object.keys(VIEWS), boxes: figure.boxes, kinds: KINDS.map(([kind]) => kind),
    changes: [...SWITCHES].map(({ name }) => name), heads: atlas.names, stops: window.TOUR?.length ?? 0 });
  const tour = window.startTour?.({ ...tools, addresses, visit, keep, uncover, isWorking: () => isWorking(),
    state: () => shown && state() });

  const isWorking = () => find("form").matches(".working");

  function begin(status) {
    find("form").classList.add("working");
    fill(".status", status);
    progress(0, "");
  }

  function end(status = "") {
    if (document.activeElement === find(".stop")) find(".go").focus(); // Stop hides
    find("form").classList.remove("working");
    find(".translation").setAttribute("aria-busy", false);
    fill(".status", status);
  }

  /** Move the bar, and say how much is left. */
  function progress(share, left) {
    find("progress").value = share;
    fill(".left", left);
  }

  function start() {
    worker = new Worker(URL.createObjectURL(new Blob([WORKER_SOURCE, "\nserve();"], { type: "text/javascript" })));
    worker.onmessage = ({ data }) => { // or nobody waits for it any more
      if (data.kind === "trace" && data.number === shown.number) figure.receive(data);
      else if (data.kind !== "trace" && data.number === newest) receive(data);
    };
    worker.onerror = ({ message }) => end(`The model stopped: ${message}`);
  }

  /** Load the weights, one script after another, from where it was stopped. */
  async function load() {
    const { parts, megabytes } = WEIGHTS;
    for (; loaded < parts && isWorking(); loaded++) {
      progress(loaded / parts, `${((megabytes * loaded) / parts).toFixed(1)} of ${megabytes} MB`);
      window.receiveWeights = (weights) => worker.postMessage({ weights, isLast: loaded === parts - 1 });
      await new Promise((onload, onerror) => {
        const src = `translator/weights_${`${loaded}`.padStart(2, "0")}.js`;
        document.head.append(element("script", { src, onload, onerror }));
      });
    }
    if (loaded < parts) return;
    fill(".go", "Translate");
    find(".size").hidden = true;
    if (isWorking()) begin("Translating …");
  }

  /** Ask for a translation that begins with `prefix`, a list of ids or tokens, to be shown as an address wants it. */
  function send(prefix = [], then, toPiece = false) {
    [wanted, isTurned] = [then, toPiece];
    fill(".left-out");
    if (!worker) start();
    const isLoaded = loaded === WEIGHTS.parts;
    begin(isLoaded ? "Translating …" : "Loading …");
    fill(".remark");
    if (!isLoaded) {
      loading ??= load()
        .catch(() => end("The model could not be loaded. Translate tries again."))
        .finally(() => (loading = undefined));
    }
    const beamSize = Number(find("[name=search]:checked").value);
    [asked, begins] = [find("textarea").value, prefix];
    match();
    const isThere = ({ name, checked }) => [name, !checked];
    const changes = { ...Object.fromEntries([...SWITCHES].map(isThere)), silenced: atlas.names.filter((head) => silenced.has(head)) };
    worker.postMessage({ number: ++newest, text: asked, beamSize, prefix, changes });
  }

  /** Nobody can pick a word of another sentence than the one in the field. */
  function match() {
    const isOld = find("textarea").value !== asked, said = isOld && !find(".results").hidden ? STALE : "";
    find(".results").inert = isOld;
    if (!isWorking() && find(".status").textContent !== said) fill(".status", said); // or it would be read out at each key
  }

  /** Put a sentence into the field as if it were typed, so that Ctrl+Z brings back what stood there. */
  function put(sentence) {
    const field = find("textarea"), { activeElement: before, body } = document;
    if (field.value === sentence) return;
    asked = sentence; // or what was pressed could not have the focus again, being of another sentence
    field.focus({ preventScroll: true });
    field.select();
    if (!document.execCommand("insertText", false, sentence)) field.value = sentence; // nothing else can be undone
    if (before === body) field.blur();
    else before.focus({ preventScroll: true });
  }

  /** Bring the translation into sight, if it is not: on a phone, it comes below the window. */
  function bring() {
    const { top, bottom } = find(".translation").getBoundingClientRect(), covered = find(".tour")?.offsetHeight ?? 0;
    if (top < HEADER || bottom > window.innerHeight - covered) window.scrollBy(0, find(".results").getBoundingClientRect().top - 1.5 * HEADER);
  }

  /** End the work. What has been written so far stays. */
  function stop() {
    if (!isWorking()) return;
    worker.postMessage({ number: ++newest });
    if (find(".translation").textContent === "…") fill(".translation");
    end("Stopped.");
  }

  function receive(message) {
    const { kind, text, share } = message, isDone = kind === "done";
    find(".results").hidden = kind === "error"; // what stands there may be half of an older translation
    if (kind === "error") return end(text);
    find(".results").classList.toggle("busy", !isDone);
    find(".translation").setAttribute("aria-busy", !isDone); // a screen reader waits for the whole
    if (isDone) return show(message);
    if (kind === "read") {
      begun = performance.now();
      showSource(message.tokens);
      fill(".remark", message.remark);
      return fill(".translation", "…");
    }
    fill(".translation", `${text} …`);
    const seconds = ((performance.now() - begun) / 1000) * (1 / share - 1); // as if all steps took the same time
    progress(share, `about ${Math.ceil(seconds)} s more`);
  }

  function showSource(tokens) {
    fill(".source", ...tokens.map((token) => element("li", {}, readable(token))));
  }

  function show(result) {
    const { tokens, hypotheses, steps, prefix, plain, changes, isChanged, unsure } = (shown = result);
    const name = (what) => steps.map((step) => readable(step[what].token));
    words = { source: tokens.map(readable), target: name("chosen"), inputs: name("input") };
    const isNew = said !== asked;
    said = asked;
    if (!prefix.length) own.set(addresses.write(question()), hypotheses[0].ids);
    end();
    match();
    fill(".translation", ...marked(hypotheses[0].text, plain));
    if (unsure && !find(".remark").textContent) fill(".remark", unsure);
    find(".was").hidden = !isChanged;
    fill(".plain", ...marked(plain, hypotheses[0].text));
    fill(".same", ...(plain === hypotheses[0].text ? ["(the same) ", ...others()] : []));
    fill(".silenced", changes.silenced.length ? `Silenced: ${changes.silenced.join(", ")}.` : "");
    for (const text of find(".results").querySelectorAll("[data-without]")) text.hidden = changes[text.dataset.without];
    for (const text of find(".results").querySelectorAll("[data-with]")) text.hidden = !changes[text.dataset.with];
    showSource(tokens);
    fill(".target", ...words.target.map((word, place) => {
      const [onclick, onfocus, onblur] = [() => choose(place), () => look(place), () => look(chosen)];
      return element("button", { type: "button", onclick, onfocus, onblur, onpointerenter: onfocus, onpointerleave: onblur },
        word, element("small", {}, percent(steps[place].chosen.logProb)));
    }));
    choose(isNew ? doubtful() : Math.min(chosen, steps.length - 1));
    fill(".picked", words.target[prefix.length - 1] ?? "");
    find(".again").hidden = !prefix.length;
    if (isTurned) find(".target").children[chosen].focus({ preventScroll: true });
    const arrival = wanted;
    if (arrival) arrive(arrival);
    else if (isWanted) bring();
    isWanted = wanted = isTurned = undefined;
    tell();
    keep(!arrival?.isReturn);
  }

  /** Say once, to who listens, what is new beside the translation: whose field says itself. */
  function tell() {
    const isNoted = [...find(".results").querySelectorAll("[data-without].note")].some(({ hidden }) => !hidden);
    const { plain, isChanged, prefix, hypotheses: [{ text }] } = shown;
    fill(".told", [prefix.length && `You picked “${find(".picked").textContent}”.`,
      isChanged && `With everything: ${plain === text ? "the same." : plain}`, find(".silenced").textContent,
      isNoted && "A note below says what this does.", find(".looks").textContent].filter(Boolean).join(" "));
  }

  /** Where the reader picked a token, or else where the model was least sure. */
  function doubtful() {
    const { steps, prefix } = shown, sureness = steps.map(({ chosen }) => chosen.logProb);
    return prefix.length ? prefix.length - 1 : sureness.indexOf(Math.min(...sureness));
  }

  /** Let the translation begin with these ids, or freely where the model does so by itself. */
  function goOn(ids) {
    const free = own.get(addresses.write({ ...question(), begin: undefined }));
    send(free && ids.every((id, i) => id === free[i]) ? [] : ids, undefined, true);
  }

  /** A button with a sentence that changes, where what is taken away leaves this one as it is. */
  function others() {
    const sentences = [...SWITCHES].filter(({ checked, dataset }) => checked && dataset.sentence).map(({ dataset }) => dataset.sentence);
    if (!sentences.length || sentences.includes(said)) return [];
    const button = element("button", { name: "example", value: sentences[0], title: sentences[0] }, "A sentence that changes");
    button.setAttribute("form", "ask");
    return [button];
  }

  /** A text in pieces, words with the space before them; words that the other text has not, or elsewhere, are marked. */
  function marked(text, other) {
    const [words, others] = [text, other].map((all) => all.match(/ ?[\p{L}\p{M}\p{N}'’-]+|./gu) ?? []);
    const common = words.map(() => []).concat([[]]); // how many words the rests from i and j on share
    const from = (i, j) => common[i]?.[j] ?? 0;
    for (let i = words.length - 1; i >= 0; i--) {
      for (let j = others.length - 1; j >= 0; j--) {
        common[i][j] = words[i] === others[j] ? 1 + from(i + 1, j + 1) : Math.max(from(i + 1, j), from(i, j + 1));
      }
    }
    let j = 0;
    return words.flatMap((word, i) => {
      while (j < others.length && word !== others[j] && from(i, j + 1) === from(i, j)) j++;
      const isCommon = word === others[j] && from(i, j) > from(i + 1, j);
      if (isCommon) j++;
      return isCommon ? word : [word.startsWith(" ") ? " " : "", element("mark", {}, word.trim())];
    });
  }

  /** Turn to one token of the translation, if there is one at that place. */
  function choose(place) {
    if (!shown.steps[place]) return;
    chosen = place;
    [...find(".target").children].forEach((one, i) => one.setAttribute("aria-pressed", i === place));
    look(place);
    fill(".told", find(".looks").textContent);
    open();
  }

  /** Show of this token what the reader wants to see. */
  function open() {
    const wanted = find("[name=view]:checked").value;
    find(".link").hidden = true; // it leads to what was on show before
    fill(".copied");
    for (const name in VIEWS) find(`.view.${name}`).hidden = name !== wanted;
    VIEWS[wanted]();
  }

  function showFigure() {
    const { steps } = shown;
    fill(".place", `Step ${chosen + 1} of ${steps.length}`);
    find(".previous").setAttribute("aria-disabled", chosen === 0);
    find(".next").setAttribute("aria-disabled", chosen === steps.length - 1);
    figure.show(shown, words, chosen);
  }

  /** Shade the source by what a token's step looked at: the mean of the last layer's heads. */
  function look(place) {
    if (isWorking()) return; // the source may be another by now
    const rows = shown.maps.cross.at(-1).map((map) => rowOf(map, place, words.source));
    const weights = words.source.map((_, j) => rows.reduce((sum, row) => sum + row[j], 0) / rows.length);
    weights.forEach((weight, j) => find(".source").children[j].style.setProperty("--weight", weight));
    const most = order(weights).slice(0, 2).map((j) => `“${words.source[j]}” ${fixed(weights[j])}`).join(" and ");
    fill(".looks", `Writing “${words.target[place]}”, it looks most at ${most} (last layer, mean of its heads).`);
  }

  function showAlternatives() {
    const { best, chosen: written } = shown.steps[chosen], before = shown.hypotheses[0].ids.slice(0, chosen);
    const all = best.some(({ id }) => id === written.id) ? best : [...best, written];
    fill(".before", chosen ? `after “${words.target.slice(0, chosen).join(" ")}”` : "at the beginning");
    fill(".alternatives ol", ...all.map(({ id, token, logProb }) => {
      const label = [element("b", {}, readable(token)), ` ${percent(logProb)}`];
      const pick = element("button", { type: "button", onclick: () => goOn([...before, id]) }, ...label);
      const content = id === written.id ? [...label, " written"] : [pick];
      return element("li", { style: `--share: ${Math.exp(logProb)}` }, ...content);
    }));
  }

  const menus = () => [...(viewer?.shadowRoot.querySelectorAll("select") ?? [])]; // kind, layer and head
  const rowsOfMap = () => [...viewer.shadowRoot.querySelectorAll(".queries input")];

  /** The map that the viewer shows, for an address. */
  function mapOnShow() {
    if (viewer?.shown !== shown) return {}; // the sentence is too long
    const [kind, layer, head] = menus().map(({ selectedIndex }) => selectedIndex);
    return { kind: KINDS[kind][0], layer: layer + 1, head: head + 1, word: 1 + rowsOfMap().findIndex(({ checked }) => checked) };
  }

  /** Turn the viewer to the map that an address asks for. */
  function turn({ kind = "cross", layer = 1, head = 1, word = kind === "encoder" ? 1 : chosen + 1 }) {
    if (viewer?.shown !== shown) return;
    [KINDS.findIndex(([name]) => name === kind), layer - 1, head - 1].forEach((place, i) => {
      menus()[i].selectedIndex = place;
      menus()[i].dispatchEvent(new Event("change"));
    });
    rowsOfMap()[word - 1].click();
  }

  /** The notebooks' viewer with this translation's maps, at the kind, layer and head where the reader left it. */
  function showAttention() {
    if (Math.max(words.source.length, words.target.length) > 64) { // nobody could read them
      return fill(".maps", `Maps are drawn for up to 64 ${ABOUT.wholeWords ? "words" : "subwords"}.`);
    }
    if (viewer?.shown !== shown) {
      const left = menus().map(({ selectedIndex }) => selectedIndex);
      const thousandths = (map) => Array.from(map, (weight) => Math.round(1000 * weight));
      const data = KINDS.map(([kind, name, rowTitle, columnTitle, rows, columns]) => {
        const layers = shown.maps[kind].map((heads) => heads.map(thousandths));
        return { name, rowTitle, columnTitle, rows: words[rows], columns: words[columns], layers };
      });
      const json = element("script", { type: "application/json" }, JSON.stringify(data));
      viewer = element("div", { className: "attention-viewer", shown }, json);
      fill(".maps", viewer);
      startViewers();
      for (const event of ["click", "change"]) viewer.shadowRoot.addEventListener(event, keepSoon); // none leaves it
      left.forEach((place, i) => {
        menus()[i].selectedIndex = place;
        menus()[i].dispatchEvent(new Event("change"));
      });
    }
    const ofTarget = menus()[0].selectedIndex > 0; // the encoder's rows are source words
    if (ofTarget) viewer.shadowRoot.querySelectorAll(".queries input")[chosen].click();
  }

  /** The beam as a tree: a column for each step, the most probable beginning on top. */
  function showBeam() {
    const WIDTH = 124, HEIGHT = 34, ranks = {}, edges = { other: "", best: "" }; // pixels, as in page.css
    const { beams, hypotheses, penalty, steps, prefix, mightRise } = shown;
    const columns = [[{ ids: [], token: "<sos>", logProb: 0 }], ...beams];
    fill(".tree ol", ...columns.flatMap((column, step) => column.map(({ ids, token, logProb }, rank) => {
      const kind = ids.every((id, i) => id === hypotheses[0].ids[i]) ? "best" : "other";
      const [from, to] = [ranks[ids.slice(0, -1)], rank].map((at) => (at + 0.5) * HEIGHT), x = step * WIDTH;
      ranks[ids] = rank;
      if (step) edges[kind] += `M${x - 20} ${from}C${x - 8} ${from} ${x - 12} ${to} ${x} ${to}`;
      const style = `grid-area: ${rank + 1} / ${step + 1}`, className = `${kind} ${token === "<eos>" ? "ended" : ""}`;
      const label = [element("span", {}, readable(token)), element("small", {}, fixed(logProb, 1))];
      return element("li", { style, className }, ...label);
    })));
    for (const kind in edges) find(`path.${kind}`).setAttribute("d", edges[kind]);
    fill(".finished", ...hypotheses.map(({ logProb, score, text }) =>
      row(text, fixed(logProb), fixed(logProb / score), fixed(score, 3))));
    find(".open-end").hidden = !mightRise;
    fill(".exponent", penalty);
    const detour = steps.findIndex(({ rank }, i) => rank > 1 && i >= prefix.length); // greedy search goes elsewhere
    const { best, chosen: taken } = steps[Math.max(0, detour)];
    const quoted = ({ token, logProb }) => `“${readable(token)}” (${percent(logProb)})`;
    fill(".greedy", beams.every(({ length }) => length === 1) ? "" : detour < 0 ? "Greedy search would write the same." : "After "
      + `“${words.inputs.slice(0, detour + 1).join(" ")}”, greedy search would take ${quoted(best[0])}. `
      + `The best hypothesis goes on with ${quoted(taken)}.`);
  }

  const submit = (event) => {
    event.preventDefault();
    if (event.submitter?.name) put(event.submitter.value || event.submitter.textContent); // an example
    isWanted = true;
    send();
  };
  find("form").onsubmit = submit;
  find("textarea").onkeydown = (event) => { // whose return value must not be false: that would take the key away
    const isComposing = event.isComposing || event.keyCode === 229; // Safari says it with the number only
    if (event.key !== "Enter" || event.shiftKey || isComposing) return;
    if (window.matchMedia("(pointer: coarse)").matches) event.target.blur(); // a phone's keyboard would cover what comes
    submit(event);
  };
  document.addEventListener("keydown", ({ key, isComposing }) => { if (key === "Escape" && !isComposing) stop(); });
  find("textarea").oninput = match;
  find(".stop").onclick = stop;
  find(".searches").onchange = () => {
    isWanted = true;
    if (shown) send();
  };
  find(".without").onchange = ({ target }) => { // begins with a sentence that changes, where the reader wrote none
    const examples = [...document.querySelectorAll("#translator [name=example]")].map(({ textContent }) => textContent);
    const { checked, dataset: { sentence } } = target, stays = !checked || !sentence || asked === sentence || !examples.includes(asked);
    if (!stays) put(sentence);
    send(stays ? begins : []);
  };
  find(".all-back").onclick = () => {
    SWITCHES.forEach((one) => (one.checked = false));
    silenced.clear();
    send(begins, undefined, true);
  };
  find(".own").onclick = () => send([], undefined, true);
  find(".views").onchange = open;
  find(".previous").onclick = () => choose(chosen - 1);
  find(".next").onclick = () => choose(chosen + 1);
  fill(".megabytes", WEIGHTS.megabytes);

  /** The question that what is on show answers. */
  function question() {
    const { beamSize, prefix, steps, changes } = shown, { silenced } = changes;
    const begin = prefix.map((_, i) => steps[i].chosen.token), search = beamSize === 1 ? "greedy" : undefined;
    return { de: said, search, begin, without: [...SWITCHES].map(({ name }) => name).filter((name) => !changes[name]), silenced };
  }

  /** What is on show, as addressBook wants it. */
  function state() {
    const view = find("[name=view]:checked").value, details = { figure: figure.state, attention: mapOnShow }[view]?.();
    return { tour: tour?.stop(), ...question(), step: chosen + 1, view: view === "figure" ? undefined : view, ...details };
  }

  /** Write what is on show into the address: a new question gets a place of its own in the browser's history. */
  function keep(isNew = false) {
    if (!shown || isWorking() || find(".results").hidden) return;
    const asks = addresses.write({ tour: tour?.stop(), ...question() }), isAdded = isNew && location.hash && asks !== kept;
    [kept, seen] = [asks, addresses.write(state())];
    if (seen === location.hash) return;
    try {
      history[isAdded ? "pushState" : "replaceState"](null, "", seen);
    } catch {
      seen = location.hash; // some browsers forbid it to pages from a disk; Copy link works all the same
    }
  }

  const keepSoon = () => setTimeout(() => keep()); // when the page has done what was pressed

  /** Show what an address asks for. `isReturn`: it has its place in the history already. */
  function visit({ state, left = [] }, isReturn = false) {
    const { de = find("textarea").value, search = "beam", begin = [], without = [], silenced: heads = [], view = "figure" } = state;
    const isThere = shown && !isWorking() && !find(".results").hidden && addresses.write(question())
      === addresses.write({ de, search: search === "beam" ? undefined : search, begin, without, silenced: heads });
    find(`[name=search][value="${search === "beam" ? 4 : 1}"]`).checked = true;
    for (const one of SWITCHES) one.checked = without.includes(one.name);
    silenced.clear();
    for (const head of heads) silenced.add(head);
    find(`[name=view][value=${view}]`).checked = true;
    if (asked === undefined && find("textarea").value === find("textarea").defaultValue) find("textarea").value = de;
    else put(de);
    tour?.show(state.tour);
    const arrival = { state, left, isReturn };
    if (!isThere) {
      send(begin, arrival);
      return sayLeft(left);
    }
    match();
    arrive(arrival);
    keep(!isReturn);
  }

  /** Turn to the place in the translation, the view, and what is open in it, that an address asks for. */
  function arrive({ state, left }) {
    const { begin = [], view = "figure", kind = "cross", box } = state, { steps, maps, prefix } = shown;
    const fitting = { ...state }, leave = (name, value) => left.push(`${name}=${value}`);
    const fit = (name, most) => {
      if (!(state[name] > most)) return;
      leave(name, state[name]);
      delete fitting[name];
    };
    if (begin.length && !prefix.length) leave("begin", addresses.spell(begin));
    fit("step", steps.length);
    fit("layer", maps.encoder.length);
    fit("head", maps.encoder[0].length);
    choose((fitting.step ?? doubtful() + 1) - 1);
    const written = view === "figure" ? figure.isOfDecoder(box) && chosen + 1 : kind !== "encoder" && steps.length;
    fit("word", written || words.source.length);
    sayLeft(left);
    if (!state.view && !box) bring();
    else reveal(view === "figure" && !find(".opened").hidden ? find(".panel") : find(`.view.${view}`));
    const closer = () => tour?.sight()?.forEach(uncover);
    if (view === "attention") turn(fitting);
    if (view === "figure") figure.open(fitting, closer);
    else closer();
  }

  /** Keep what is scrolled to from lying behind the translation, which stays on top. */
  function makeRoom() {
    const stays = find(".stays"), { offsetHeight: height } = stays, { top } = getComputedStyle(stays);
    document.documentElement.style.scrollPaddingTop = height ? `${height + parseFloat(top) + 8}px` : "";
  }

  /** Scroll a part of the page to right below the translation. */
  function uncover(part) {
    makeRoom();
    part.scrollIntoView();
  }

  /** Bring a part of the page into sight, and those who came from elsewhere to it. */
  function reveal(part) {
    uncover(part);
    if (document.activeElement.closest("#translator")) return;
    part.tabIndex = -1;
    part.focus({ preventScroll: true });
  }

  function sayLeft(left) {
    const shortened = left.map((what) => (what.length > 60 ? `${what.slice(0, 60)}…` : what)).join(" · ");
    fill(".left-out", left.length ? `This address asks for what the page does not have, so it’s left out: ${shortened}` : "");
  }

  /** Follow the address that the browser shows: on arrival, a link, or back and forward. */
  function follow() {
    if (location.hash === seen) return; // its own, or heard of already
    seen = location.hash;
    const found = addresses.read(seen);
    if (!found) return; // a place of the page around
    const { state, left } = found, names = Object.keys(state);
    if (!names.length) return sayLeft(left);
    if (names.join() === "tour") return tour.turn(state.tour, true);
    visit(found, true);
  }

  find(".copy").onclick = async () => {
    const field = find(".link"), link = location.href.replace(/#.*/s, "") + addresses.write(state());
    let isCopied = await navigator.clipboard?.writeText(link).then(() => true, () => false);
    if (!isCopied) {
      field.hidden = false;
      field.value = link;
      field.select();
      isCopied = document.execCommand("copy");
    }
    fill(".copied", isCopied ? "Copied." : "Copy it from here:");
  };
  for (const event of ["click", "change"]) document.querySelector("#translator").addEventListener(event, keepSoon);
  new ResizeObserver(makeRoom).observe(find(".stays"));
  for (const event of ["hashchange", "popstate"]) window.addEventListener(event, follow);
  find("form").hidden = !(find(".needs").hidden = "Worker" in window && "at" in Array.prototype);
  if (!find("form").hidden) follow();
})();
