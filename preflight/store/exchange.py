"""Export and import of recorded runs, and the place that an address names: a file of lines of JSON, a table of Parquet
with the same lines in one column, a folder, or a carrier of somebody else's.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from preflight.store import folders
from preflight.store.carriers import LONGEST, Address, Carrier, Mlflow, Optuna, line_of
from preflight.store.database import StoreError
from preflight.store.records import KeptRun, NotARun, of_plain
from preflight.store.runs import add
from preflight.store.wandb_runs import Wandb, WandbFile
from preflight.vocabulary.errors import UsageError

FORMS = (
    "FILE.jsonl", "FILE.parquet", "FILE.wandb", "FOLDER/", "PROTOCOL://...", "mlflow:RUN", "wandb:[ENTITY/]PROJECT/RUN",
    "optuna:STORAGE#STUDY",
)  # fmt: skip
_COLUMNS = ("id", "started", "outcome", "gpu", "record")
"""The first ones are for a reader of tables; `record` is the whole line."""


class File(Struct, frozen=True):
    """A file of lines, or a table of Parquet."""

    path: Path

    @property
    def _is_table(self) -> bool:
        return self.path.suffix == ".parquet"

    def put(self, runs: Sequence[KeptRun]) -> None:
        """Writes the file, whole or not at all. Raises UsageError."""
        data = _table(runs) if self._is_table else "".join(f"{line_of(run)}\n" for run in runs).encode()
        unfinished = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}")
        try:
            handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
            with open(handle, "wb") as file:
                file.write(data)
            os.replace(unfinished, self.path)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise UsageError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def lines(self) -> Iterator[str]:
        """Raises UsageError for a file that cannot be read."""
        try:
            if self._is_table:
                yield from _read_table(self.path)
                return
            with open(self.path, encoding="utf-8") as file:
                while line := file.readline(LONGEST + 1):
                    yield line
        except UnicodeDecodeError as error:
            raise UsageError(f"{self.path} is not UTF-8 text") from error
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror or error}") from error


class Folder(Struct, frozen=True):
    """A folder with a file for each run, as a shared store is."""

    path: str

    def put(self, runs: Sequence[KeptRun]) -> None:
        """Raises UsageError."""
        try:
            folders.put(self.path, runs)
        except StoreError as error:
            raise UsageError(str(error)) from error

    def taken(self) -> tuple[list[KeptRun], list[str]]:
        """All runs, and why other files are left out. Raises UsageError."""
        try:
            return folders.taken(self.path, (), None)
        except StoreError as error:
            raise UsageError(str(error)) from error

    def lines(self) -> Iterator[str]:
        """Raises UsageError."""
        yield from map(line_of, self.taken()[0])


def read_into(carrier: Carrier) -> tuple[int, int, list[str]]:
    """Adds the runs that are there: how many are new, how many were known, and why others are left out. Raises
    UsageError for a place that cannot be read."""
    found, wrong = carrier.taken() if isinstance(carrier, Folder) else _of_lines(carrier)
    new = add(*found) if found else 0
    return new, len(found) - new, wrong


def _of_lines(carrier: Carrier) -> tuple[list[KeptRun], list[str]]:
    found, wrong = [], []
    for number, line in enumerate(carrier.lines(), 1):
        if not line.strip():
            continue
        try:
            if len(line) > LONGEST:
                raise NotARun("it is too long")
            found.append(of_plain(json.loads(line)))
        except (NotARun, ValueError, RecursionError) as error:
            wrong.append(f"line {number}: {str(error)[:200]}")
    return found, wrong


def _arrow() -> Any:
    try:
        importlib.import_module("pyarrow.parquet")
        return importlib.import_module("pyarrow")
    except ImportError:
        raise UsageError("Parquet needs pyarrow: pip install preflight-lint[batch]") from None


def _table(runs: Sequence[KeptRun]) -> bytes:
    arrow = _arrow()
    rows = [(run.id, run.started, run.outcome, run.machine.gpu, line_of(run)) for run in runs]
    table = arrow.table({name: [row[index] for row in rows] for index, name in enumerate(_COLUMNS)})
    written = io.BytesIO()
    arrow.parquet.write_table(table, written)
    return written.getvalue()


def _read_table(path: Path) -> list[str]:
    arrow = _arrow()
    try:
        table = arrow.parquet.read_table(path, columns=["record"])
    except (arrow.ArrowInvalid, KeyError) as error:
        raise UsageError(f"{path} has no recorded runs: {error}") from error
    return [str(line) for line in table.column("record").to_pylist()]


# --- addresses --------------------------------------------------------------------------------------------------------


def _file(name: str) -> Carrier:
    return File(Path(name))


SCHEMES: dict[str, Callable[[str], Carrier]] = {"mlflow": Mlflow, "wandb": Wandb, "optuna": Optuna}
ENDINGS: dict[str, Callable[[str], Carrier]] = {".jsonl": _file, ".parquet": _file, ".wandb": WandbFile}


def carrier_of(address: str) -> Carrier:
    """Raises UsageError for an address that names none."""
    scheme, colon, rest = address.partition(":")
    if colon and scheme in SCHEMES:
        return SCHEMES[scheme](rest)
    if "://" in address:
        if address.endswith((".jsonl", "/")):
            return Address(address)
        raise UsageError(f"{address}: the address ends with .jsonl (a file) or / (a folder with a file for each run)")
    for ending, made in ENDINGS.items():
        if address.endswith(ending):
            return made(address)
    if address.endswith(os.sep) or os.path.isdir(address):
        return Folder(address)
    raise UsageError(f"{address} is none of {', '.join(FORMS)}")
