"""Text in, text out: tokenise, search, detokenise, with scores and attention."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeVar

import torch

from transformer_lib.checkpoint import SHIPPED_MODEL, SavedModel, check_class, load_model
from transformer_lib.data.batches import padded_ids
from transformer_lib.data.tokenizers import EOS, SOS, UNK, WordTokenizer, check_vocabularies
from transformer_lib.files import CheckpointError
from transformer_lib.inference.search import MAX_SAVED_BEAM, Hypothesis, beam_search, check_search
from transformer_lib.model.evaluation import evaluation_mode
from transformer_lib.model.transformer import AttentionMaps, Transformer

Device = torch.device | str
Sentences = TypeVar("Sentences", str, list[str])


@dataclass(frozen=True)
class Translation:
    """A translated sentence, and how it came about.

    Attributes:
        text: the translation as people write it (in lower case, if the model knows nothing else).
        src_tokens: what the encoder saw, from ``<sos>`` to ``<eos>``; an unknown word appears as it was written.
        tgt_tokens: what the decoder wrote, without ``<sos>``; ends in ``<eos>``, unless the length ran out before.
        log_prob, score: see ``Hypothesis``.
        attention: of a batch of one sentence, if it was asked for. Row i of the decoder's maps is the step that wrote
            ``tgt_tokens[i]``; the columns of its self-attention are its inputs, ``<sos>`` and ``tgt_tokens[:-1]``.
        alternatives: the next best of an n-best list, if one was asked for.
    """

    text: str
    src_tokens: list[str]
    tgt_tokens: list[str]
    log_prob: float
    score: float
    attention: AttentionMaps | None = field(default=None, repr=False, compare=False)
    alternatives: "list[Translation]" = field(default_factory=list, repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    @property
    def tokens(self) -> list[str]:
        """The translation's tokens, without ``<eos>``."""
        return self.tgt_tokens[:-1] if self.tgt_tokens[-1] == EOS else self.tgt_tokens


