"""To ONNX: a translator as two graphs that ONNX Runtime runs, from many languages, without PyTorch or this library.

``encoder.onnx`` reads the source once. ``decoder.onnx`` predicts one token from the newest one, the encoder's outputs,
and the keys and values of earlier steps, which it returned itself. All is float32, opset 20; ``batch`` is free, and so
are ``src_len`` and ``past_len``, as far as the model has positions. For each layer N of the decoder:

- encoder: ``src_ids``, ``[batch, src_len]`` → ``memory_mask``, ``[batch, 1, 1, src_len]``; ``cross_key_N`` and
  ``cross_value_N``, ``[batch, heads, src_len, d_k]``;
- decoder: ``tgt_ids``, ``[batch, 1]``; these; ``past_key_N`` and ``past_value_N``, ``[batch, heads, past_len, d_k]``,
  where ``past_len`` is 0 at first → ``logits``, ``[batch, tgt_vocab_size]``; ``present_key_N`` and
  ``present_value_N``, the next step's past.

The cookbook (``book/cookbook.md``) has greedy search with NumPy and ONNX Runtime alone.

A translation ends at its first ``<eos>``. If ``config.json`` names sentencepiece models, these make ids of text
(``encode(sentence.lower(), add_bos=True, add_eos=True)``) and text of ids (``decode``); else it has the tokens by id.
"""

import contextlib
import copy
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.inference.kv_cache import CachedDecoder, can_cache
from transformer_lib.inference.translator import Translator
from transformer_lib.interop.folders import check_new, description_of, new_folder
from transformer_lib.model.transformer import Transformer

OPSET = 20
_LENGTH = 5  # of the sentences that the graphs are made and compared with
_LARGEST_DIFFERENCE = 1e-3  # between logits: rounding gives about 1e-5, a wrong graph about 1


