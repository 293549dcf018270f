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
def evaluate_samples(model, paths, num_samples):
    """Share of held-out paths that are walked to the end, given the centre and the first step."""
    model.eval()
    contexts, answers = [], []
    for path in paths[:num_samples]:
        contexts.append(path[:2])
        answers.append(path)
    contexts_batch = torch.from_numpy(np.stack(contexts).astype(np.int64)).to(device)
    walked = model.generate(contexts_batch, max_new_tokens=len(answers[0]) - 2)
    model.train()
    return (walked.cpu().numpy() == np.stack(answers)).all(axis=1).mean()


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
            accuracy = evaluate_samples(model, val_paths, num_samples=len(val_paths))
            wandb.log({"train/loss": loss.item(), "val/path_accuracy": accuracy}, step=step)


if __name__ == "__main__":
    main()
