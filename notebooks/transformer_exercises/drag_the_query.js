// Turns each .drag-the-query of the page into one to play with, in a shadow root, so that none meets another.
// Blue and orange are seen on white and on black; all else has the colour of the page's text.

const BLUE = "#2f7ed8", ORANGE = "#c9651f", UNIT = 24, STEP = 0.5;
const KEYS = { ArrowRight: [STEP, 0], ArrowLeft: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };

const svg = (attributes, content) =>
  `<svg ${attributes} viewBox="0 0 340 320" width="340" fill="currentColor">${content}</svg>`;
const fixed = (number, digits) => number.toFixed(digits).replace("-", "−");
const pair = (numbers, digits) => `(${numbers.map((number) => fixed(number, digits)).join(", ")})`;
const dot = (a, b) => a[0] * b[0] + a[1] * b[1];

/** An arrow from the origin, where y grows upwards. */
const arrow = ([x, y], colour, width) => `<path fill="none" stroke="${colour}" stroke-width="${width}"
  transform="rotate(${(Math.atan2(-y, x) * 180) / Math.PI})" d="M0 0H${UNIT * Math.hypot(x, y)}m-9 -5l9 5l-9 5"/>`;

function start(host) {
  const { words, query, keys, values, d_k, hidden } = JSON.parse(host.dataset.given);
  const root = host.attachShadow({ mode: "open" }), find = (name) => root.querySelector(name);
  root.innerHTML = `<style>
      svg { max-width: 100%; font: 13px system-ui, sans-serif } b, .word { font-weight: 600 }
      label { display: inline-block; margin-right: 1.5em } .results text:not(.start) { text-anchor: end }
      .handle { cursor: grab } .handle:focus-visible { outline: 3px solid ${BLUE} }
    </style>
    <label><input type="checkbox" class="scale" checked>divide by √d_k = ${+Math.sqrt(d_k).toFixed(3)}</label>
    <label><input type="checkbox" class="mask">mask: hide ${words[hidden]}</label><br>
    ${svg('class="plane"', `<g transform="translate(170 160)"><g class="drawn"></g>
      <g class="handle" tabindex="0" role="slider" aria-label="Query" aria-valuemin="-180" aria-valuemax="180">
      <circle r="22" opacity="0"/><circle r="7" fill="none" stroke="${ORANGE}" stroke-width="2.5"/><text x="11" y="-10">query</text></g></g>`)}
    ${svg('class="results" aria-hidden="true"', "")}<p aria-live="polite"></p>`;

  function draw() {
    const masked = words.map((_, i) => find(".mask").checked && i === hidden);
    const dots = keys.map((key) => dot(query, key));
    const scores = dots.map((one, i) => (masked[i] ? -Infinity : find(".scale").checked ? one / Math.sqrt(d_k) : one));
    const powers = scores.map((score) => Math.exp(score - Math.max(...scores)));
    const weights = powers.map((power) => power / powers.reduce((a, b) => a + b));
    const average = [0, 1].map((axis) => values.reduce((sum, value, i) => sum + weights[i] * value[axis], 0));

    find(".drawn").innerHTML = `<path stroke="#8888" d="M-160 0H160M0 150V-150"/>
      <text x="130" y="16">noun</text><text x="-34" y="-140">verb</text>
      ${keys.map((key, i) => `<g opacity="${masked[i] ? 0.25 : 1}">${arrow(key, BLUE, 2 + 4 * weights[i])}
        <text class="word" x="${UNIT * key[0]}" y="${-UNIT * key[1] + (key[1] < 0 ? 19 : -8)}"
        text-anchor="middle">${words[i]}</text></g>`).join("")}
      ${arrow(query, ORANGE, 3)}`;
    find(".handle").setAttribute("transform", `translate(${UNIT * query[0]} ${-UNIT * query[1]})`);
    find(".handle").setAttribute("aria-valuenow", Math.round((Math.atan2(query[1], query[0]) * 180) / Math.PI));
    find(".handle").setAttribute("aria-valuetext", pair(query, 1));

    const place = ([x, y]) => [80 + 15 * x, 265 - 15 * y], [x, y] = place(average); // in the plane of the values
    const rows = words.map((word, i) => {
      const low = 36 + 22 * i, [right, up] = place(values[i]);
      return `<text class="word start" y="${low}">${word}</text><text x="110" y="${low}">${fixed(dots[i], 1)}</text>
        <text x="175" y="${low}">${masked[i] ? "−∞" : fixed(scores[i], 3)}</text>
        <rect x="190" y="${low - 11}" height="13" width="${100 * weights[i]}" fill="${BLUE}"/>
        <text class="weight" x="340" y="${low}">${weights[i].toFixed(3)}</text>
        <path stroke="${BLUE}" stroke-width="${8 * weights[i]}" d="M${right} ${up}L${x} ${y}"/>
        <circle cx="${right}" cy="${up}" r="3" fill="${BLUE}"/>
        <text class="start" x="${right + 7}" y="${up + 4}">${word}</text>`;
    });
    find(".results").innerHTML = `<text class="start" y="14">key</text><text x="110" y="14">query · key</text>
      <text x="175" y="14">score</text><text x="340" y="14">weight</text>${rows.join("")}
      <path stroke="#8888" d="M40 265H290M80 320V170"/>
      <text x="340" y="269">animal</text><text x="72" y="180">sound</text>
      <circle cx="${x}" cy="${y}" r="6" fill="${ORANGE}"/>
      <text x="340" y="180">average of the values</text><text class="word" x="340" y="198">${pair(average, 3)}</text>`;
    const shares = words.map((word, i) => `${word} ${weights[i].toFixed(3)}`).join(", ");
    find("p").innerHTML = `Query ${pair(query, 1)}. Weights: ${shares}. Average of the values: ${pair(average, 3)}.`;
  }

  function move(x, y) {
    [x, y].forEach((to, axis) => (query[axis] = Math.round(10 * Math.max(-6, Math.min(6, to))) / 10));
    draw();
  }

  const handle = find(".handle");
  // a finger on it does not scroll the page
  handle.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
  handle.addEventListener("pointerdown", (event) => handle.setPointerCapture(event.pointerId));
  handle.addEventListener("pointermove", (event) => {
    if (!handle.hasPointerCapture(event.pointerId)) return;
    const box = find(".plane").getBoundingClientRect(), unit = (UNIT * box.width) / 340;
    move((event.clientX - box.left - box.width / 2) / unit, (box.top + box.height / 2 - event.clientY) / unit);
  });
  handle.addEventListener("keydown", (event) => {
    if (!KEYS[event.key]) return;
    event.preventDefault(); // the page does not scroll
    event.stopPropagation(); // and the notebook does not go to another cell
    move(query[0] + KEYS[event.key][0], query[1] + KEYS[event.key][1]);
  });
  for (const name of [".scale", ".mask"]) find(name).addEventListener("change", draw);
  draw();
}

for (const host of document.querySelectorAll(".drag-the-query")) if (!host.shadowRoot) start(host);
