"""Reads lines of slurm.conf, gres.conf, cgroup.conf and of scontrol's output: keys and values with their place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from preflight.system import files
from preflight.vocabulary.budgets import CLUSTER_BYTES, INCLUDES
from preflight.vocabulary.errors import MachineError

_SPELLED = {
    "cputot": "cpus", "procs": "cpus", "availablefeatures": "features", "feature": "features",
    "tresbillingweights": "billing", "shared": "oversubscribe", "corespersocket": "corespersocket",
}  # fmt: skip
"""Key of `scontrol show node` or of an older version -> key of slurm.conf."""


class ConfigurationLine(Struct, frozen=True):
    """One line: its keys in lower case, in order."""

    path: str
    number: int
    values: Mapping[str, str]

    @property
    def kind(self) -> str:
        """The first key: the kind of the line."""
        return next(iter(self.values))

    def error(self, message: str) -> MachineError:
        return MachineError(f"{self.path}:{self.number}: {message}")


def read_lines(text: str, path: str, folder: Path | None = None, depth: int = 0) -> Iterator[ConfigurationLine]:
    """The lines of a file and of the files that it includes (relative to `folder`; None: no file is included).

    Raises MachineError for an Include that cannot be read.
    """
    number, whole = 1, ""
    for at, raw in enumerate(text.splitlines(), 1):
        number = number if whole else at
        line = re.sub(r"(?<!\\)#.*", "", raw).rstrip()
        if line.endswith("\\"):
            whole += line[:-1] + " "
            continue
        joined, whole = whole + line, ""
        included = re.match(r"\s*include\s+(\S.*)", joined, re.IGNORECASE)
        if included is not None and folder is not None:
            yield from _included(included[1].strip(), ConfigurationLine(path, number, {}), folder, depth)
            continue
        values = _values(joined)
        if values:
            yield ConfigurationLine(path, number, values)


def _included(name: str, line: ConfigurationLine, folder: Path, depth: int) -> Iterator[ConfigurationLine]:
    if depth >= INCLUDES:
        raise line.error(f"Include {name}: more than {INCLUDES} levels of Include")
    target = folder / name
    yield from read_lines(read_text(target, line), str(target), folder, depth + 1)


def read_text(path: Path, line: ConfigurationLine | None = None) -> str:
    """The text of a file. Raises MachineError, with the place of the Include line if there is one."""
    try:
        return files.read_text(path, CLUSTER_BYTES)
    except files.UnreadableFile as error:
        message = f"{path}: cannot be read: {error}"
        raise (line.error(message) if line is not None else MachineError(message)) from error


def _values(text: str) -> dict[str, str]:
    pairs = re.findall(r'([\w:\[\]]+)\s*=\s*("[^"]*"|\S*)', text)
    found = {}
    for key, value in pairs:
        name = _SPELLED.get(key.lower(), key.lower())
        if value not in ("(null)", "N/A") and name not in found:
            found[name] = value.strip('"').replace("\\#", "#")
    return found
