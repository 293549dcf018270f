"""Tables whose columns have other names than Job fields: last month's accounting, a team's own records.

A file says which column a field stands in, which values are the same in all rows, and what the table's own words mean.
Then no other column is read. Without such a file every column has to be a Job field: a field that is not read because
of a letter in its name would change verdicts without a word.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from preflight.engine.score.columns import Answer, of_error
from preflight.vocabulary.errors import UsageError, suggestion
from preflight.vocabulary.job import fields
from preflight.vocabulary.notation import scaled
from preflight.vocabulary.values import brief

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

TRES = "tres"
"""The name, in place of a field's, of a column with what SLURM gave: cpu=8,mem=64G,node=1,gres/gpu:a100=4."""
BESIDE = ("id", "standings")
"""What a row may say beside its Job."""
COUNTED = ("train.batch_size", "train.seq_len")
"""Fields by which jobs are judged together: as numbers, where a table has them as text."""
PARTS = ("columns", "values", "words")
MOST_NAMED, LONGEST_NAME = 8, 40
_SCALE = {"": 2**20, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
"""Bytes of a unit of TRES; memory without one counts MiB (slurmdb_tres_str, `sacct` manual, "AllocTRES")."""
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)", re.IGNORECASE)


class Naming(Struct, frozen=True):
    """`columns`: the table's name of a Job field, of `id` and of `tres`. `values`: what is the same in all rows.
    `words`: what the table's words mean, of a field."""

    columns: Mapping[str, str]
    values: Mapping[str, object] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def text(self) -> str:
        """What another naming does not have."""
        return json.dumps([dict(self.columns), dict(self.values), self.words], sort_keys=True, default=str)

    def row(self, given: object) -> object:
        """A row of the table as a Job."""
        if isinstance(given, Answer):
            return given
        if not isinstance(given, Mapping):
            return Answer(of_error("a row is an object: the fields of a Job"))
        found: dict[str, object] = {}
        tres = given.get(self.columns[TRES]) if TRES in self.columns else None
        if tres is not None and not isinstance(tres, str):
            return Answer({**of_error(f"{self.columns[TRES]}: no text of SLURM"), "id": self._id(given)})
        if tres:
            found |= allocated(tres)
        found |= {
            name: given[column] for name, column in self.columns.items() if name != TRES and _states(given, column)
        }
        found = {name: self._meant(name, value) for name, value in found.items()}
        return {**self.values, **found}

    def _id(self, given: Mapping[str, object]) -> str | None:
        named = given.get(self.columns.get("id", "id"))
        return None if named is None else str(named)

    def _meant(self, name: str, value: object) -> object:
        words = self.words.get(name, {})
        return words.get(value, value) if isinstance(value, str) else value


def _states(given: Mapping[str, object], column: str) -> bool:
    return given.get(column) not in (None, "")


def read(path: Path) -> Naming:
    """The naming in a TOML file. Raises UsageError."""
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # tomllib's own is a ValueError
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from error
    for name in found:
        if name not in PARTS or not isinstance(found[name], dict):
            raise UsageError(f"{path}: {name} is none of the tables {', '.join(PARTS)}{suggestion(name, PARTS)}")
    columns, values, words = (found.get(part, {}) for part in PARTS)
    for name in (*columns, *values, *words):
        if name not in (*BESIDE, TRES) and not is_field(name):
            raise UsageError(f"{path}: {name} is not a Job field{suggestion(name, fields())}")
    wrong = [name for name, column in columns.items() if not isinstance(column, str)]
    wrong += [name for name, meant in words.items() if not isinstance(meant, dict)]
    if wrong or not columns:
        said = f"{wrong[0]} has no text as its column, or no table as its words" if wrong else "[columns] names none"
        raise UsageError(f"{path}: {said}")
    return Naming(columns, values, words)


def is_field(name: str) -> bool:
    """Whether a column states something of a Job: a field, a group of fields, or a part of a field that holds more."""
    name = name.replace("__", ".")
    return any(
        name == one or one.startswith(name + ".") or name.startswith(one + ".") for one in (*fields(), "version")
    )


def checked(path: Path, given: Iterable[str] | None, naming: Naming | None) -> None:
    """Refuses a table whose columns say nothing of a Job, or lack what the naming names. Raises UsageError."""
    if given is None:
        return
    names = list(given)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{path}: two columns are called {twice[0]}")
    if naming is not None:
        lacking = [name for name in naming.columns.values() if name not in names]
        if lacking:
            raise UsageError(f"{path}: there is no column {lacking[0]}{suggestion(lacking[0], tuple(names))}")
        return
    strange = [name for name in names if name not in BESIDE and not is_field(name)]
    if strange:
        some = ", ".join(brief(name, LONGEST_NAME) for name in strange[:MOST_NAMED]) + (
            " ..." if len(strange) > MOST_NAMED else ""
        )
        raise UsageError(f"{path}: no Job fields: {some}. --columns FILE names the columns that are")


def allocated(text: str) -> dict[str, object]:
    """The Job fields in the trackable resources of a job, as `sacct` prints them (AllocTRES, ReqTRES): nodes, GPUs and
    memory of a node, kind of GPU. What is not the same on each node is left out."""
    counts: dict[str, str] = {}
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        if equals:
            counts[name] = amount
    found: dict[str, object] = {}
    nodes = _number(counts.get("node", "1"))
    if not nodes:
        return found
    found["parallel.nodes"] = nodes
    kinds = [name.partition(":")[2] for name in counts if name.startswith("gres/gpu:")]
    gpus = _number(counts.get("gres/gpu", "")) or sum(_number(counts[f"gres/gpu:{kind}"]) or 0 for kind in kinds)
    if gpus and gpus % nodes == 0:
        found["parallel.gpus_per_node"] = gpus // nodes
    if len(kinds) == 1:
        found["machine.gpu"] = kinds[0]
    memory = _AMOUNT.fullmatch(counts.get("mem", ""))
    size = scaled(float(memory[1]), _SCALE[memory[2].upper()]) if memory else None
    if size:
        found["machine.memory_limit"] = size // nodes
    return found


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
