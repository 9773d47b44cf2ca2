"""Text ⇄ subword ids: words that are rare in pieces, so that none is unknown (section 5.1's byte-pair encoding)."""

import base64
import io
from collections.abc import Iterable, Sequence
from typing import Any

import sentencepiece

from transformer_lib.corpora import Pair
from transformer_lib.text import EOS, PAD, SOS, UNK, TextField, tokenizer, vocabulary


class SubwordField(TextField):
    """A torchtext ``Field`` for sentences in subwords, which sentencepiece cuts, between ``<sos>`` and ``<eos>``.

    A piece that begins a word begins with ``▁``. Sentences are not cut into words before, so nothing has to be guessed
    to put them together again. The vocabulary comes with the pieces.

    Args:
        language: a language code, such as ``"de"``.
        model: what ``train_subwords`` returned.
        lower: make everything lower case.

    Raises:
        ValueError: ``model`` is not a sentencepiece model whose first pieces are this library's specials.
    """

    whole_words = False

    def __init__(self, language: str, model: bytes, lower: bool = True):
        super().__init__(language, lower, self._pieces)
        self.model = model
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError(f"model is not a sentencepiece model ({error})") from None
        pieces = [self.processor.id_to_piece(i) for i in range(len(self.processor))]
        if tuple(pieces[: len(self.specials)]) != self.specials:
            raise ValueError(
                f"model begins with the pieces {', '.join(pieces[: len(self.specials)])}, expected "
                f"{', '.join(self.specials)}: train it with train_subwords"
            )
        self.vocab = vocabulary(pieces)

    def _pieces(self, sentence: str) -> list[str]:
        return self.processor.encode(sentence.lower() if self.lower else sentence, out_type=str)

    def words(self, sentence: str) -> list[str]:
        """Cut a sentence into what BLEU counts, lower-cased spaCy tokens."""
        words = tokenizer(self.language)(sentence.strip())
        return [word.lower() for word in words] if self.lower else words

    def join(self, tokens: Iterable[str]) -> str:
        """Put pieces together to a sentence."""
        return self.processor.decode(list(tokens))

    def resample(self, tokens: Sequence[str], dropout: float) -> list[str]:
        """Put pieces together and cut them again, each merge left out with probability ``dropout`` (BPE-dropout)."""
        return self.processor.encode(
            self.join(tokens), out_type=str, enable_sampling=True, alpha=dropout, nbest_size=-1
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what ``from_dict`` needs to build this field again, as plain values."""
        return {"language": self.language, "lower": self.lower, "subwords": base64.b64encode(self.model).decode()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "SubwordField":
        """Build the field that ``to_dict`` described.

        Raises:
            ValueError: there is no sentencepiece model in it.
        """
        return cls(values["language"], base64.b64decode(values["subwords"], validate=True), values["lower"])


def seed_sampling(seed: int) -> None:
    """Seed the random numbers that ``SubwordField.resample`` draws; they are sentencepiece's own."""
    sentencepiece.set_random_generator_seed(seed)


def train_subwords(pairs: Iterable[Pair], size: int, lower: bool = True) -> bytes:
    """Learn one vocabulary of subwords over both languages by byte-pair encoding (Sennrich et al. 2016).

    Beginning with letters, the two neighbouring pieces that occur together most often become a new piece, until there
    are enough.

    Args:
        pairs: the training split, and nothing else.
        size: number of pieces, ``<unk>``, ``<pad>``, ``<sos>`` and ``<eos>`` included.
        lower: make everything lower case.

    Returns:
        A sentencepiece model, for ``SubwordField``.

    Raises:
        ValueError: there are too few or too many letters or words for so many pieces.
    """
    sentences = (sentence.lower() if lower else sentence for pair in pairs for sentence in pair)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences,
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            character_coverage=1.0,
            **{"unk_id": 0, "unk_piece": UNK, "pad_id": 1, "pad_piece": PAD},
            **{"bos_id": 2, "bos_piece": SOS, "eos_id": 3, "eos_piece": EOS},
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(f"subwords is {size}, which does not suit the {'training split'} ({error})") from None
    return model.getvalue()
