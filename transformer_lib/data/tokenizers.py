"""Text ⇄ token ids: spaCy's tokenisers, vocabularies, and back to readable text. Notebook 01, sections 2 and 3."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

UNK, PAD, SOS, EOS = "<unk>", "<pad>", "<sos>", "<eos>"
WITHOUT_SPACES = ("zh", "ja", "th", "lo", "km", "my")  # languages that are written without spaces between words
_MOST_LETTERS = 1000


class Vocabulary:
    """Token types and their ids; the first type, ``<unk>``, stands in for all unknown ones.

    Attributes:
        itos: the types by id ("integer to string", as in torchtext).
        stoi: the ids by type ("string to integer").
    """

    def __init__(self, types: Iterable[str]):
        self.itos = list(types)
        self.stoi = {token: i for i, token in enumerate(self.itos)}

    def __getitem__(self, token: str) -> int:
        return self.stoi.get(token, 0)

    def __contains__(self, token: str) -> bool:
        return token in self.stoi

    def __len__(self) -> int:
        return len(self.itos)


@lru_cache
def spacy_tokenizer(language: str | None) -> Callable[[str], list[str]]:
    """Return spaCy's rules for a language, which need no trained model; without a language, cut at spaces.

    Raises:
        ValueError: spaCy does not know the language.
    """
    if language is None:
        return str.split
    import spacy  # takes a while to load, and subwords do without it

    try:
        if not re.fullmatch("[a-z]{2,3}", language):  # spaCy takes it for the name of a module
            raise ImportError("two or three lower-case letters")
        cut = spacy.blank(language).tokenizer
    except ImportError as error:
        raise ValueError(
            f"language is {language!r}, expected a code that spaCy can tokenise, such as 'de' or 'en' ({error})"
        ) from error

    def tokenize(text: str) -> list[str]:
        if (longest := max(map(len, text.split()), default=0)) > _MOST_LETTERS:  # spaCy would take long
            raise ValueError(
                f"sentence has {longest:,} letters without a space, expected at most {_MOST_LETTERS:,}: is it text?"
            )
        return [token.text for token in cut(text)]

    return tokenize


def frequent_words(language: str | None) -> set[str]:
    """Return spaCy's stop words, which every text of a language is full of; none if it does not know the language."""
    import spacy

    try:
        return set(spacy.util.get_lang_class(language).Defaults.stop_words) if language else set()
    except ImportError:
        return set()