class Translator:
    """A trained model with its tokenisers and vocabularies, and how it searches unless ``translate`` is told otherwise.

    The model is put into evaluation mode. Raises a ValueError if the vocabularies are not those that it was built for,
    and a TypeError if it is a wrapper around a model.
    """

    def __init__(
        self,
        model: Transformer,
        src_tokenizer: WordTokenizer,
        tgt_tokenizer: WordTokenizer,
        beam_size: int = 1,
        length_penalty: float = 0.6,
    ):
        check_class(model, "decode")
        check_vocabularies(model.config, {"src": src_tokenizer, "tgt": tgt_tokenizer})
        self.model = model.eval()
        self.src_tokenizer = src_tokenizer
        self.tgt_tokenizer = tgt_tokenizer
        self.beam_size = beam_size
        self.length_penalty = length_penalty

    @classmethod
    def load(cls, path: str | Path = SHIPPED_MODEL, *custom: Callable, device: Device = "cpu") -> "Translator":
        """Load a model, by default the one that comes with the library; see ``load_model`` and ``from_saved``."""
        return cls.from_saved(load_model(path, *custom, device=device))

    @classmethod
    def from_saved(cls, saved: SavedModel) -> "Translator":
        """Make a translator of what ``load_model`` returned, to search as its notes say.

        Raises a CheckpointError if it is no translator, or its notes ask for an impossible search.
        """
        if {*saved.tokenizers} != {"src", "tgt"}:
            raise CheckpointError(f"tokenizers holds {[*saved.tokenizers]}, expected a translator's, src and tgt")
        try:  # anybody may have written the notes
            search = {"beam_size": 1, "length_penalty": 0.6, **saved.notes.get("search", {})}
            check_search(**search, max_beam_size=MAX_SAVED_BEAM)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"its notes ask for a search that is impossible: {error}") from None
        return cls(saved.model, saved.tokenizers["src"], saved.tokenizers["tgt"], **search)

    def __call__(
        self, sentences: Sentences, beam_size: int | None = None, length_penalty: float | None = None
    ) -> Sentences:
        """Translate one sentence to a string, or a list of them to a list of strings; see ``translate``."""
        if isinstance(sentences, str):
            return self.translate([sentences], beam_size, length_penalty)[0].text
        return [translation.text for translation in self.translate(sentences, beam_size, length_penalty)]

    def translate(
        self,
        sentences: Sequence[str],
        beam_size: int | None = None,
        length_penalty: float | None = None,
        attention: bool = False,
        use_cache: bool = True,
        n_best: int = 1,
        prefix: str | Sequence[str] = "",
    ) -> list[Translation]:
        """Translate sentences, in order; those of similar length go through the model together.

        Args:
            beam_size, length_penalty: see ``beam_search``, or 1 for greedy search; by default, the translator's own.
            attention: also return the attention maps.
            use_cache: see ``beam_search``.
            n_best: how many of a beam's translations to return of each sentence: the best, and ``alternatives``.
            prefix: whole words that all translations have to begin with, or a list with each one's (see
                ``beam_search``); they are part of its text.

        Raises a TypeError if ``sentences`` is one string, and a ValueError if a prefix has a token that the vocabulary
        lacks; other errors as ``source_tokens`` and ``beam_search``.
        """
        if isinstance(sentences, str):
            raise TypeError("sentences is one string, expected a list of them; for one, call the translator itself")
        beam_size = self.beam_size if beam_size is None else beam_size
        length_penalty = self.length_penalty if length_penalty is None else length_penalty
        check_search(beam_size, length_penalty, self.model.config.tgt_vocab_size)
        if n_best != 1 and not 1 <= n_best <= beam_size:
            raise ValueError(f"n_best is {n_best}, expected 1 to beam_size={beam_size}")
        sources = self._sources(sentences)
        prefixes = self._prefixes(prefix, len(sources))  # [sentences, prefix_len]
        # a CPU's cores compute a batch each: a single one is too small for all of them to share
        workers = torch.get_num_threads() if self.device.type == "cpu" else 1
        batches = _batches_by_length(sources, workers, most=min(192, 512 // beam_size))
        settings = {"beam_size": beam_size, "length_penalty": 0.0 if beam_size == 1 else length_penalty}
        settings |= {"sos_id": self.tgt_tokenizer.sos_id, "eos_id": self.tgt_tokenizer.eos_id, "use_cache": use_cache}

        def search(batch: list[int]) -> list[list[Hypothesis]]:
            src = self._ids([sources[i] for i in batch])  # [batch, src_len]
            return beam_search(self.model, src, **settings, prefix=prefixes[batch])

        with evaluation_mode(self.model):
            found = parallel_map(search, batches, workers)
        beams = dict(zip(chain(*batches), chain(*found), strict=True))  # by the sentence's number
        return [self._translation(source, beams[i][:n_best], attention) for i, source in enumerate(sources)]

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device

    def _sources(self, sentences: Sequence[str]) -> list[list[str]]:
        """Return what the model reads of each sentence; a ValueError says the number of one that it cannot read."""
        sources = []
        for number, sentence in enumerate(sentences, start=1):
            try:
                sources.append(self.source_tokens(sentence))
            except ValueError as error:
                raise ValueError(f"sentence {number}: {error}") from None
        return sources

    def _prefixes(self, prefix: str | Sequence[str], number: int) -> torch.Tensor:
        """Return the ids of what each of so many translations begins with, padded: ``[sentences, prefix_len]``."""
        prefixes = [prefix] * number if isinstance(prefix, str) else prefix
        if len(prefixes) != number:
            raise ValueError(f"prefix is a list of {len(prefixes)}, expected one for each of {number} sentences")
        ids = [self._prefix_ids(text) for text in prefixes]
        longest = max(map(len, ids), default=0)
        padded = [[*row, *[self.tgt_tokenizer.pad_id] * (longest - len(row))] for row in ids]
        return torch.tensor(padded, dtype=torch.int64, device=self.device)

    def _ids(self, sources: list[list[str]]) -> torch.Tensor:
        return padded_ids(self.src_tokenizer, sources).to(self.device)

    def _translation(self, source: list[str], beam: list[Hypothesis], attention: bool) -> Translation:
        """Return the first hypothesis as a translation, with the others as its alternatives."""
        best, *others = beam
        tokenizer = self.tgt_tokenizer
        maps = None
        if attention:
            tgt = torch.tensor([[tokenizer.sos_id, *best.ids[:-1]]], device=self.device)  # [1, tgt_len]
            maps = self.model.attention_maps(self._ids([source]), tgt)
        return Translation(
            text=tokenizer.join(tokenizer.decode(best.ids)),
            src_tokens=source,
            tgt_tokens=[tokenizer.vocab.itos[token] for token in best.ids],
            log_prob=best.log_prob,
            score=best.score,
            attention=maps,
            alternatives=[self._translation(source, [other], attention) for other in others],
        )

    def source_tokens(self, sentence: str) -> list[str]:
        """Return what the model reads of a sentence: its tokens between ``<sos>`` and ``<eos>``.

        Raises a ValueError if it has no words, more tokens than the model has positions, or one that the model takes
        for a sign of its own, as a ``<pad>`` between spaces would be.
        """
        words = self.src_tokenizer.tokenize(sentence)
        if not words:
            raise ValueError(f"sentence is {sentence!r}, expected at least one word")
        reserved = {*self.src_tokenizer.specials} - {UNK}
        for word in words:
            if word in reserved:
                raise ValueError(f"sentence holds {word!r}, expected words: it has a meaning of its own for the model")
        tokens = [SOS, *words, EOS]
        max_len = self.model.config.max_len
        if len(tokens) > max_len:
            raise ValueError(f"sentence has {len(tokens)} tokens, expected at most {max_len}: translate it in parts")
        return tokens

    def _prefix_ids(self, prefix: str) -> list[int]:
        vocab = self.tgt_tokenizer.vocab
        tokens = self.tgt_tokenizer.tokenize(prefix)
        for token in tokens:
            if token not in vocab or token in self.tgt_tokenizer.specials:
                raise ValueError(f"prefix is {prefix!r}, of which the model cannot write {token!r}")
        return self.tgt_tokenizer.ids(tokens)


def _batches_by_length(sources: list[list[str]], workers: int, most: int) -> list[list[int]]:
    """Split the sentences' numbers into batches of similar lengths, longest first, one or more for each worker."""
    longest_first = sorted(range(len(sources)), key=lambda i: len(sources[i]), reverse=True)
    size = max(32, math.ceil(len(sources) / workers))  # fewer than 32 sentences are done sooner in one batch
    size = max(1, min(size, most))  # memory does not grow with the beam
    return [longest_first[start : start + size] for start in range(0, len(sources), size)]


def parallel_map(function: Callable, items: Sequence, workers: int) -> list:
    """Do what ``map`` does, in as many threads, among which PyTorch's own are divided."""
    threads = torch.get_num_threads()
    workers = min(workers, len(items))
    if workers < 2:
        return [function(item) for item in items]
    threads_of_each = max(1, threads // workers)
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads_of_each,)) as pool:
            return list(pool.map(function, items))
    finally:
        torch.set_num_threads(threads)
