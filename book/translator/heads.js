// All heads of the page "Try it" as miniatures of their maps. A frame says how much the loss rises without the head, as
// benchmarks/heads.py measured it (HEADS, in generated.js), and pressing one silences it.

function headAtlas({ fill, element, fixed, rowOf }, toggle) {
  const KINDS = { encoder: "Encoder self-attention", decoder: "Decoder self-attention", cross: "Cross-attention" };
  const most = Math.max(...Object.values(HEADS.heads).map(({ rise }) => rise));
  const thousandths = (value) => fixed(1000 * value, 1);
  const heads = {}; // of each name, such as "cross 3.4": its button, canvas and note
  for (const [name, { rise, low, high }] of Object.entries(HEADS.heads)) {
    const [kind, number] = name.split(" "), canvas = element("canvas", { ariaHidden: true }), note = element("small");
    const cost = `${rise < 0 ? "" : "+"}${thousandths(rise)}`, interval = `${thousandths(low)} to ${thousandths(high)}`;
    const button = element("button", { type: "button", className: low <= 0 ? "none" : "", onclick: () => toggle(name),
      style: `--rise: ${Math.max(0, rise / most)}`, title: `Without ${name}: ${cost} thousandths (${interval})` },
      canvas, element("b", {}, number), element("span", {}, cost), note, element("small", {}, interval));
    heads[name] = { kind, number, button, canvas, note };
  }
  fill(".sentences", HEADS.sentences.toLocaleString("en"));
  fill(".loss", fixed(HEADS.loss));
  fill(".atlas", ...Object.entries(KINDS).map(([kind, title]) => {
    const buttons = Object.values(heads).filter((head) => head.kind === kind).map(({ button }) => button);
    return element("div", { role: "group", ariaLabel: title }, element("p", { className: "title" }, title), ...buttons);
  }));

  /** How much of its weight a head of self-attention gives to the word before, to itself or to the next: the most. */
  function habit(map, words) {
    const shares = { back: -1, self: 0, next: 1 };
    for (const [name, step] of Object.entries(shares)) {
      const seen = words.map((_, i) => rowOf(map, i, words)[i + step]).filter((weight) => weight !== undefined);
      shares[name] = seen.reduce((a, b) => a + b, 0) / seen.length;
    }
    const [name] = Object.keys(shares).sort((a, b) => shares[b] - shares[a]);
    return `${name} ${fixed(shares[name])}`;
  }

  return function show({ maps, changes }, words) {
    for (const [name, { kind, number, button, canvas, note }] of Object.entries(heads)) {
      const [layer, head] = number.split(".").map((n) => n - 1), map = maps[kind][layer][head];
      const columns = kind === "decoder" ? words.inputs : words.source, rows = map.length / columns.length;
      Object.assign(canvas, { width: columns.length, height: rows });
      const image = new ImageData(columns.length, rows);
      map.forEach((weight, i) => image.data.set([47, 126, 216, 255 * weight], 4 * i));
      canvas.getContext("2d", { willReadFrequently: true }).putImageData(image, 0, 0);
      note.textContent = kind === "cross" ? "" : habit(map, columns);
      button.setAttribute("aria-pressed", changes.silenced.includes(name));
    }
  };
}
