"""An evaluation of all samples at once, over a large vocabulary."""

import argparse

import torch

from preflight import guard

parser = argparse.ArgumentParser()
parser.add_argument("--guard", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
vocabulary, width = 10_000, 32
model = torch.nn.Sequential(torch.nn.Embedding(vocabulary, width), torch.nn.Linear(width, vocabulary))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tokens = torch.randint(0, vocabulary, (512,))
for start in range(0, 128, 16):
    optimizer.zero_grad()
    part = tokens[start : start + 16]
    torch.nn.functional.cross_entropy(model(part), part).backward()
    optimizer.step()
model.eval()


def best(part):
    return model(part).argmax(-1)


with torch.no_grad():
    found = guard.evaluate(best, tokens) if args.guard else best(tokens)
print("done", tuple(found.shape))
