"""One submission as the engine gets it: its command line, its script, the cluster that it goes to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from preflight.slurm.sbatch.arguments import SbatchCommandLine
from preflight.slurm.sbatch.child import Plain
from preflight.slurm.sbatch.handover import OPENED

SYSTEM = "/etc/preflight/cluster.toml"
"""The machine file that the administrators of a cluster install for all users."""

MACHINE = "PREFLIGHT_MACHINE"

_SHELL = re.compile(rb"#!\s*\S*?(?:/env\s+(?:-S\s+)?)?(?:\S*/)?(ba|z|k|da|mk|a)?sh\b")
"""The first line of a shell script."""


class Question(Struct, frozen=True):
    """A submission: sbatch's command line, the script's text, and its path (None: standard input, --wrap)."""

    line: SbatchCommandLine
    mode: str
    script: bytes
    path: str | None
    scontrol: str

    @property
    def in_shell(self) -> bool:
        """Whether it is a shell script. No dialect reads scripts of another language."""
        return _SHELL.match(self.script) is not None


def unchecked(why: str = "") -> Plain:
    """The answer for a job that was not checked; `why` is empty when there is nothing to check."""
    return {"stop": False, "text": "", "rules": [], "fixed": None, "unchecked": why}


def machine_of(line: SbatchCommandLine, environment: Mapping[str, str]) -> str | None:
    """The machine of the option, else of the environment, else of the site. None: the settings decide."""
    stated = line.own.machine or environment.get(MACHINE)
    if stated:
        return stated
    return SYSTEM if os.path.isfile(SYSTEM) else None


def clusters_of(line: SbatchCommandLine, environment: Mapping[str, str]) -> str | None:
    """The clusters that `--clusters` names, on the command line or in the environment; None: the default one."""
    for name in ("SLURM_CLUSTERS", "SBATCH_CLUSTERS"):
        if environment.get(name):
            return line.values.get("clusters", environment[name])
    return line.values.get("clusters")


def place_of(question: Question, cwd: Path) -> Path:
    """The script's file; `<stdin>` or `<wrap>` when the script is no file."""
    if question.path is not None and OPENED.fullmatch(question.path) is None:
        return Path(os.path.abspath(cwd / question.path))
    return cwd / ("<wrap>" if question.line.wrap is not None else "<stdin>")
