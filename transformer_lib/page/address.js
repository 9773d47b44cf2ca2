// What the page "Try it" shows, as the end of its address: "#de=Ein+Hund+rennt.&step=2&box=cross-attention&layer=1&head=3".
// What comes after a # is for the browser alone: no server is told. What an address asks for and the page has not is left
// out, and named. All numbers count from 1.

/**
 * Write and read addresses. `known` is what this page has: names of `views`, `boxes`, `kinds` of maps, `changes` and
 * `heads`, such as "cross 3.4", and how many `stops` the tour has.
 *
 * A state is {tour, de: the sentence, search: "greedy" or "beam", begin: tokens that the translation begins with, without:
 * changes, silenced: heads, step, view, box, kind, layer, head, word}; what it has not is as on a fresh page.
 */
function addressBook(known) {
  const kindOf = (head) => head.split(" ")[0], ofKind = (kind) => known.heads.filter((head) => kindOf(head) === kind);

  /** Heads, those of a whole kind by its name. */
  function group(heads) {
    const isWhole = (kind) => ofKind(kind).every((head) => heads.includes(head));
    const named = known.heads.filter((head) => heads.includes(head)); // always in the same order
    return [...new Set(named.map((head) => (isWhole(kindOf(head)) ? kindOf(head) : head)))];
  }

  /** Tokens as people read them: a space begins a word, · continues one. */
  function spell(tokens) {
    const text = tokens.map((token) => (token.startsWith("▁") ? ` ${token.slice(1)}` : `·${token}`)).join("");
    return /^ [^ ·]/.test(text) ? text.slice(1) : text;
  }

  const tokensOf = (text) => (/^[ ·]/.test(text) ? text : ` ${text}`).match(/[ ·][^ ·]*/g)
    .map((token) => (token[0] === " " ? `▁${token.slice(1)}` : token.slice(1)));
  const number = (text) => (/^[1-9]\d{0,3}$/.test(text) ? Number(text) : undefined);
  const upTo = (most) => (text) => (number(text) <= most ? number(text) : undefined);

  /** One of some names, or the beginning of only one. */
  const oneOf = (names) => (text) => {
    const begun = names.filter((name) => text && name.startsWith(text));
    return names.includes(text) ? text : begun.length === 1 ? begun[0] : undefined;
  };

  /** A list of what `find` knows: each item stands for one name or for several. */
  const list = (find) => (text, leave) => text.split(",").flatMap((item) => {
    const found = find(item.trim());
    if (!found.length) leave(item);
    return found;
  });

  const READ = { // each name's value; undefined where it cannot be read
    tour: upTo(known.stops),
    de: (text) => (text.trim() ? text.replace(/\r\n?/g, "\n") : undefined),
    search: oneOf(["greedy", "beam"]),
    begin: (text) => (text.trim() ? tokensOf(text) : undefined),
    without: list((item) => known.changes.filter((name) => name === item)),
    silenced: list((item) => known.heads.filter((head) => head === item || kindOf(head) === item)),
    step: number,
    view: oneOf(known.views),
    box: oneOf(known.boxes),
    kind: oneOf(known.kinds),
    layer: number,
    head: number,
    word: number,
  };
  const WRITE = { begin: spell, without: (names) => known.changes.filter((name) => names.includes(name)).join(), silenced: (heads) => group(heads).join() };

  return {
    spell,
    write(state) {
      const isSaid = (name) => state[name] !== undefined && state[name].length !== 0;
      const entries = Object.keys(READ).filter(isSaid).map((name) => [name, (WRITE[name] ?? String)(state[name])]);
      return `#${new URLSearchParams(entries)}`.replaceAll("%2C", ",");
    },
    /** {state, left: what had to be left out, each as it was written}; undefined if this is a place of the page. */
    read(hash) {
      if (!/^#[^=]*=/.test(hash)) return undefined;
      const state = {}, left = [];
      for (const [name, text] of new URLSearchParams(hash.slice(1))) {
        const leave = (what) => left.push(`${name}=${what}`), isNew = Object.hasOwn(READ, name) && !Object.hasOwn(state, name);
        const value = isNew ? READ[name](text, leave) : undefined;
        if (value === undefined) leave(text);
        else state[name] = value;
      }
      return { state, left };
    },
  };
}
