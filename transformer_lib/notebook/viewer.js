// Turns each .attention-viewer of the page that is still a plain table into one to explore. `STYLE` holds viewer.css.
// Tokens reach the page as text only, never as HTML. Each viewer lives in a shadow root, so that none meets another.

const BLUE = [47, 126, 216]; // seen on white and on black

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** A word whose direction, such as that of Arabic, leaves the sentence around it as it is. */
const quoted = (word) => `“\u2068${word}\u2069”`;

const number = (thousandths) => (thousandths / 1000).toFixed(3);

/** A heat map, one pixel a weight, the more opaque the larger. */
function drawing(weights, rows, columns) {
  const canvas = element("canvas", { width: columns, height: rows });
  const image = new ImageData(columns, rows);
  weights.forEach((weight, i) => image.data.set([...BLUE, Math.round(weight * 0.255)], 4 * i));
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function isDark() {
  const { documentElement: html, body } = document;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false"; // JupyterLab, nbconvert
  const theme = [html.dataset.theme, html.getAttribute("theme"), body.dataset.vscodeThemeKind].join(" ");
  if (/dark|light/.test(theme)) return /dark/.test(theme); // pydata-sphinx-theme, Colab, Visual Studio Code
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function followTheme(host) {
  const update = () => host.classList.toggle("dark", isDark());
  for (const node of [document.documentElement, document.body]) {
    new MutationObserver(update).observe(node, { attributes: true });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
  update();
}

function start(host) {
  const kinds = JSON.parse(host.querySelector("script").textContent);
  const chosen = { kind: kinds.length - 1, layer: Infinity, head: 0, row: 0 }; // indices
  const kind = () => kinds[chosen.kind];
  const layer = () => kind().layers[chosen.layer];
  const rowOf = (weights, row) => weights.slice(row * kind().columns.length, (row + 1) * kind().columns.length);

  const menu = (name, change) => {
    const select = element("select");
    select.addEventListener("change", () => { chosen[name.toLowerCase()] = select.selectedIndex; change(); });
    return { select, label: element("label", {}, `${name} `, select) };
  };
  const menus = { kind: menu("Kind", fillKind), layer: menu("Layer", fillLayer), head: menu("Head", showHead) };
  const fill = (name, texts) => {
    chosen[name] = Math.min(chosen[name], texts.length - 1);
    menus[name].select.replaceChildren(...texts.map((text) => element("option", {}, text)));
    menus[name].select.selectedIndex = chosen[name];
  };

  const queries = element("fieldset", { class: "queries" });
  const keys = element("ol", { class: "keys" });
  const keysTitle = element("p", { class: "title" });
  const summary = element("p", { class: "summary", "aria-live": "polite" });
  const heads = element("div", { class: "heads", role: "group" });
  const headsTitle = element("p", { class: "title" });
  const table = element("table");
  const scroller = element("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "All weights" }, table);
  const details = element("details", {}, element("summary", {}, "All weights of this head, as a table"), scroller);

  function fillKind() {
    const { rows, columns, rowTitle, columnTitle } = kind();
    chosen.row = Math.min(chosen.row, rows.length - 1);
    queries.replaceChildren(
      element("legend", { class: "title" }, rowTitle),
      ...rows.map((word, i) => {
        const radio = element("input", { type: "radio", name: "row", value: i });
        radio.checked = i === chosen.row;
        return element("label", {}, radio, element("span", {}, word));
      }),
    );
    keysTitle.textContent = columnTitle;
    keys.setAttribute("aria-label", columnTitle);
    keys.replaceChildren(
      ...columns.map((word) => element("li", {}, element("span", { class: "word" }, word), element("span"))),
    );
    fill("layer", kind().layers.map((_, i) => `${i + 1}`));
    fillLayer();
  }

  function fillLayer() {
    const { rows, columns } = kind();
    fill("head", layer().map((_, i) => `${i + 1}`));
    headsTitle.textContent = `All heads of layer ${chosen.layer + 1}`;
    heads.setAttribute("aria-label", headsTitle.textContent);
    heads.replaceChildren(
      ...layer().map((weights, i) => {
        const map = element("span", { class: "map" }, drawing(weights, rows.length, columns.length));
        const button = element("button", { type: "button" }, map, `Head ${i + 1}`);
        button.addEventListener("click", () => {
          menus.head.select.selectedIndex = chosen.head = i;
          showHead();
        });
        return button;
      }),
    );
    showHead();
  }

  function showHead() {
    [...heads.children].forEach((button, i) => button.setAttribute("aria-pressed", i === chosen.head));
    fillTable();
    showRow(chosen.row);
  }

  function showRow(row) {
    const { rows, columns } = kind();
    const weights = rowOf(layer()[chosen.head], row);
    weights.forEach((weight, i) => {
      keys.children[i].style.setProperty("--weight", weight / 1000);
      keys.children[i].lastChild.textContent = number(weight);
    });
    [...queries.querySelectorAll("label")].forEach((label, i) => label.classList.toggle("shown", i === row));
    const strongest = weights.map((weight, i) => [weight, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, 3);
    const links = strongest.map(([weight, i]) => `${quoted(columns[i])} ${number(weight)}`);
    summary.textContent = `${quoted(rows[row])} looks most at ${links.join(", ")}.`;
    heads.style.setProperty("--top", row / rows.length);
    heads.style.setProperty("--height", 1 / rows.length);
  }

  function fillTable() {
    if (!details.open) return;
    const { rows, columns } = kind();
    const header = (word, scope) => element("th", { scope }, word);
    const cells = (row) => rowOf(layer()[chosen.head], row).map((weight) => element("td", {}, number(weight)));
    table.replaceChildren(
      element("caption", {}, `${kind().name}, layer ${chosen.layer + 1}, head ${chosen.head + 1}`),
      element("tr", {}, element("td"), ...columns.map((word) => header(word, "col"))),
      ...rows.map((word, i) => element("tr", {}, header(word, "row"), ...cells(i))),
    );
  }

  const rowAt = (target) => [...queries.querySelectorAll("label")].indexOf(target.closest("label"));
  queries.addEventListener("change", (event) => showRow((chosen.row = rowAt(event.target))));
  queries.addEventListener("pointerover", (event) => rowAt(event.target) >= 0 && showRow(rowAt(event.target)));
  queries.addEventListener("pointerleave", () => showRow(chosen.row));
  details.addEventListener("toggle", fillTable);

  const choices = element("div", { class: "choices" }, ...Object.values(menus).map(({ label }) => label));
  const words = element("div", { class: "words" }, queries, keysTitle, keys, summary);
  const all = element("div", { class: "all" }, headsTitle, heads);
  host.attachShadow({ mode: "open" }).append(
    element("style", {}, STYLE), choices, element("div", { class: "panels" }, words, all), details,
  );
  fill("kind", kinds.map(({ name }) => name));
  fillKind();
  followTheme(host);
}

for (const host of document.querySelectorAll(".attention-viewer")) if (!host.shadowRoot) start(host);
