"""Checks of the exercises of notebook 05: the whole Transformer, its parameters, a toy task."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

import transformer_lib as library
from transformer_exercises import (
    build,
    call,
    close,
    diagnose,
    exercise,
    expect,
    expect_any_device,
    expect_gradients,
    expect_number,
    expect_tensor,
    load,
    question,
)
from transformer_exercises.notebook_02 import OTHER_IN_TRAINING, first
from transformer_exercises.notebook_04 import ALL, WHERE_X_IS
from transformer_lib import TransformerConfig
from transformer_lib.checkpoint import SHIPPED_MODEL, load_model

question(
    "05.a",
    right="on the anti-diagonal",
    replies={
        "on the diagonal": "that is how a model would copy: the first token it writes is the first that it looks at. "
        "This one writes backwards.",
        "on the anti-diagonal": "to write the first digit it has to look at the last, to write the second at the last "
        "but one, and so on up to the left.",
        "in the last column": "the first digit it writes is there, but the next ones are elsewhere. (After "
        "self-attention, one vector could know about all eight; the loss prefers the simpler way.)",
        "evenly everywhere": "an average of all digits knows which digits there are, but hardly in which order.",
    },
)


@exercise("05.1")
def where_the_parameters_are(in_embeddings: int, in_encoder: int, in_decoder: int, in_output: int) -> str:
    """``in_embeddings``, ``in_encoder``, …: the 9,038,341 parameters of the tutorial model, by part."""
    layer_attention, d_model, d_ff = 4 * (256 * 256 + 256), 256, 512
    feed_forward, norm = 2 * d_model * d_ff + d_ff + d_model, 2 * d_model
    right = {
        "embeddings": ((7_853 + 5_893) * 256 + 2 * 100 * 256, "words of both sides, and a hundred positions for each"),
        "encoder": (
            3 * (layer_attention + feed_forward + 2 * norm),
            "three layers of an attention, a network, two norms",
        ),
        "decoder": (
            3 * (2 * layer_attention + feed_forward + 3 * norm),
            "a layer has a second attention, and a third norm",
        ),
        "output": (5_893 * 256 + 5_893, "each English word has 256 weights and a bias"),
    }
    for (name, (number, hint)), given in zip(
        right.items(), (in_embeddings, in_encoder, in_decoder, in_output), strict=True
    ):
        expect_number(given, number, f"{name}: {hint}.", tolerance=0)
    return "more than half of the model is about single words: their vectors on the way in, and the output layer."


@exercise("05.2")
def sorting(my_sorting: Callable[[int], tuple[Tensor, Tensor]]) -> str:
    """``my_sorting(batch_size)``: digits, ``[batch, 8]``, and ``<sos>``, the digits sorted, ``<eos>``."""
    found = call(my_sorting, 64)
    pair = isinstance(found, tuple | list) and len(found) == 2 and all(isinstance(one, Tensor) for one in found)
    expect(pair, "two tensors were expected: the digits, and the target.")
    digits, target = (one.detach().cpu() for one in found)
    expect(
        not (digits.is_floating_point() or target.is_floating_point()), "ids are whole numbers: use `torch.randint`."
    )
    expect(digits.shape == (64, 8), f"the digits have shape {list(digits.shape)}, expected [64, 8].")
    expect(len(digits.unique(dim=0)) > 60, "each row needs digits of its own: the model would learn one by heart.")
    expect(
        digits.min() >= 4 and digits.max() <= 13 and len(digits.unique()) == 10,
        "the digits are random ids, from 4 to 13.",
    )
    expect((digits.diff(dim=1) < 0).any(), "the source is sorted already: there is nothing left to learn.")
    expect(
        target.shape == (64, 10) and (target[:, 0] == 2).all() and (target[:, -1] == 3).all(),
        "the target is [64, 10]: `<sos>` (2), eight digits, `<eos>` (3).",
    )
    inner = target[:, 1:-1]
    expect(not inner.equal(digits.flip(1)), "that is still reversal: the target's digits are to be in order.")
    expect(not inner.equal(digits), "the target's digits are those of the source, unsorted.")
    expect(not inner.equal(digits.sort(dim=1, descending=True).values), "ascending: the smallest digit comes first.")
    expect(inner.equal(digits.sort(dim=1).values), "each row of the target has the digits of its own source, sorted.")
    few = [list(one.shape) for one in call(my_sorting, 3)]
    expect(few == [[3, 8], [3, 10]], f"for a batch of 3, the shapes are {few}, expected [[3, 8], [3, 10]].")
    return "it learns that, too. Its map shows no line now: where to look depends on the digits, not on the position."


@exercise("05.3")
def rotary(my_rotate: Callable[[Tensor, int], Tensor]) -> str:
    """``my_rotate(x, start)``: rotary positions of ``x``, ``[…, seq_len, d]``, the first of which is ``start``."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 8), torch.randn(2, 1, 8)
    found = call(my_rotate, query, 3)
    expect(isinstance(found, Tensor) and found.shape == query.shape, "what is rotated keeps its shape.")
    unturned = call(my_rotate, query, 0)
    apart = torch.cat([query[..., 0::2], query[..., 1::2]], dim=-1)
    expect(not close(unturned, apart), "each number belongs where it was: the two of a pair are neighbours again.")
    expect(close(unturned, query), "at position 0, nothing turns.")
    expect(
        close(found.norm(dim=-1), query.norm(dim=-1)), "turning changes no length: check that cos and sin go with ±."
    )
    scores = [(call(my_rotate, query, i) * call(my_rotate, key, j)).sum(-1) for i, j in ((7, 3), (14, 10), (4, 0))]
    expect(not close(scores[0], (query * key).sum(-1)), "the score does not depend on the positions at all.")
    for score in scores[1:]:
        expect(
            close(score, scores[0]),
            "a score may depend only on the distance of the two positions: each pair of dimensions turns by its own "
            "angle times the position.",
        )
    far = torch.cat([query, query], dim=1)
    both = call(my_rotate, far, 5)
    expect(close(both[:, 1:], call(my_rotate, query, 6)), "each row is one position further than the one before it.")
    turned = torch.cat([call(my_rotate, row[None, None], 1)[0] for row in torch.eye(8)]).detach()
    pairs = torch.block_diag(*[torch.ones(2, 2)] * 4)
    expect(close(turned * pairs, turned), "dimensions 2i and 2i + 1 are a pair, and turn together.")
    sines = turned.fill_diagonal_(0).norm(dim=-1).sort().values  # of the angles, each once for both of its dimensions
    expect((sines.diff() > 1e-3 * sines[1:]).sum() >= 3, "four pairs of dimensions need four different speeds.")
    expect_any_device(WHERE_X_IS, my_rotate, query, 3)
    return "positions that are never added to anything: Llama and many models after it have them."


