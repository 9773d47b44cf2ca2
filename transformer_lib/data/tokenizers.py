"""Text ⇄ token ids: spaCy's tokenisers in torchtext's ``Field``, and the way back to readable text."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import torch
from torchtext.data import Dataset, Field
from torchtext.vocab import Vocab

UNK, PAD, SOS, EOS = "<unk>", "<pad>", "<sos>", "<eos>"
_MOST_LETTERS = 1000


@lru_cache
def tokenizer(language: str | None) -> Callable[[str], list[str]]:
    """Return spaCy's tokeniser for a language, the one that its trained models have; no model is needed.

    Without a language, for text that is cut into tokens already, tokens are what stands between spaces.

    Raises:
        ValueError: spaCy does not know the language.
    """
    if language is None:
        return str.split
    import spacy  # takes a while to load, and subwords do without it

    try:
        tokenize = spacy.blank(_code(language)).tokenizer
    except ImportError as error:
        raise ValueError(
            f"language is {language!r}, expected a code that spaCy can tokenise, such as 'de' or 'en' ({error})"
        ) from error
    return lambda text: [token.text for token in tokenize(_cuttable(text))]


def _code(language: str) -> str:
    """Return a language's code, if it is one: spaCy takes it for the name of a module."""
    if not re.fullmatch("[a-z]{2,3}", language):
        raise ImportError("two or three small letters")
    return language


def _cuttable(text: str) -> str:
    """Return a text, if spaCy can cut it in less than a second."""
    if (longest := max(map(len, text.split()), default=0)) > _MOST_LETTERS:
        raise ValueError(
            f"sentence has {longest:,} letters without a space, expected at most {_MOST_LETTERS:,}: is it text?"
        )
    return text


class TextField(Field):
    """A torchtext ``Field`` for sentences of one language: lower-cased spaCy tokens between ``<sos>`` and ``<eos>``.

    ``build_vocabularies`` gives it a vocabulary; batches then come out as ids, ``[batch, seq_len]``.

    Args:
        language: a language code, such as ``"de"``.
        lower: make everything lower case.
        tokenize: cuts a sentence, if spaCy's tokeniser is not to.
    """

    specials = (UNK, PAD, SOS, EOS)  # ids 0 to 3, in torchtext's order
    whole_words = True  # that is what tokens are

    def __init__(self, language: str, lower: bool = True, tokenize: Callable[[str], list[str]] | None = None):
        super().__init__(
            tokenize=tokenize or tokenizer(language),
            lower=lower,
            init_token=SOS,
            eos_token=EOS,
            unk_token=UNK,
            pad_token=PAD,
            batch_first=True,
        )
        self.language = language

    @property
    def pad_id(self) -> int:
        """The id of padding."""
        return self.vocab[PAD]

    @property
    def sos_id(self) -> int:
        """The id of the start of a sentence."""
        return self.vocab[SOS]

    @property
    def eos_id(self) -> int:
        """The id of the end of a sentence."""
        return self.vocab[EOS]

    def numericalize(self, batch: list[list[str]], device: torch.device | str | None = None) -> torch.Tensor:
        """Turn padded lists of tokens into ids, ``[batch, seq_len]``, without waiting for a GPU."""
        ids = super().numericalize(batch)
        if torch.device(device or "cpu").type == "cuda":
            return ids.pin_memory().to(device, non_blocking=True)
        return ids.to(device)

    def preprocess(self, x: str | list[str]) -> list[str]:
        """Cut a sentence, if that has not been done, and lower-case the tokens if need be.

        torchtext calls this for what a model is trained on.

        Raises:
            ValueError: it holds half a character, or has far too many letters without a space.
        """
        if isinstance(x, str) and (half := re.search(r"[\ud800-\udfff]", x)):
            raise ValueError(
                f"sentence holds {half[0]!r}, half a character, at position {half.start()}: was it read with another "
                "encoding than it was written in?"
            )
        return super().preprocess(x)

    def tokens(self, sentence: str) -> list[str]:
        """Cut a sentence into tokens, without ``<sos>`` and ``<eos>``.

        To spaCy, a second space and a line's end are tokens too. Those that the vocabulary has not are left out.

        Raises:
            ValueError: there is nothing in it, or it is not text (see ``preprocess``).
        """
        known = self.vocab.stoi if hasattr(self, "vocab") else ()
        tokens = [t for t in self.preprocess(sentence.strip()) if not t.isspace() or t in known]
        if not tokens:
            raise ValueError(f"sentence is {sentence!r}, expected at least one word")
        return tokens

    def words(self, sentence: str) -> list[str]:
        """Cut a sentence into what BLEU counts, lower-cased spaCy tokens; here that is the same as ``tokens``."""
        return self.preprocess(sentence.strip())

    def join(self, tokens: Iterable[str]) -> str:
        """Put tokens together to a sentence as people write it (see ``detokenize``)."""
        return detokenize(tokens)

    def encode(self, sentence: str) -> list[int]:
        """Turn a sentence into ids, from ``<sos>`` to ``<eos>``; a word outside the vocabulary becomes ``<unk>``."""
        return [self.vocab[token] for token in [SOS, *self.tokens(sentence), EOS]]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Turn ids into tokens, without ``<sos>``, ``<pad>`` and what comes from ``<eos>`` on.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        tokens = itertools.takewhile(lambda token: token != EOS, map(self._token, ids))
        return [token for token in tokens if token not in (SOS, PAD)]

    def _token(self, i: int) -> str:
        if not 0 <= i < len(self.vocab):
            raise ValueError(f"ids holds {i}, expected 0 to {len(self.vocab) - 1}")
        return self.vocab.itos[i]

    def to_dict(self) -> dict[str, Any]:
        """Return what ``from_dict`` needs to build this field again, as plain values: the vocabulary and the rest."""
        return {"language": self.language, "lower": self.lower, "tokens": self.vocab.itos}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TextField":
        """Build the field that ``to_dict`` described.

        Raises:
            ValueError: the vocabulary is not one, or the language or the case is something else.
        """
        field = cls(*cls.language_and_case(values))
        tokens = list(values["tokens"])
        if not all(isinstance(token, str) for token in tokens):
            raise ValueError("tokens is not a vocabulary: expected strings only")
        if tuple(tokens[: len(cls.specials)]) != cls.specials or len(set(tokens)) < len(tokens):
            raise ValueError(f"tokens is not a vocabulary: expected {', '.join(cls.specials)} first, and no type twice")
        field.vocab = vocabulary(tokens)
        return field

    @staticmethod
    def language_and_case(values: dict[str, Any]) -> tuple[str | None, bool]:
        """Return the first two arguments of a field that ``to_dict`` described.

        Raises:
            ValueError: one of them is of another kind.
        """
        language, lower = values["language"], values["lower"]
        if not isinstance(language, str | None) or not isinstance(lower, bool):
            raise ValueError(f"language is {language!r} and lower {lower!r}, expected a code, and true or false")
        return language, lower


