"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), from two texts to a translator.

    python the_transformer.py train
    python the_transformer.py --model my.pt train --texts my.de my.en --test test.de test.en --epochs 5
    python the_transformer.py translate "Zwei Hunde spielen im Schnee."

The first learns from Multi30k (transformer-lib download multi30k gets it), the second from texts of yours, line by
line. (3.2.1) is a section of the paper. Not in it: norms first, a decay to zero, clipping, biases in attention.
"""

import argparse
import gzip
import math
import os
import re
import sys
import unicodedata
from collections import Counter
from dataclasses import asdict, dataclass, fields
from functools import cache
from itertools import pairwise, zip_longest

import torch
from torch import nn


@dataclass
class Config:  # each setting is an option, such as --epochs 5; in brackets, the paper's base model
    vocab_size: int = 4000  # subword tokens ("pieces"), for both languages together (37,000)
    d_model: int = 128  # numbers in each vector that flows through the model; divisible by 2 · num_heads (512)
    num_heads: int = 4  # in each attention (8)
    d_ff: int = 512  # inner width of the feed-forward networks (2048)
    num_layers: int = 3  # in the encoder, and in the decoder (6)
    dropout: float = 0.0  # share of numbers set to zero in training; so short a run hardly overfits (0.1)
    epochs: int = 8  # passes over the training text
    max_tokens: int = 1024  # positions in a batch, padding included, in its longer language (25,000)
    learning_rate: float = 3e-3  # at its peak, after a tenth of the steps (about 7e-4, after 4,000 of 100,000)
    label_smoothing: float = 0.1  # probability shared by all pieces alike, against overconfidence (0.1)
    beam_size: int = 4  # hypotheses, which are unfinished translations, kept at each step (4)
    length_penalty: float = 0.6  # α of Wu et al. 2016; a larger one favours longer translations (0.6)
    seed: int = 1  # of all random numbers


UNK, PAD, SOS, EOS = range(4)  # the first ids: unknown character, padding, start and end of a sentence
SIGNS = r"[!-&(-+/:-@[-`{-~]|(?<![0-9])[.,]|[.,](?![0-9])|(?<=[0-9])-"  # words of their own to BLEU, as in sacreBLEU
MAX_LEN = 256  # ids in a sentence, from <sos> to <eos>; a longer one loses its end
DEVICE = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


# ---- From sentences to batches of ids, by byte-pair encoding (5.1) ----
def words_of(text):  # "Ein Hund." -> ["▁ein", "▁hund."]; ▁ was a space; above 100 characters, parts
    text = unicodedata.normalize("NFC", text.replace("▁", " ").lower())  # an ä is one character
    return re.findall("▁?[^▁]{1,100}", "▁" + "▁".join(text.split()))


def learn_pieces(texts, size):  # merge the most frequent pair, again and again (Sennrich et al. 2016)
    words = (word for text in texts for word in words_of(text))
    counts = Counter(part for word in words for part in re.findall(r"▁?\w+|▁?\W", word))  # "." by itself
    pieces = dict.fromkeys(["<unk>", "<pad>", "<sos>", "<eos>", *sorted(set("".join(counts)))])  # in learning order
    cuts = {word: f" {'  '.join(word)} " for word in counts}  # " ▁  d  e  r ": each piece has two spaces of its own
    pairs = Counter()  # how often two pieces stand side by side
    changed = list(cuts)
    while True:
        for word in changed:
            for pair in pairwise(cuts[word].split()):
                pairs[pair] += counts[word]
        left, right = max(pairs, key=pairs.get, default=("", ""))
        if len(pieces) >= size or pairs[left, right] < 2:
            return list(pieces)
        pieces[left + right] = None
        changed = [word for word in cuts if left + right in word]  # all others stay as they are
        for word in changed:
            for pair in pairwise(cuts[word].split()):
                pairs[pair] -= counts[word]  # the top of the loop adds them again, as they are then
            cuts[word] = cuts[word].replace(f" {left}  {right} ", f" {left + right} ")


class Tokenizer:
    def __init__(self, pieces):
        self.pieces = pieces
        self.ids = {piece: i for i, piece in enumerate(pieces)}
        self.cut = cache(self.cut)  # it remembers what it has cut

    def cut(self, word):  # "▁hund." -> ["▁hund", "."]
        pieces = list(word)
        while True:
            joins = [self.ids.get(left + right, math.inf) for left, right in pairwise(pieces)]
            if min(joins, default=math.inf) == math.inf:
                return pieces
            i = joins.index(min(joins))  # what was learned first is joined first
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]

    def encode(self, sentence):
        ids = [self.ids.get(piece, UNK) for word in words_of(sentence) for piece in self.cut(word)]
        return [SOS, *ids[: MAX_LEN - 2], EOS]

    def decode(self, ids):
        return "".join(self.pieces[i] for i in ids if i > EOS).replace("▁", " ").strip()


def padded(rows):  # lists of ids -> [batch, seq_len]
    return nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=PAD).to(DEVICE)


def make_batches(pairs, max_tokens):  # sentences of similar length need little padding; each epoch mixes anew
    pairs = [pairs[i] for i in torch.randperm(len(pairs))]
    pairs.sort(key=lambda pair: (max(map(len, pair)), len(pair[0])))
    batches = []
    while pairs:
        size = max(1, max_tokens // max(map(len, pairs[-1])))  # from the end, where the longest are
        batches.append([padded(side) for side in zip(*pairs[-size:], strict=True)])  # [batch, src_len] and tgt_len
        del pairs[-size:]
    return [batches[i] for i in torch.randperm(len(batches))]


# ---- The model (figure 1) ----
def padding_mask(ids, pad_id):  # True: may be attended to (nn.MultiheadAttention means the opposite)
    return (ids != pad_id)[:, None, None, :]  # [batch, 1, 1, seq_len]: for all heads and queries alike


def causal_mask(length):  # no position sees a later one (3.2.3)
    return torch.ones(length, length, dtype=torch.bool).tril()  # row i: True in columns 0 to i


def target_mask(ids, pad_id):  # both must allow it: [batch, 1, tgt_len, tgt_len]
    return padding_mask(ids, pad_id) & causal_mask(ids.shape[1]).to(ids.device)


def scaled_dot_product_attention(query, key, value, mask=None, dropout=0.0):  # softmax(Q Kᵀ / √d_k) V
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # how well keys fit; √d_k keeps softmax soft
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # weight 0; -inf may give NaN
    weights = nn.functional.dropout(scores.softmax(dim=-1), dropout)  # [..., query_len, key_len]
    return weights @ value, weights  # for each query, an average of values: [..., query_len, d_v]; the map, to plot


class MultiHeadAttention(nn.Module):  # several attentions, each in d_k = d_model / num_heads numbers (3.2.2)
    def __init__(self, d_model, num_heads, dropout=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(d_model, d_model)  # the W_Q of all heads, side by side
        self.k_proj = nn.Linear(d_model, d_model)  # W_K
        self.v_proj = nn.Linear(d_model, d_model)  # W_V
        self.out_proj = nn.Linear(d_model, d_model)  # W_O, which mixes what the heads have found
        self.dropout = dropout

    def forward(self, query, key, value, mask=None):
        projected = self.q_proj(query), self.k_proj(key), self.v_proj(value)  # [batch, seq_len, d_model]
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in projected)  # [batch, heads, len, d_k]
        dropout = self.dropout if self.training else 0.0  # a function does not know of eval()
        heads, weights = scaled_dot_product_attention(q, k, v, mask, dropout)  # [batch, heads, query_len, d_k]
        return self.out_proj(heads.transpose(1, 2).flatten(2)), weights  # [batch, query_len, d_model]


class PositionwiseFeedForward(nn.Module):  # max(0, x W₁ + b₁) W₂ + b₂, at each position alike (3.3)
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)  # W₁ and b₁
        self.linear2 = nn.Linear(d_ff, d_model)  # W₂ and b₂
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):  # [batch, seq_len, d_model]; inside, d_ff numbers at each position
        return self.linear2(self.dropout(self.linear1(x).relu()))


class EncoderLayer(nn.Module):  # self-attention, then feed-forward: look around, then think (3.1)
    def __init__(self, d_model, num_heads, d_ff, dropout):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads, dropout)
        self.norm1 = nn.LayerNorm(d_model)  # each vector to mean 0 and variance 1, then a learned scale and shift
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, dropout)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):  # [batch, src_len, d_model]
        y = self.norm1(x)  # pre-LN: x + f(norm(x)); the paper has norm(x + f(x))
        y, weights = self.self_attn(y, y, y, mask)
        x = x + self.dropout(y)  # the residual: x itself goes on, and gradients come back, unchanged
        return x + self.dropout(self.feed_forward(self.norm2(x))), weights


class DecoderLayer(EncoderLayer):  # in between, cross-attention looks at the memory: the encoder's output
    def __init__(self, d_model, num_heads, d_ff, dropout):
        super().__init__(d_model, num_heads, d_ff, dropout)
        self.cross_attn = MultiHeadAttention(d_model, num_heads, dropout)
        self.norm3 = nn.LayerNorm(d_model)  # before the feed-forward: norm2 stands before cross-attention here

    def forward(self, x, memory, tgt_mask, memory_mask):  # [batch, tgt_len, d_model], [batch, src_len, d_model]
        y = self.norm1(x)
        y, self_weights = self.self_attn(y, y, y, tgt_mask)
        x = x + self.dropout(y)
        y, cross_weights = self.cross_attn(self.norm2(x), memory, memory, memory_mask)  # x asks
        x = x + self.dropout(y)
        return x + self.dropout(self.feed_forward(self.norm3(x))), self_weights, cross_weights


class SinusoidalPositionalEncoding(nn.Module):  # attention sees no order: sines and cosines tell it (3.5)
    def __init__(self, max_len, d_model):
        super().__init__()
        frequency = 10_000 ** (-torch.arange(0, d_model, 2).double() / d_model)  # [d_model / 2]: each pair's own
        angle = torch.arange(max_len)[:, None] * frequency  # [max_len, d_model / 2]: at each position
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)  # [max_len, d_model]: sin, cos …
        self.register_buffer("table", table.float(), persistent=False)  # moves with the model, is not trained

    def forward(self, length):  # -> [length, d_model]
        return self.table[:length]


class Transformer(nn.Module):  # the encoder reads the source, the decoder writes the target (3)
    def __init__(self, config):
        super().__init__()
        self.positions = SinusoidalPositionalEncoding(MAX_LEN, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        sizes = config.d_model, config.num_heads, config.d_ff, config.dropout
        encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(config.num_layers))
        decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(config.num_layers))
        self.encoder = nn.ModuleDict({"layers": encoder, "norm": nn.LayerNorm(config.d_model)})
        self.decoder = nn.ModuleDict({"layers": decoder, "norm": nn.LayerNorm(config.d_model)})
        self.output = nn.Linear(config.d_model, config.vocab_size)  # row i embeds piece i, too, on both sides (3.4)
        for parameter in self.parameters():
            if parameter.dim() > 1:  # no bias, and nothing of a norm
                nn.init.xavier_uniform_(parameter)  # vectors keep their size on the way

    def embed(self, ids):  # -> [batch, seq_len, d_model]; √d_model makes words as large as positions
        vectors = nn.functional.embedding(ids, self.output.weight) * math.sqrt(self.output.in_features)
        return self.dropout(vectors + self.positions(ids.shape[1]))

    def encode(self, src):  # [batch, src_len] -> the memory, [batch, src_len, d_model], and its mask
        x = self.embed(src)
        mask = padding_mask(src, PAD)
        for layer in self.encoder["layers"]:
            x, _ = layer(x, mask)
        return self.encoder["norm"](x), mask

    def decode(self, tgt, memory, memory_mask):  # [batch, tgt_len] -> logits, [batch, tgt_len, vocab_size]
        x = self.embed(tgt)
        mask = target_mask(tgt, PAD)
        for layer in self.decoder["layers"]:
            x, _, _ = layer(x, memory, mask, memory_mask)
        return self.output(self.decoder["norm"](x))

    def forward(self, src, tgt):
        return self.decode(tgt, *self.encode(src))


# ---- Training (5), search and its score (6.1), commands ----
def token_loss(logits, targets, pad_id, label_smoothing=0.0):  # a mean over what is no padding
    loss = nn.CrossEntropyLoss(ignore_index=pad_id, label_smoothing=label_smoothing)  # (5.4)
    return loss(logits.flatten(0, 1), targets.flatten())


def train_one_epoch(model, batches, optimizer, schedule, pad_id, label_smoothing=0.0):
    model.train()  # dropout on
    total_loss, total_tokens = 0.0, 0
    for src, tgt in batches:
        given, wanted = tgt[:, :-1], tgt[:, 1:]  # teacher forcing: given <sos> a dog, it has to say a dog <eos>
        loss = token_loss(model(src, given), wanted, pad_id, label_smoothing)
        optimizer.zero_grad()  # forget the gradients of the batch before
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)  # no batch may push too far
        optimizer.step()
        schedule.step()  # after each batch, not each epoch
        tokens = (wanted != pad_id).sum()
        total_loss += loss.detach() * tokens
        total_tokens += tokens
    return (total_loss / total_tokens).item()


def beam(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len=50, lp=lambda length: 1.0):
    tgt = torch.full((len(memory), 1), sos_id, device=memory.device)  # [rows, length]; a row is a hypothesis
    log_probs = torch.zeros(len(memory), 1, device=memory.device)  # [sentences, width]: 1, then beam_size
    finished = [[] for _ in memory]  # of each sentence: pairs of score and ids
    while log_probs.isfinite().any():  # until no hypothesis is open
        length = tgt.shape[1]  # of what this step writes, without <sos>
        step = next_log_probs(tgt, memory, memory_mask).unflatten(0, log_probs.shape)
        candidates = (log_probs[:, :, None] + step).flatten(1)  # [sentences, width · vocab_size]
        best, index = candidates.topk(min(2 * beam_size, candidates.shape[1]))  # half of them may end
        first_row = torch.arange(0, len(tgt), log_probs.shape[1], device=tgt.device)[:, None]  # [sentences, 1]
        rows, token = first_row + index // step.shape[2], index % step.shape[2]  # what it continues, by which piece
        ends = (token == eos_id) | (length == max_len)
        for s, j in (ends & best.isfinite())[:, :beam_size].nonzero().tolist():  # of the best beam_size
            ids = [*tgt[rows[s, j], 1:].tolist(), token[s, j].item()]
            finished[s].append((best[s, j].item() / lp(length), ids))
        log_probs, chosen = best.masked_fill(ends, -math.inf).topk(min(beam_size, best.shape[1]))  # the best that go on
        for s, pairs in enumerate(finished):
            if len(pairs) >= beam_size and max(pairs)[0] >= log_probs[s, 0].item() / lp(length):
                log_probs[s] = -math.inf  # done: nothing that is open is ahead (it might still overtake)
        rows, token = rows.gather(1, chosen).flatten(), token.gather(1, chosen).flatten()
        tgt = torch.cat([tgt[rows], token[:, None]], dim=1)  # a hypothesis may be copied, or dropped
        memory, memory_mask = memory[rows], memory_mask[rows]
    return [sorted(pairs, reverse=True)[:beam_size] for pairs in finished]


@torch.no_grad()
def translate(model, tokenizer, sentences, beam_size, length_penalty):  # yields strings; a beam of 1 is greedy
    def next_log_probs(tgt, memory, memory_mask):
        logits = model.decode(tgt, memory, memory_mask)[:, -1]  # [rows, vocab_size]; without a cache, all is recomputed
        logits[:, [PAD, SOS]] = -math.inf  # never written
        return logits.log_softmax(dim=-1)

    model.eval()  # dropout off
    for start in range(0, len(sentences), 100):
        src = padded([tokenizer.encode(sentence) for sentence in sentences[start : start + 100]])
        limits = SOS, EOS, beam_size, min(src.shape[1] + 50, MAX_LEN)
        found = beam(next_log_probs, *model.encode(src), *limits, lambda length: ((5 + length) / 6) ** length_penalty)
        yield from (tokenizer.decode(pairs[0][1]) for pairs in found)


def corpus_bleu(hypotheses, references):  # 0 to 100: how many runs of words are shared (Papineni et al. 2002)
    product = 1.0
    for n in range(1, 5):  # zip(side[0:], side[1:] …) gives all runs of n words
        runs = [[Counter(zip(*(side[i:] for i in range(n)))) for side in pair] for pair in zip(hypotheses, references)]
        matches = sum((ours & theirs).total() for ours, theirs in runs)  # & takes the lower count
        product *= matches / max(1, sum(ours.total() for ours, _ in runs))
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * min(1.0, math.exp(1 - r / max(1, c))) * product ** (1 / 4)  # the brevity penalty


def read(*paths):  # two texts, line n of one the translation of line n of the other
    texts = []
    for path in paths:
        try:
            with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8-sig", newline="\n") as f:
                texts.append([line.strip() for line in f] or [""])
        except Exception as error:
            sys.exit(f"{path} cannot be read as UTF-8 text ({error}); --help says where texts come from")
    for number, lines in enumerate(zip_longest(*texts, fillvalue=""), start=1):
        if not all(lines):
            sys.exit(f"{paths[lines.index('')]} has nothing in line {number:,}")
    return texts


def load(path):  # -> the model, its tokenizer, and all that was saved
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        model = Transformer(Config(**saved["config"])).to(DEVICE)
        model.load_state_dict(saved["weights"])
        return model, Tokenizer(saved["pieces"]), saved
    except Exception as error:  # torch.load raises whatever its parsers stumble over
        sys.exit(f"{path} is missing, damaged, or no file that train wrote ({error!r:.160})")


def train(config, train_paths, test_paths, path):
    assert config.beam_size > 0 and config.d_model % (2 * config.num_heads) == 0, "see --help for what fits together"
    train_src, train_tgt = read(*train_paths)
    test_src, test_tgt = read(*test_paths)
    pieces = learn_pieces(train_src + train_tgt, config.vocab_size)
    config.vocab_size = len(pieces)  # short texts have fewer
    tokenizer = Tokenizer(pieces)
    pairs = list(zip(map(tokenizer.encode, train_src), map(tokenizer.encode, train_tgt), strict=True))
    run = {"config": asdict(config), "pieces": pieces, "lines": len(train_src)}
    saved = load(path)[2] if os.path.exists(path) else {**run, "epoch": 0}
    if any(saved.get(name) != run[name] for name in run):
        sys.exit(f"{path} is of another run: rename it, or name another: --model NAME train …")
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    torch.manual_seed(config.seed)
    model = Transformer(config).to(DEVICE)
    print(f"{len(pairs):,} pairs, {sum(p.numel() for p in model.parameters()):,} parameters, on {DEVICE}")
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate, (0.9, 0.98), eps=1e-9)  # (5.3)
    steps = max(1, config.epochs * len(make_batches(pairs, config.max_tokens)))  # a line up, a line down to 0
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(n + 1, (steps - n) / 9) * 10 / steps)
    parts = {"weights": model, "optimizer": optimizer, "schedule": schedule}
    for name in parts.keys() & saved.keys():
        parts[name].load_state_dict(saved[name])
    for epoch in range(saved["epoch"] + 1, config.epochs + 1):
        torch.manual_seed(1000 * config.seed + epoch)  # all that is random follows from these two numbers
        batches = make_batches(pairs, config.max_tokens)
        loss = train_one_epoch(model, batches, optimizer, schedule, PAD, config.label_smoothing)
        torch.save({**run, "epoch": epoch, **{name: part.state_dict() for name, part in parts.items()}}, path + ".new")
        os.replace(path + ".new", path)  # in one stroke: there is always a whole file
        print(f"\nepoch {epoch}: loss {loss:.3f}, saved in {path}")
        print(*translate(model, tokenizer, test_src[:5], 1, 0.0), sep="\n", flush=True)
    for beam_size in (1, config.beam_size):  # choose settings on another text than this one
        sides = translate(model, tokenizer, test_src, beam_size, config.length_penalty), test_tgt
        words = [[re.sub(SIGNS, r" \g<0> ", text.lower()).split() for text in side] for side in sides]
        print(f"lower-cased BLEU with a beam of {beam_size}: {corpus_bleu(*words):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="the_transformer.pt", help="what train writes and translate reads")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("translate").add_argument("sentences", nargs="*", help="otherwise, lines of the input")
    training = commands.add_parser("train")
    folder = os.path.join(os.environ.get("TRANSFORMER_LIB_DATA", "data/cache"), "multi30k")
    for name, split in {"--texts": "train", "--test": "test_2016_flickr"}.items():
        training.add_argument(name, nargs=2, default=[f"{folder}/{split}.{side}.gz" for side in ("de", "en")])
    for field in fields(Config):
        training.add_argument(f"--{field.name}", type=field.type, default=field.default, help=f"({field.default})")
    args = parser.parse_args()
    if args.command == "train":
        config = Config(**{field.name: getattr(args, field.name) for field in fields(Config)})
        train(config, args.texts, args.test, args.model)
    else:
        model, tokenizer, saved = load(args.model)
        sentences = args.sentences or [line.strip() for line in sys.stdin] or [""]
        if not all(2 < len(tokenizer.encode(sentence)) < MAX_LEN for sentence in sentences):
            sys.exit(f"expected sentences of words, each in fewer than {MAX_LEN - 2} pieces")
        settings = saved["config"]["beam_size"], saved["config"]["length_penalty"]
        sys.stdout.writelines(f"{text}\n" for text in translate(model, tokenizer, sentences, *settings))
