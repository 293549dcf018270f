"""Trains a planner that looks at cameras and lidar sweeps and predicts where the car should drive."""

from __future__ import annotations

import hydra
import pytorch_lightning as pl
import torch
from omegaconf import DictConfig
from torch.utils.data import DataLoader

from planner.dataset import SceneDataset
from planner.model import Planner


class PlannerModule(pl.LightningModule):
    def __init__(self, cfg: DictConfig) -> None:
        super().__init__()
        self.lr = cfg.agent.lr
        self.model = Planner(cfg.agent)

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        loss = torch.nn.functional.l1_loss(self.model(batch), batch["trajectory"])
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: dict[str, torch.Tensor], index: int) -> None:
        self.log("val/loss", torch.nn.functional.l1_loss(self.model(batch), batch["trajectory"]), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg: DictConfig) -> None:
    pl.seed_everything(cfg.seed, workers=True)
    train_data = SceneDataset(cfg.data_root, cfg.train_split)
    val_data = SceneDataset(cfg.data_root, cfg.val_split)
    train_loader = DataLoader(train_data, **cfg.dataloader.params, shuffle=True)
    val_loader = DataLoader(val_data, **cfg.dataloader.params, shuffle=False)
    trainer = pl.Trainer(**cfg.trainer.params)
    trainer.fit(PlannerModule(cfg), train_loader, val_loader)


if __name__ == "__main__":
    main()
