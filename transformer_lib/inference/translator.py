"""Text in, text out: tokenise, search, detokenise, with scores and attention."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import torch

from transformer_lib.checkpoint import SHIPPED_MODEL, SavedModel, load_model
from transformer_lib.data.batches import padded_ids
from transformer_lib.data.tokenizers import EOS, SOS, WordTokenizer, check_vocabularies
from transformer_lib.fast.precision import in_precision
from transformer_lib.files import CheckpointError
from transformer_lib.inference.parallel import batches_by_length, parallel_map
from transformer_lib.inference.search import MAX_SAVED_BEAM, Hypothesis, beam_search, check_search, greedy_search
from transformer_lib.model.evaluation import evaluation_mode
from transformer_lib.model.transformer import AttentionMaps, Transformer


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
    """

    text: str
    src_tokens: list[str]
    tgt_tokens: list[str]
    log_prob: float
    score: float
    attention: AttentionMaps | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    @property
    def tokens(self) -> list[str]:
        """The translation's tokens, without ``<eos>``."""
        return self.tgt_tokens[:-1] if self.tgt_tokens[-1] == EOS else self.tgt_tokens


class Translator:
    """A trained model with its tokenisers and vocabularies.

    Args:
        model: trained; it is put into evaluation mode.
        src_tokenizer, tgt_tokenizer: those that it was trained with.
        beam_size, length_penalty: how ``translate`` searches unless told otherwise.

    Attributes:
        history: of the training, if ``train_translator`` made it (a saved model's is in its notes).

    Raises:
        ValueError: their vocabularies do not have the model's sizes.
    """

    history: Any = None

    def __init__(
        self,
        model: Transformer,
        src_tokenizer: WordTokenizer,
        tgt_tokenizer: WordTokenizer,
        beam_size: int = 1,
        length_penalty: float = 0.6,
    ):
        check_vocabularies(model.config, {"src": src_tokenizer, "tgt": tgt_tokenizer})
        self.model = model.eval()
        self.src_tokenizer = src_tokenizer
        self.tgt_tokenizer = tgt_tokenizer
        self.beam_size = beam_size
        self.length_penalty = length_penalty

    @classmethod
    def load(
        cls,
        path: str | Path = SHIPPED_MODEL,
        *custom: type | Callable,
        device: torch.device | str = "cpu",
        precision: str = "float32",
    ) -> "Translator":
        """Load a model; without a path, the one that comes with this library (its card: ``assets/MODEL_CARD.md``).

        Arguments and errors as in ``load_model`` and ``from_saved``.
        """
        return cls.from_saved(load_model(path, *custom, device=device), precision)

    @classmethod
    def from_saved(cls, saved: SavedModel, precision: str = "float32") -> "Translator":
        """Make a translator of what ``load_model`` returned, which searches as its notes say.

        Args:
            precision: what to compute in; see ``in_precision``, also for errors.

        Raises:
            CheckpointError: it is no translator, or its notes ask for an impossible search.
        """
        if {*saved.tokenizers} != {"src", "tgt"}:
            names = ", ".join(saved.tokenizers) or "none"
            raise CheckpointError(f"it holds the tokenizers {names}, expected a translator's, src and tgt")
        search = {"beam_size": 1, "length_penalty": 0.6, **saved.notes.get("search", {})}
        beam_size, length_penalty = search["beam_size"], search["length_penalty"]
        try:  # anybody may have written the notes
            check_search(beam_size, length_penalty, MAX_SAVED_BEAM)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"its notes ask for a search that is impossible: {error}") from None
        model = in_precision(saved.model, precision)
        return cls(model, saved.tokenizers["src"], saved.tokenizers["tgt"], beam_size, length_penalty)

    @overload
    def __call__(self, sentences: str, beam_size: int | None = None, length_penalty: float | None = None) -> str: ...
    @overload
    def __call__(
        self, sentences: Sequence[str], beam_size: int | None = None, length_penalty: float | None = None
    ) -> list[str]: ...
    def __call__(
        self, sentences: str | Sequence[str], beam_size: int | None = None, length_penalty: float | None = None
    ) -> str | list[str]:
        """Translate one sentence to a string, or several to a list of strings; see ``translate``."""
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
    ) -> list[Translation]:
        """Translate sentences, in order; those of similar length go through the model together.

        Args:
            beam_size: 1 for greedy search; the paper uses 4. By default, the translator's own.
            length_penalty: an exponent; the paper uses 0.6. By default, the translator's own.
            attention: also return the attention maps.
            use_cache: see ``greedy_search``.

        Raises:
            ValueError: a sentence has no words, or more tokens than the model has positions (it is named); or
                ``beam_size`` or ``length_penalty`` is impossible.
            TypeError: ``sentences`` is one string, or holds anything but strings, or the model is no translator (see
                CONTRIBUTING.md).
            FloatingPointError: the model predicts NaN.
        """
        if isinstance(sentences, str):
            raise TypeError("sentences is one string, expected a list of them; for one, call the translator itself")
        beam_size = self.beam_size if beam_size is None else beam_size
        length_penalty = self.length_penalty if length_penalty is None else length_penalty
        check_search(beam_size, length_penalty, self.model.config.tgt_vocab_size)
        sources = []
        for number, sentence in enumerate(sentences, start=1):
            if not isinstance(sentence, str):
                raise TypeError(f"sentence {number} is {sentence!r}, expected a string: is a cell of a table empty?")
            try:
                sources.append(self.source_tokens(sentence))
            except ValueError as error:
                raise ValueError(f"sentence {number}: {error}") from None
        workers = torch.get_num_threads() if self._device.type == "cpu" else 1
        batch_size = max(1, min(256, 512 // beam_size))  # memory does not grow with the beam
        batches = batches_by_length([len(tokens) for tokens in sources], batch_size, workers)
        sos_id, eos_id = self.tgt_tokenizer.sos_id, self.tgt_tokenizer.eos_id

        def search(batch: list[int]) -> list[Hypothesis]:
            src = self._batch([sources[i] for i in batch])
            if beam_size == 1:
                return greedy_search(self.model, src, sos_id, eos_id, use_cache=use_cache)
            beams = beam_search(self.model, src, sos_id, eos_id, beam_size, length_penalty, use_cache=use_cache)
            return [hypotheses[0] for hypotheses in beams]

        hypotheses: dict[int, Hypothesis] = {}
        with evaluation_mode(self.model):
            for batch, results in zip(batches, parallel_map(search, batches, workers), strict=True):
                hypotheses.update(zip(batch, results, strict=True))
        return [self._translation(source, hypotheses[i], attention) for i, source in enumerate(sources)]

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def source_tokens(self, sentence: str) -> list[str]:
        """Return what the model reads of a sentence: its tokens between ``<sos>`` and ``<eos>``.

        Raises:
            ValueError: it has no words, more tokens than the model has positions, or far too many characters for them.
        """
        if len(sentence) > (limit := 1000 * self.model.config.max_len):  # to split them takes long
            raise ValueError(f"sentence has {len(sentence):,} characters, expected at most {limit:,}: is it one?")
        tokens = [SOS, *self.src_tokenizer.tokens(sentence), EOS]
        if len(tokens) > (max_len := self.model.config.max_len):
            raise ValueError(
                f"sentence has {len(tokens)} tokens with <sos> and <eos>, expected at most {max_len}, the "
                "positions that the model has: translate it in parts"
            )
        return tokens

    def _batch(self, sentences: list[list[str]]) -> torch.Tensor:
        """Return the padded ids of what ``source_tokens`` returned, ``[batch, src_len]``."""
        return padded_ids(self.src_tokenizer, [tokens[1:-1] for tokens in sentences]).to(self._device)

    def _translation(self, src_tokens: list[str], hypothesis: Hypothesis, attention: bool) -> Translation:
        maps = None
        if attention:
            src = self._batch([src_tokens])
            tgt = torch.tensor([[self.tgt_tokenizer.sos_id, *hypothesis.ids[:-1]]], device=src.device)
            maps = self.model.attention_maps(src, tgt)
        return Translation(
            text=self.tgt_tokenizer.join(self.tgt_tokenizer.decode(hypothesis.ids)),
            src_tokens=src_tokens,
            tgt_tokens=[self.tgt_tokenizer.vocab.itos[i] for i in hypothesis.ids],
            log_prob=hypothesis.log_prob,
            score=hypothesis.score,
            attention=maps,
        )
