"""What PyTorch's layers answer in training, and in evaluation, where they may take their fast path: notebook 16."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

HEADING = f"PyTorch {torch.__version__.split('+')[0]}"


class Questions:
    """Seven calls of PyTorch's layers whose answers may differ; for PyTorch, True in a mask means "ignore"."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.0, batch_first=True)
        self.stack = nn.TransformerEncoder(self.layer, num_layers=2, enable_nested_tensor=False)
        self.nested = nn.TransformerEncoder(self.layer, num_layers=2)
        self.words, self.two_sentences = torch.randn(1, 5, 8), torch.randn(2, 5, 8)
        self.future = torch.ones(5, 5, dtype=torch.bool).triu(1)  # a causal mask
        self.nothing = torch.zeros(5, 5, dtype=torch.bool)  # hides nothing
        self.blind = torch.arange(5)[:, None].expand(5, 5) == 0  # query 1 may attend to nothing

    def blind_query(self, need_weights: bool = False) -> Tensor:
        """Ask what a query gets that may attend to nothing."""
        output, _ = self.attention(self.words, self.words, self.words, attn_mask=self.blind, need_weights=need_weights)
        return output[:, 0]

    def upside_down(self) -> Tensor:
        """Ask what the last word gets, which sees nothing under a causal mask that is upside down."""
        return self.layer(self.words, src_mask=~self.future)[:, 4]

    def four_axes(self) -> Tensor:
        """Hand over a mask of [1, 1, 5, 5]."""
        return self.layer(self.words, src_mask=self.future[None, None])

    def obeyed(self, mask: Tensor | None) -> str:
        """Say what ``is_causal=True`` beside a mask has done: which mask gives the same output."""
        output = self.stack(self.words, mask=mask, is_causal=True)
        kinds = {"causal": self.future, "nothing hidden": self.nothing}
        same = (name for name, kind in kinds.items() if torch.allclose(output, self.stack(self.words, kind), atol=1e-5))
        return next(same)

    def at_padding(self) -> Tensor:
        """Ask what stands at the padding of the second sentence."""
        padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        return self.nested(self.two_sentences, src_key_padding_mask=padding)[1, 3:]

    def answer(self, question: Callable[[], Any], training: bool) -> str:
        """Ask in training, or in evaluation without gradients."""
        for module in (self.attention, self.layer, self.stack, self.nested):
            module.train(training)
        with torch.set_grad_enabled(training), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nested tensors announce that they are a prototype
            try:
                answered = question()
            except (AssertionError, RuntimeError) as error:
                return type(error).__name__
        if isinstance(answered, str):
            return answered
        return "nan" if answered.isnan().any() else "numbers" if answered.any() else "zeros"


def ask_both_paths() -> None:
    """Print the answers to seven questions in training, and in evaluation without gradients."""
    ask = Questions()
    print(f"{HEADING:36}in training        in evaluation, no_grad")
    for name, question in {
        "a query that may see nothing": ask.blind_query,
        "the same, with attention weights": lambda: ask.blind_query(need_weights=True),
        "a mask upside down: word 5": ask.upside_down,
        "a mask of four axes": ask.four_axes,
        "is_causal=True, no mask": lambda: ask.obeyed(None),
        "is_causal=True, an empty mask": lambda: ask.obeyed(ask.nothing),
        "what is at padding": ask.at_padding,
    }.items():
        print(f"{name:36}{ask.answer(question, True):19}{ask.answer(question, False)}")


def count_calls() -> None:
    """Print for five ways into a layer's attention how often each is called in training and in evaluation."""
    calls: list[str] = []

    def note(*_: Any) -> None:
        calls.append("called")

    class Noting(nn.MultiheadAttention):
        def forward(self, *inputs: Any, **options: Any) -> Any:
            note()
            return super().forward(*inputs, **options)

    def replace_forward(layer: Any) -> None:
        forward = layer.self_attn.forward

        def forward_and_note(*inputs: Any, **options: Any) -> Any:
            note()
            return forward(*inputs, **options)

        layer.self_attn.forward = forward_and_note

    def replace_attention(layer: Any) -> None:
        layer.self_attn = Noting(8, 2, batch_first=True)

    def hook_everywhere(layer: Any) -> Any:
        return nn.modules.module.register_module_forward_hook(
            lambda module, *_: note() if module is layer.self_attn else None
        )

    print(f"{HEADING:36}in training   in evaluation, no_grad")
    for name, get_in in {
        "a hook on self_attn": lambda layer: layer.self_attn.register_forward_hook(note),
        "a hook on self_attn.out_proj": lambda layer: layer.self_attn.out_proj.register_forward_hook(note),
        "self_attn.forward replaced": replace_forward,
        "self_attn of a class of yours": replace_attention,
        "a hook on every module there is": hook_everywhere,
    }.items():
        layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
        handle, counts = get_in(layer), []
        for training in (True, False):
            calls.clear()
            with torch.set_grad_enabled(training):
                layer.train(training)(torch.randn(1, 5, 8))
            counts.append(len(calls))
        if handle:
            handle.remove()
        print(f"{name:36}{counts[0]:<14}{counts[1]}")
