"""Notebook 17: eleven Transformers with one fault each, and the checks of their diagnoses.

What the notebook hides stands here in the open: read on when you have named all eleven.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from transformer_exercises import Wrong, as_list, as_number, call, diagnose, disguised, exercise, expect
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.inference.search import Hypothesis, greedy_search
from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.embeddings import InputEmbedding
from transformer_lib.model.masks import padding_mask
from transformer_lib.model.transformer import Transformer
from transformer_lib.training.device import seed_everything
from transformer_lib.training.loss import sequence_loss

FAULTS = {
    "leak": "the causal mask lets each position see one position too many",
    "no causal mask": "every target position sees all of the target",
    "no shift": "the decoder is given the very token that it must say",
    "padding in the loss": "the loss counts positions where <pad> is wanted",
    "no source mask": "the encoder and the cross-attention see <pad> like a word",
    "mask upside down": "the source mask shows <pad>, and hides the words",
    "no positions": "nothing is added to the word vectors",
    "positions along the batch": "what is added depends on the sentence's row in the batch, not on the word's place",
    "heads without transpose": "the heads cut up the sequence, not the vectors",
    "no transpose back": "the heads' outputs are joined as they lie, all words of one head, then all of the next",
    "one norm": "all sub-layers of a layer share one LayerNorm",
    "no root of d_model": "the tied table starts at N(0, 1), and is not multiplied by √d_model",
    "learning rate": "it is ten times too high",
    "no eval": "dropout is on while the model translates",
    "no length penalty": "beam search compares sums of log-probabilities",
    "hasty beam": "beam search returns the first hypothesis that ends",
}

_SIGNS = {
    "leak": "the answers of one or two positions before the last would feel the last word",
    "no causal mask": "every answer, even the first, would feel the last word, and padding would change nothing",
    "no shift": "what is wanted would begin with <sos>",
    "padding in the loss": "more padding on the target's side would change the loss, on the source's side it would not",
    "no source mask": "more padding on the source's side would change the loss, on the target's side it would not, "
    "and a neighbour's source would",
    "mask upside down": "neither a neighbour's source nor another order would change the loss, "
    "but more padding on the source's side would",
    "no positions": "the order of the source's words would make no difference, a neighbour's source would, "
    "and company none",
    "positions along the batch": "a sentence would get other answers alone than in company",
    "heads without transpose": "more padding on either side would change the loss, "
    "without any padding in the loss, and no answer would feel a later word",
    "no transpose back": "answers before the last would feel the last word, "
    "and more padding on either side would change the loss",
    "one norm": "there would be fewer parameters than the formula says",
    "no root of d_model": "the loss of the untrained model would be far above ln V",
    "learning rate": "the untrained model would be in order, and with a third of the rate it would learn",
    "no eval": "the same sentence would be translated differently the next time",
    "no length penalty": "hardly any translation would be less probable to the model than the greedy one, "
    "and some would be shorter",
    "hasty beam": "some translations would be less probable to the model than the greedy ones, the same each time",
}


class Patient:
    """A Transformer with its loss and its search, as somebody brings it to the clinic.

    Args:
        number: 1 to 11; 0 is healthy.
        src_tokenizer, tgt_tokenizer: with one joint vocabulary, for the model ties all its embeddings.
        changes: to fields of the ``small`` preset, such as ``dropout=0.0``.

    Attributes:
        model: a ``Transformer``; all patients' begin with the same seed.
    """

    def __init__(self, number: int, src_tokenizer: WordTokenizer, tgt_tokenizer: WordTokenizer, **changes: Any):
        self.number, self.tokenizers = number, (src_tokenizer, tgt_tokenizer)
        self._uncounted_id, self._eval_first = tgt_tokenizer.pad_id, True
        self._search: Callable[..., list[Hypothesis]] = greedy_search
        size = len(tgt_tokenizer.vocab)
        seed_everything(1)
        self.model = Transformer(TransformerConfig.preset("small", size, size, tie_embeddings=True, **changes))
        if number:
            _CASES[number].infect(self)

    def loss(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return the mean loss per target token, in nats, for ids ``[batch, src_len]`` and ``[batch, tgt_len]``."""
        logits, wanted = self.model.logits_and_targets(src, tgt)
        return sequence_loss(logits, wanted, self._uncounted_id)

    def translate(self, sentences: list[str]) -> list[str]:
        """Translate sentences, 32 at a time, with 30 tokens at most."""
        src_tokenizer, tgt_tokenizer = self.tokenizers
        self.model.train(not self._eval_first)  # training has left it in training mode
        device, found = next(self.model.parameters()).device, []
        for start in range(0, len(sentences), 32):
            ids = [torch.tensor(src_tokenizer.encode(sentence)) for sentence in sentences[start : start + 32]]
            src = pad_sequence(ids, batch_first=True, padding_value=src_tokenizer.pad_id).to(device)
            found += self._search(self.model, src, tgt_tokenizer.sos_id, tgt_tokenizer.eos_id, max_len=30)
        return [tgt_tokenizer.join(tgt_tokenizer.decode(hypothesis.ids)) for hypothesis in found]


