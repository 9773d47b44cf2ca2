"""Text ⇄ subword ids: words that are rare in pieces, so that none is unknown (section 5.1's byte-pair encoding)."""

import base64
import io
import itertools
import math
from collections.abc import Iterable
from typing import Any

import sentencepiece

from transformer_lib.data.corpora import Pair
from transformer_lib.data.text import can_be_written, normalize
from transformer_lib.data.tokenizers import EOS, PAD, SOS, UNK, Vocabulary, WordTokenizer


class SubwordTokenizer(WordTokenizer):
    """Sentences in subwords, between ``<sos>`` and ``<eos>``. Notebook 12, section 2.

    A piece that begins a word begins with ``▁``. ``pieces`` is what ``train_subwords`` returned, bytes with which the
    vocabulary comes; a ValueError if it is anything else.
    """

    whole_words = False

    def __init__(self, language: str, pieces: bytes, lower: bool = True):
        super().__init__(language, lower)
        self.pieces = pieces
        # a zero byte ends what a rule writes in place of a character, and one is in nearly every piece's score
        longest = max(map(len, pieces.split(b"\0")))  # in the included model, 195
        if longest > 500:
            raise ValueError(f"pieces hold a piece or a rule of up to {longest:,} bytes, expected at most 500")
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=pieces)
        except RuntimeError as error:
            raise ValueError(f"pieces are no sentencepiece model ({error})") from None
        self.vocab = Vocabulary(self.processor.id_to_piece(i) for i in range(len(self.processor)))

    @property
    def is_byte_pair_encoding(self) -> bool:
        """Whether a sentence is split as ``train_subwords`` does it: the pair is joined that was learned first."""
        pieces = enumerate(self.vocab.itos)
        order = [-self.processor.get_score(i) for i, piece in pieces if piece not in self.specials]
        return order == [*range(len(order))] and self.processor.normalize(" a  b ") == "▁a▁b"

    def build_vocab(self, sentences: Iterable[Iterable[str]], min_freq: int = 1) -> None:
        """Raise a ValueError: the vocabulary is that of the pieces, and another would not be saved."""
        raise ValueError("a SubwordTokenizer cannot build a vocabulary: it has that of its pieces")

    def split(self, sentence: str) -> list[str]:
        """Split a sentence into pieces."""
        return self.processor.encode(normalize(sentence.lower() if self.lower else sentence), out_type=str)

    def join(self, tokens: Iterable[str]) -> str:
        """Put pieces together to a sentence."""
        return self.processor.decode(list(tokens))

    def to_dict(self) -> dict[str, Any]:
        """Return what ``from_dict`` needs to build this tokeniser again, as plain values."""
        return {"language": self.language, "lower": self.lower, "subwords": base64.b64encode(self.pieces).decode()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "SubwordTokenizer":
        """Build the tokeniser that ``to_dict`` described; errors as for the class."""
        return cls(values["language"], base64.b64decode(values["subwords"], validate=True), values["lower"])


def train_subwords(pairs: Iterable[Pair], size: int | None = None, lower: bool = True) -> bytes:
    """Learn the pieces of words, one set for both languages, by byte-pair encoding (Sennrich et al. 2016).

    It can write every character of the training text as it is there, where sentencepiece's own rule, NFKC, writes ``…``
    as three full stops. Only white space becomes a space, and a letter and its accent one character.

    Args:
        pairs: the training split, and nothing else; what is no text is left out.
        size: how many pieces; a ValueError if the text does not suit so many. By default, each character that occurs
            and twice the square root of the text's length in characters, at most 32,000: some 4,000 for Multi30k.
        lower: make everything lower case, as ``SubwordTokenizer`` then has to, too.
    """
    texts = filter(can_be_written, itertools.chain.from_iterable(pairs))
    sentences = [normalize(text.lower() if lower else text) for text in texts]
    default = 5 + len(set().union(*sentences)) + 2 * math.isqrt(sum(map(len, sentences)))  # 5: specials, ▁
    pieces = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            normalization_rule_name="identity",
            sentence_iterator=iter(sentences),
            model_writer=pieces,
            model_type="bpe",
            vocab_size=size or min(default, 32_000),
            hard_vocab_limit=size is not None,
            character_coverage=1.0,
            **{"unk_id": 0, "unk_piece": UNK, "pad_id": 1, "pad_piece": PAD},
            **{"bos_id": 2, "bos_piece": SOS, "eos_id": 3, "eos_piece": EOS},
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(f"subwords is {size}, which does not suit the training split ({error})") from None
    return pieces.getvalue()
