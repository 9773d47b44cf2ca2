// A link in the list of a page's contents leads to its place, and the list, which would cover it, closes.
document.addEventListener("click", ({ target }) => target.closest("dialog[open] a[href^='#']")?.closest("dialog").close());

// What scrolls can be reached by keys, too: a formula that is wider than the page.
const reach = new ResizeObserver((all) => {
  for (const { target } of all) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
});
const watchFormulas = () => document.querySelectorAll(".formula").forEach((one) => reach.observe(one));
document.addEventListener("DOMContentLoaded", watchFormulas);

// Each result of a search comes with an excerpt of its page, which no browser reads where the book is opened from a disk:
// there, the page's text is in texts.js.
if (location.protocol === "file:" && location.pathname.endsWith("/search.html")) {
  const script = document.createElement("script");
  const loaded = new Promise((resolve) => (script.onload = resolve));
  script.src = "_static/texts.js";
  document.head.append(script);
  window.fetch = async (address) => {
    await loaded;
    const main = document.createElement("main");
    main.setAttribute("role", "main");
    main.textContent = TEXTS[address.replace(/^\.\//, "").replace(/\.html$/, "")];
    return new Response(main.outerHTML);
  };
}

// Printed, a page is light, and what is shut is open; afterwards all is as it was. Folds of one name shut each other.
const opened = [];
let theme;
window.addEventListener("beforeprint", () => {
  theme = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  for (const fold of document.querySelectorAll("article details:not([open])")) {
    opened.push([fold, fold.getAttribute("name")]);
    fold.removeAttribute("name");
    fold.open = true;
  }
});
window.addEventListener("afterprint", () => {
  document.documentElement.dataset.theme = theme;
  for (const [fold, name] of opened.splice(0)) {
    fold.open = false;
    if (name) fold.setAttribute("name", name);
  }
});
