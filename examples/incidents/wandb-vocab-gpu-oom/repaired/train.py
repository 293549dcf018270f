"""Trains a small GPT to walk along the spokes of a star graph; started by `wandb agent`."""

import numpy as np
import torch
import wandb
from data import split, star_graph
from model import GPT, GPTConfig

device = "cuda"


def get_batch(paths, batch_size):
    rows = torch.randint(len(paths), (batch_size,))
    batch = torch.from_numpy(paths[rows].astype(np.int64)).to(device)
    targets = torch.cat((batch[:, 1:], torch.full_like(batch[:, :1], -1)), dim=1)
    return batch, targets


@torch.no_grad()
def evaluate_samples(model, paths, eval_batch_size=256):
    """Share of held-out paths that are walked to the end, given the centre and the first step."""
    model.eval()
    correct = 0
    for start in range(0, len(paths), eval_batch_size):
        batch = torch.from_numpy(paths[start : start + eval_batch_size].astype(np.int64)).to(device)
        walked = model.generate(batch[:, :2], max_new_tokens=batch.shape[1] - 2)
        correct += (walked == batch).all(dim=1).sum().item()
    model.train()
    return correct / len(paths)


def main():
    wandb.init()
    config = wandb.config
    paths = star_graph(config.graph_d, config.path_len, config.graph_vocab_size)
    train_paths, val_paths = split(paths, config.graph_holdout_percentage)
    model = GPT(
        GPTConfig(
            block_size=config.path_len,
            vocab_size=config.graph_vocab_size,
            n_layer=config.n_layer,
            n_head=config.n_head,
            n_embd=config.n_embd,
        )
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)
    for step in range(config.max_iters):
        for _ in range(config.gradient_accumulation_steps):
            inputs, targets = get_batch(train_paths, config.batch_size)
            loss = model(inputs, targets)
            (loss / config.gradient_accumulation_steps).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % config.eval_interval == 0:
            accuracy = evaluate_samples(model, val_paths)
            wandb.log({"train/loss": loss.item(), "val/path_accuracy": accuracy}, step=step)


if __name__ == "__main__":
    main()
