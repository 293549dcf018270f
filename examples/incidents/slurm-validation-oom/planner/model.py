"""A small planner: pooled camera and lidar features, a few layers, a trajectory of eight poses."""

from __future__ import annotations

import torch
from omegaconf import DictConfig
from torch import nn

POSES = 8


class Planner(nn.Module):
    def __init__(self, agent: DictConfig) -> None:
        super().__init__()
        self.cameras = nn.Sequential(nn.LazyConv2d(agent.width, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.lidar = nn.Sequential(nn.LazyConv2d(agent.width, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Sequential(nn.Linear(2 * agent.width, agent.width), nn.ReLU(), nn.Linear(agent.width, POSES * 3))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        seen = self.cameras(batch["cameras"].flatten(1, 2)).flatten(1)
        swept = self.lidar(batch["lidar"]).flatten(1)
        return self.head(torch.cat([seen, swept], dim=1)).unflatten(1, (POSES, 3))
