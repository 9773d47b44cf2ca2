"""Loss and training loop, as notebook 05 writes them."""

import copy

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


def my_training(model, train_batches, val_batches, optimizer, schedule, epochs, pad_id):
    def loss_of(src, tgt):
        logits, wanted = model(src, tgt[:, :-1]), tgt[:, 1:]
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=pad_id)
        return loss, (wanted != pad_id).sum().item()

    train_losses, val_losses = [], []
    for epoch in range(1, epochs + 1):
        train_batches.set_epoch(epoch)  # the order of the sentences
        model.train()
        total_loss, total_tokens = 0.0, 0
        for src, tgt in train_batches:
            loss, tokens = loss_of(src, tgt)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total_loss, total_tokens = total_loss + loss.item() * tokens, total_tokens + tokens
        train_losses.append(total_loss / total_tokens)

        model.eval()
        with torch.no_grad():
            measured = [loss_of(src, tgt) for src, tgt in val_batches]
        total_loss = sum(loss.item() * tokens for loss, tokens in measured)
        val_losses.append(total_loss / sum(tokens for _, tokens in measured))
        if val_losses[-1] == min(val_losses):
            best_weights = copy.deepcopy(model.state_dict())  # a copy: the weights go on changing
    model.load_state_dict(best_weights)
    return train_losses, val_losses
