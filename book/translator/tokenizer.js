// Text → subwords → ids, and back: what sentencepiece does inside transformer_lib/data/subwords.py.

const [UNK_ID, PAD_ID, SOS_ID, EOS_ID] = [0, 1, 2, 3];

class SubwordTokenizer {
  /**
   * pieces: the vocabulary; after four specials, in the order in which byte-pair encoding learned them.
   * charsmap: bytes that say which letters are written as which others, such as "ﬁ" as "fi": the length of a trie in
   * four bytes, the trie, and the replacements, each of which ends in a zero.
   */
  constructor({ pieces, charsmap }) {
    this.pieces = pieces;
    this.ids = new Map(pieces.map((piece, id) => [piece, id]).slice(EOS_ID + 1)); // nobody can type a special
    const size = new Uint32Array(charsmap, 0, 1)[0];
    this.trie = new Uint32Array(charsmap, 4, size / 4);
    this.replacements = new Uint8Array(charsmap, 4 + size);
  }

  /** Cut a sentence into pieces: {tokens, ids}, both from <sos> to <eos>. Letters that nobody learned are <unk>. */
  encode(sentence) {
    if (/\p{Surrogate}/u.test(sentence)) throw new Error("The text holds half a character. Was it cut in two?");
    const words = this.normalize(this.spelled(sentence.toLowerCase())).match(/▁[^▁]*/g) ?? [];
    let tokens = [], unknown = false; // unknown letters in a row are one piece
    for (const piece of words.flatMap((word) => this.merge([...word]))) {
      const known = this.ids.has(piece);
      if (unknown && !known) tokens[tokens.length - 1] += piece;
      else tokens.push(piece);
      unknown = !known;
    }
    tokens = tokens.map((token) => token.toLowerCase()); // the table makes "H" of "𝗛"
    if (!tokens.length) throw new Error("Please write at least one word.");
    const ids = tokens.map((token) => this.ids.get(token) ?? UNK_ID);
    return { tokens: ["<sos>", ...tokens, "<eos>"], ids: [SOS_ID, ...ids, EOS_ID] };
  }

  /** Put ids together to a sentence. */
  decode(ids) {
    const written = ids.filter((id) => ![PAD_ID, SOS_ID, EOS_ID].includes(id));
    const text = written.map((id) => (id === UNK_ID ? " ⁇ " : this.pieces[id])).join("");
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
    return `▁${text.replace(/ +/g, " ").replace(/^ /, "").replaceAll(" ", "▁")}`.replace(/▁+$/, "");
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
    for (;;) {
      const learned = symbols.slice(1).map((symbol, i) => this.ids.get(symbols[i] + symbol) ?? Infinity);
      const first = learned.reduce((best, id, i) => (id < learned[best] ? i : best), 0);
      if (!(learned[first] < Infinity)) return symbols;
      symbols.splice(first, 2, symbols[first] + symbols[first + 1]);
    }
  }
}
