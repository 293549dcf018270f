"""`_target_` nodes as the calls they stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.dialects.hydra import instantiate as module
from preflight.dialects.hydra.instantiate import composed
from preflight.program import datasets, switches
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Const, Expr, Origin, Ref, Span, Value, evaluate


@pytest.mark.parametrize("target", ["mine.models.Net", "os.system", "not a target", "print", "torch.nn.Linear", ""])
def test_targets_that_say_nothing(target: str, tmp_path: Path) -> None:
    settings: dict[str, Expr] = {"model._target_": Const(target), "model.width": Const(4)}
    assert not composed(settings, Project(tmp_path, Settings())).bindings


def test_an_optimizer(tmp_path: Path) -> None:
    settings: dict[str, Expr] = {"opt._target_": Const("torch.optim.SGD"), "opt.momentum": Const(0.9)}
    found = {b.field: evaluate(b.expr) for b in composed(settings, Project(tmp_path, Settings())).bindings}
    assert found == {"train.optimizer": "sgd-momentum", "train.optimizer_impl": "foreach"}


def test_loaders_are_told_apart_by_their_keys(tmp_path: Path) -> None:
    loader = Const("torch.utils.data.DataLoader")
    settings: dict[str, Expr] = {
        "data.val_loader._target_": loader,
        "data.val_loader.batch_size": Const(64),
        "data.train_loader._target_": loader,
        "data.train_loader.batch_size": Ref("bs"),
    }
    bindings = {b.field: b.expr for b in composed(settings, Project(tmp_path, Settings())).bindings}
    assert bindings["train.batch_size"] == Ref("bs")
    assert evaluate(bindings["validation.batch_size"]) == 64


def test_a_lightning_trainer_and_a_model_of_the_hub(tmp_path: Path) -> None:
    settings: dict[str, Expr] = {
        "trainer._target_": Const("lightning.pytorch.trainer.Trainer"),
        "trainer.precision": Const("bf16-mixed"),
        "trainer.devices": Const(4),
        "trainer.logger.name": Const("x"),
        "net._target_": Const("transformers.AutoModelForCausalLM.from_pretrained"),
        "net.pretrained_model_name_or_path": Const("gpt2"),
    }
    found = {b.field: evaluate(b.expr) for b in composed(settings, Project(tmp_path, Settings())).bindings}
    assert (found["train.precision"], found["parallel.ranks_per_node"]) == ("bf16-mixed", 4)
    assert (found["model.name"], found["task"]) == ("gpt2", "causal-lm")


def composed_of(tmp_path: Path, files: dict[str, str], settings: dict[str, Expr]) -> dict[str, object]:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    said = composed(settings, Project(tmp_path, Settings()))
    return {b.field: evaluate(b.expr) for b in sorted(said.bindings, key=lambda b: b.rank)}


DATA = """
from lightning import LightningDataModule
from torch.utils.data import DataLoader

class Text(LightningDataModule):
    def __init__(self, batch_size=16, num_workers=0):
        super().__init__()
        self.save_hyperparameters()
        self.each = batch_size

    def setup(self, stage=None):
        if self.trainer is not None:
            self.each = self.hparams.batch_size // self.trainer.world_size

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.each, num_workers=self.hparams.num_workers, shuffle=True)
"""


def test_a_class_of_the_project_is_read_with_its_hooks(tmp_path: Path) -> None:
    settings: dict[str, Expr] = {
        "data._target_": Const("src.dm.Text"),
        "data.batch_size": Const(96),
        "data.num_workers": Const(3),
        "trainer._target_": Const("lightning.Trainer"),
        "trainer.devices": Const(4),
    }
    found = composed_of(tmp_path, {"src/dm.py": DATA}, settings)
    assert (found["train.batch_size"], found["data.workers"]) == (24, 3)


def test_a_project_class_takes_the_objects_inside_it(tmp_path: Path) -> None:
    text = """
import torch
class Module:
    def __init__(self, net, optimizer, lr):
        self.net, self.make = net, optimizer
    def training_step(self, batch, index):
        return self.net(batch)
