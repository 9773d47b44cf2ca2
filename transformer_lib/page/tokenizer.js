// Text → subwords → ids, and back: what sentencepiece does inside transformer_lib/data/subwords.py. A tokeniser of words
// is in words.js.

/** Make a tokeniser of what its library's `to_dict` says of it. */
const tokenizerOf = (described) =>
  described.subwords ? new SubwordTokenizer({ ...described, ...readPieces(described.subwords) }) : new WordTokenizer(described);

/** Read a sentencepiece model, a protocol buffer in base64: {pieces, charsmap}, as the tokeniser below wants them. */
function readPieces(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)), text = new TextDecoder();
  const [PIECES, NORMALIZER, PIECE, CHARSMAP] = [1, 3, 1, 2]; // numbers of fields
  /** The fields of the message from `i` to `end`: pairs of a number and where its bytes begin and end. */
  function* fields(i, end) {
    const varint = () => {
      for (let value = 0, times = 1; ; times *= 128) {
        const byte = bytes[i++];
        value += (byte & 127) * times;
        if (byte < 128) return value;
      }
    };
    while (i < end) {
      const tag = varint(), kind = tag % 8; // 0 is a number, 1 has eight bytes, 5 four, and 2 says how many
      const length = kind === 0 ? (varint(), 0) : ({ 1: 8, 5: 4 }[kind] ?? varint());
      yield [Math.floor(tag / 8), i, i + length];
      i += length;
    }
  }
  const pieces = [];
  let charsmap = new Uint8Array([4, 0, 0, 0, 0, 0, 0, 0]); // a trie of nothing: each letter stays as it is
  for (const [field, ...place] of fields(0, bytes.length)) {
    for (const [inner, from, to] of field === PIECES || field === NORMALIZER ? fields(...place) : []) {
      if (field === PIECES && inner === PIECE) pieces.push(text.decode(bytes.slice(from, to)));
      if (field === NORMALIZER && inner === CHARSMAP && to > from) charsmap = bytes.slice(from, to);
    }
  }
  return { pieces, charsmap: charsmap.buffer };
}

/** The ids of the special tokens, by name: {unk, pad, sos, eos}. Where they stand differs from vocabulary to vocabulary. */
function specialsOf(pieces) {
  const ids = Object.fromEntries(["unk", "pad", "sos", "eos"].map((name) => [name, pieces.indexOf(`<${name}>`)]));
  const missing = Object.keys(ids).filter((name) => ids[name] < 0).map((name) => `<${name}>`);
  if (missing.length) throw new Error(`The model's vocabulary has no ${missing.join(", ")}.`);
  return ids;
}

class SubwordTokenizer {
  /**
   * pieces: the vocabulary; but for four specials, in the order in which byte-pair encoding learned them.
   * lower: whether it knows small letters only.
   * charsmap: bytes that say which letters are written as which others, such as "ﬁ" as "fi": the length of a trie in
   * four bytes, the trie, and the replacements, each of which ends in a zero.
   */
  constructor({ pieces, charsmap, lower }) {
    this.pieces = pieces;
    this.charsmap = charsmap;
    this.lower = lower;
    this.specials = specialsOf(pieces);
    this.longest = pieces.reduce((longest, { length }) => Math.max(longest, length), 0);
    this.ids = new Map(pieces.map((piece, id) => [piece, id]));
    for (const id of Object.values(this.specials)) this.ids.delete(pieces[id]); // nobody can type a special
    const size = new Uint32Array(charsmap, 0, 1)[0];
    this.trie = new Uint32Array(charsmap, 4, size / 4);
    this.replacements = new Uint8Array(charsmap, 4 + size);
  }

  /** Cut a sentence into pieces: {tokens, ids}, both from <sos> to <eos>. Letters that nobody learned are <unk>. */
  encode(sentence) {
    if (/\p{Surrogate}/u.test(sentence)) throw new Error("The text holds an unpaired surrogate. Was it cut in two?");
    const lowered = this.lower ? (text) => text.toLowerCase() : (text) => text;
    const words = this.normalize(this.spelled(lowered(sentence))).match(/▁[^▁]*/g) ?? [];
    let tokens = [], unknown = false; // unknown letters in a row are one piece
    for (const piece of words.flatMap((word) => this.merge([...word]))) {
      const known = this.ids.has(piece);
      if (unknown && !known) tokens[tokens.length - 1] += piece;
      else tokens.push(piece);
      unknown = !known;
    }
    tokens = tokens.map(lowered); // the table makes "H" of "𝗛"
    if (!tokens.length) throw new Error("Please write at least one word.");
    const { unk, sos, eos } = this.specials, ids = tokens.map((token) => this.ids.get(token) ?? unk);
    return { tokens: ["<sos>", ...tokens, "<eos>"], ids: [sos, ...ids, eos] };
  }

