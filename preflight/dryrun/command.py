"""From the words of a command to the program that it starts: its interpreter, arguments, ranks, and arrays on disk."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.dialects.shell.launch import without_launchers
from preflight.dryrun import accelerate_config
from preflight.system.processes import found_program
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.reading import Launch, word
from preflight.vocabulary.values import Const, Expr, Unknown, evaluate

_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_ELSEWHERE = {
    "docker": "in the container", "podman": "in the container", "apptainer": "in the container",
    "singularity": "in the container", "enroot": "in the container", "ssh": "on that machine",
    "conda": "in that environment", "mamba": "in that environment", "micromamba": "in that environment",
    "uv": "in that environment", "poetry": "in that environment", "pipenv": "in that environment",
    "pdm": "in that environment", "hatch": "in that environment", "rye": "in that environment",
    "pixi": "in that environment", "sudo": "as that user",
}  # fmt: skip
"""Commands that start the program where this preflight is not."""
_SHEBANG = re.compile(rb"#!\s*(?:/usr/bin/env\s+(?:-S\s+)?)?(\S+)")
_LONG_SHEBANG = re.compile(rb"'''exec'\s+\"?([^\"\n]+?)\"?\s+\"\$0\"")
"""How pip starts scripts whose interpreter has a long path (distlib, scripts.py)."""

_SHAPE = re.compile(r"(?P<sizes>[1-9]\d*(x[1-9]\d*)*)(:(?P<type>(u?int|float)(8|16|32|64)|bool))?$")
_NAME = re.compile(r":([^:/\\][^:]*)$")
"""A name in a file. What follows the colon of a Windows drive begins with a slash."""


class StartedProgram(Struct, frozen=True):
    """What a command starts. `environment`: variables that its launcher sets."""

    interpreter: str
    target: str
    module: bool
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    launcher: str = "python"
    nodes: int = 1
    ranks_per_node: int = 1
    assumptions: tuple[str, ...] = ()
    stated: Mapping[str, str] = field(default_factory=dict)
    """Those of the variables that the words of the command set."""

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks_per_node


def started_by(words: Sequence[str], gpus: int | None = None) -> StartedProgram:
    """The program of a command. `gpus`: GPUs of the node, where the command does not say. Raises UsageError."""
    if not words:
        raise UsageError("name the command after --, as in preflight dry-run -- python train.py")
    for one in words:
        name = Path(one).name
        if name in _ELSEWHERE:
            raise UsageError(f"{name} starts the program elsewhere: run preflight dry-run {_ELSEWHERE[name]}")
        if not _is_wrapper(one):
            break
    command, launch = without_launchers([word(one) for one in words])
    arguments = tuple(words[len(words) - len(command.words) :])
    name = command.name or ""
    if command.kind == "script":
        alone = f"or the script alone, as in preflight dry-run {name}"
        raise UsageError(f"{name} is a shell script: name the Python command in it, {alone}")
    if command.kind == "none":
        return _console_script(name, words, arguments, launch, gpus)
    interpreter = _interpreter(words[: len(words) - len(arguments)], launch)
    if command.kind == "program" and not os.path.isfile(name):
        raise UsageError(f"{name}: there is no such file")
    arguments = (*command.rank, *arguments)
    return _program(interpreter, name, command.kind == "module", arguments, launch, gpus)


def is_program(path: str) -> bool:
    """Whether a file is started as it is: by Python, or a binary. A script of a shell is read, and its launches run."""
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        return False
    with open(path, "rb") as file:
        return path.endswith(".py") or b"\0" in file.read(1024) or _shebang(path) is not None


def _is_wrapper(text: str) -> bool:
    """Whether a word may stand before the launcher: an assignment, an option, or a name without a slash."""
    return "=" in text or text.startswith("-") or not _PYTHON.fullmatch(Path(text).name)


def _console_script(
    name: str, words: Sequence[str], arguments: tuple[str, ...], launch: Launch, gpus: int | None
) -> StartedProgram:
    """A command that pip has installed: a Python script with its interpreter in its first line."""
    if _PYTHON.fullmatch(Path(words[0]).name) or not name:
        raise UsageError("a dry run needs a program or a module: python train.py, or python -m package.train")
    path = _located(name)
    interpreter = _shebang(path)
    if interpreter is None:
        raise UsageError(f"{path} is no Python program")
    return _program(interpreter, path, False, arguments, launch, gpus)


def _located(name: str) -> str:
    path = os.path.abspath(name) if "/" in name else found_program(name)
    if path is None or not os.path.isfile(path):
        raise UsageError(f"{name}: there is no such command")
    return path


def _interpreter(before: Sequence[str], launch: Launch) -> str:
    """The Python of the command: a word of it, else that of its launcher, else the one in PATH."""
    for one in before:
        if _PYTHON.fullmatch(Path(one).name):
            return _located(one)
    for one in before:
        if Path(one).name in ("torchrun", "accelerate", "accelerate-launch", "deepspeed"):
            found = _shebang(_located(one))
            if found is not None:
                return found
    for name in ("python", "python3"):
        path = found_program(name)
        if path is not None:
            return path
    raise UsageError("there is no python in PATH")


def _shebang(path: str) -> str | None:
    """The interpreter in the first lines of a script; None if it is no Python script."""
    with open(path, "rb") as file:
        start = file.read(1024)
    first, _, rest = start.partition(b"\n")
    match = _SHEBANG.match(first)
    if match is None:
        return None
    name = os.fsdecode(match[1])
    if Path(name).name == "sh":
        long = _LONG_SHEBANG.match(rest)
        name = os.fsdecode(long[1]) if long is not None else name
    return _located(name) if _PYTHON.fullmatch(Path(name).name) else None


def _number(expr: Expr | None) -> int | None:
    value = None if expr is None else evaluate(expr)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _program(
    interpreter: str, target: str, module: bool, arguments: tuple[str, ...], launch: Launch, gpus: int | None
) -> StartedProgram:
    nodes, ranks, total = (_number(one) for one in (launch.nodes, launch.ranks_per_node, launch.total_ranks))
    file = launch.environment.get("ACCELERATE_CONFIG_FILE") if launch.launcher == "accelerate" else None
    settings = accelerate_config.read(str(evaluate(file))) if file is not None else {}
    nodes = nodes or accelerate_config.number(settings, "num_machines")
    total = total or accelerate_config.number(settings, "num_processes")
    assumed: tuple[str, ...] = ()
    open_count = isinstance(launch.ranks_per_node, Const) and isinstance(launch.ranks_per_node.value, Unknown)
    if ranks is None and total is not None:
        ranks = max(1, total // (nodes or 1))
    if ranks is None:
        ranks = gpus or 1
        if (open_count or launch.launcher == "deepspeed") and gpus is None:
            assumed = ("the command starts a process on every GPU: one was assumed (--gpus N says how many)",)
    environment = accelerate_config.variables(settings) | {
        name: str(value)
        for name, expr in launch.environment.items()
        if name.isidentifier() and not isinstance(value := evaluate(expr), Unknown)
    }
    started = StartedProgram(
        interpreter, target, module, arguments, environment, launch.launcher, nodes or 1, ranks, assumed, environment
    )
    return _ranked(started)


def _ranked(started: StartedProgram) -> StartedProgram:
    """The variables by which a launcher tells a process its rank."""
    more: dict[str, str] = {}
    world, local = str(started.world_size), str(started.ranks_per_node)
    if started.launcher in ("torchrun", "accelerate", "deepspeed") and (
        started.world_size > 1 or started.launcher != "accelerate"
    ):
        more = {
            "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": local, "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "dry-run",
        }  # fmt: skip
    if started.launcher == "srun":
        more = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": world,
                "SLURM_NNODES": str(started.nodes), "SLURM_NTASKS_PER_NODE": local}  # fmt: skip
    return replace(started, environment={**more, **started.environment})


def array_of(text: str) -> list[object]:
    """[path, name in the file, shape, type] of FILE[:NAME]=SHAPE[:TYPE]. Raises UsageError."""
    where, _, what = text.rpartition("=")
    found = _SHAPE.match(what)
    if not where or found is None:
        raise UsageError(
            f"--array: {text}: state a file and a shape, as in x.npy=1000x3x64x64 or x.h5:labels=1000:int64"
        )
    name = _NAME.search(where)
    path = where[: name.start()] if name is not None else where
    sizes = [int(one) for one in found["sizes"].split("x")]
    return [path, name[1] if name is not None else "", sizes, found["type"] or "float32"]