FAULTS = {
    "one encoder layer": "the encoder has one layer, three times over, instead of three layers",
    "one decoder layer": "the decoder has one layer, three times over, instead of three layers",
    "tied output": "the target's table and the output layer share one matrix",
    "no cross-attention": "the decoder's layers have no cross-attention, and no norm for it",
    "no feed-forward": "the decoder's layers have no feed-forward network, and no norm for it",
}
_SIGNS = {
    "one encoder layer": "1,054,208 parameters would be missing: two encoder layers",
    "tied output": "1,508,608 parameters would be missing: 5,893 · 256",
    "no cross-attention": "791,040 parameters would be missing: three attentions and three norms",
    "no feed-forward": "790,272 parameters would be missing: three networks and three norms",
}


def patient(config: TransformerConfig) -> nn.Module:
    """Return a model that has one of ``FAULTS``. Read on when you have found it."""
    model = library.Transformer(config).eval()
    model.decoder.layers = nn.ModuleList([model.decoder.layers[0]] * config.num_layers)
    return model


@exercise("05.4")
def too_light(fault: str) -> str:
    """``fault``: the name of what ails the patient, in ``FAULTS``."""
    diagnose(fault, "one decoder layer", FAULTS, _SIGNS)
    return (
        "1,581,568 are missing: two decoder layers. `[layer] * 3` is three times the same layer, with one set of "
        "weights, and `print` shows three. Make each anew: `[DecoderLayer(…) for _ in range(3)]`."
    )


HARD_CODED = "right as long as padding is 1; the model's is `config.pad_id`, which need not be."
EACH_SIZE = "right with one configuration, but not with another: each size is `config`'s."


def expect_its_padding(model: nn.Module, reference: nn.Module, src: Tensor, tgt: Tensor) -> None:
    """Raise ``Wrong`` if a model takes 1 for padding, where that is a word like others."""
    with_1, in_tgt = src.clone(), tgt.clone()
    with_1[:, 1], in_tgt[:, 2] = 1, 1
    right, *others = (
        close(call(model, *ids), reference(*ids), 1e-3) for ids in ((src, tgt), (with_1, tgt), (src, in_tgt))
    )
    expect(not right or all(others), HARD_CODED)


