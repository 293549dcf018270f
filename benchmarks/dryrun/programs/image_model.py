"""A plain training loop of a torchvision model: the counterpart of a Job for `agreement`."""

from __future__ import annotations

import json
import os
import sys

import torch
import torchvision

asked = json.loads(sys.argv[1])
model = torchvision.models.get_model(asked["name"]).cuda().train()
if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    torch.distributed.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(2):
    images = torch.zeros(asked["batch"], 3, asked["size"], asked["size"], device="cuda")
    labels = torch.zeros(asked["batch"], dtype=torch.int64, device="cuda")
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    # the loop still names the last batch when the next one is made, as loops over loaders do
