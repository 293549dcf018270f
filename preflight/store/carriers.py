"""What carries recorded runs from one place to another: a file, a folder, an fsspec address, MLflow, W&B, Optuna.

Each has one line of JSON for a run, as the store's own export has it. The library that a carrier needs is imported when
its address is named, and no other.
"""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from preflight.store.records import KeptRun, plain
from preflight.vocabulary.errors import UsageError

PREFIX = "preflight/"
"""Of an artifact of MLflow and of a key of a W&B summary; Optuna's attributes have a dot."""
LONGEST = 1 << 20


class Carrier(Protocol):
    """Lines of runs, which are written and read."""

    def put(self, runs: Sequence[KeptRun]) -> None:
        """Adds runs; those that are there stay. Raises UsageError."""

    def lines(self) -> Iterator[str]:
        """The lines of all runs. Raises UsageError."""


def line_of(run: KeptRun) -> str:
    return json.dumps(plain(run), sort_keys=True)


def library(name: str, why: str) -> Any:
    """A library that few have. Raises UsageError."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"{why} needs {name}: pip install {name}") from None


@contextmanager
def told(what: str) -> Iterator[None]:
    """Whatever a foreign library raises is one line of ours: each has its own exceptions."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{what}: {' '.join(str(error).split())[:300] or type(error).__name__}") from error


class Address(Struct, frozen=True):
    """A file or a folder at an address that fsspec knows: "s3://team/runs/", "file:///shared/all.jsonl"."""

    address: str

    def _place(self) -> tuple[Any, str]:
        fsspec = library("fsspec", self.address)
        system, path = fsspec.core.url_to_fs(self.address)
        return system, str(path)

    @property
    def _is_file(self) -> bool:
        return self.address.endswith(".jsonl")

    def put(self, runs: Sequence[KeptRun]) -> None:
        with told(f"{self.address} cannot be written"):
            system, path = self._place()
            if self._is_file:
                with system.open(path, "wb") as file:
                    file.write("".join(f"{line_of(run)}\n" for run in runs).encode())
                return
            system.makedirs(path, exist_ok=True)
            for run in runs:
                name = f"{path.rstrip('/')}/{run.id}.jsonl"
                if not system.exists(name):
                    system.pipe_file(name, f"{line_of(run)}\n".encode())

    def lines(self) -> Iterator[str]:
        with told(f"{self.address} cannot be read"):
            system, path = self._place()
            names = [path] if self._is_file else sorted(system.glob(f"{path.rstrip('/')}/*.jsonl"))
            if not self._is_file and not names and not system.exists(path):
                raise FileNotFoundError("there is no such folder")
            for name in names:
                with system.open(name, "rb") as file:
                    while data := file.readline(LONGEST + 1):
                        yield data.decode("utf-8", "replace")


class Mlflow(Struct, frozen=True):
    """Artifacts of a run of MLflow, one for each record. `run`: its id; "": that of MLFLOW_RUN_ID."""

    run: str

    def _client(self) -> tuple[Any, str]:
        mlflow = library("mlflow", "an address mlflow:")
        found = self.run or os.environ.get("MLFLOW_RUN_ID", "")
        if not found:
            raise UsageError("mlflow: names no run, and MLFLOW_RUN_ID is not set")
        return mlflow.MlflowClient(), found

    def put(self, runs: Sequence[KeptRun]) -> None:
        with told(f"the MLflow run {self.run} cannot be written"):
            client, run = self._client()
            for one in runs:
                client.log_text(run, line_of(one) + "\n", f"{PREFIX}{one.id}.jsonl")
                for tier in ("allocated", "reserved", "process"):
                    size = one.peak(tier)
                    if size:
                        client.log_metric(run, f"{PREFIX}peak_{tier}_gib", size / 2**30)

    def lines(self) -> Iterator[str]:
        with told(f"the MLflow run {self.run} cannot be read"), tempfile.TemporaryDirectory() as folder:
            client, run = self._client()
            for one in client.list_artifacts(run, PREFIX.rstrip("/")):
                if one.path.endswith(".jsonl"):
                    yield from Path(client.download_artifacts(run, one.path, folder)).read_text("utf-8").splitlines()


class Optuna(Struct, frozen=True):
    """User attributes of a study, one for each record. `place`: "STORAGE#STUDY"."""

    place: str

    def _study(self) -> Any:
        optuna = library("optuna", "an address optuna:")
        storage, mark, name = self.place.rpartition("#")
        if not mark or not storage or not name:
            raise UsageError(f"optuna:{self.place}: write optuna:STORAGE#STUDY, as in optuna:sqlite:///hpo.db#my-study")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            return optuna.load_study(study_name=name, storage=storage)
        except KeyError as error:
            raise UsageError(f"optuna:{self.place}: there is no study {name}") from error

    def put(self, runs: Sequence[KeptRun]) -> None:
        with told(f"the study {self.place} cannot be written"):
            study = self._study()
            for one in runs:
                study.set_user_attr(f"preflight.run.{one.id}", plain(one))

    def lines(self) -> Iterator[str]:
        with told(f"the study {self.place} cannot be read"):
            study = self._study()
            for attributes in (study.user_attrs, *(trial.user_attrs for trial in study.get_trials(deepcopy=False))):
                for name, value in attributes.items():
                    if name.startswith("preflight.run."):
                        yield json.dumps(value)