"""
    settings: dict[str, Expr] = {
        "model._target_": Const("nets.Module"),
        "model.lr": Const(0.1),
        "model.net._target_": Const("transformers.AutoModelForMaskedLM.from_pretrained"),
        "model.net.pretrained_model_name_or_path": Const("roberta-large"),
        "model.optimizer._target_": Const("torch.optim.SGD"),
        "model.optimizer._partial_": Const(True),
    }
    found = composed_of(tmp_path, {"nets.py": text}, settings)
    assert (found["model.name"], found["train.optimizer"]) == ("roberta-large", "sgd")


def test_a_target_that_cannot_be_read_is_silent(tmp_path: Path) -> None:
    files = {"broken.py": "class Net(:\n", "cycle.py": "from cycle import Net\n"}
    settings: dict[str, Expr] = {"a._target_": Const("broken.Net"), "b._target_": Const("cycle.Net")}
    assert composed_of(tmp_path, files, settings) == {}


OWN: dict[str, Expr] = {"data._target_": Const("dm.Text"), "data.batch_size": Const(96), "data.num_workers": Const(1)}


def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every composition whose targets are evaluated from now on."""
    seen: list[object] = []
    real = module._facts
    monkeypatch.setattr(module, "_facts", lambda *given: (seen.append(given), real(*given))[1])
    return seen


