"""The Transformer of *Attention Is All You Need* (Vaswani et al. 2017) in one file: from two texts to a translator.

    python the_transformer.py train multi30k
    python the_transformer.py train train.de train.en test.de test.en --epochs 5
    python the_transformer.py translate "Zwei Hunde spielen im Schnee."

Line n of train.en translates line n of train.de. All it needs is PyTorch. Numbers such as (3.2.1) are the paper's
sections. Two things are younger: a norm stands before each sub-layer, and the learning rate falls to zero.
"""

import argparse
import gzip
import math
import os
import re
import signal
import sys
import time
import unicodedata
from collections import Counter
from dataclasses import asdict, dataclass, fields
from functools import cache
from itertools import pairwise, zip_longest

import torch
from torch import nn


@dataclass
class Config:  # each setting is an option of train, as --epochs 5; in brackets, what the paper's base model has
    vocab_size: int = 4000  # pieces of words, of both languages together (37,000)
    d_model: int = 128  # numbers in each vector that flows through the model (512)
    num_heads: int = 4  # of each attention; divides d_model (8)
    d_ff: int = 512  # inner size of the feed-forward networks (2048)
    num_layers: int = 3  # of the encoder, and of the decoder (6)
    dropout: float = 0.1  # share of the numbers that are set to zero in training (0.1)
    epochs: int = 8  # passes over the training text
    max_tokens: int = 1024  # positions in a batch, on its longer side (25,000)
    learning_rate: float = 3e-3  # at its peak (7e-4)
    warmup: float = 0.1  # share of the steps that lead up to it (0.04)
    label_smoothing: float = 0.1  # share of the probability that is spread over all pieces (0.1)
    beam_size: int = 4  # (4)
    length_penalty: float = 0.6  # (0.6)
    seed: int = 1  # of all random numbers


UNK, PAD, SOS, EOS = range(4)  # the first ids: an unknown character, padding, start and end of a sentence
MAX_LEN = 256  # ids in a sentence, <sos> and <eos> included; what is longer is cut
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


# ---- Sentences ⇄ ids: byte-pair encoding (5.1) ----
def words_of(text):  # "Ein Hund." -> ["▁ein", "▁hund."]; a word of over 100 characters is cut
    words = re.findall("▁?[^▁]{1,100}", "▁" + "▁".join(text.replace("▁", " ").lower().split()))
    return [unicodedata.normalize("NFC", word) for word in words]  # an ä is one character


def learn_pieces(texts, size):  # join the most frequent neighbours, again and again (Sennrich et al. 2016)
    counts = Counter(part for text in texts for part in re.findall(r"▁?\w{1,100}|▁?\W", "".join(words_of(text))))
    pieces = dict.fromkeys(["<unk>", "<pad>", "<sos>", "<eos>", *sorted(set("".join(counts)))])
    cuts = {word: f" {'  '.join(word)} " for word in counts}  # a space on either side of each piece
    pairs = Counter()
    changed = list(cuts)
    while True:
        for word in changed:
            for pair in pairwise(cuts[word].split()):
                pairs[pair] += counts[word]
        left, right = max(pairs, key=pairs.get)
        if len(pieces) >= size or pairs[left, right] < 2:
            return list(pieces)
        pieces[left + right] = None
        changed = [word for word in cuts if left + right in word]
        for word in changed:
            for pair in pairwise(cuts[word].split()):
                pairs[pair] -= counts[word]
            cuts[word] = cuts[word].replace(f" {left}  {right} ", f" {left + right} ")


class Tokenizer:
    def __init__(self, pieces):
        self.pieces = pieces
        self.ids = {piece: i for i, piece in enumerate(pieces)}
        self.cut = cache(self.cut)  # each word only once

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


# ---- Pairs of sentences → batches (5.1) ----
def padded(sentences):  # lists of ids -> [batch, seq_len], the shorter ones filled up
    rows = [torch.tensor(ids) for ids in sentences]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD).to(DEVICE)


