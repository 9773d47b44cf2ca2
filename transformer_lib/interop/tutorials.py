"""The weights of well-known tutorials' models, in models of this library. The book, "If you come from these tutorials".

The names of the weights decide which tutorial they come from:

- ``Seq2Seq`` (bentrevett/pytorch-seq2seq and its many copies): ``encoder.layers.0.self_attention.fc_q.weight``.
- a model around ``nn.Transformer``, such as PyTorch's tutorial on translation:
  ``transformer.encoder.layers.0.self_attn.in_proj_weight``.
- ``TransformerModel``, a language model (PyTorch's tutorial on ``nn.Transformer``, the example on WikiText-2):
  ``transformer_encoder.layers.0.self_attn.in_proj_weight``.
"""

import importlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.files import CheckpointError
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.embeddings import SinusoidalPositionalEncoding
from transformer_lib.model.transformer import Transformer

# Their names, then ours. Each row is tried on what those before it have made of a name.
_LAYERS = [
    (r"^(?:\w+\.)*?(?:transformer_)?(encoder|decoder)\.(?=layers\.|norm\.)", r"\1."),
    (r"(?<=\d)\.(?:self_attention|sa)\.", ".self_attn."),
    (r"(?<=\d)\.(?:encoder_attention|cross_attention|multihead_attn|ea)\.", ".cross_attn."),
    (r"(?<=\d)\.(?:positionwise_feedforward|feedforward|pf)\.|(?<=\d)\.(?=linear[12]\.)", ".feed_forward."),
    (r"_attn\.(?:fc|w)_([qkv])\.", r"_attn.\1_proj."),
    (r"_attn\.(?:fc_o|fc)\.", "_attn.out_proj."),
    (r"feed_forward\.fc_?([12])\.", r"feed_forward.linear\1."),
    (r"\.self_attn_layer_norm\.", ".norm1."),
    (r"\.enc_attn_layer_norm\.", ".norm2."),
    (r"^(encoder\..*)\.ff_layer_norm\.", r"\1.norm2."),
    (r"^(decoder\..*)\.ff_layer_norm\.", r"\1.norm3."),
]
_SOURCE, _TARGET = r"^(?:encoder[._]|src_|source_)", r"^(?:decoder[._]|tgt_|trg_|target_)"
_TOKENS, _POSITIONS = r"(?:tok_|token_|word_)?emb\w*(?:\.embedding)?\.weight$", r"pos(?:ition)?_emb\w*\.weight$"
_TRANSLATOR = [
    *_LAYERS,
    (_SOURCE + _POSITIONS, "src_embedding.positions.table"),
    (_TARGET + _POSITIONS, "tgt_embedding.positions.table"),
    (_SOURCE + _TOKENS, "src_embedding.tokens.table.weight"),
    (_TARGET + _TOKENS, "tgt_embedding.tokens.table.weight"),
    (r"^(?:decoder\.fc_out|decoder\.fc|fc_out|generator)\.", "output."),
]
_LANGUAGE_MODEL = [
    *_LAYERS,
    (r"^(?:encoder|embedding|input_emb)\.weight$", "embedding.tokens.table.weight"),
    (r"^(?:decoder|linear)\.", "output."),
]
_SINUSOIDS = r"(?:.*\.)?(?:pe|pos_embedding)"  # buffers, which this library computes and does not store
_CHECKPOINTS = ("model_state_dict", "state_dict", "model_state", "model")  # what people call the part with the weights