@pytest.mark.parametrize("changed", [Const(48), Const("96"), Const(96.0), Const(96, Origin("conf/a.yaml", Span(0, 2)))])
def test_a_changed_argument_is_not_answered_from_another_composition(
    changed: Const, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dm.py").write_text(DATA)
    project, seen = Project(tmp_path, Settings()), evaluated(monkeypatch)
    composed(OWN, project)
    after = composed({**OWN, "data.batch_size": changed}, project)
    assert len(seen) == 2
    assert after == composed({**OWN, "data.batch_size": changed}, Project(tmp_path, Settings()))


def test_true_is_another_argument_than_one(tmp_path: Path) -> None:
    (tmp_path / "dm.py").write_text(DATA)
    project = Project(tmp_path, Settings())
    said = [composed({**OWN, "data.num_workers": Const(value)}, project) for value in (1, True)]
    workers = [evaluate(b.expr) for one in said for b in one.bindings if b.field == "data.workers"]
    assert [repr(one) for one in workers] == ["1", "True"]


def test_a_changed_text_of_the_class_is_evaluated_anew(tmp_path: Path) -> None:
    (tmp_path / "dm.py").write_text(DATA)
    project = Project(tmp_path, Settings())
    other = project.with_overlay({"dm.py": DATA.replace("self.each,", "7,")})
    said = [composed(OWN, one) for one in (project, other)]
    assert [evaluate(b.expr) for one in said for b in one.bindings if b.field == "train.batch_size"][-1] == 7
    assert said[0] != said[1]


def test_the_same_composition_is_evaluated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dm.py").write_text(DATA)
    project, seen = Project(tmp_path, Settings()), evaluated(monkeypatch)
    assert composed(OWN, project) == composed(dict(OWN), project)
    assert len(seen) == 1


def test_a_composition_with_a_mapping_is_evaluated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dm.py").write_text(DATA)
    project, seen = Project(tmp_path, Settings()), evaluated(monkeypatch)
    settings: list[dict[str, Expr]] = [{**OWN, "table": Const(({"a": 1},))} for _ in range(3)]
    assert composed(settings[0], project) == composed(settings[1], project) == composed(settings[2], project)
    assert len(seen) == 1


@pytest.mark.parametrize("other", [{"a": True}, {"a": 1.0}, {"a": "1"}, {"b": 1}, {"a": 1, "b": 2}, {"a": 10**5000}])
def test_a_changed_mapping_is_not_answered_from_another_composition(
    other: dict[str, Value], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dm.py").write_text(DATA)
    project, seen = Project(tmp_path, Settings()), evaluated(monkeypatch)
    for table in ({"a": 1}, other):
        composed({**OWN, "table": Const(({**table},))}, project)
    assert len(seen) == 2


HELD = "class A(Dataset):\n    def __init__(self):\n        self.x = json.load(f)\n\n    def __getitem__(self, i):\n"
OTHERS: dict[str, Expr] = {"a._target_": Const("plain.A")}


def test_what_a_file_says_is_read_once_for_all_compositions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain.py").write_text("import torch\n" + HELD + "        return torch.tensor(self.x[i])\n")
    project, walked = Project(tmp_path, Settings()), list[str]()
    for room, name in ((datasets, "_lists"), (datasets, "_told"), (switches, "_switches")):
        real = getattr(room, name)
        monkeypatch.setattr(room, name, lambda one, real=real, name=name: (walked.append(name), real(one))[1])
    for lr in (0.1, 0.2, 0.3):
        said = composed({**OTHERS, "a.lr": Const(lr)}, project)
        assert "dataset_held" in {fact.name for fact in said.facts}
    assert sorted(walked) == ["_lists", "_switches", "_told"]
    changed = project.with_overlay(
        {"plain.py": "import torch\nclass A:\n    def __init__(self):\n        torch.ones()\n"}
    )
    assert "dataset_held" not in {fact.name for fact in composed({**OTHERS, "a.lr": Const(0.1)}, changed).facts}


VIT = (
    "import torch\nclass ViT(torch.nn.Module):\n    def __init__(self, name):\n        super().__init__()\n        {}\n"
)
HUB = "self.body = transformers.AutoModelForCausalLM.from_pretrained(name)"


@pytest.mark.parametrize(("body", "known"), [("self.out = make(name)", False), (HUB, True)])
def test_the_name_that_a_class_of_the_project_gets_is_not_its_model(body: str, known: bool, tmp_path: Path) -> None:
    settings: dict[str, Expr] = {"model._target_": Const("nets.vit.ViT"), "model.name": Const("gpt2")}
    found = composed_of(tmp_path, {"nets/vit.py": "import transformers\n" + VIT.format(body)}, settings)
    assert (found["model.name"] == "gpt2") is known


NETS = """
import path
import timm
import torch
import lightning
from torch import nn

class Net(nn.Module):
    def __init__(self, width, depth, more=None):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])
        self.out = nn.Linear(width, 10)
        {more}

class Module(lightning.LightningModule):
    def __init__(self, net, optimizer=None):
        super().__init__()
        self.net = net

    def configure_optimizers(self):
        return self.hparams.optimizer(params=self.parameters())
"""


def parameters(root: Path, more: str = "", **changed: Expr) -> dict[str, Value]:
    """What is known of a Lightning module and its network, by a composition that makes them."""
    (root / "nets.py").write_text(NETS.replace("{more}", more))
    settings: dict[str, Expr] = {
        "model._target_": Const("nets.Module"),
        "model.net._target_": Const("nets.Net"),
        "model.net.width": Const(16),
        "model.net.depth": Const(3),
        "model.optimizer._target_": Const("torch.optim.Adam"),
        "model.optimizer._partial_": Const(True),
        **{f"model.net.{name}": expr for name, expr in changed.items()},
    }
    given = {"width": Const(8)}
    found = composed(settings, Project(root, Settings())).bindings
    return {b.field: evaluate(b.expr, given) for b in found if b.field.endswith("parameters")}


def test_the_parameters_of_the_projects_module_are_counted(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from torch import nn

    made = nn.ModuleList([*(nn.Linear(16, 16) for _ in range(3)), nn.Linear(16, 10)])
    assert parameters(tmp_path) == {"model.parameters": sum(one.numel() for one in made.parameters())}


@pytest.mark.parametrize(
    ("more", "changed", "found"),
    [
        ("", {"width": Ref("width")}, {"model.parameters": 3 * (8 * 8 + 8) + 8 * 10 + 10}),
        ("self.a = nn.Conv1d(4, more, 3)", {}, {"model.least_parameters": 3 * (16 * 16 + 16) + 16 * 10 + 10}),
        ("self.a = timm.create_model('some_model')", {}, {}),
        ("self.a = nn.Sequential(*layers())", {}, {}),
    ],
)
def test_parts_of_it_that_are_not_known(
    more: str, changed: dict[str, Expr], found: dict[str, Value], tmp_path: Path
) -> None:
    assert parameters(tmp_path, more, **changed) == found