def to_onnx(translator: Translator, folder: str | Path) -> float:
    """Write a translator as ONNX graphs (see above), once ONNX Runtime has given PyTorch's logits with them.

    The folder gets ``encoder.onnx``, ``decoder.onnx``, ``config.json`` (special ids, tokenisers, how the translator
    searches) and, if the model has subwords, the sentencepiece models ``src.model`` and ``tgt.model``.

    Args:
        translator: its model in float32, on any device.
        folder: a new or empty folder.

    Returns:
        The largest difference between the two's logits.

    Raises:
        ImportError: onnx, onnxscript or onnxruntime is not installed.
        FileExistsError: the folder holds something; it is left alone.
        TypeError: the decoder has parts of your own: what they would do with a cache is unknown.
        ValueError: the model is not in float32, or has too few positions to be tried out, or ONNX cannot hold its
            encoder or feed-forward network.
        RuntimeError: ONNX Runtime's results differ from PyTorch's.
        OSError: the folder cannot be written.
    """
    check_new(folder)  # fail before the slow part
    _check(translator.model)
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{error}: `pip install onnx onnxruntime onnxscript`") from error
    model = copy.deepcopy(translator.model).requires_grad_(False).cpu().eval()
    try:
        with _quiet():
            encoder, decoder = _export(model)
    except Exception as error:  # whatever stands in the way of tracing
        reason = str(error.__cause__ or error).strip().split("\n")[0]
        raise ValueError(
            f"model is a {type(model).__name__}, which ONNX cannot hold, or this PyTorch cannot export: {reason}"
        ) from error
    run = [onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"]) for graph in (encoder, decoder)]
    difference = _difference(model, *run)
    if not difference <= _LARGEST_DIFFERENCE:  # NaN is not
        raise RuntimeError(
            f"ONNX Runtime's logits differ from PyTorch's by {difference:.2g}, expected at most {_LARGEST_DIFFERENCE}: "
            "does the model do something that depends on the values or the length of its input?"
        )
    config, files = description_of(translator)
    for side, tokenizer in (("src", translator.src_tokenizer), ("tgt", translator.tgt_tokenizer)):
        config["tokenizers"][side] |= {name: getattr(tokenizer, name) for name in ("pad_id", "sos_id", "eos_id")}
    files["config.json"] = json.dumps(config, ensure_ascii=False, indent=1).encode()
    with new_folder(folder) as new:
        for name, content in {"encoder.onnx": encoder, "decoder.onnx": decoder, **files}.items():
            (new / name).write_bytes(content)
    return difference


class _EncoderGraph(nn.Module):
    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(self, src_ids: Tensor) -> tuple[Tensor, ...]:
        memory, mask = self.model.encode(src_ids)
        attentions = [layer.cross_attn for layer in self.model.decoder.layers]
        return mask, *(a.split_heads(project(memory)) for a in attentions for project in (a.k_proj, a.v_proj))


class _DecoderGraph(nn.Module):
    def __init__(self, model: Transformer):
        super().__init__()
        self.model, self.decoder = model, CachedDecoder(model, None, None)

    def forward(self, tgt_ids: Tensor, memory_mask: Tensor, cross: list[Tensor], past: list[Tensor]) -> tuple:
        decoder = self.decoder
        decoder.memory_mask, decoder.length = memory_mask, past[0].shape[2]
        for i, layer in enumerate(decoder.layers):
            layer.cross_attn.keys, layer.cross_attn.values = cross[2 * i : 2 * i + 2]
            layer.self_attn.keys, layer.self_attn.values = past[2 * i : 2 * i + 2]
        logits = decoder.step(tgt_ids)[:, 0]
        kept = [layer.self_attn for layer in decoder.layers]
        return logits, *(x for attention in kept for x in (attention.keys, attention.values))


def _check(model: Transformer) -> None:
    """Raise an error if a model cannot be exported, as far as can be seen without trying."""
    if not can_cache(model):
        raise TypeError(
            f"model is a {type(model).__name__} whose decoder, or a part of it, is not this library's own: what yours "
            "does with keys and values of earlier steps is unknown, so it cannot be exported"
        )
    if (max_len := model.config.max_len) < _LENGTH:
        raise ValueError(f"max_len is {max_len}, expected at least {_LENGTH}, as long as the sentences to try it with")
    found = {str(parameter.dtype) for parameter in model.parameters()}
    if found != {"torch.float32"} or type(model.output) is not nn.Linear:  # int8 replaces linear layers
        raise ValueError(
            f"model has weights of {' and '.join(sorted(found))} and its output is a {type(model.output).__name__}, "
            "expected torch.float32 and a Linear of torch.nn: load it without another precision, such as int8"
        )


def _export(model: Transformer) -> Iterator[bytes]:
    """Yield the graphs of the encoder and of the decoder."""
    batch, max_len = torch.export.Dim("batch"), model.config.max_len
    src_len, past_len = torch.export.Dim("src_len", max=max_len), torch.export.Dim("past_len", max=max_len - 1)
    kinds = [f"{kind}_{i}" for i in range(len(model.decoder.layers)) for kind in ("key", "value")]
    cross_names, past_names, present_names = ([f"{of}_{kind}" for kind in kinds] for of in ("cross", "past", "present"))
    cross_sizes, past_sizes = [{0: batch, 2: src_len} for _ in kinds], [{0: batch, 2: past_len} for _ in kinds]

    # of the examples, only shapes matter; equal sizes, or a size of 1, might be taken for constants
    src_ids = torch.zeros(3, _LENGTH, dtype=torch.int64, device="cpu")
    mask, *cross = _EncoderGraph(model)(src_ids)
    past = [one[:, :, :2] for one in cross]
    yield _graph(
        _EncoderGraph(model), (src_ids,), ({0: batch, 1: src_len},), ["src_ids"], ["memory_mask", *cross_names]
    )
    yield _graph(
        _DecoderGraph(model),
        (src_ids[:, :1], mask, cross, past),
        ({0: batch}, {0: batch, 3: src_len}, cross_sizes, past_sizes),
        ["tgt_ids", "memory_mask", *cross_names, *past_names],
        ["logits", *present_names],
    )


def _graph(module: nn.Module, examples: tuple, sizes: tuple, inputs: list[str], outputs: list[str]) -> bytes:
    """Trace a module; ``sizes`` says which dimensions of the examples are free."""
    program = torch.export.export(module.eval(), examples, dynamic_shapes=sizes, strict=False)
    names = {"input_names": inputs, "output_names": outputs, "dynamic_shapes": sizes}  # sizes, for their names
    exported = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False, **names)
    return exported.model_proto.SerializeToString()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's own warnings, those about torchvision, and what it prints of what it could not trace."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.filterwarnings("ignore", r".*axis name: .* will not be used", UserWarning)
            warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)", FutureWarning)
            yield
    finally:
        logger.setLevel(level)


def _difference(model: Transformer, encoder: Any, decoder: Any) -> float:
    """Return the largest difference between the logits of the graphs' sessions and the model's own."""
    config, generator, found = model.config, torch.Generator("cpu").manual_seed(0), []

    def draw(vocab_size: int, *size: int) -> Tensor:
        ids = torch.randint(vocab_size - 1, size, generator=generator, device="cpu")
        return ids + (ids >= config.pad_id)  # all but padding

    names = [output.name for output in encoder.get_outputs()]
    sizes = {one.name: one.shape for one in decoder.get_inputs() if one.name.startswith("past_")}
    for batch, src_len, tgt_len in ((1, 1, 2), (2, config.max_len, _LENGTH)):
        src, tgt = draw(config.src_vocab_size, batch, src_len), draw(config.tgt_vocab_size, batch, tgt_len)
        src[1:, 3:] = config.pad_id
        expected = model(src, tgt)  # [batch, tgt_len, tgt_vocab_size]
        memory = dict(zip(names, encoder.run(None, {"src_ids": src.numpy()}), strict=True))
        past = {name: torch.zeros(batch, size[1], 0, size[3]).numpy() for name, size in sizes.items()}
        for i in range(tgt_len):
            logits, *present = decoder.run(None, {"tgt_ids": tgt[:, i : i + 1].numpy(), **memory, **past})
            past = dict(zip(past, present, strict=True))
            found.append((torch.from_numpy(logits) - expected[:, i]).abs().max())
    return torch.stack(found).max().item()  # NaN, if one is
