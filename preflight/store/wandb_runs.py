"""Recorded runs in the summary of a W&B run: written by W&B itself, read from its server or from an offline run's
file, which is a log of LevelDB (https://github.com/google/leveldb/blob/main/doc/log_format.md) behind a header of seven
bytes. Its records are messages of W&B's own protocol buffers, which the installed wandb decodes.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from preflight.store.carriers import PREFIX, library, line_of, told
from preflight.store.records import KeptRun
from preflight.vocabulary.errors import UsageError

HEADER, BLOCK, PART = 7, 32768, 7
"""Bytes: of the file's header (":W&B", a number of two bytes, a version), of a block, of the header of a part."""
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
MOST_BYTES = 1 << 30


class Wandb(Struct, frozen=True):
    """The summary of a run. `place`: "[ENTITY/]PROJECT/RUN"; "": the run that an agent's variables name."""

    place: str

    def _named(self) -> tuple[str | None, str | None, str]:
        if not self.place:
            run = os.environ.get("WANDB_RUN_ID", "")
            if not run:
                raise UsageError("wandb: names no run, and WANDB_RUN_ID is not set")
            return os.environ.get("WANDB_ENTITY"), os.environ.get("WANDB_PROJECT"), run
        parts = self.place.split("/")
        if not 2 <= len(parts) <= 3 or not all(parts):
            raise UsageError(f"wandb:{self.place}: write wandb:[ENTITY/]PROJECT/RUN")
        return (parts[0] if len(parts) == 3 else None), parts[-2], parts[-1]

    def put(self, runs: Sequence[KeptRun]) -> None:
        with told(f"the W&B run {self.place} cannot be written"):
            wandb = library("wandb", "an address wandb:")
            entity, project, name = self._named()
            settings = wandb.Settings(silent=True, disable_code=True, disable_git=True)
            run = wandb.init(entity=entity, project=project, id=name, resume="allow", settings=settings)
            for one in runs:
                run.summary[f"{PREFIX}{one.id}"] = line_of(one)
            run.finish()

    def lines(self) -> Iterator[str]:
        with told(f"the W&B run {self.place} cannot be read"):
            wandb = library("wandb", "an address wandb:")
            entity, project, name = self._named()
            path = "/".join(part for part in (entity, project, name) if part)
            summary = wandb.Api().run(path).summary
            yield from (str(value) for key, value in dict(summary).items() if key.startswith(PREFIX))


class WandbFile(Struct, frozen=True):
    """The file of an offline run, as in wandb/offline-run-.../run-....wandb."""

    path: str

    def put(self, runs: Sequence[KeptRun]) -> None:
        raise UsageError(f"{self.path}: a file of W&B is only read; write to wandb:PROJECT/RUN")

    def lines(self) -> Iterator[str]:
        with told(f"{self.path} cannot be read"):
            record_of = library("wandb.proto.wandb_internal_pb2", "a file of W&B").Record
            with open(self.path, "rb") as file:
                data = file.read(MOST_BYTES)
            if data[:4] != b":W&B":
                raise ValueError("it is no file of a W&B run")
            found: dict[str, str] = {}
            for payload in _payloads(data):
                record = record_of()
                record.ParseFromString(payload)
                found.update(_summary_of(record))
            yield from found.values()


def _summary_of(record: Any) -> Iterator[tuple[str, str]]:
    """The records that a message puts into the summary."""
    if not record.HasField("summary"):
        return
    for item in record.summary.update:
        key = item.key or "/".join(item.nested_key)
        if key.startswith(PREFIX):
            text = json.loads(item.value_json)
            yield key, text if isinstance(text, str) else json.dumps(text)


def _payloads(data: bytes) -> Iterator[bytes]:
    """The messages of a log; what is torn at its end is left out."""
    at, held = HEADER, b""
    while at + PART <= len(data):
        left = BLOCK - at % BLOCK
        if left < PART:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        part = data[at + PART : at + PART + length]
        at += PART + length
        if kind == 0 and length == 0:  # the rest of a block that was not filled
            at += (BLOCK - at % BLOCK) % BLOCK
            continue
        if len(part) < length:
            return
        held = part if kind in (WHOLE, FIRST) else held + part
        if kind in (WHOLE, LAST):
            yield held
            held = b""
