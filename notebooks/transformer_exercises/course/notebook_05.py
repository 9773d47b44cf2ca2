"""Loss and training loop, as notebook 05 writes them."""

import torch
import torch.nn.functional as F


def token_loss(logits, targets, pad_id, label_smoothing=0.0):
    return F.cross_entropy(
        logits.flatten(0, 1),  # all positions of all sentences in one row: [batch · tgt_len, vocab_size]
        targets.flatten(),  # [batch · tgt_len]
        ignore_index=pad_id,  # neither in the sum nor in the count that it is divided by
        label_smoothing=label_smoothing,  # section 3
    )


def train_one_epoch(model, batches, optimizer, schedule, pad_id, label_smoothing=0.0, half=False):
    model.train()  # dropout on
    total_loss, total_tokens = 0.0, 0
    for src, tgt in batches:
        given, wanted = tgt[:, :-1], tgt[:, 1:]  # section 1
        with torch.autocast(src.device.type, torch.bfloat16, enabled=half):  # matrix products in 16 bits, if asked for
            logits = model(src, given)
        loss = token_loss(logits, wanted, pad_id, label_smoothing)  # sections 2 and 3
        optimizer.zero_grad()  # forget the gradients of the batch before
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # section 4
        optimizer.step()
        schedule.step()
        tokens = (wanted != pad_id).sum()
        total_loss += loss.detach() * tokens  # stays a tensor: `.item()` would make a GPU wait in each step
        total_tokens += tokens
    return (total_loss / total_tokens).item()  # a mean over tokens