def make_batches(pairs, max_tokens):  # sentences of similar length together, so that there is little padding
    pairs = [pairs[i] for i in torch.randperm(len(pairs))]
    pairs.sort(key=lambda pair: (max(map(len, pair)), len(pair[0])))
    batches = []
    while pairs:
        size = max(1, max_tokens // max(map(len, pairs[-1])))  # from the end, where the longest are
        batches.append([padded(side) for side in zip(*pairs[-size:])])  # [batch, src_len], [batch, tgt_len]
        del pairs[-size:]
    return [batches[i] for i in torch.randperm(len(batches))]


# ---- The model (figure 1). A mask is True where a query may look ----
def padding_mask(ids, pad_id):
    return (ids != pad_id)[:, None, None, :]  # [batch, 1, 1, seq_len]: the same for all heads and queries


def target_mask(ids, pad_id):
    causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()  # row i: 0 to i
    return padding_mask(ids, pad_id) & causal  # [batch, 1, tgt_len, tgt_len]: both must allow it


def scaled_dot_product_attention(query, key, value, mask):  # (3.2.1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # [batch, heads, query_len, key_len]
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # e to the power of this is 0
    weights = scores.softmax(dim=-1)  # each query's weights sum to 1
    return weights @ value, weights  # for each query, an average of the values: [batch, heads, query_len, d_k]


class MultiHeadAttention(nn.Module):  # several attentions side by side, each in a smaller space (3.2.2)
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(d_model, d_model)  # the W_Q of all heads, side by side
        self.k_proj = nn.Linear(d_model, d_model)  # W_K
        self.v_proj = nn.Linear(d_model, d_model)  # W_V
        self.out_proj = nn.Linear(d_model, d_model)  # W_O, which mixes what the heads have found

    def forward(self, query, key, value, mask):
        projected = self.q_proj(query), self.k_proj(key), self.v_proj(value)  # [batch, seq_len, d_model] each
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in projected)  # now as in the line above
        heads, weights = scaled_dot_product_attention(q, k, v, mask)  # all heads in one product
        return self.out_proj(heads.transpose(1, 2).flatten(2)), weights  # [batch, query_len, d_model]


class PositionwiseFeedForward(nn.Module):  # max(0, x W₁ + b₁) W₂ + b₂, at every position alike (3.3)
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)

    def forward(self, x):  # [batch, seq_len, d_model]
        return self.linear2(self.linear1(x).relu())


class EncoderLayer(nn.Module):  # each position looks at all of its sentence, then is changed on its own (3.1)
    def __init__(self, d_model, num_heads, d_ff, dropout):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads)
        self.norm1 = nn.LayerNorm(d_model)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):  # [batch, src_len, d_model]
        y = self.norm1(x)  # the norm is on the branch …
        y, weights = self.self_attn(y, y, y, mask)
        x = x + self.dropout(y)  # … and x itself goes on as it came
        return x + self.dropout(self.feed_forward(self.norm2(x))), weights


class DecoderLayer(EncoderLayer):  # in between, each position also looks at the source, in the memory
    def __init__(self, d_model, num_heads, d_ff, dropout):
        super().__init__(d_model, num_heads, d_ff, dropout)
        self.cross_attn = MultiHeadAttention(d_model, num_heads)
        self.norm3 = nn.LayerNorm(d_model)

    def forward(self, x, memory, tgt_mask, memory_mask):  # [batch, tgt_len, d_model], [batch, src_len, d_model]
        y = self.norm1(x)
        y, self_weights = self.self_attn(y, y, y, tgt_mask)
        x = x + self.dropout(y)
        y, cross_weights = self.cross_attn(self.norm2(x), memory, memory, memory_mask)
        x = x + self.dropout(y)
        return x + self.dropout(self.feed_forward(self.norm3(x))), self_weights, cross_weights


