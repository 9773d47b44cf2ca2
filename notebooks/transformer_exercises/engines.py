"""The shipped translator's weights in other engines, for notebook 14's race; the cookbook says how each works."""

import importlib.util
import tempfile
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from transformer_lib import Transformer, Translator, causal_mask, padding_mask, to_torch
from transformer_lib.interop.ctranslate2 import to_ctranslate2
from transformer_lib.interop.hugging_face import to_hugging_face
from transformer_lib.interop.pytorch import to_attn_mask, to_key_padding_mask

Engine = Callable[..., Iterable[str]]  # from sentences and the size of a beam to texts
BATCH_SIZE = 64


class OnTorch(nn.Module):
    """Do what one of the library's models does, with PyTorch's encoder and decoder; notebook 16 builds it."""

    def __init__(self, ours: Transformer):
        super().__init__()
        self.ours, self.config, self.stacks = ours, ours.config, to_torch(ours)  # an nn.Transformer

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the encoder makes of ids, [batch, src_len], and their padding, of the same shape."""
        padding = to_key_padding_mask(padding_mask(src, self.config.pad_id))
        return self.stacks.encoder(self.ours.src_embedding(src), src_key_padding_mask=padding), padding

    def decode(self, tgt: Tensor, memory: Tensor, memory_padding: Tensor) -> Tensor:
        """Return logits, [batch, tgt_len, vocab_size]."""
        vectors = self.stacks.decoder(
            self.ours.tgt_embedding(tgt),
            memory,
            tgt_mask=to_attn_mask(causal_mask(tgt.shape[1])),
            tgt_key_padding_mask=to_key_padding_mask(padding_mask(tgt, self.config.pad_id)),
            memory_key_padding_mask=memory_padding,
        )
        return self.ours.output(vectors)


def engines_of(translator: Translator) -> dict[str, Engine]:
    """Return a translator's engines by name, each a function of sentences and a beam's size; print which are missing.

    Hugging Face's and CTranslate2's weigh lengths by another formula, in which 16/21 of our α suits captions.
    """
    tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
    on_torch = Translator(OnTorch(translator.model), *tokenizers, length_penalty=translator.length_penalty)
    engines: dict[str, Engine] = {"this library": translator, "nn.Transformer": on_torch}
    for name, package, make in (
        ("Hugging Face", "transformers", with_hugging_face),
        ("CTranslate2", "ctranslate2", with_ctranslate2),
    ):
        if importlib.util.find_spec(package):
            engines[name] = make(translator, translator.length_penalty * 16 / 21)
        else:
            print(f"{name} is left out: pip install {package}")
    return engines


def with_hugging_face(translator: Translator, length_penalty: float) -> Engine:
    """Return a translator's weights in Hugging Face's transformers."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = tempfile.mkdtemp()
    to_hugging_face(translator, folder)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

    def translate(sentences: Sequence[str], beam_size: int) -> list[str]:
        texts = []
        for first in range(0, len(sentences), BATCH_SIZE):
            batch = tokenizer(sentences[first : first + BATCH_SIZE], return_tensors="pt", padding=True)
            ids = model.generate(**batch, num_beams=beam_size, length_penalty=length_penalty)
            texts += tokenizer.batch_decode(ids, skip_special_tokens=True)
        return texts

    return translate


def with_ctranslate2(translator: Translator, length_penalty: float) -> Engine:
    """Return a translator's weights in CTranslate2, with a thread for each batch."""
    import ctranslate2

    folder = tempfile.mkdtemp()
    to_ctranslate2(translator, folder)
    threads = torch.get_num_threads()
    engine = ctranslate2.Translator(folder, inter_threads=threads, intra_threads=1)
    torch.set_num_threads(threads)  # or its one thread would be PyTorch's, too
    settings = {"length_penalty": length_penalty, "max_batch_size": BATCH_SIZE, "min_decoding_length": 0}

    def translate(sentences: Sequence[str], beam_size: int) -> list[str]:
        tokens = [translator.src_tokenizer.tokenize(sentence) for sentence in sentences]
        results = engine.translate_batch(tokens, beam_size=beam_size, **settings)
        return [translator.tgt_tokenizer.join(result.hypotheses[0]) for result in results]

    return translate