class FinalNormTransformer(Transformer):
    """Post-LN with one more LayerNorm after each stack, as ``nn.Transformer`` has it. Notebook 10, section 3."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config)
        self.encoder.norm, self.decoder.norm = nn.LayerNorm(config.d_model), nn.LayerNorm(config.d_model)


def from_tutorial(
    weights: Mapping[str, Tensor] | str | os.PathLike,
    num_heads: int,
    scaled_embeddings: bool | None = None,
    **settings: Any,
) -> nn.Module:
    """Build the model of this library that computes what a tutorial's model does, with a copy of its weights.

    Sizes come from the weights; what the weights do not tell, you do. Logits and attention maps are then the same; if
    theirs forgets a padding mask, as some do, for sentences without padding. What theirs shares becomes copies, which
    part when training goes on: the one ``layer_norm`` of a layer, say, or one embedding for both languages.

    Args:
        weights: a state dictionary, or the path of one that ``torch.save`` wrote (reading never runs code). It may lie
            in a checkpoint's dictionary, as ``"model_state_dict"``, say.
        num_heads: heads of every attention. The weights do not tell: a wrong number that divides ``d_model`` gives a
            wrong model without an error.
        scaled_embeddings: whether theirs multiplies embeddings by √d_model. By default, it does (section 3.4 of the
            paper), unless they are called ``src_word_embedding``, as in a tutorial that leaves that out.
        settings: other fields of ``TransformerConfig`` or ``LanguageModelConfig`` that the weights do not tell:
            ``pad_id``, ``dropout``, ``norm_first``, ``activation``; ``max_len`` if positions are sinusoidal.

    Returns:
        A ``Transformer``, a ``FinalNormTransformer``, or a ``TransformerLanguageModel`` with ``own_encoder`` (and a
        final norm if theirs has one, which only a subclass of yours can save), on the CPU, in evaluation mode.

    Raises:
        FileNotFoundError, CheckpointError: there is no such file, or it holds something else than weights.
        TypeError: ``weights`` is something else.
        ValueError: they are another model's, a key is missing or unexpected, or a setting is impossible.
    """
    theirs = _read(weights)
    tables = [key for key, tensor in theirs.items() if re.fullmatch(_SINUSOIDS, key) and tensor.dim() > 1]
    sinusoids = {key: theirs.pop(key).flatten(end_dim=-2) for key in tables}  # [max_len, d_model]
    depths = [_depth(theirs, stack) for stack in ("encoder", "decoder")]
    if not depths[0]:
        raise ValueError(
            f"weights hold {_some(theirs)}, but no encoder.layers.0 or transformer_encoder.layers.0: expected those of "
            "a tutorial's Seq2Seq, of a model around nn.Transformer, or of PyTorch's TransformerModel"
        )
    if depths[1] not in (0, depths[0]):
        raise ValueError(f"weights have {depths[0]} encoder layers but {depths[1]} decoder layers, expected as many")
    translates = depths[1] > 0
    tensors, origin = _translate(theirs, _TRANSLATOR if translates else _LANGUAGE_MODEL)

    def size(name: str, axis: int, otherwise: int = 2) -> int:  # what is missing is reported below, by name
        return tensors[name].shape[axis] if name in tensors and tensors[name].dim() == 2 else otherwise

    d_model = size("encoder.layers.0.feed_forward.linear1.weight", 1, 2 * num_heads)
    found: dict[str, Any] = {"num_heads": num_heads, "d_model": d_model, "num_layers": depths[0]}
    found["d_ff"] = size("encoder.layers.0.feed_forward.linear1.weight", 0)
    if translates:
        model_class: Any = Transformer
        if "encoder.norm.weight" in tensors and not settings.get("norm_first"):
            model_class = FinalNormTransformer
        found |= {f"{x}_vocab_size": size(f"{x}_embedding.tokens.table.weight", 0) for x in ("src", "tgt")}
        found |= {"positions": "sinusoidal", "tie_embeddings": False}
        if "src_embedding.positions.table" in tensors:
            found |= {"positions": "learned", "max_len": size("src_embedding.positions.table", 0)}
    else:  # by its name, since language_model imports from interop
        model_class = importlib.import_module("transformer_lib.language_model.model").TransformerLanguageModel
        found |= {"vocab_size": size("embedding.tokens.table.weight", 0), "own_encoder": True}
    _check_settings(settings, found, model_class.config_class)
    for key, table in sinusoids.items():
        _check_sinusoids(key, table, d_model)
        settings.setdefault("max_len", len(table))

    model = model_class(model_class.config_class(**found, **settings))
    if not translates and "encoder.norm.weight" in tensors:
        model.encoder.norm = nn.LayerNorm(d_model)
    _check_names(tensors, model.state_dict(), origin)
    if scaled_embeddings is None:
        scaled_embeddings = "src_word_embedding.weight" not in theirs
    if not scaled_embeddings:  # ours multiplies by √d_model
        tensors |= {name: tensors[name] / d_model**0.5 for name in tensors if name.endswith("tokens.table.weight")}
    model.load_state_dict(tensors)
    return model.eval()


def _read(weights: Any) -> dict[str, Tensor]:
    """Return the tensors of a state dictionary or of a file; without what wraps them, or is in front of every name."""
    if isinstance(weights, str | os.PathLike):
        weights = _load(Path(weights))
    if not isinstance(weights, Mapping):
        hint = ": pass its state_dict()" if isinstance(weights, nn.Module) else ""
        raise TypeError(f"weights is a {type(weights).__name__}, expected a state dictionary or the path of one{hint}")
    weights = next((weights[key] for key in _CHECKPOINTS if isinstance(weights.get(key), Mapping)), weights)
    for key, tensor in weights.items():
        if not isinstance(key, str) or not isinstance(tensor, Tensor):
            raise ValueError(
                f"weights[{key!r}] is a {type(tensor).__name__}, expected a tensor: is it a state dictionary?"
            )
    tensors = dict(weights)
    while len({key.partition(".")[0] for key in tensors}) == 1 and all("." in key for key in tensors):
        tensors = {key.partition(".")[2]: tensor for key, tensor in tensors.items()}  # "module." of DataParallel
    return tensors


def _load(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: expected what torch.save(model.state_dict(), path) wrote")
    with open(path, "rb"):
        pass  # a file that may not be read is not a broken one
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises whatever its parsers stumble over
        if found := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise CheckpointError(
                f"{path} holds a {found[1]}, and is not read, since that would run code: was a whole model saved? In "
                "the program that has its class, torch.save(model.state_dict(), path) saves the weights alone"
            ) from error
        reason = str(error).strip().split("\n")[0]
        raise CheckpointError(f"{path} is cut off, or not written by torch.save ({reason})") from error


def _rename(key: str, names: list[tuple[str, str]]) -> str:
    for pattern, ours in names:
        key = re.sub(pattern, ours, key)
    return key


def _depth(theirs: Mapping[str, Tensor], stack: str) -> int:
    """Count the layers of the encoder or the decoder."""
    found = (re.match(rf"{stack}\.layers\.(\d+)\.", _rename(key, _LAYERS)) for key in theirs)
    return len({layer[1] for layer in found if layer})


def _translate(theirs: dict[str, Tensor], names: list[tuple[str, str]]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return tensors by our names, and their names for each; one of theirs can be several of ours."""
    tensors: dict[str, Tensor] = {}
    origin: dict[str, str] = {}
    for key, tensor in theirs.items():
        name = _rename(key, names)
        if packed := re.fullmatch(r"(.*)\.in_proj_(\w+)", name):
            found = {f"{packed[1]}.{x}_proj.{packed[2]}": part for x, part in zip("qkv", tensor.chunk(3), strict=True)}
        elif shared := re.fullmatch(r"(encoder|decoder)(\.layers\.\d+)\.(?:layer_norm|ln)\.(\w+)", name):
            numbers = (1, 2) if shared[1] == "encoder" else (1, 2, 3)
            found = {f"{shared[1]}{shared[2]}.norm{number}.{shared[3]}": tensor for number in numbers}
        else:  # a convolution of width 1 is a linear layer
            found = {name: tensor.squeeze(-1) if "feed_forward" in name and tensor.dim() == 3 else tensor}
        if again := [name for name in found if name in tensors]:
            raise ValueError(f"weights have both {origin[again[0]]!r} and {key!r}, which are the same: {again[0]}")
        tensors |= found
        origin |= dict.fromkeys(found, key)
    return tensors, origin