class WordTokenizer:
    """Sentences of one language as lower-cased spaCy tokens between ``<sos>`` and ``<eos>``.

    ``build_vocab`` (or ``build_vocabularies``, for both sides) gives it a vocabulary, ``vocab``; then it has ids.

    Args:
        language: a language code, such as ``"de"``; None if tokens are between spaces already.
        lower: make everything lower case.
        tokenize: cuts a sentence into tokens, if spaCy's tokeniser is not to. A saved model notes the function's name;
            ``load_model`` has to be given the function again.

    Raises:
        ValueError: spaCy does not know the language.
    """

    specials = (UNK, PAD, SOS, EOS)  # ids 0 to 3, in torchtext's order
    whole_words = True  # that is what tokens are

    def __init__(self, language: str | None, lower: bool = True, tokenize: Callable[[str], list[str]] | None = None):
        if not isinstance(language, str | None) or not isinstance(lower, bool):
            raise ValueError(f"language is {language!r} and lower {lower!r}, expected a code, and true or false")
        self.language, self.lower, self.tokenize = language, lower, tokenize
        self.vocab: Vocabulary = None  # type: ignore[assignment]  # until build_vocab
        if tokenize is None:
            spacy_tokenizer(language)  # an unknown language is better reported now

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

    def build_vocab(self, sentences: Iterable[Iterable[str]], min_freq: int = 1) -> None:
        """Collect the types of tokenised sentences, the most frequent first; rarer ones become ``<unk>``."""
        counts = Counter(itertools.chain.from_iterable(sentences))
        frequent = [token for token, count in counts.items() if count >= min_freq and token not in self.specials]
        self.vocab = Vocabulary([*self.specials, *sorted(frequent, key=lambda token: (-counts[token], token))])

    def preprocess(self, sentence: str) -> list[str]:
        """Cut a sentence into tokens, and lower-case them if need be.

        Raises:
            ValueError: it holds half a character, or has far too many letters without a space.
        """
        if half := re.search(r"[\ud800-\udfff]", sentence):
            raise ValueError(
                f"sentence holds {half[0]!r}, half a character, at position {half.start()}: was it read with another "
                "encoding than it was written in?"
            )
        tokens = (self.tokenize or spacy_tokenizer(self.language))(sentence.rstrip("\n"))
        return [token.lower() for token in tokens] if self.lower else list(tokens)

    def tokens(self, sentence: str) -> list[str]:
        """Cut a sentence into tokens, without ``<sos>``, ``<eos>``, and white space that the vocabulary lacks.

        Raises:
            ValueError: there is nothing in it, or it is not text (see ``preprocess``).
        """
        tokens = [t for t in self.preprocess(sentence.strip()) if not t.isspace() or (self.vocab and t in self.vocab)]
        if not tokens:
            raise ValueError(f"sentence is {sentence!r}, expected at least one word")
        return tokens

    def words(self, sentence: str) -> list[str]:
        """Cut a sentence into what BLEU counts, spaCy tokens; lower-cased, unless ``lower`` is False."""
        return self.preprocess(sentence.strip())

    def join(self, tokens: Iterable[str]) -> str:
        """Put tokens together to a sentence as people write it (see ``detokenize``)."""
        return "".join(tokens) if self.language in WITHOUT_SPACES else detokenize(tokens)

    def encode(self, sentence: str) -> list[int]:
        """Turn a sentence into ids, from ``<sos>`` to ``<eos>``; a word outside the vocabulary becomes ``<unk>``."""
        return self.ids(self.tokens(sentence))

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Look up tokens, between ``<sos>`` and ``<eos>``."""
        return [self.vocab[token] for token in (SOS, *tokens, EOS)]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Turn ids into tokens, without ``<sos>``, ``<pad>`` and what follows the first ``<eos>``.

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
        """Return what ``from_dict`` needs to build this tokeniser again, as plain values."""
        custom = {"tokenize": name_of(self.tokenize)} if self.tokenize else {}
        tokens = self._checked(self.vocab.itos)
        return {"language": self.language, "lower": self.lower, "tokens": tokens, **custom}

    @classmethod
    def from_dict(cls, values: dict[str, Any], tokenize: Callable[[str], list[str]] | None = None) -> "WordTokenizer":
        """Build the tokeniser that ``to_dict`` described, with the same ``tokenize``.

        Raises:
            ValueError: the vocabulary is not one, or the language or the case is something else.
        """
        options = {"tokenize": tokenize} if tokenize else {}
        tokenizer = cls(values["language"], values["lower"], **options)
        tokenizer.vocab = Vocabulary(cls._checked(list(values["tokens"])))
        return tokenizer

    @classmethod
    def _checked(cls, tokens: list[str]) -> list[str]:
        """Return the types of a vocabulary if they can be saved and loaded."""
        unique = all(isinstance(token, str) for token in tokens) and len(set(tokens)) == len(tokens)
        if not unique or tuple(tokens[: len(cls.specials)]) != cls.specials:
            raise ValueError(f"tokens is not a vocabulary: expected {', '.join(cls.specials)} first, and no type twice")
        return tokens


def name_of(function: Callable) -> str:
    """Return a function's name, or that of its class if it is another callable, such as spaCy's own tokenisers."""
    name = getattr(function, "__name__", type(function).__name__)
    if name == "<lambda>":
        raise ValueError("tokenize is a lambda, which has no name to find it by again: define a function")
    return name


def detokenize(tokens: Iterable[str]) -> str:
    """Join spaCy tokens into a sentence as people write it: no space before a full stop, none around a hyphen."""
    text = " ".join(tokens)
    text = re.sub(r" ([.,!?;:)\]}%…])", r"\1", text)
    text = re.sub(r"([(\[{#$]) ", r"\1", text)
    text = re.sub(r" (n't|'(?:s|m|re|ve|ll|d))\b", r"\1", text)
    text = re.sub(r"\b(can) (not)\b|\b(gon) (na)\b", r"\1\2\3\4", text)
    text = re.sub(r"(?<=\w) ([-/]) (?=\w)", r"\1", text)
    text = re.sub(r'(["“”„]) (.*?) (["“”])', r"\1\2\3", text)
    return re.sub(r"\s+", " ", text)


def check_vocabularies(config: Any, tokenizers: Mapping[str, WordTokenizer], to_train: bool = False) -> None:
    """Compare the vocabularies with the sizes that the model was built for, as far as its configuration has them.

    Raises:
        ValueError: they differ, or a tokeniser has no vocabulary yet; or one matrix is to learn two vocabularies.
    """
    for name, tokenizer in tokenizers.items():
        size_name = "vocab_size" if name == "text" else f"{name}_vocab_size"
        if not hasattr(config, size_name):
            raise ValueError(
                f"tokenizers holds {name!r}, but {type(config).__name__} has no {size_name}: sentence pairs "
                "(make_dataset) are for a Transformer, running text (make_stream) for a language model"
            )
        if tokenizer.vocab is None:
            raise ValueError(f"{name}_tokenizer has no vocabulary yet: build one from the training split first")
        found, size = tokenizer.pad_id, getattr(config, size_name)
        if found != config.pad_id:
            raise ValueError(f"{name}_tokenizer pads with the id {found}, but the model's pad_id is {config.pad_id}")
        if (found := len(tokenizer.vocab)) != size:
            raise ValueError(
                f"{name}_tokenizer has a vocabulary of {found} types, but the model's {size_name} is {size}"
            )
    if to_train and {*tokenizers} == {"src", "tgt"} and getattr(config, "tie_embeddings", False):
        for i, (src, tgt) in enumerate(zip(*(tokenizers[side].vocab.itos for side in ("src", "tgt")), strict=True)):
            if src != tgt:
                raise ValueError(
                    f"tie_embeddings=True needs one joint vocabulary, but the id {i} is {src!r} in src and {tgt!r} in "
                    "tgt: build_vocabularies(…, joint=True), or train_subwords once, on both languages"
                )