def expect_encoder_decoder(model: nn.Module, reference: nn.Module, config: TransformerConfig, otherwise: str) -> None:
    """Raise ``Wrong`` unless a model computes what the library's does, which has its weights.

    Args:
        model: in evaluation mode.
        reference: the library's.
        config: of both.
        otherwise: what to say of logits that are wrong in no known way.
    """
    src = torch.randint(4, config.src_vocab_size, (2, 6))
    tgt = torch.randint(4, config.tgt_vocab_size, (2, 5))
    tgt[:, 0] = 2
    with torch.no_grad():
        found = call(model, src, tgt)
        expect(isinstance(found, Tensor), "forward returns the logits, a tensor.")
        shapes = list(found.shape), [2, 5, config.tgt_vocab_size]
        expect(shapes[0] == shapes[1], f"the logits have the shape {shapes[0]}, expected {shapes[1]}.")
        if config.pad_id != 1:
            expect_its_padding(model, reference, src, tgt)
        src[1, 4:] = config.pad_id
        found, right = call(model, src, tgt), reference(src, tgt)
        expect(not close(found, right.softmax(-1)), "softmax belongs to the loss and the search: return logits.")
        changed = tgt.clone()
        changed[:, 3] = 4 + (tgt[:, 3] - 3) % (config.tgt_vocab_size - 4)
        before = call(model, src, changed)[:, :3]
        expect(close(before, found[:, :3]), "a later target word changes earlier logits: where is target_mask?")
        longer = call(model, nn.functional.pad(src, (0, 2), value=config.pad_id), tgt)
        expect(
            close(longer, found, 1e-3),
            "padding changes the logits: both encoder and cross-attention need its mask.",
        )
        other = call(model, src.flip(0), tgt)
        expect(not close(other, found), "the source plays no part: does the decoder get the memory?")
        expect_tensor(found, right, otherwise, 1e-3)
        longest = torch.randint(4, config.src_vocab_size, (1, config.max_len))
        expect_tensor(call(model, longest, tgt[:1]), reference(longest, tgt[:1]), EACH_SIZE, 1e-3)


SIZES = {"d_model": 32, "num_heads": 4, "d_ff": 64, "num_layers": 2, "dropout": 0.1, "max_len": 20}
OTHERS = {"d_model": 20, "num_heads": 2, "d_ff": 28, "num_layers": 3, "dropout": 0.2, "max_len": 26, "pad_id": 0}


def expect_stacks(model: nn.Module, d_model: int) -> None:
    """Raise ``Wrong`` unless a model's encoder and decoder return vectors and maps, as those of notebook 04 do."""
    x = torch.randn(3, 4, d_model)
    with torch.no_grad():
        for name, inputs, more in (("encoder", (x,), "its maps"), ("decoder", (x, x), "two lists of maps")):
            found, count = call(getattr(model, name).eval(), *inputs), len(inputs) + 1
            hint = f"{name} returns {('two', 'three')[count - 2]} things in notebook 04: the vectors, and {more}."
            expect(isinstance(found, tuple) and len(found) == count, hint)


def expect_model_dropout(kind: type[nn.Module], config: TransformerConfig, weights: dict[str, Tensor]) -> None:
    """Raise ``Wrong`` unless a model drops where the paper does: of both embeddings' sums, and in each layer."""
    config = replace(config, dropout=ALL)
    model, right = load(build(kind, config), weights).train(), library.Transformer(config).train()
    right.load_state_dict(weights)
    ids, x = torch.tensor([[2, 8, 9, 3], [2, 7, 3, config.pad_id]]), torch.randn(2, 4, config.d_model)
    parts = {"src_embedding": (ids,), "tgt_embedding": (ids,), "encoder": (x,), "decoder": (x, x)}
    for name, inputs in {**parts, "encode": (ids,), "forward": (ids, ids)}.items():
        if hasattr(model, name):
            with torch.no_grad():
                found, expected = (first(call(getattr(one, name), *inputs)) for one in (model, right))
            hint = "config.dropout goes to both embeddings and to every layer, and nothing else is dropped."
            expect(close(found, expected, 1e-3), f"{name} does not drop in training what it should: {hint}")


