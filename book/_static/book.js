// A link in the list of a page's contents leads to its place, and the list, which would cover it, closes.
document.addEventListener("click", ({ target }) => target.closest("dialog[open] a[href^='#']")?.closest("dialog").close());

// Each result of a search comes with an excerpt of its page, which no browser reads where the book is opened from a disk.
DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY &&= location.protocol !== "file:";
