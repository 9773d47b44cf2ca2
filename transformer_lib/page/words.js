// Text → words → ids, and back: what spaCy's rules do inside transformer_lib/data/tokenizers.py, and `detokenize` in
// text.py. A model that reads words comes with the rules of its source language: what the page needs of spaCy.

const NO_SPACES = ["zh", "ja", "th", "lo", "km", "my"]; // languages that are written without spaces between words
const LONGEST_WORD = 1000; // characters
const RUNS = /(?:(?!\ufeff)[\s\x1c-\x1f\x85])+|(?:\ufeff|[^\s\x1c-\x1f\x85])+/gu; // of what is white space to Python, or is none
const isSpace = (text) => !/^(?:\ufeff|[^\s\x1c-\x1f\x85])/u.test(text);

/** An expression of Python's as one of JavaScript's: there, \w and \d know all letters, and any sign may have a \. */
function expression([pattern, flags]) {
  const CLASSES = { w: "\\p{L}\\p{N}_", d: "\\p{Nd}", s: "\\s\\x1c-\\x1f\\x85" }, SYNTAX = "^$\\.*+?()[]{}|/-";
  const WORD = `[${CLASSES.w}]`, EDGE = `(?:(?<=${WORD})(?!${WORD})|(?<!${WORD})(?=${WORD}))`;
  let inClass = false;
  const source = pattern.replace(/^\(\?[iu]+\)/, "").replace(/\\(U[\da-fA-F]{8}|u[\da-fA-F]{4}|x[\da-fA-F]{2}|.)|[[\]]|\{(?!\d)/gsu, (all, escaped) => {
    if (!escaped) {
      if (all === "{") return inClass ? all : "\\{";
      if (all === "[" && inClass) return "\\[";
      inClass = all === "[";
      return all;
    }
    if (/^[Uux]./.test(escaped)) return `\\u{${escaped.slice(1).replace(/^0+(?=.)/, "")}}`;
    const known = CLASSES[escaped.toLowerCase()];
    if (known) return escaped !== escaped.toLowerCase() ? `[^${known}]` : inClass ? known : `[${known}]`;
    if (escaped === "b" && !inClass) return EDGE;
    if (/[\da-zA-Z]/.test(escaped)) return all;
    return !SYNTAX.includes(escaped) || (escaped === "-" && !inClass) ? escaped : all;
  });
  return new RegExp(source, flags & 2 ? "giu" : "gu"); // 2: Python's IGNORECASE
}

/** spaCy's tokeniser: prefixes and suffixes come off a word, what is an exception stays, and the rest falls apart inside. */
class SpacyRules {
  /** Expressions by the names that spaCy has for them, or null; rules: a list of tokens for each exception. */
  constructor({ rules, ...patterns }) {
    for (const name in patterns) this[name] = patterns[name] && expression(patterns[name]);
    this.exceptions = new Map(Object.entries(rules));
    this.apart = new Map(); // exceptions that fall apart without being known, by their first token: lists of tokens
    for (const text of this.exceptions.keys()) {
      if (!["prefix_search", "suffix_search", "infix_finditer"].some((name) => this.first(name, text))) continue;
      const tokens = this.word(text, new Map());
      if (tokens.length) this.apart.set(tokens[0], [...(this.apart.get(tokens[0]) ?? []), tokens]);
    }
  }

  /** The first match of an expression in a text, or undefined. `anchored` as Python's match, from the beginning on. */
  first(name, text, anchored = false) {
    if (!this[name]) return undefined;
    const found = this[name].exec(text);
    this[name].lastIndex = 0; // the next search begins anew
    return found && !(anchored && found.index) ? found : undefined;
  }

  /** Words and signs; of white space, what goes beyond one space is a token, too. */
  split(sentence) {
    const tokens = [], from = []; // and in which run of letters or of spaces each of them stands
    (sentence.match(RUNS) ?? []).forEach((run, i) => {
      const found = isSpace(run) ? [run.replace(/^ /, "")].filter(Boolean) : this.word(run, this.exceptions);
      tokens.push(...found);
      from.push(...found.map(() => i));
    });
    return this.joined(tokens, from);
  }

  /** The tokens of what stands between spaces. */
  word(text, exceptions) {
    const before = [], behind = [];
    for (let length = Infinity; text && text.length !== length; ) {
      if (this.first("token_match", text, true) || exceptions.has(text)) break;
      length = text.length;
      const prefix = this.first("prefix_search", text)?.[0] ?? "", withoutPrefix = text.slice(prefix.length);
      if (prefix && exceptions.has(withoutPrefix)) {
        before.push(prefix);
        text = withoutPrefix;
        break;
      }
      const suffix = this.first("suffix_search", withoutPrefix)?.[0] ?? "", withoutSuffix = text.slice(0, text.length - suffix.length);
      if (suffix && exceptions.has(withoutSuffix)) {
        behind.unshift(suffix);
        text = withoutSuffix;
        break;
      }
      if (prefix) before.push(prefix);
      if (suffix) behind.unshift(suffix);
      text = text.slice(prefix.length, text.length - suffix.length);
    }
    return [...before, ...(text ? this.inside(text, exceptions) : []), ...behind];
  }

  inside(text, exceptions) {
    if (exceptions.has(text)) return exceptions.get(text);
    if (this.first("token_match", text, true) || this.first("url_match", text, true)) return [text];
    const tokens = [];
    let start = 0;
    for (const { 0: infix, index } of this.infix_finditer ? text.matchAll(this.infix_finditer) : []) {
      if (index === 0) continue;
      if (index > start) tokens.push(text.slice(start, index));
      if (infix) tokens.push(infix);
      start = index + infix.length;
    }
    if (start < text.length) tokens.push(text.slice(start));
    return tokens;
  }

  /** Put together what is an exception and fell apart, the longest first. */
  joined(tokens, from) {
    const found = [];
    tokens.forEach((token, start) => {
      for (const list of this.apart.get(token) ?? []) {
        if (list.every((one, i) => one === tokens[start + i])) found.push([start, start + list.length]);
      }
    });
    const taken = new Set(), chosen = new Map();
    for (const [start, end] of found.sort((a, b) => b[1] - b[0] - (a[1] - a[0]) || a[0] - b[0])) {
      if (!taken.has(start) && !taken.has(end - 1)) chosen.set(start, end);
      for (let i = start; i < end; i++) taken.add(i);
    }
    const all = [];
    for (let i = 0; i < tokens.length; ) {
      const end = chosen.get(i) ?? i + 1, parts = tokens.slice(i, end);
      const isOne = chosen.has(i) && from[i] === from[end - 1]; // not with a space in it
      all.push(...((isOne && this.exceptions.get(parts.join(""))) || parts));
      i = end;
    }
    return all;
  }
}

class WordTokenizer {
  /** tokens: the vocabulary. rules: spaCy's for this language; without them, words stand between spaces. */
  constructor({ language, lower, tokens, rules }) {
    this.language = (language ?? "").split(/[-_]/)[0].toLowerCase();
    this.lower = lower;
    this.pieces = tokens;
    this.specials = specialsOf(tokens);
    this.longest = LONGEST_WORD;
    this.ids = new Map(tokens.map((token, id) => [token, id]));
    this.rules = rules ? new SpacyRules(rules) : { split: (text) => (text.match(RUNS) ?? []).filter((run) => !isSpace(run)) };
  }

  /** Cut a sentence into words: {tokens, ids}, both from <sos> to <eos>. Those outside the vocabulary are <unk>. */
  encode(sentence) {
    if (/\p{Surrogate}/u.test(sentence)) throw new Error("The text holds an unpaired surrogate. Was it cut in two?");
    const long = sentence.split(/\s+/).map((word) => word.length).filter((length) => length > LONGEST_WORD / 10);
    if (long.reduce((sum, length) => sum + length ** 2, 0) > LONGEST_WORD ** 2) {
      throw new Error(`A word of ${Math.max(...long)} characters is too long for this tokeniser.`);
    }
    const text = (sentence.match(RUNS) ?? []).filter((run, i, runs) => (i && i < runs.length - 1) || !isSpace(run)).join("");
    const words = this.rules.split(text.normalize("NFC")).map((word) => (this.lower ? word.toLowerCase() : word))
      .filter((word) => !isSpace(word) || this.ids.has(word));
    if (!words.length) throw new Error("Please write at least one word.");
    const { unk, pad, sos, eos } = this.specials, ids = words.map((word) => this.ids.get(word) ?? unk);
    const sign = ids.findIndex((id) => [pad, sos, eos].includes(id));
    if (sign >= 0) throw new Error(`“${words[sign]}” has a meaning of its own for the model: write something else.`);
    return { tokens: ["<sos>", ...words, "<eos>"], ids: [sos, ...ids, eos] };
  }

  /** Put ids together to a sentence as people write the language. */
  decode(ids) {
    const { pad, sos, eos } = this.specials, words = [];
    for (const id of ids) {
      if (id === eos) break;
      if (id !== pad && id !== sos) words.push(this.pieces[id]);
    }
    if (this.language === "") return words.join(" ");
    if (NO_SPACES.includes(this.language)) return words.join("");
    const W = "[\\p{L}\\p{N}_]", replace = (text, pattern, by) => text.replace(new RegExp(pattern, "gu"), by);
    let text = words.join(" ");
    text = text.replace(/ ([.,!?;:)\]}%…؟،؛۔।])/g, "$1").replace(/([(\[{#$¿¡]) /g, "$1");
    text = replace(text, ` (n['’]t|['’](?:s|m|re|ve|ll|d))(?!${W})`, "$1");
    text = replace(text, `(?<!${W})(?:(can) (not)|(gon) (na))(?!${W})`, "$1$2$3$4");
    text = replace(text, `(?<=${W}) ([-/]) (?=${W})`, "$1");
    text = text.replace(/(["“”„]) ([^"“”„]+) (["“”])/g, "$1$2$3").split(/\s+/).filter(Boolean).join(" ");
    if (["fr", "it", "ca"].includes(this.language)) text = replace(text, `(?<=${W}['’]) (?=${W})|(?<=${W}) (?=-${W})`, "");
    return text;
  }
}
