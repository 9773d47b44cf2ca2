"""Wrong answers that passed, as long as a check tried one value of each argument, or evaluation mode alone.

``PASSED[name]`` is a list of (what is wrong, answer, words of the hint that it gets today).
"""

import copy
import inspect
import math

import torch
import torch.nn.functional as F
from exercise_answers import worked
from transformer_exercises import course

SIZES = "both are arguments"
TRAINING = "training mode should compute the same"
GRADIENT = "no gradient comes back"
SOME_GRADIENT = "some of the gradient does not come back"
LOWEST = "a score can be lower than that number"
LARGEST = "takes the largest away"
PADDING = "need not be"
THE_OUTPUT = "yours drops what comes out"
PASSED: dict[str, list] = {}


def with_lines(name, *texts):
    """The worked function or class of this name, with some pieces of text changed: old, new, old, new …"""
    module, name = worked.notebook(course.notebook_of(name)), name.partition(",")[0]
    source = inspect.getsource(getattr(module, name))
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        assert old in source, (name, old)
        source = source.replace(old, new)
    names = {**vars(module), "F": F, "math": math, "torch": torch}
    exec(source, names)
    return names[name]


def lines(name, *changes):
    """Note wrong answers that differ from the course's in a piece of text: what is wrong, old, new, …, the hint."""
    for what, *texts, hint in changes:
        PASSED.setdefault(name, []).append((what, with_lines(name, *texts), hint))


def functions(name, *answers):
    PASSED.setdefault(name, []).extend(answers)


def softmax_minus(center):
    def softmax(scores):
        powers = (scores - center(scores)).exp()
        return powers / powers.sum(-1, keepdim=True)

    return softmax


