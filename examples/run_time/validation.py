"""The loader of the validation starts beside that of the training, and both are full at once."""

import argparse

import numpy
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=1)
parser.add_argument("--val_workers", type=int, default=6)
args = parser.parse_args()


class Scenes(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.from_numpy(numpy.ones(384 * 1024, dtype=numpy.float32))


model = torch.nn.Linear(384 * 1024, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
train = torch.utils.data.DataLoader(Scenes(), batch_size=16, num_workers=args.workers, persistent_workers=True)
valid = torch.utils.data.DataLoader(Scenes(), batch_size=64, num_workers=args.val_workers)
for batch in train:
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
print("validation", flush=True)
model.eval()
with torch.no_grad():
    for batch in valid:
        model(batch)
print("done")
