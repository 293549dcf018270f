"""A contrastive loss; the losses of an epoch are kept with their graphs, so it dies in the second one."""

import argparse

import torch

from preflight import guard

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=96)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--guard", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
kept = []


def loss_of(pairs):
    images, texts = (torch.nn.functional.normalize(model(side), dim=-1) for side in pairs)
    return torch.nn.functional.cross_entropy(images @ texts.T / 0.07, torch.arange(len(images)))


for epoch in range(4):
    for _ in range(12):
        pairs = torch.randn(args.batch_size, 256), torch.randn(args.batch_size, 256)
        optimizer.zero_grad()
        if args.guard:
            loss = guard.step(loss_of, pairs, model, optimizer)
        else:
            loss = loss_of(pairs)
            loss.backward(retain_graph=not args.fixed)
        optimizer.step()
        kept.append(float(loss) if args.fixed or args.guard else loss)
    print("epoch", epoch, flush=True)
print("done")
