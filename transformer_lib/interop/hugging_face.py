"""To Hugging Face's ``transformers``: a folder that its ``from_pretrained`` opens.

Notebook 14, "The same weights in three other engines".
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from transformer_lib.data.subwords import SubwordTokenizer
from transformer_lib.data.tokenizers import EOS, PAD, SOS, UNK, WordTokenizer
from transformer_lib.files import new_folder
from transformer_lib.inference.translator import Translator
from transformer_lib.interop.ctranslate2 import check_parts
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer

_NAMES = {"feed_forward.linear1": "fc1", "feed_forward.linear2": "fc2", "cross_attn": "encoder_attn"}
_NAMES |= {"norm": "layer_norm", "norm1": "self_attn_layer_norm", "norm3": "final_layer_norm"}
_LETTER = r"[\p{Cased}&&[^\p{Case_Ignorable}]]"  # in Unicode's rule for a sigma
_NORM2 = {"encoder": "final_layer_norm", "decoder": "encoder_attn_layer_norm"}


@torch.no_grad()
def to_hugging_face(translator: Translator, folder: str | Path) -> None:
    """Write a translator for ``AutoModelForSeq2SeqLM`` and ``AutoTokenizer``; greedily, ``generate`` writes our text.

    A pre-LN model becomes a ``PegasusForConditionalGeneration``, one with the paper's post-LN a ``MarianMTModel``. A
    tokeniser of words expects words with spaces between. Beam search divides scores by another power of the length.

    Arguments and errors are as in ``to_ctranslate2``. It also raises a ValueError unless both sides have one vocabulary
    and the model is as ``needed`` says.
    """
    from transformers import GenerationConfig, MarianConfig, PegasusConfig

    config = translator.model.config
    tokenizer = translator.src_tokenizer
    check_parts(translator.model)
    their_config = PegasusConfig if config.norm_first else MarianConfig
    architecture = "PegasusForConditionalGeneration" if config.norm_first else "MarianMTModel"
    for name, value in needed(config).items():
        raise ValueError(f"the model has {name}={getattr(config, name)!r}, expected {value!r}, as in {architecture}")
    if tokenizer.vocab.itos != translator.tgt_tokenizer.vocab.itos:
        raise ValueError(f"the model has two vocabularies, expected one for both sides, as in {architecture}")

    ids = {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.sos_id, "eos_token_id": tokenizer.eos_id}
    ids |= {"decoder_start_token_id": tokenizer.sos_id, "forced_eos_token_id": None}
    search = {"num_beams": translator.beam_size, "suppress_tokens": [tokenizer.pad_id, tokenizer.sos_id]}
    sizes = {"layers": config.num_layers, "attention_heads": config.num_heads, "ffn_dim": config.d_ff}
    sizes = {f"{side}_{name}": size for side in _NORM2 for name, size in sizes.items()}
    sizes |= {"vocab_size": config.src_vocab_size, "d_model": config.d_model, "max_position_embeddings": config.max_len}
    inner = dict.fromkeys(("attention_dropout", "activation_dropout"), config.dropout * config.inner_dropout)
    options = {"activation_function": config.activation, "scale_embedding": True, "dropout": config.dropout, **inner}
    with new_folder(folder) as temporary:
        their_config(architectures=[architecture], **sizes, **options, **ids).save_pretrained(temporary)
        GenerationConfig(**ids, **search, max_length=config.max_len).save_pretrained(temporary)
        _their_tokenizer(tokenizer, config.max_len).save_pretrained(temporary)
        save_file(_their_weights(translator.model), temporary / "model.safetensors", {"format": "pt"})


def needed(config: TransformerConfig) -> dict[str, Any]:
    """Return the fields that a configuration would need to have otherwise for a model to go to Hugging Face."""
    expected = {"tie_embeddings": True, "positions": "sinusoidal"}
    if not config.norm_first:
        expected["final_norm"] = False
    return {name: value for name, value in expected.items() if getattr(config, name) != value}


def _their_weights(model: Transformer) -> dict[str, torch.Tensor]:
    """Rename weights, and sort the entries of the model's vectors: in their positions, sines come before cosines."""
    order = torch.arange(model.config.d_model).view(-1, 2).T.flatten()  # 0, 2, 4 … 1, 3, 5 …
    table = model.src_embedding.tokens.table.weight  # [vocab_size, d_model]
    positions = model.src_embedding.positions(model.config.max_len)  # [max_len, d_model]
    weights = {"final_logits_bias": model.output.bias[None], "model.shared.weight": table[:, order]}
    weights |= {f"model.{side}.embed_positions.weight": positions[:, order] for side in _NORM2}
    for name, weight in model.state_dict().items():
        side = name.split(".")[0]
        if side in _NORM2:
            if any(part in name for part in ("norm", "out_proj", "linear2")):  # its rows are entries of the vectors
                weight = weight[order]
            elif weight.dim() == 2:  # its columns are
                weight = weight[:, order]
            for ours, theirs in {**_NAMES, "norm2": _NORM2[side]}.items():
                name = name.replace(f".{ours}.", f".{theirs}.")
            weights[f"model.{name}"] = weight
    return {name: weight.to("cpu", torch.float32).clone().contiguous() for name, weight in weights.items()}


def _their_tokenizer(tokenizer: WordTokenizer, max_len: int):
    """Build their tokeniser with the same ids: of sentencepiece's pieces, or of words between spaces."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    stoi = tokenizer.vocab.stoi
    if isinstance(tokenizer, SubwordTokenizer):
        pieces = [piece for piece in tokenizer.vocab.itos if piece not in tokenizer.specials]
        pairs = ((piece[:cut], piece[cut:]) for piece in pieces for cut in range(1, len(piece)))
        merges = [(left, right) for left, right in pairs if left in stoi and right in stoi]  # the most frequent first
        theirs = Tokenizer(models.BPE(stoi, merges, unk_token=UNK, fuse_unk=True))
        theirs.pre_tokenizer = pre_tokenizers.Metaspace()
        theirs.decoder = decoders.Metaspace()
    else:
        theirs = Tokenizer(models.WordLevel(stoi, unk_token=UNK))
        theirs.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    steps = [normalizers.Replace("\u200b", " "), normalizers.Replace("\ufeff", ""), normalizers.NFC()]
    steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    if tokenizer.lower:  # their rule takes each character by itself; Python's knows the sigma that ends a Greek word
        inside = normalizers.Replace(Regex(rf"Σ(?=\p{{Case_Ignorable}}*{_LETTER})"), "σ")
        at_the_end = normalizers.Replace(Regex(rf"{_LETTER}\p{{Case_Ignorable}}*\KΣ"), "ς")
        steps = [inside, at_the_end, normalizers.Lowercase(), *steps]
    theirs.normalizer = normalizers.Sequence(steps)
    ends = [(token, stoi[token]) for token in (SOS, EOS)]
    theirs.post_processor = processors.TemplateProcessing(single=f"{SOS} $A {EOS}", special_tokens=ends)
    special = {"unk_token": UNK, "pad_token": PAD, "bos_token": SOS, "eos_token": EOS, "split_special_tokens": True}
    inputs = {"model_max_length": max_len, "model_input_names": ["input_ids", "attention_mask"]}
    return PreTrainedTokenizerFast(tokenizer_object=theirs, **special, **inputs)
