"""A program that Hydra composes, and files of a project."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HYDRA = """\
import hydra
import torch
from torch.utils.data import DataLoader

@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    model = torch.nn.Linear(8, 8).cuda()
    opt = torch.optim.AdamW(model.parameters())
    for x in DataLoader(data, batch_size=cfg.data.batch_size, num_workers=cfg.data.workers):
        model(x).sum().backward()
        opt.step()
        opt.zero_grad()

if __name__ == "__main__":
    main()
"""


def write(files: Mapping[str, str], root: Path) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
