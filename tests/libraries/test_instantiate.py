"""`_target_` nodes as the calls they stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.libraries.instantiate import instantiated
from preflight.project import Project
from preflight.settings import Settings
from preflight.values import Const, Expr, Ref, evaluate


@pytest.mark.parametrize("target", ["mine.models.Net", "os.system", "not a target", "print", "torch.nn.Linear", ""])
def test_targets_that_say_nothing(target: str, tmp_path: Path) -> None:
    settings: dict[str, Expr] = {"model._target_": Const(target), "model.width": Const(4)}
    assert not instantiated(settings, Project(tmp_path, Settings()))


def test_an_optimizer(tmp_path: Path) -> None:
    settings: dict[str, Expr] = {"opt._target_": Const("torch.optim.SGD"), "opt.momentum": Const(0.9)}
    found = {b.field: evaluate(b.expr) for b in instantiated(settings, Project(tmp_path, Settings()))}
    assert found == {"train.optimizer": "sgd-momentum", "train.optimizer_impl": "foreach"}


def test_loaders_are_told_apart_by_their_keys(tmp_path: Path) -> None:
    loader = Const("torch.utils.data.DataLoader")
    settings: dict[str, Expr] = {
        "data.val_loader._target_": loader, "data.val_loader.batch_size": Const(64),
        "data.train_loader._target_": loader, "data.train_loader.batch_size": Ref("bs"),
    }  # fmt: skip
    bindings = {b.field: b.expr for b in instantiated(settings, Project(tmp_path, Settings()))}
    assert bindings["train.batch_size"] == Ref("bs")
    assert evaluate(bindings["validation.batch_size"]) == 64


def test_a_lightning_trainer_and_a_model_of_the_hub(tmp_path: Path) -> None:
    settings: dict[str, Expr] = {
        "trainer._target_": Const("lightning.pytorch.trainer.Trainer"), "trainer.precision": Const("bf16-mixed"),
        "trainer.devices": Const(4), "trainer.logger.name": Const("x"),
        "net._target_": Const("transformers.AutoModelForCausalLM.from_pretrained"),
        "net.pretrained_model_name_or_path": Const("gpt2"),
    }  # fmt: skip
    found = {b.field: evaluate(b.expr) for b in instantiated(settings, Project(tmp_path, Settings()))}
    assert (found["train.precision"], found["parallel.ranks_per_node"]) == ("bf16-mixed", 4)
    assert (found["model.name"], found["task"]) == ("gpt2", "causal-lm")