# the faults: each class takes the place of the library's class that it inherits from


@disguised
class _LeakingMask(Transformer):
    def decode(self, tgt: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        length = tgt.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=tgt.device).tril(1)
        mask = padding_mask(tgt, self.config.pad_id) & causal
        return self.output(self.decoder(self.tgt_embedding(tgt), memory, mask, memory_mask)[0])


@disguised
class _NoShift(Transformer):
    def logits_and_targets(self, src: Tensor, tgt: Tensor) -> tuple[Tensor, Tensor]:
        return self(src, tgt), tgt


@disguised
class _MaskUpsideDown(Transformer):
    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        mask = (src == self.config.pad_id)[:, None, None, :]
        return self.encoder(self.src_embedding(src), mask)[0], mask


@disguised
class _PositionsAlongTheBatch(InputEmbedding):
    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        return self.dropout(x + self.positions(x.size(0))[:, None])


@disguised
class _NoTransposeBack(MultiHeadAttention):
    def join_heads(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[2], -1)


@disguised
class _HeadsWithoutTranspose(_NoTransposeBack):
    def split_heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], self.num_heads, x.shape[1], -1)


def _leak(patient: Patient) -> None:
    patient.model.__class__ = _LeakingMask


def _no_shift(patient: Patient) -> None:
    patient.model.__class__ = _NoShift


def _padding_in_the_loss(patient: Patient) -> None:
    patient._uncounted_id = -100


def _mask_upside_down(patient: Patient) -> None:
    patient.model.__class__ = _MaskUpsideDown


def _positions_along_the_batch(patient: Patient) -> None:
    for module in (patient.model.src_embedding, patient.model.tgt_embedding):
        module.__class__ = _PositionsAlongTheBatch


def _replace_attention(patient: Patient, kind: type[MultiHeadAttention]) -> None:
    for module in patient.model.modules():
        if isinstance(module, MultiHeadAttention):
            module.__class__ = kind


def _one_norm(patient: Patient) -> None:
    for layer in [*patient.model.encoder.layers, *patient.model.decoder.layers]:
        layer.norm2 = layer.norm1
        if hasattr(layer, "norm3"):
            layer.norm3 = layer.norm1


def _no_root_of_d_model(patient: Patient) -> None:
    tokens = patient.model.tgt_embedding.tokens  # the source's and the output's table, too
    tokens.scale = 1.0
    nn.init.normal_(tokens.table.weight)


def _no_eval(patient: Patient) -> None:
    patient._eval_first = False
    patient._search = _search_of_ones_own  # greedy_search would switch dropout off


@torch.inference_mode()
def _search_of_ones_own(model: Transformer, src: Tensor, sos_id: int, eos_id: int, max_len: int) -> list[Hypothesis]:
    """Search greedily, in whatever mode the model is."""
    memory, mask = model.encode(src)
    tgt = torch.full((len(src), 1), sos_id, device=src.device)
    for _ in range(max_len):
        logits = model.decode(tgt, memory, mask)[:, -1]
        logits[:, [model.config.pad_id, sos_id]] = -torch.inf
        tgt = torch.cat([tgt, logits.argmax(dim=1)[:, None]], dim=1)
    return [Hypothesis(ids, 0.0, 0.0) for ids in tgt[:, 1:].tolist()]  # what follows <eos> is left out when decoded


def _hasty_beam(patient: Patient) -> None:
    patient._search = _first_that_ends