class RunningTextField(TextField):
    """A torchtext ``Field`` for running text, as a language model reads it: nothing before a line, ``<eos>`` after it.

    Args:
        language: a language code, such as ``"en"``; None if tokens stand between spaces already, as in WikiText.
        lower: make everything lower case.
    """

    specials = (UNK, PAD)

    def __init__(self, language: str | None = None, lower: bool = False):
        super().__init__(language, lower)
        self.init_token = self.eos_token = None  # no sentence is framed: lines end with the ordinary token <eos>

    def stream(self, lines: Iterable[str]) -> list[str]:
        """Join lines into one long list of tokens, with ``<eos>`` after each line, empty ones too."""
        tokens = []
        for number, line in enumerate(lines, start=1):
            try:
                tokens += [*self.preprocess(line), EOS]
            except ValueError as error:
                raise ValueError(f"line {number} cannot be used: {error}") from None
        return tokens

    def encode(self, prompt: str) -> list[int]:
        """Turn the beginning of a text, one line or several, into ids.

        Raises:
            ValueError: there is nothing in it, or a word is not in the vocabulary.
        """
        if not prompt.strip():
            raise ValueError(f"prompt is {prompt!r}, expected at least one word")
        tokens = self.stream(prompt.strip().split("\n"))[:-1]  # lines end in <eos>, but the last one is to go on
        if unknown := sorted({token for token in tokens if self.vocab.itos[self.vocab[token]] != token}):
            raise ValueError(
                f"prompt holds {', '.join(map(repr, unknown))}, expected words among the {len(self.vocab):,} of the "
                f"vocabulary, which come from the training text{'' if self.lower else ' (upper case counts)'}; "
                f"write {UNK} where the word does not matter"
            )
        return [self.vocab[token] for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Turn ids into tokens, all of them.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return [self._token(i) for i in ids]


def vocabulary(tokens: Iterable[str]) -> Vocab:
    """Make a torchtext ``Vocab`` of types in the order of their ids; others are looked up as the first, ``<unk>``."""
    return Vocab(Counter(), specials=list(tokens))


def build_vocabularies(dataset: Dataset, min_freq: int = 2, joint: bool = False) -> None:
    """Give both fields of a training set their vocabularies, the most frequent types first.

    Args:
        dataset: the training split, and nothing else, with the columns ``src`` and ``tgt``.
        min_freq: types that occur less often become ``<unk>``.
        joint: one vocabulary over both sides, as tied embeddings need.
    """
    src_field, tgt_field = dataset.fields["src"], dataset.fields["tgt"]
    if joint:
        src_field.build_vocab(dataset.src, dataset.tgt, min_freq=min_freq)
        tgt_field.vocab = src_field.vocab
    else:
        src_field.build_vocab(dataset.src, min_freq=min_freq)
        tgt_field.build_vocab(dataset.tgt, min_freq=min_freq)


def detokenize(tokens: Iterable[str]) -> str:
    """Join spaCy tokens into a sentence as people write it: no space before a full stop, none around a hyphen.

    What the tokens do not tell is lost: a dash that had spaces around it, for example, is taken for a hyphen.
    """
    text = " ".join(tokens)
    text = re.sub(r" ([.,!?;:)\]}%…])", r"\1", text)
    text = re.sub(r"([(\[{#$]) ", r"\1", text)
    text = re.sub(r" (n't|'(?:s|m|re|ve|ll|d))\b", r"\1", text)
    text = re.sub(r"\b(can) (not)\b|\b(gon) (na)\b", r"\1\2\3\4", text)
    text = re.sub(r"(?<=\w) ([-/]) (?=\w)", r"\1", text)
    text = re.sub(r'(["“”„]) (.*?) (["“”])', r"\1\2\3", text)
    return re.sub(r"\s+", " ", text)