class SinusoidalPositionalEncoding(nn.Module):  # a vector for each position: sines and cosines (3.5)
    def __init__(self, max_len, d_model):
        super().__init__()
        frequency = 10_000 ** (-torch.arange(0, d_model, 2) / d_model)  # [d_model / 2], from fast to slow
        angle = torch.arange(max_len)[:, None] * frequency  # [max_len, d_model / 2]
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)  # sin, cos, sin, cos …
        self.register_buffer("table", table, persistent=False)  # moves with the model, never trained or saved

    def forward(self, length):  # -> [length, d_model]
        return self.table[:length]


class Transformer(nn.Module):  # the encoder reads the source, the decoder writes the target, piece by piece (3)
    def __init__(self, config):
        super().__init__()
        self.positions = SinusoidalPositionalEncoding(MAX_LEN, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        sizes = config.d_model, config.num_heads, config.d_ff, config.dropout
        encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(config.num_layers))
        decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(config.num_layers))
        self.encoder = nn.ModuleDict({"layers": encoder, "norm": nn.LayerNorm(config.d_model)})
        self.decoder = nn.ModuleDict({"layers": decoder, "norm": nn.LayerNorm(config.d_model)})
        self.output = nn.Linear(config.d_model, config.vocab_size)  # its rows are the pieces' vectors, too (3.4)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def embed(self, ids):  # [batch, seq_len] -> [batch, seq_len, d_model]
        vectors = nn.functional.embedding(ids, self.output.weight) * math.sqrt(self.output.in_features)
        return self.dropout(vectors + self.positions(ids.shape[1]))

    def encode(self, src):  # [batch, src_len] -> the memory, [batch, src_len, d_model], and its mask
        x = self.embed(src)
        mask = padding_mask(src, PAD)
        for layer in self.encoder.layers:
            x, _ = layer(x, mask)
        return self.encoder.norm(x), mask

    def decode(self, tgt, memory, memory_mask):  # [batch, tgt_len] -> logits, [batch, tgt_len, vocab_size]
        x = self.embed(tgt)
        mask = target_mask(tgt, PAD)
        for layer in self.decoder.layers:
            x, _, _ = layer(x, memory, mask, memory_mask)
        return self.output(self.decoder.norm(x))

    def forward(self, src, tgt):
        return self.decode(tgt, *self.encode(src))


# ---- Training (5) ----
def token_loss(logits, targets, pad_id, label_smoothing=0.0):  # a mean over tokens, padding left out (5.4)
    loss = nn.CrossEntropyLoss(ignore_index=pad_id, label_smoothing=label_smoothing)
    return loss(logits.flatten(0, 1), targets.flatten())


def train_one_epoch(model, batches, optimizer, schedule, pad_id, label_smoothing=0.0):
    model.train()  # dropout on
    total_loss, total_tokens = 0.0, 0
    for src, tgt in batches:
        given, wanted = tgt[:, :-1], tgt[:, 1:]  # given <sos> a dog, it has to say a dog <eos>
        loss = token_loss(model(src, given), wanted, pad_id, label_smoothing)
        optimizer.zero_grad()  # forget the gradients of the batch before
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        tokens = (wanted != pad_id).sum()
        total_loss += loss.detach() * tokens  # a tensor still: .item() would make a GPU wait in each step
        total_tokens += tokens
    return (total_loss / total_tokens).item()