BY_POWERS = "scores.exp() / scores.exp().sum(-1, keepdim=True)"
AFTER_16 = "4 is √d_k for keys of 16 numbers"
functions(
    "02.1",
    ("the mean", softmax_minus(lambda scores: scores.mean(-1, keepdim=True)), "no power is above"),
    ("the least", softmax_minus(lambda scores: scores.amin(-1, keepdim=True)), "no power is above"),
)
lines(
    "attention",
    ("overflows at 89", "scores.softmax(dim=-1)", BY_POWERS, LARGEST),
    ("√d_k is 4", "math.sqrt(query.shape[-1])", "4", AFTER_16),
    ("a whole root", "math.sqrt(query.shape[-1])", "int(math.sqrt(query.shape[-1]))", "leave out `int`"),
    ("no axis for heads", "scores.softmax(dim=-1)", "scores.softmax(dim=min(2, scores.dim() - 1))", "one more axis"),
    ("detached", "return weights @ value, weights", "return (weights @ value).detach(), weights", GRADIENT),
)
functions("attention", ("no_grad", torch.no_grad()(course.own("attention")), GRADIENT))
lines(
    "scaled_dot_product_attention",
    ("overflows at 89", "scores.softmax(dim=-1)", BY_POWERS, LARGEST),
    ("√d_k is 4", "math.sqrt(query.shape[-1])", "4", AFTER_16),
    ("-100", "torch.finfo(scores.dtype).min", "-100", LOWEST),
    ("-1000", "torch.finfo(scores.dtype).min", "-1000", LOWEST),
    ("no name", "scores = scores.masked_fill(", "scores.masked_fill(", "no longer sum to one"),
    (
        "no name at all",
        "scores = scores.masked",
        "scores.masked",
        "weights = weights.masked",
        "weights.masked",
        "no effect",
    ),
    ("inverted in place", "~mask, torch", "mask.logical_not_(), torch", "~mask, 0.0", "mask, 0.0", "changes in place"),
    (
        "dropout on the output",
        "    weights = F.dropout(weights, dropout)",
        "    output = F.dropout(weights @ value, dropout)",
        "return weights @ value, weights",
        "return output, weights",
        THE_OUTPUT,
    ),
    ("dropout twice", "return weights @ value,", "return F.dropout(weights @ value, dropout),", THE_OUTPUT),
    ("no axis for heads", "key.transpose(-2, -1)", "key.transpose(1, 2)", "one more axis"),
    ("weights of what is hidden", "@ value, weights", "@ value, scores.softmax(-1)", "those that meet the values"),
    ("detached", "return weights @ value, weights", "return (weights @ value).detach(), weights", GRADIENT),
)
own = course.own("scaled_dot_product_attention")
functions("scaled_dot_product_attention", ("no_grad, which got a hint about masks", torch.no_grad()(own), GRADIENT))
lines(
    "Head",
    ("d_k is 6", "nn.Linear(d_model, d_k)", "nn.Linear(d_model, 6)", "W_Q.weight has the shape [6, 10]"),
    ("no values in training", "self.W_V(value)", "self.W_V(key if self.training else value)", TRAINING),
    ("detached", "return output", "return output.detach()", GRADIENT),
)
lines(
    "HeadsInAList",
    ("d_k is 6", "d_model // num_heads", "6", "heads.0.W_Q.weight has the shape [6, 10]"),
    ("4 heads", "range(num_heads)", "range(4)", "as num_heads says"),
    ("no W_O in training", "return self.W_O(", "return (nn.Identity() if self.training else self.W_O)(", TRAINING),
)
HEADS = (
    ("no W_O in training", "self.out_proj(joined)", "(joined if self.training else self.out_proj(joined))", TRAINING),
    ("one head in training", "self.num_heads, -1)", "1 if self.training else self.num_heads, -1)", TRAINING),
    ("4 heads", "(self.num_heads, -1)", "(4, -1)", SIZES),
    ("d_k is 6", "(self.num_heads, -1)", "(-1, 6)", "don't multiply up"),
    ("detached", ".flatten(2)", ".flatten(2).detach()", SOME_GRADIENT),
    ("values of keys", "self.v_proj(value)", "self.v_proj(key)", "v_proj gets `value`"),
    ("keys of queries", "self.k_proj(key)", "self.k_proj(query)", "k_proj gets `key`"),
    ("no transpose", ", -1)).transpose(1, 2)", ", -1))", "then transpose heads and words"),
    (
        "a width that is no whole number",
        "(self.num_heads, -1)",
        "(self.num_heads, x.shape[-1] / self.num_heads)",
        "`//`",
    ),
)
lines("MultiHeadAttention, without mask", *HEADS)
lines(
    "MultiHeadAttention",
    *HEADS,
    (
        "dropout on the output, too",
        "return self.out_proj(joined)",
        "return F.dropout(self.out_proj(joined), dropout)",
        THE_OUTPUT,
    ),
    (
        "dropout on the heads alone",
        "mask, dropout)",
        "mask, 0.0)",
        "self.out_proj(joined)",
        "self.out_proj(F.dropout(joined, dropout))",
        THE_OUTPUT,
    ),
    ("no mask in training", "mask, dropout)", "None if self.training else mask, dropout)", TRAINING),
    ("dropout is 0.1", "self.dropout if", "0.1 if", TRAINING),
    (
        "queries are dropped",
        "self.q_proj(query)",
        "F.dropout(self.q_proj(query), self.dropout, self.training)",
        "fewer",
    ),
)
lines(
    "MyMultiHeadAttention",
    ("overflows at 89", "scores.softmax(dim=-1)", f"({BY_POWERS})", LARGEST),
    ("4 heads", "(self.num_heads, -1)", "(4, -1)", SIZES),
    ("one head in training", "self.num_heads, -1)", "1 if self.training else self.num_heads, -1)", TRAINING),
)
everything = torch.ones(8, 8, dtype=torch.bool)
functions("causal_mask", ("at most 8", lambda length: everything.tril()[:length, :length], "expected [120, 120]"))


def of_lengths(ids, pad_id):
    return (torch.arange(ids.shape[1], device=ids.device) < (ids != pad_id).sum(1)[:, None])[:, None, None]


