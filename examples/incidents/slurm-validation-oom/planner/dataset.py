"""Scenes on disk, one archive each: what the cameras and the lidar saw, and where the car went."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset


class SceneDataset(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, root: str, split: str) -> None:
        self.scenes = sorted((Path(root) / split).glob("*.npz"))

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        with np.load(self.scenes[index]) as scene:
            cameras = torch.from_numpy(scene["cameras"]).float().div_(255)
            lidar = torch.from_numpy(scene["lidar"]).float()
            trajectory = torch.from_numpy(scene["trajectory"]).float()
        return {"cameras": cameras, "lidar": lidar, "trajectory": trajectory}