def expect_trained_model(
    kind: type[nn.Module], config: TransformerConfig, weights: dict[str, Tensor], src: Tensor, tgt: Tensor
) -> None:
    """Raise ``Wrong`` unless a model without dropout is trained as the library's is: same logits, same gradient."""
    config = replace(config, dropout=0.0)
    model, reference = load(build(kind, config), weights).train(), library.Transformer(config)
    reference.load_state_dict(weights)
    expect_gradients(OTHER_IN_TRAINING, model, reference.requires_grad_(False), src, tgt)


def expect_whole_model(kind: type[nn.Module], config: TransformerConfig, otherwise: str = EACH_SIZE) -> None:
    """Raise ``Wrong`` unless a model of this configuration has the library's parts, and computes what it does."""
    model = build(kind, config)
    reference = library.Transformer(config).eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    weights, names = reference.state_dict(), model.state_dict().keys()
    differing = names ^ weights.keys()
    hint = "a stack of pre-LN layers ends in a LayerNorm, one of post-LN layers in nn.Identity()."
    expect(not differing or any(".norm." not in name for name in differing), hint)
    tensors, expected = (len(list(module.parameters())) for module in (model, reference))
    hint = f"there are {tensors} tensors of weights, expected {expected}: has each layer, each side its own?"
    expect(differing or config.tie_embeddings or tensors == expected, hint)
    load(model, weights)
    expect_stacks(model, config.d_model)
    pad_id = config.pad_id
    src, tgt = torch.tensor([[2, 8, 9, 3], [2, 7, 3, pad_id]]), torch.tensor([[2, 5, 6], [2, 9, pad_id]])
    with torch.no_grad():
        read = call(model.encode, src)
    pair = isinstance(read, tuple) and len(read) == 2 and isinstance(read[0], Tensor)
    expect(pair, "encode returns two things: the memory, one tensor without the encoder's maps, and its mask.")
    expect_encoder_decoder(model, reference, config, otherwise)
    with torch.no_grad():
        expect_tensor(read[0], reference.encode(src)[0], "encode: embed the source, then the encoder.", 1e-3)
        expect_tensor(read[1], src[:, None, None, :] != pad_id, "the memory's mask is the source's padding mask.")
        logits, right = call(model.decode, tgt, *read), reference.decode(tgt, *reference.encode(src))
        expect(
            getattr(logits, "shape", None) != (2, 3, config.d_model),
            "decode ends with the output layer, from vectors to logits.",
        )
        expect_tensor(logits, right, "decode: embed the target, the decoder with both masks, the output layer.", 1e-3)
    expect_model_dropout(kind, config, weights)
    expect_trained_model(kind, config, weights, src, tgt)
    expect_any_device("Say `device=src.device`.", model, src, tgt)


RIGHT_WAY = "encode the source, decode the target, then the output layer."


def expect_methods(model: nn.Module, config: TransformerConfig) -> None:
    """Raise ``Wrong`` unless a model has what the library and later notebooks ask for."""
    both = callable(getattr(model, "encode", None)) and callable(getattr(model, "decode", None))
    expect(both, "encode and decode are methods of their own: a search encodes once, and decodes many times.")
    expect(getattr(model, "config", None) is config, "keep the line self.config = config: later notebooks read it.")
    kind = getattr(type(model), "config_class", None)
    expect(kind is TransformerConfig, "keep the line config_class = TransformerConfig: a saved model is built of one.")
    method = getattr(model, "logits_and_targets", None)
    expect(callable(method), "keep the method logits_and_targets: the library's training loop asks for it.")


def expect_questions(model: nn.Module) -> None:
    """Raise ``Wrong`` unless ``logits_and_targets`` shifts the target, as it was given."""
    method = model.eval().logits_and_targets
    src, tgt = torch.tensor([[2, 8, 9, 3]]), torch.tensor([[2, 5, 6, 3]])
    with torch.no_grad():
        found = call(method, src, tgt)
        expect(isinstance(found, tuple) and len(found) == 2, "logits_and_targets returns two things, as it was given.")
        right = close(found[0], call(model, src, tgt[:, :-1])) and close(found[1], tgt[:, 1:])
    expect(right, "logits_and_targets was right as it was given: keep it as it is.")