functions("padding_mask", ("words come first", of_lengths, "they need not come first"))
lines(
    "TokenEmbedding",
    ("a whole root", "math.sqrt(d_model)", "int(math.sqrt(d_model))", "leave out `int`"),
    ("√d_model is 4", "math.sqrt(d_model)", "4", "4 is √d_model for 16 numbers"),
    ("no root in training", "* self.scale", "* (1 if self.training else self.scale)", TRAINING),
    ("detached", "self.table(ids)", "self.table(ids).detach()", GRADIENT),
)
lines(
    "InputEmbedding",
    ("no positions in training", "self.positions(ids", "(not self.training) * self.positions(ids", TRAINING),
    ("detached", "self.tokens(ids)", "self.tokens(ids).detach()", SOME_GRADIENT),
)
lines(
    "PositionwiseFeedForward",
    ("no ReLU in training", ".relu()", ".relu() if not self.training else self.linear1(x)", TRAINING),
    ("ReLU6", ".relu()", ".clamp(0, 6)", "no upper end"),
    ("detached", ".relu()", ".relu().detach()", SOME_GRADIENT),
    ("max(0, …)", "self.linear1(x).relu()", "max(0, self.linear1(x))", "`.relu()`"),
)
lines(
    "EncoderLayer",
    ("4 heads", "(d_model, num_heads, dropout)", "(d_model, 4, dropout)", "all of them are arguments"),
    ("no mask in training", "(x, x, x, mask)", "(x, x, x, None if self.training else mask)", TRAINING),
    ("detached", "self.norm1(x + ", "self.norm1(x.detach() + ", SOME_GRADIENT),
    ("x in place", "x = self.norm1(x + self.dropout(y))", "x += y; x = self.norm1(x)", "changes in place"),
    ("no mask in training, pre-LN", "(y, y, y, mask)", "(y, y, y, None if self.training else mask)", TRAINING),
)
lines(
    "DecoderLayer",
    ("4 heads", "(d_model, num_heads, dropout)", "(d_model, 4, dropout)", "all of them are arguments"),
    ("no future in training", "(x, x, x, tgt_mask)", "(x, x, x, None if self.training else tgt_mask)", TRAINING),
    ("padding in training", "memory, memory_mask)", "memory, None if self.training else memory_mask)", TRAINING),
    ("keys detached", "memory, memory, memory_mask)", "memory.detach(), memory, memory_mask)", SOME_GRADIENT),
)
lines(
    "Decoder",
    ("two layers", "nn.ModuleList(layers)", "nn.ModuleList(layers[:2])", "but not for three"),
    ("detached", "x, self_weights", "x, self_weights", "return self.norm(x)", "return self.norm(x).detach()", GRADIENT),
)
lines(
    "SinusoidalPositionalEncoding",
    ("d_model is 12", "/ d_model)", "/ 12)", SIZES),
    ("50 positions", "torch.arange(max_len)", "torch.arange(50)", "expected [300, 20]"),
    ("4i", "-torch.arange(0, d_model, 2)", "-2 * torch.arange(0, d_model, 2)", "4i in the exponent"),
)
lines(
    "Transformer",
    ("padding is 1", "self.config.pad_id", "1", PADDING),
    ("padding is 1, source", "padding_mask(src, self.config.pad_id)", "padding_mask(src, 1)", PADDING),
    ("padding is 1, target", "target_mask(tgt, self.config.pad_id)", "target_mask(tgt, 1)", PADDING),
    ("4 heads", "config.num_heads", "4", "each size is `config`'s"),
    ("2 layers", "range(config.num_layers)", "range(2)", "no ['decoder.layers.2"),
    ("20 positions", "config.max_len", "20", "must match"),
    ("d_ff is 64", "config.d_ff", "64", "linear1.weight has the shape [64, 20]"),
    (
        "no future in training",
        "memory, mask, memory_mask",
        "memory, None if self.training else mask, memory_mask",
        TRAINING,
    ),
    ("memory detached", "memory, mask, memory_mask", "memory.detach(), mask, memory_mask", SOME_GRADIENT),
    ("std of 32", "std=config.d_model**-0.5", "std=32**-0.5", "std=d_model**-0.5"),
    (
        "one size, one table",
        "if config.tie_embeddings:",
        "if config.src_vocab_size == 300:",
        "only where `tie_embeddings`",
    ),
)
lines(
    "MyTransformer",
    ("padding is 1", "config.pad_id", "1", PADDING),
    ("4 heads", "config.num_heads", "4", "each size is `config`'s"),
    ("3 layers", "range(config.num_layers)", "range(3)", "decoder.layers.2"),
    (
        "no future in training",
        "memory, tgt_mask, src_mask",
        "memory, None if self.training else tgt_mask, src_mask",
        TRAINING,
    ),
)


def number_alone(*given):
    return torch.tensor(course.own("token_loss")(*given).item())


def log_of_softmax(logits, targets, pad_id, label_smoothing=0.0):
    surprise, real = -logits.softmax(-1).log(), targets != pad_id
    wanted = surprise.gather(-1, targets[..., None])[..., 0]
    return ((1 - label_smoothing) * wanted + label_smoothing * surprise.mean(-1))[real].mean()


