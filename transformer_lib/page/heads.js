// All heads of the page "Try it" as miniatures of their maps; pressing one silences it. Of the model that comes with the
// library, a frame says how much the loss rises without the head: benchmarks/heads.py measured it (ABOUT.heads).

function headAtlas({ find, fill, element, fixed }, toggle) {
  const KINDS = { encoder: "Encoder self-attention", decoder: "Decoder self-attention", cross: "Cross-attention" };
  const { config: { num_layers, num_heads }, heads: measured } = ABOUT;
  const most = measured && Math.max(...Object.values(measured.heads).map(({ rise }) => rise));
  const across = num_heads <= 5 ? num_heads : [4, 5, 3, 2].find((columns) => num_heads % columns === 0) ?? 4;
  const count = (n) => Array.from({ length: n }, (_, i) => i + 1);
  const names = Object.keys(KINDS).flatMap((kind) =>
    count(num_layers).flatMap((layer) => count(num_heads).map((head) => `${kind} ${layer}.${head}`)));
  const thousandths = (value) => fixed(1000 * value, 1);
  const heads = {}; // of each name, such as "cross 3.4": its kind and number, button and canvas
  for (const name of names) {
    const [kind, number] = name.split(" "), canvas = element("canvas", { ariaHidden: true }), note = element("small");
    const button = element("button", { type: "button", tabIndex: -1, onclick: () => toggle([name]) }, canvas, element("b", {}, number));
    heads[name] = { kind, number, button, canvas };
    button.title = `Without ${name}`;
    if (!measured) continue;
    const { rise, low, high, ...habits } = measured.heads[name];
    const [habit] = Object.entries(habits).sort(([, a], [, b]) => b - a); // back, self or next: the most
    if (habit) note.textContent = `${habit[0]} ${fixed(habit[1])}`;
    const cost = `${rise < 0 ? "" : "+"}${thousandths(rise)}`, interval = `${thousandths(low)} to ${thousandths(high)}`;
    button.classList.toggle("none", low <= 0);
    button.style.setProperty("--rise", Math.max(0, rise / most));
    button.title = `Without ${name}: ${cost} thousandths (${interval})`;
    button.append(element("span", {}, cost), note, element("small", {}, interval));
  }
  if (measured) {
    fill(".sentences", measured.sentences.toLocaleString("en"));
    fill(".loss", fixed(measured.loss));
  }
  find(".atlas").style.setProperty("--across", across);
  fill(".atlas", ...Object.entries(KINDS).map(([kind, title]) => {
    const names = Object.keys(heads).filter((name) => heads[name].kind === kind);
    const every = element("button", { type: "button", onclick: () => toggle(names) }, `all ${names.length}`);
    const heading = element("p", { className: "title" }, `${title} `, every);
    return element("div", { role: "group", ariaLabel: title }, heading, ...names.map((name) => heads[name].button));
  }));

  const all = Object.values(heads).map(({ button }) => button); // one stop of Tab, and arrows lead on
  all[0].tabIndex = 0;
  find(".atlas").onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
    const next = all[all.indexOf(event.target) + step];
    if (!all.includes(event.target) || !next) return;
    event.preventDefault();
    for (const one of all) one.tabIndex = one === next ? 0 : -1;
    next.focus();
  };

  return { names: Object.keys(heads), show({ maps, changes }, words) {
    for (const [name, { kind, number, button, canvas }] of Object.entries(heads)) {
      const [layer, head] = number.split(".").map((n) => n - 1), map = maps[kind][layer][head];
      const columns = kind === "decoder" ? words.inputs : words.source, rows = map.length / columns.length;
      Object.assign(canvas, { width: columns.length, height: rows });
      const image = new ImageData(columns.length, rows);
      map.forEach((weight, i) => image.data.set([47, 126, 216, 255 * weight], 4 * i));
      canvas.getContext("2d", { willReadFrequently: true }).putImageData(image, 0, 0);
      button.setAttribute("aria-pressed", changes.silenced.includes(name));
    }
  } };
}