  /** Put ids together to a sentence. */
  decode(ids) {
    const { unk, pad, sos, eos } = this.specials, written = ids.filter((id) => ![pad, sos, eos].includes(id));
    const text = written.map((id) => (id === unk ? " ⁇ " : this.pieces[id])).join("");
    return text.replace(/^▁+/, "").replaceAll("▁", " ");
  }

  /** Letters and their accents as one character, and a space for what Python takes for white space. */
  spelled(sentence) {
    return sentence.replaceAll("\ufeff", "").normalize("NFC").replace(/[\s\u200b\x1c-\x1f\x85]+/g, " ");
  }

  /** Write a sentence with the letters of the table, one ▁ for any number of spaces, and a ▁ at its beginning. */
  normalize(sentence) {
    const bytes = new TextEncoder().encode(sentence), written = [];
    for (let i = 0; i < bytes.length; ) {
      const [end, start] = this.longestKey(bytes, i);
      if (end) written.push(...this.replacements.subarray(start, this.replacements.indexOf(0, start)));
      else written.push(bytes[i]);
      i = end ?? i + 1;
    }
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(written));
    const spaced = `▁${text.replace(/ +/g, " ").replace(/^ /, "").replaceAll(" ", "▁")}`;
    let end = spaced.length; // an expression for ▁ at the end would look again from each ▁
    while (spaced[end - 1] === "▁") end--;
    return spaced.slice(0, end);
  }

  /** Walk the trie along the bytes: [where the longest key that begins at `i` ends, where its replacement begins]. */
  longestKey(bytes, i) {
    const children = (unit) => (unit >>> 10) << ((unit & 0x200) >>> 6);
    let node = children(this.trie[0]), longest = [];
    for (; i < bytes.length; i++) {
      node ^= bytes[i];
      const unit = this.trie[node];
      if ((unit & 0x800000ff) !== bytes[i]) break;
      node ^= children(unit);
      if (unit & 0x100) longest = [i + 1, this.trie[node] & 0x7fffffff];
    }
    return longest;
  }

  /** Join the two neighbours that were learned first, the left-most of equals, until no two make a piece. */
  merge(symbols) {
    // Which pair comes first is a tournament: a leaf for each symbol and the one after it, and each node above holds the
    // better of its two. So joining two of n symbols replays log n matches, and a long word takes no longer a letter.
    const count = symbols.length, size = 2 ** Math.ceil(Math.log2(count));
    const next = symbols.map((_, i) => i + 1), previous = symbols.map((_, i) => i - 1);
    const learned = new Float64Array(size).fill(Infinity); // the id that a pair would have
    const winner = new Int32Array(2 * size).map((_, node) => node - size); // leaves stand at the end
    const play = (node) => {
      const left = winner[2 * node], right = winner[2 * node + 1];
      winner[node] = learned[right] < learned[left] ? right : left;
    };
    const look = (i) => {
      const isPair = symbols[i] && next[i] < count; // a symbol that was joined to another is ""
      learned[i] = (isPair ? this.ids.get(symbols[i] + symbols[next[i]]) : undefined) ?? Infinity;
    };
    symbols.forEach((_, i) => look(i));
    for (let node = size - 1; node > 0; node--) play(node);
    for (let i = winner[1]; learned[i] < Infinity; i = winner[1]) {
      const joined = next[i];
      symbols[i] += symbols[joined];
      symbols[joined] = "";
      next[i] = next[joined];
      previous[next[i]] = i;
      for (const changed of [previous[i], i, joined].filter((place) => place >= 0)) {
        look(changed);
        for (let node = (size + changed) >> 1; node > 0; node >>= 1) play(node);
      }
    }
    return symbols.filter((symbol) => symbol);
  }
}
