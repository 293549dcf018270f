"""Structured configurations and objects that a Hydra configuration describes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hydra_trees import TREE, alone, at, expr, launched, problems, tree, values

from preflight.vocabulary.values import Const, Unknown, evaluate

# --- structured configurations ---------------------------------------------------------------------------------------

STRUCTURED = """\
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, List, Optional

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import II, MISSING

EXTRA = ["a", "b"]


class Precision(Enum):
    bf16 = 1
    fp32 = 2


@dataclass
class Optimizer:
    lr: float = 1e-3
    steps: int = compute_steps()


@dataclass
class Model:
    length: int = 128
    width: int = MISSING
    heads: int = II("model.length")


@dataclass
class Large(Model):
    length: int = 1_024
    layers: List[int] = field(default_factory=lambda: [1, 2])


@dataclass
class Base:
    defaults: List[Any] = field(default_factory=lambda: [{"model": "small"}, "_self_"])
    seed: int = -1
    precision: Precision = Precision.bf16
    optimizer: Optimizer = field(default_factory=Optimizer)
    tuned: Optimizer = Optimizer(lr=0.5)
    name: str = MISSING
    tags: List[str] = field(default_factory=lambda: EXTRA)
    note: Optional[str] = None


cs = ConfigStore.instance()
cs.store(name="base_schema", node=Base)
cs.store(group="model", name="small", node=Model)
cs.store("large", Large, "model")


@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg): ...
"""


def test_classes_that_the_program_registers(tmp_path: Path) -> None:
    text = "defaults:\n  - base_schema\n  - _self_\n\nname: x\noptimizer:\n  lr: 0.1\nmodel:\n  width: 64\n"
    project = tree(tmp_path, {"conf/config.yaml": text, "train.py": STRUCTURED})
    reading = alone(project)
    found = values(reading)
    assert isinstance(found.pop("optimizer.steps"), Unknown)
    assert isinstance(found.pop("tuned.steps"), Unknown)
    assert found == {
        "model.length": 128,
        "model.width": 64,
        "model.heads": 128,
        "seed": -1,
        "precision": "bf16",
        "optimizer.lr": 0.1,
        "tuned.lr": 0.5,
        "name": "x",
        "tags": ("a", "b"),
        "note": None,
    }
    assert problems(reading) == []
    assert at(project, expr(reading, "model.length").origin) == "train.py:25 128"
    large = launched(project, "model=large")
    assert (values(large)["model.length"], values(large)["model.layers"]) == (1024, (1, 2))
    assert problems(large) == []


def test_hydra_core_is_imported_only_to_compose(tmp_path: Path) -> None:
    project = tree(
        tmp_path, {**TREE, "plain.yaml": "lr: 1\n", "sweep.yaml": "method: grid\nparameters: {x: {value: 1}}\n"}
    )
    code = (
        "import sys\nfrom pathlib import Path\nfrom preflight.vocabulary.project import Project\n"
        "from preflight.vocabulary.settings import Settings\nfrom preflight.dialects import recognise\n"
        "project = Project(Path(sys.argv[1]), Settings())\n"
        "def read(name):\n    found = recognise(project.source(name), project)\n"
        "    return found and found.read(project.source(name), None, project)\n"
        "assert read('plain.yaml') is None and read('sweep.yaml').dialect == 'wandb'\n"
        "heavy = {'hydra', 'omegaconf', 'antlr4', 'ruamel', 'torch', 'numpy', 'rich'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert read('conf/config.yaml').dialect == 'hydra' and 'hydra' in sys.modules\n"
        "assert not {'torch', 'numpy', 'rich'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(project.root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- objects ---

LIGHTNING_APP = {
    "train.py": (
        "import hydra\n@hydra.main(config_path='conf', config_name='config', version_base=None)\ndef main(cfg):\n"
        "    trainer = hydra.utils.instantiate(cfg.trainer)\n    trainer.fit(hydra.utils.instantiate(cfg.model))\n"
        "if __name__ == '__main__':\n    main()\n"
    ),
    "conf/config.yaml": "defaults:\n  - trainer: one\n  - model: small\n",
    "conf/trainer/one.yaml": "_target_: lightning.Trainer\nprecision: bf16-mixed\ndevices: 2\n",
    "conf/model/small.yaml": "_target_: transformers.GPT2LMHeadModel.from_pretrained\n_args_: []\n",
}


def test_targets_of_the_configuration_are_what_the_program_does(tmp_path: Path) -> None:
    project = tree(tmp_path, LIGHTNING_APP)
    found = {binding.field: evaluate(binding.expr) for binding in alone(project).bindings}
    assert (found["train.precision"], found["parallel.ranks_per_node"]) == ("bf16-mixed", 2)


def test_a_swept_group_of_objects_says_something_per_option(tmp_path: Path) -> None:
    two = "_target_: lightning.Trainer\nprecision: 32-true\ndevices: 4\nstrategy: ddp\n"
    project = tree(tmp_path, {**LIGHTNING_APP, "conf/trainer/two.yaml": two})
    reading = launched(project, "-m", "trainer=one,two")
    ranks = next(binding.expr for binding in reversed(reading.bindings) if binding.field == "parallel.ranks_per_node")
    assert [evaluate(ranks, {"trainer": Const(name)}) for name in ("one", "two")] == [2, 4]
