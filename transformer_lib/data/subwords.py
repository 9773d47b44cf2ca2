"""Text ⇄ subword ids: words that are rare in pieces, so that none is unknown (section 5.1's byte-pair encoding)."""

import base64
import io
import itertools
import math
import random
import re
from collections.abc import Iterable, Sequence
from typing import Any

import sentencepiece

from transformer_lib.data.corpora import Pair
from transformer_lib.data.tokenizers import EOS, PAD, SOS, UNK, Vocabulary, WordTokenizer, normalize

_MOST_BYTES = 500  # without a zero among them; in the included model, 195


class SubwordTokenizer(WordTokenizer):
    """Sentences in subwords, which sentencepiece cuts, between ``<sos>`` and ``<eos>``. Notebook 12, section 2.

    A piece that begins a word begins with ``▁``. The vocabulary comes with the pieces.

    Args:
        language, lower: as in ``WordTokenizer``.
        model: what ``train_subwords`` returned.

    Raises:
        ValueError: ``model`` is not a sentencepiece model whose first pieces are this library's specials, or has far
            too long a piece or rule.
    """

    whole_words = False

    def __init__(self, language: str, model: bytes, lower: bool = True):
        super().__init__(language, lower, tokenize=self._pieces)
        # a zero byte ends what a rule writes in place of a letter, and one is in nearly every piece's score
        if (longest := max(map(len, model.split(b"\0")))) > _MOST_BYTES:
            raise ValueError(
                f"model holds a piece, or a rule that writes a text, of up to {longest:,} bytes, expected at most "
                f"{_MOST_BYTES}: was it trained by train_subwords?"
            )
        self.model = model
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            pieces = [self.processor.id_to_piece(i) for i in range(len(self.processor))]
        except (RuntimeError, UnicodeDecodeError) as error:
            raise ValueError(f"model is not a sentencepiece model ({error})") from None
        if tuple(pieces[:4]) != self.specials:
            first = ", ".join(map(repr, pieces[:4]))
            raise ValueError(f"model begins with the pieces {first}: expected one that train_subwords has trained")
        self.vocab = Vocabulary(pieces)
        self.scores = {piece: self.processor.get_score(i) for i, piece in enumerate(pieces[4:], start=4)}

    def build_vocab(self, sentences: Iterable[Iterable[str]], min_freq: int = 1) -> None:
        """Raise a ValueError: other ids than the model's would be lost when it is saved."""
        raise ValueError("a SubwordTokenizer cannot build a vocabulary: it has that of its pieces")

    def _pieces(self, sentence: str) -> list[str]:
        try:
            return self.processor.encode(normalize(sentence.lower() if self.lower else sentence), out_type=str)
        except UnicodeDecodeError as error:  # its rules for replacing letters make something that is not text
            raise ValueError(f"model is a damaged sentencepiece model ({error})") from None

    def join(self, tokens: Iterable[str]) -> str:
        """Put pieces together to a sentence."""
        return self.processor.decode(list(tokens))

    def resample(self, tokens: Sequence[str], dropout: float, rng: random.Random) -> list[str]:
        """Cut a sentence again, each possible merge left out with probability ``dropout`` at each step (BPE-dropout).

        This is algorithm 1 of Provilkov et al. 2020. sentencepiece's own draws other numbers in each process, whatever
        its seed, so that a training could be neither repeated nor resumed.
        """
        words = re.findall("▁[^▁]*|[^▁]+", "".join(tokens))
        return [piece for word in words for piece in self._merge(list(word), dropout, rng)]

    def _merge(self, symbols: list[str], dropout: float, rng: random.Random) -> list[str]:
        """Apply the merge that was learned first, again and again, until none is left or all are dropped."""
        while True:
            merges = [
                (self.scores[a + b], -i)
                for i, (a, b) in enumerate(itertools.pairwise(symbols))
                if a + b in self.scores and rng.random() >= dropout
            ]
            if not merges:
                break
            i = -max(merges)[1]
            symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
        return [  # as sentencepiece has it, unknown letters in a row are one piece
            piece
            for known, run in itertools.groupby(symbols, key=self.scores.__contains__)
            for piece in (run if known else ["".join(run)])
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return what ``from_dict`` needs to build this tokeniser again, as plain values."""
        return {"language": self.language, "lower": self.lower, "subwords": base64.b64encode(self.model).decode()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "SubwordTokenizer":
        """Build the tokeniser that ``to_dict`` described; errors as for the class."""
        return cls(values["language"], base64.b64decode(values["subwords"], validate=True), values["lower"])


def train_subwords(pairs: Iterable[Pair], size: int | None = None, lower: bool = True) -> bytes:
    """Learn a sentencepiece model, one for both languages, by byte-pair encoding (Sennrich et al. 2016).

    It can write every letter of the training text as it is there. (sentencepiece's own rule, NFKC, writes ``…`` as
    three full stops, and a Chinese comma as an English one, while the references keep theirs.) Only white space becomes
    a space, and a letter and its accent one character.

    Args:
        pairs: the training split, and nothing else.
        size: how many pieces. By default, each letter that occurs and twice the square root of the text's length in
            letters, at most 32,000: some 4,000 for Multi30k; fewer, where a text has no more.
        lower: as in ``SubwordTokenizer``.

    Returns:
        A sentencepiece model, for ``SubwordTokenizer``.

    Raises:
        ValueError: there are too few or too many letters or words for so many pieces.
    """
    sentences = [normalize(sentence.lower() if lower else sentence) for pair in pairs for sentence in pair]
    letters = len(set().union(*sentences)) + 2 * math.isqrt(sum(map(len, sentences)))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            normalization_rule_name="identity",
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="bpe",
            vocab_size=size or min(letters + 5, 32_000),  # with the specials, and ▁
            hard_vocab_limit=size is not None,
            character_coverage=1.0,
            **{"unk_id": 0, "unk_piece": UNK, "pad_id": 1, "pad_piece": PAD},
            **{"bos_id": 2, "bos_piece": SOS, "eos_id": 3, "eos_piece": EOS},
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(f"subwords is {size}, which does not suit the training split ({error})") from None
    return model.getvalue()
