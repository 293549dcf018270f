"""A checked tree that a stranger wrote: whatever of it is imported or started leaves a marker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from processes import HANGS

from preflight.cli import run
from preflight.engine import settings, user_settings
from preflight.memory.device.fit import subprocess as tracing

DEPENDENCIES = [
    "accelerate", "annotated_types", "antlr4", "attr", "click", "colorama", "deepspeed", "diffusers",
    "exceptiongroup", "huggingface_hub", "hydra", "hydra_plugins", "importlib_metadata", "markdown_it",
    "matplotlib", "mdurl", "networkx", "numpy", "omegaconf", "packaging", "peft", "pip", "pkg_resources",
    "platformdirs", "preflight_rules", "preflight_tracer", "pydantic", "pydantic_core", "pygments", "regex",
    "rich", "ruamel", "safetensors", "scipy", "setuptools", "sitecustomize", "sympy", "timm", "tokenizers",
    "tomli", "torch", "torchvision", "tqdm", "transformers", "tree_sitter", "tree_sitter_bash", "triton",
    "typing_extensions", "typing_inspection", "usercustomize", "wheel", "yaml",
]  # fmt: skip
"""What preflight, the tracer or a Python at its start may import, beside the standard library."""

NAMES = sorted({*sys.stdlib_module_names, *DEPENDENCIES} - {*sys.builtin_module_names, "__main__"})

# The module marks itself, then puts the true one of its name in its place, so that what runs goes on to the next bait.
# It imports nothing: only what the interpreter has built in is at hand when it is imported first.
_MARK = """\
import posix as _posix, sys as _sys
_posix.close(_posix.open({marker!r}, _posix.O_CREAT | _posix.O_WRONLY))
"""
_TRUE_MODULE = """\
_external, _frozen = _sys.modules["_frozen_importlib_external"], _sys.modules["_frozen_importlib"]
_spec = _external.PathFinder.find_spec(__name__, [_p for _p in _sys.path if _p not in {homes!r}])
if _spec is None or _spec.loader is None:
    raise ModuleNotFoundError("no module named " + __name__, name=__name__)
_sys.modules[__name__] = _frozen.module_from_spec(_spec)
_spec.loader.exec_module(_sys.modules[__name__])
"""
PROGRAM = """\
import argparse
from transformers import AutoModelForMaskedLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--model_name", default={model!r})
parser.add_argument("--batch_size", type=int, default=16)
args = parser.parse_args()
model = AutoModelForMaskedLM.from_pretrained(args.model_name)
Trainer(model, TrainingArguments("out", per_device_train_batch_size=args.batch_size, bf16=True)).train()
"""
SWEEP = """\
program: program.py
method: grid
parameters:
  batch_size: {values: [8, 16]}
  max_length: {value: 128}
"""
SETTINGS = """\
{more}
[set]
model.name = {model!r}
train.seq_len = 64
train.precision = "fp32"
"""


Ended = tuple[subprocess.CompletedProcess[str], set[str]]
"""How a command ended, and the markers that it left."""


class Bait:
    """A tree of baits in `home`, their markers beside it, and `outside`, which is the user's own."""

    def __init__(self, folder: Path, model: str = "bert-base-uncased", names: Iterable[str] = NAMES) -> None:
        self.home, self.markers, self.outside = folder / "checkout", folder / "markers", folder / "outside"
        for one in (self.home, self.markers, self.outside):
            one.mkdir()
        home, link = str(self.home), str(self.outside / "link")
        self.spellings = ["", ".", home, link, "/proc/self/cwd", f"{home}/../checkout/.", f"{home}/sub/.."]
        """The tree on a path: a bait looks elsewhere for the true module of its name."""
        for name in (*names, "preflight_bait"):
            (self.home / f"{name}.py").write_text(self.module(name))
        self.write("bare/__main__.py", "")
        self.write("program.py", PROGRAM.format(model=model))
        self.write("sweep.yaml", SWEEP)
        self.model = model
        self.settings("")
        self.write("evil_rules.py", self.mark("evil_rules") + "RULES = ()\n")
        self.write("evil-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
        groups = ("rules", "dialects", "workloads", "optimizers", "gpus")
        points = "".join(f"[preflight.{group}]\nevil = evil_rules\n" for group in groups)
        self.write("evil-1.0.dist-info/entry_points.txt", points)
        (self.home / ".git").mkdir()

    def module(self, name: str) -> str:
        """The text of a module that marks its import."""
        return self.mark(name) + _TRUE_MODULE.format(homes=self.spellings)

    def mark(self, name: str) -> str:
        """The text of a module that marks its import, and is none but this."""
        return _MARK.format(marker=str(self.markers / name))

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def settings(self, text: str, folder: str = ".") -> Path:
        """Settings with these lines; they state the model, since the program's own imports are baits."""
        return self.write(f"{folder}/preflight.toml", SETTINGS.format(more=text, model=self.model))

    def program(self, path: Path) -> Path:
        """A program that marks that it was started."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n: > {self.markers / 'started'}\necho '[]'\n")
        path.chmod(0o755)
        return path

    def run(self, *command: str, cwd: Path | None = None, **environment: str) -> Ended:
        """A process in the tree."""
        self.forget_markers()
        done = subprocess.run(
            command, cwd=cwd or self.home, env=clean(self.outside, environment), capture_output=True, text=True,
            timeout=HANGS,
        )  # fmt: skip
        return done, self.found_markers()

    def forget_markers(self) -> None:
        for marker in self.markers.iterdir():
            marker.unlink()

    def found_markers(self) -> set[str]:
        return {marker.name for marker in self.markers.iterdir()}


def clean(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """An environment without what the tests were started with; the user's own directories are under `home`."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")}
    return {**kept, "HOME": str(home), "PREFLIGHT_NO_CACHE": "1", "OMP_NUM_THREADS": "1", **more}


def in_process(bait: Bait, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """`Bait.run` of preflight, in this process: without the half second that a Python takes to import preflight.

    What preflight remembers of files and interpreters is forgotten before each command.
    """

    def command(*arguments: str, **environment: str) -> Ended:
        bait.forget_markers()
        variables = clean(bait.outside, environment)
        for name in [name for name in os.environ if name not in variables and not name.startswith("PYTEST")]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.chdir(bait.home)
        patch.setattr(sys, "argv", ["preflight", *arguments])
        for remembered in (settings._in_folder, user_settings._read, tracing.installed):
            remembered.cache_clear()
        capsys.readouterr()
        status = run(arguments)
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status, shown.out, shown.err), bait.found_markers()

    return command
