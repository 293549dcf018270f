"""A loader whose workers hold more batches than the machine has memory for."""

import argparse

import numpy
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--workers", type=int, default=4)
args = parser.parse_args()


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return torch.from_numpy(numpy.ones(384 * 1024, dtype=numpy.float32))  # 1.5 MiB


model = torch.nn.Linear(384 * 1024, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
loader = torch.utils.data.DataLoader(Pictures(), batch_size=args.batch_size, num_workers=args.workers)
for batch in loader:
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
print("done")
