// A link in the list of a page's contents leads to its place, and the list, which would cover it, closes.
document.addEventListener("click", ({ target }) => target.closest("dialog[open] a[href^='#']")?.closest("dialog").close());