lines("token_loss", ("padding is 1", "ignore_index=pad_id", "ignore_index=1", PADDING))
lines("token_loss", ("padding is 0 or 1", "ignore_index=pad_id", "ignore_index=min(pad_id, 1)", PADDING))
functions(
    "token_loss",
    ("a number alone", number_alone, GRADIENT),
    ("no_grad", torch.no_grad()(course.own("token_loss")), GRADIENT),
    ("log of softmax", log_of_softmax, "large logits give inf or nan"),
)
CLIP = "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # at most 1 long\n"
lines(
    "train_one_epoch",
    ("padding is 1, of tokens", "(wanted != pad_id)", "(wanted != 1)", PADDING),
    ("padding is 1, of the loss", "wanted, pad_id, label", "wanted, 1, label", PADDING),
    ("keeps the graph", "loss.detach() * tokens", "loss * tokens", "keeps the graph"),
    ("a loss of 16 bits", "token_loss(logits.float(), wanted", "token_loss(logits, wanted", "`logits.float()`"),
    (
        "two mistakes: clips nothing, and the schedule is first",
        f"        loss.backward()\n{CLIP}        optimizer.step()\n        schedule.step()\n",
        f"{CLIP}        loss.backward()\n        schedule.step()\n        optimizer.step()\n",
        "between `backward` and `step`",
    ),
)


def keeping_every_graph(model, train_batches, val_batches, optimizer, schedule, epochs, pad_id):
    def add_up(batches, learns):
        total, count = 0, 0
        for src, tgt in batches:
            loss = course.own("token_loss")(model(src, tgt[:, :-1]), tgt[:, 1:], pad_id)
            if learns:
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
            tokens = (tgt[:, 1:] != pad_id).sum().item()
            total, count = total + loss * tokens, count + tokens
        return (total / count).item()

    losses, best = ([], []), None
    for _ in range(epochs):
        losses[0].append(add_up(train_batches, model.train().training))
        with torch.no_grad():
            losses[1].append(add_up(val_batches, model.eval().training))
        best = copy.deepcopy(model.state_dict()) if losses[1][-1] == min(losses[1]) else best
    model.load_state_dict(best)
    return losses


lines(
    "my_training",
    ("padding is 1, of the loss", "ignore_index=pad_id", "ignore_index=1", PADDING),
    ("padding is 1, of tokens", "(wanted != pad_id)", "(wanted != 1)", PADDING),
)
functions("my_training", ("keeps the graph", keeping_every_graph, "keeps the graph"))


def one_after_the_other(*given, each=lambda pairs, beam_size: pairs * beam_size):
    next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len, lp = given
    found = []
    for place in range(len(memory)):
        rows = memory[place : place + 1], memory_mask[place : place + 1]
        ids, log_prob = course.own("greedy")(next_log_probs, *rows, sos_id, eos_id, max_len)
        found.append(each([(log_prob / lp(len(ids)), ids)], beam_size))
    return found


def narrow(*given):
    return course.own("beam")(*given[:5], 1, *given[6:])


functions(  # which got hints about `tgt[rows]`, or about how many
    "beam",
    ("greedy", one_after_the_other, "that is greedy search"),
    (
        "greedy, one each",
        lambda *given: one_after_the_other(*given, each=lambda pairs, _: pairs),
        "that is greedy search",
    ),
    ("a beam of 1", narrow, "that is greedy search"),
)
lines("beam_one", ("no penalty", "log_prob / lp(length), ids", "log_prob, ids", "a score: log-probability"))
lines(
    "my_cached_beam",
    ("padding is 1", "[pad_id, sos_id]", "[1, sos_id]", "never written"),
    ("<sos> is 2", "[pad_id, sos_id]", "[pad_id, 2]", "never written"),
)
lines(
    "PaperTransformer",
    ("padding is 1", "self.config.pad_id", "1", "So is `pad_id`"),
    ("4 heads", "self.config.num_heads", "4", "each size is `config`'s"),
    ("-100", "torch.finfo(scores.dtype).min", "-100", LOWEST),
    ("no future in training", "x, x, tgt_mask)", "x, x, tgt_mask | self.training)", TRAINING),
)