# ---- Search, and its score (6.1) ----
def beam(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len, lp):
    tgt = torch.full((len(memory), 1), sos_id, device=memory.device)  # [rows, length]: a beginning in each row
    log_probs = torch.zeros(len(memory), 1, device=memory.device)  # [sentences, width]; soon, width is beam_size
    finished = [[] for _ in memory]
    while log_probs.isfinite().any():
        length = tgt.shape[1]  # of what this step writes, without <sos>
        step = next_log_probs(tgt, memory, memory_mask).unflatten(0, log_probs.shape)  # [sentences, width, vocab]
        candidates = (log_probs[:, :, None] + step).flatten(1)  # [sentences, width · vocab]
        best, index = candidates.topk(2 * beam_size)  # half of them may end here
        first_row = torch.arange(0, len(tgt), log_probs.shape[1], device=tgt.device)[:, None]  # of each sentence
        rows, token = first_row + index // step.shape[2], index % step.shape[2]
        ends = (token == eos_id) | (length == max_len)
        for s, j in (ends & best.isfinite())[:, :beam_size].nonzero().tolist():
            ids = [*tgt[rows[s, j], 1:].tolist(), token[s, j].item()]
            finished[s].append((best[s, j].item() / lp(length), ids))
        log_probs, chosen = best.masked_fill(ends, -math.inf).topk(beam_size)  # [sentences, beam]: those that go on
        for s, pairs in enumerate(finished):
            if len(pairs) >= beam_size and max(pairs)[0] >= log_probs[s, 0].item() / lp(length):
                log_probs[s] = -math.inf  # this sentence is done: nothing open is ahead
        rows, token = rows.gather(1, chosen).flatten(), token.gather(1, chosen).flatten()
        tgt = torch.cat([tgt[rows], token[:, None]], dim=1)  # a beginning may be copied, or dropped
        memory, memory_mask = memory[rows], memory_mask[rows]
    return [sorted(pairs, reverse=True)[:beam_size] for pairs in finished]


@torch.no_grad()
def translate(model, tokenizer, sentences, beam_size, length_penalty):  # with a beam of 1, search is greedy
    def next_log_probs(tgt, memory, memory_mask):
        logits = model.decode(tgt, memory, memory_mask)[:, -1]  # [rows, vocab_size]
        logits[:, [PAD, SOS]] = -math.inf  # never written
        return logits.log_softmax(dim=-1)

    model.eval()  # dropout off
    translations = []
    for start in range(0, len(sentences), 100):
        src = padded([tokenizer.encode(sentence) for sentence in sentences[start : start + 100]])
        limits = beam_size, min(src.shape[1] + 50, MAX_LEN), lambda length: ((5 + length) / 6) ** length_penalty
        found = beam(next_log_probs, *model.encode(src), SOS, EOS, *limits)
        translations += [tokenizer.decode(pairs[0][1]) for pairs in found]
    return translations


def corpus_bleu(hypotheses, references):  # of lists of words, from 0 to 100 (Papineni et al. 2002)
    product = 1.0
    for n in range(1, 5):
        pairs = zip(hypotheses, references, strict=True)
        ngrams = [[Counter(zip(*(words[i:] for i in range(n)))) for words in pair] for pair in pairs]  # n in a row
        matches = sum((ours & theirs).total() for ours, theirs in ngrams)  # & keeps the smaller of two counts
        product *= matches / max(1, sum(ours.total() for ours, _ in ngrams))
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * min(1.0, math.exp(1 - r / max(1, c))) * product ** (1 / 4)  # what is too short is punished


# ---- Commands ----
def read(*paths):  # two texts, line n of one the translation of line n of the other
    texts = []
    for path in paths:
        try:
            with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8-sig") as file:
                texts.append([line.strip() for line in file] or [""])
        except (OSError, EOFError, ValueError) as error:
            sys.exit(f"{path} cannot be read: {error}")
    for number, lines in enumerate(zip_longest(*texts, fillvalue=""), start=1):
        if not all(lines):
            sys.exit(f"{paths[lines.index('')]} has nothing in line {number:,}")
    return texts


def load(path):
    try:
        return torch.load(path, map_location=DEVICE, weights_only=True)
    except Exception as error:  # torch.load raises whatever its parsers stumble over
        sys.exit(f"{path} is missing, damaged, or nothing that train wrote ({error!r:.60})")