def expect_initial_values(kind: type[nn.Module], config: TransformerConfig) -> None:
    """Raise ``Wrong`` unless matrices start with Xavier's values, and one table for all with smaller ones."""
    torch.manual_seed(0)
    model = build(kind, config)
    tables = [weight for weight in model.parameters() if weight.shape == (300, config.d_model)]
    expect(config.tie_embeddings or len(tables) == 3, "tables are shared only where `tie_embeddings` says so.")
    for name, parameter in model.named_parameters():
        shared = config.tie_embeddings and parameter.shape == (300, config.d_model)
        if parameter.dim() < 2 or shared:
            continue
        bound = math.sqrt(6 / sum(parameter.shape))  # Xavier's values are uniform between -bound and bound
        largest = parameter.abs().max().item()
        hint = f"{name} reaches {largest:.2f}; xavier_uniform_ stays within {bound:.2f}, and nearly reaches it."
        expect(0.9 * bound < largest < 1.01 * bound, hint)
    if config.tie_embeddings:
        expect(len(tables) == 1, f"with tie_embeddings there is one table, but here are {len(tables)}.")
        hint = "the table starts with N(0, 1 / d_model), that is std=d_model**-0.5, drawn after Xavier's values."
        expect(0.9 < tables[0].std().item() * math.sqrt(config.d_model) < 1.1, hint)


@exercise("Transformer")
def transformer(Transformer: type[nn.Module]) -> str:
    """The whole: post-LN with learned positions and pre-LN with sinusoids, two tables each; then one table for all."""
    paper = TransformerConfig(30, 40, **SIZES, positions="learned")
    for config, otherwise in (
        (paper, RIGHT_WAY),
        (TransformerConfig(33, 25, **OTHERS, norm_first=True, positions="sinusoidal"), EACH_SIZE),
        (replace(paper, norm_first=True, positions="sinusoidal"), RIGHT_WAY),
    ):
        torch.manual_seed(0)
        expect_methods(build(Transformer, config), config)
        expect_whole_model(Transformer, config, otherwise)
    expect_questions(build(Transformer, config))
    untied = TransformerConfig(300, 300, **SIZES, positions="learned")
    tied = TransformerConfig(300, 300, **OTHERS, norm_first=True, tie_embeddings=True, positions="sinusoidal")
    for config in (untied, tied):
        expect_initial_values(Transformer, config)
        expect_whole_model(Transformer, config)
    return (
        "the logits are those of the library, which notebook 16 compares with PyTorch's. It starts with small values, "
        "and shares one table where it is asked to: ready to be trained."
    )


@exercise("MyTransformer")
def blank_page(MyTransformer: type[nn.Module]) -> str:
    """Load the shipped weights into it, and let it translate."""
    torch.manual_seed(0)
    saved = load_model(SHIPPED_MODEL)
    config, german, english = saved.model.config, saved.tokenizers["src"], saved.tokenizers["tgt"]
    weights = saved.model.state_dict()
    model = load(build(MyTransformer, config), weights)
    expect_stacks(model, config.d_model)
    count, expected = (sum(weight.numel() for weight in one.parameters()) for one in (model, saved.model))
    hint = f"it has {count:,} parameters, expected {expected:,}"
    expect(count <= expected, f"{hint}: one table serves both embeddings and the output (`self.output.weight = …`).")
    expect(count >= expected, f"{hint}: has each layer weights of its own?")
    expect_encoder_decoder(model, saved.model, config, RIGHT_WAY)
    expect_model_dropout(MyTransformer, config, weights)
    sizes = {**OTHERS, "num_layers": 2}
    other = TransformerConfig(30, 30, **sizes, norm_first=True, tie_embeddings=True, positions="sinusoidal")
    reference = library.Transformer(other).eval()
    small = load(build(MyTransformer, other), reference.state_dict())
    expect_encoder_decoder(small, reference, other, EACH_SIZE)
    src = torch.tensor([[2, 8, 9, 3], [2, 7, 3, 0]])
    expect_trained_model(MyTransformer, other, reference.state_dict(), src, src)
    src = torch.tensor([german.encode("Ein Hund läuft durch den Schnee.")])
    tgt = torch.tensor([[english.sos_id]])
    with torch.no_grad():
        while tgt.shape[1] < 30 and tgt[0, -1] != english.eos_id:
            tgt = torch.cat([tgt, call(model, src, tgt)[:, -1:].argmax(-1)], dim=1)
    text = english.join(english.decode(tgt[0].tolist()))
    expect_any_device("Say `device=src.device`.", model, src, tgt)
    return f"all {count:,} weights found their place. Yours says: {text}"