def _some(names: Iterable[str]) -> str:
    names = list(names) or ["nothing"]
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _check_settings(settings: dict[str, Any], found: dict[str, Any], config_class: Any) -> None:
    for name, value in settings.items():
        if name in found:
            raise ValueError(f"{name} is {value!r}, but the weights decide it: {found[name]!r}")
        if name not in (known := [field.name for field in fields(config_class) if field.name not in found]):
            raise ValueError(f"{name} is no field of {config_class.__name__}, expected some of {', '.join(known)}")


def _check_sinusoids(key: str, table: Tensor, d_model: int) -> None:
    """Raise a ValueError unless a table that theirs adds is the one that ours adds, but for rounding in float16."""
    ours = SinusoidalPositionalEncoding(*table.shape).table
    if table.shape[1] != d_model or not table.to(ours).allclose(ours, atol=1e-2):
        raise ValueError(
            f"weights[{key!r}] does not hold the sines and cosines of the paper (section 3.5), expected those, or an "
            "nn.Embedding"
        )


def _check_names(tensors: dict[str, Tensor], expected: dict[str, Tensor], origin: dict[str, str]) -> None:
    unknown = [origin[name] for name in tensors if name not in expected]
    if missing := [name for name in expected if name not in tensors]:
        hint = f"; there is no place for {_some(unknown)}" if unknown else ""
        raise ValueError(
            f"weights have nothing for {_some(missing)}{hint}. Are they another tutorial's, or incomplete? If a key "
            f"has a name of your own, rename it: weights[{missing[0]!r}] = weights.pop(…)"
        )
    if unknown:
        raise ValueError(f"weights have no place here for {_some(unknown)}: did theirs compute something else with it?")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(
                f"weights[{origin[name]!r}] gives {name} the shape {list(tensor.shape)}, expected "
                f"{list(expected[name].shape)}, by the sizes of the others"
            )