def train(config, train_files, test_files, path):
    train_src, train_tgt = read(*train_files)
    test_src, test_tgt = read(*test_files)
    tokenizer = Tokenizer(learn_pieces(train_src + train_tgt, config.vocab_size))
    config.vocab_size = len(tokenizer.pieces)
    pairs = list(zip(map(tokenizer.encode, train_src), map(tokenizer.encode, train_tgt), strict=True))
    torch.manual_seed(config.seed)
    model = Transformer(config).to(DEVICE)
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(pairs):,} pairs, {config.vocab_size:,} pieces, {size:,} parameters on {DEVICE}")
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate, betas=(0.9, 0.98), eps=1e-9)
    steps = config.epochs * len(make_batches(pairs, config.max_tokens))
    rate = lambda step: min((step + 1) / (1 + config.warmup * steps), 1 - step / steps)  # up, then down to zero
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    parts = {"weights": model, "optimizer": optimizer, "schedule": schedule}
    run = {"config": asdict(config), "pieces": tokenizer.pieces}
    saved = load(path) if os.path.exists(path) else {**run, "epoch": 0}
    if any(saved[name] != run[name] for name in run):
        sys.exit(f"{path} is of another run: rename it, or choose another with --model")
    for name in parts.keys() & saved.keys():
        parts[name].load_state_dict(saved[name])
    for epoch in range(saved["epoch"] + 1, config.epochs + 1):
        began = time.time()
        torch.manual_seed(config.seed + epoch)  # all that is random in an epoch follows from its number
        batches = make_batches(pairs, config.max_tokens)
        loss = train_one_epoch(model, batches, optimizer, schedule, PAD, config.label_smoothing)
        states = {name: part.state_dict() for name, part in parts.items()}
        torch.save({**run, **states, "epoch": epoch}, path + ".new")
        os.replace(path + ".new", path)  # at once: there is always a whole file
        print(f"\nepoch {epoch}: loss {loss:.3f}, {time.time() - began:.0f} s, saved in {path}")
        print(*translate(model, tokenizer, test_src[:5], 1, 0.0), sep="\n")
    signs = r"([!-&(-+/:-@[-`{-~])|(?<![0-9])[.,]|[.,](?![0-9])|(?<=[0-9])-"  # as sacreBLEU
    for beam_size in (1, config.beam_size):
        sides = translate(model, tokenizer, test_src, beam_size, config.length_penalty), test_tgt
        words = [[re.sub(signs, r" \g<0> ", text.lower()).split() for text in side] for side in sides]
        print(f"BLEU with a beam of {beam_size}: {corpus_bleu(*words):.2f}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: sys.exit("stopped: the same command goes on after the last saved epoch"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="the_transformer.pt", help="the file that train writes and translate reads")
    commands = parser.add_subparsers(dest="command", required=True)
    translating = commands.add_parser("translate")
    translating.add_argument("sentences", nargs="*", help="by default, the lines of the standard input")
    training = commands.add_parser("train")
    folder = os.path.join(os.environ.get("TRANSFORMER_LIB_DATA", "data/cache"), "multi30k")
    training.add_argument("--train", nargs=2, default=[f"{folder}/train.de.gz", f"{folder}/train.en.gz"])
    training.add_argument("--test", nargs=2, default=[f"{folder}/test_2016_flickr.{side}.gz" for side in ("de", "en")])
    for field in fields(Config):
        training.add_argument(f"--{field.name}", type=field.type, default=field.default)
    args = parser.parse_args()
    if args.command == "train":
        config = Config(**{field.name: getattr(args, field.name) for field in fields(Config)})
        train(config, args.train, args.test, args.model)
    else:
        saved = load(args.model)
        config = Config(**saved["config"])
        tokenizer = Tokenizer(saved["pieces"])
        model = Transformer(config).to(DEVICE)
        model.load_state_dict(saved["weights"])
        sentences = args.sentences or sys.stdin.read().splitlines() or [""]
        if not all(2 < len(tokenizer.encode(sentence)) < MAX_LEN for sentence in sentences):
            sys.exit(f"expected sentences with words, and with fewer than {MAX_LEN} pieces")
        print(*translate(model, tokenizer, sentences, config.beam_size, config.length_penalty), sep="\n")