@torch.inference_mode()
def _first_that_ends(
    model: Transformer, src: Tensor, sos_id: int, eos_id: int, max_len: int, beam_size: int = 8
) -> list[Hypothesis]:
    """Search with a beam, sentence by sentence."""
    found = []
    for sentence in src:
        sentence = sentence[sentence != model.config.pad_id]
        memory, mask = model.encode(sentence[None])
        beam = [Hypothesis([sos_id], 0.0, 0.0)]
        while not (ended := [one for one in beam if one.ids[-1] == eos_id]) and len(beam[0].ids) <= max_len:
            tgt = torch.tensor([one.ids for one in beam], device=src.device)
            size = len(beam), -1, -1
            logits = model.decode(tgt, memory.expand(*size), mask.expand(*size, -1))[:, -1]
            logits[:, [model.config.pad_id, sos_id]] = -torch.inf
            scores = torch.tensor([one.log_prob for one in beam], device=src.device)[:, None] + logits.log_softmax(-1)
            best = scores.flatten().topk(beam_size)
            beam = [
                Hypothesis([*beam[place // scores.shape[1]].ids, place % scores.shape[1]], score, score)
                for score, place in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            ]
        first = (ended or beam)[0]
        found.append(Hypothesis(first.ids[1:], first.log_prob, first.score))
    return found


class _Case(NamedTuple):
    fault: str  # its name in FAULTS
    infect: Callable[[Patient], None]
    line: str  # the faulty line
    right: str  # what should stand there


_CASES = {
    1: _Case(
        "leak",
        _leak,
        "causal = torch.ones(length, length, dtype=torch.bool, device=tgt.device).tril(1)",
        "… .tril()",
    ),
    2: _Case("no shift", _no_shift, "return self(src, tgt), tgt", "return self(src, tgt[:, :-1]), tgt[:, 1:]"),
    3: _Case(
        "padding in the loss",
        _padding_in_the_loss,
        "patient._uncounted_id = -100",
        "patient._uncounted_id = tgt_tokenizer.pad_id (-100 is PyTorch's default, and no token has it)",
    ),
    4: _Case(
        "mask upside down",
        _mask_upside_down,
        "mask = (src == self.config.pad_id)[:, None, None, :]",
        'mask = (src != self.config.pad_id)[:, None, None, :], for True means "may attend"',
    ),
    5: _Case(
        "positions along the batch",
        _positions_along_the_batch,
        "return self.dropout(x + self.positions(x.size(0))[:, None])",
        "return self.dropout(x + self.positions(x.size(1))), for x is [batch, seq_len, d_model]",
    ),
    6: _Case(
        "heads without transpose",
        partial(_replace_attention, kind=_HeadsWithoutTranspose),
        "return x.view(x.shape[0], self.num_heads, x.shape[1], -1)",
        "return x.view(x.shape[0], x.shape[1], self.num_heads, -1).transpose(1, 2)",
    ),
    7: _Case("one norm", _one_norm, "layer.norm2 = layer.norm1", "a LayerNorm of its own for each sub-layer"),
    8: _Case(
        "no root of d_model",
        _no_root_of_d_model,
        "tokens.scale = 1.0",
        "tokens.scale = math.sqrt(d_model), with a table that starts at N(0, 1/d_model)",
    ),
    9: _Case("no eval", _no_eval, "patient._eval_first = False", "model.eval() before the search"),
    10: _Case(
        "hasty beam",
        _hasty_beam,
        "while not (ended := [one for one in beam if one.ids[-1] == eos_id])",
        "go on until `beam_size` hypotheses have ended and none that is open can win",
    ),
    11: _Case(
        "no transpose back",
        partial(_replace_attention, kind=_NoTransposeBack),
        "return x.reshape(x.shape[0], x.shape[2], -1)",
        "return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1), for x is [batch, heads, seq_len, d_k]",
    ),
}


def _diagnose(answers: dict[int, Any]) -> str:
    """Compare diagnoses with the faults, and return the faulty lines."""
    lines = []
    for number, answer in answers.items():
        case = _CASES[number]
        diagnose(answer, case.fault, FAULTS, _SIGNS, f"patient {number}: ")
        lines.append(f"patient {number}: {FAULTS[case.fault]}\n    has       {case.line}\n    expected  {case.right}")
    return "here are the lines.\n\n" + "\n".join(lines)


def padding_changes(
    loss: Callable[[Tensor, Tensor], Tensor], src: Tensor, tgt: Tensor, pad_id: int
) -> tuple[float, float]:
    """Return how much a loss changes with five more ``<pad>`` in the source, and in the target: the answer to 17.1."""

    def more(ids: Tensor) -> Tensor:
        return torch.cat([ids, ids.new_full((len(ids), 5), pad_id)], dim=1)

    before = loss(src, tgt).item()
    return loss(more(src), tgt).item() - before, loss(src, more(tgt)).item() - before


@exercise("17.1")
def padding_test(my_padding_test: Callable[[Callable[[Tensor, Tensor], Tensor], Tensor, Tensor, int], Any]) -> str:
    """``my_padding_test(loss, src, tgt, pad_id)``: how much the loss changes with 5 more <pad>, on either side."""
    src, tgt = torch.tensor([[2, 6, 7, 3], [2, 8, 3, 0]]), torch.tensor([[2, 9, 3, 0, 0], [2, 5, 4, 6, 3]])
    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "a loss that no padding changes": lambda src, tgt: src.sum() / 7.0 + tgt.sum() / 9.0,
        "a loss that counts the source's padding": lambda src, tgt: src.float().mean() + tgt.sum() / 9.0,
        "a loss that counts the target's padding": lambda src, tgt: src.sum() / 7.0 + tgt.float().mean(),
        "a loss in which each place has its weight": lambda src, tgt: _weighted(src) + 2 * _weighted(tgt),
    }

    def columns(ids: Tensor, pad_id: int) -> Tensor:
        return torch.cat([ids, torch.full((len(ids), 5), pad_id)], dim=1)

    for name, loss in losses.items():
        found = as_list(call(my_padding_test, loss, src.clone(), tgt.clone(), 0))
        expect(
            isinstance(found, list | tuple) and len(found) == 2, "two numbers were expected, for source and for target."
        )
        by_src, by_tgt = (as_number(one.detach() if isinstance(one, Tensor) else one) for one in found)
        before = loss(src, tgt)
        right = [float(loss(columns(src, 0), tgt) - before), float(loss(src, columns(tgt, 0)) - before)]

        def same(a: float, b: float, to: list[float]) -> bool:
            return abs(abs(a) - abs(to[0])) < 1e-4 and abs(abs(b) - abs(to[1])) < 1e-4

        if same(by_src, by_tgt, right):
            continue
        both = float(loss(columns(src, 0), columns(tgt, 0)) - before)
        absolute = [r + float(before) for r in right]
        expect(not same(by_tgt, by_src, right), f"{name}: you have exchanged source and target.")
        expect(not same(by_src, by_tgt, absolute), f"{name}: those are the losses; what is asked is their *change*.")
        expect(
            not same(by_src, by_tgt, [right[0], both]) and not same(by_src, by_tgt, [both, both]),
            f"{name}: you have padded both sides at once. One at a time, or you will not know which one it was.",
        )
        one = [float(loss(columns(src, 1), tgt) - before), float(loss(src, columns(tgt, 1)) - before)]
        expect(not same(by_src, by_tgt, one), "the id of padding is an argument; it need not be 1.")
        raise Wrong(
            f"{name}: with five columns of `pad_id` at the end, it changes by {right[0]:.3f} (source) and "
            f"{right[1]:.3f} (target), and you found {by_src:.3f} and {by_tgt:.3f}."
        )
    return "padding is no part of a sentence: however much there is, no loss may change."


def _weighted(ids: Tensor) -> Tensor:
    return (ids * torch.arange(1, ids.shape[1] + 1)).float().mean()


@exercise("17.2")
def too_good(patient_1: str, patient_2: str, patient_3: str) -> str:
    """``patient_1, patient_2, patient_3``: the names of their faults in ``FAULTS``."""
    return _diagnose({1: patient_1, 2: patient_2, 3: patient_3})


@exercise("17.3")
def reads_badly(patient_4: str, patient_5: str, patient_6: str) -> str:
    """``patient_4, patient_5, patient_6``: the names of their faults in ``FAULTS``."""
    return _diagnose({4: patient_4, 5: patient_5, 6: patient_6})


@exercise("17.4")
def inconspicuous(patient_7: str, patient_8: str) -> str:
    """``patient_7, patient_8``: the names of their faults in ``FAULTS``."""
    return _diagnose({7: patient_7, 8: patient_8})


@exercise("17.5")
def translates_badly(patient_9: str, patient_10: str) -> str:
    """``patient_9, patient_10``: the names of their faults in ``FAULTS``."""
    return _diagnose({9: patient_9, 10: patient_10})


@exercise("17.6")
def not_trained_yet(patient_11: str) -> str:
    """``patient_11``: the name of its fault in ``FAULTS``."""
    return _diagnose({11: patient_11})
