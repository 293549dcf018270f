"""Cache of traced laws: files in the user's cache directory, which can be deleted at any time.

A file's name is a hash of everything that a law depends on: the request, the versions of the libraries that were
traced, and the code that traced it and made the law. A file that cannot be read
is ignored, and a law that cannot be written is not kept. PREFLIGHT_NO_CACHE=1 leaves the directory alone.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from preflight.memory.device.fit.subprocess import installed
from preflight.memory.device.law import store
from preflight.memory.device.law.made import MadeLaw
from preflight.system.files import UnreadableFile, read_bytes, user_directory
from preflight.vocabulary.budgets import LAW_BYTES

_MAKERS = (
    "fit/batch_one fit/few_traces fit/make fit/one_model fit/pairwise_loss fit/polynomial fit/primes "
    "law/adapters law/block_diffs law/layers law/made law/quantization law/setup law/sizes law/store law/tape"
)
"""Modules of `memory.device` that make a law of traces, or file it."""


def read(asked: str, key: store.LawKey, interpreter: str | None) -> tuple[MadeLaw, dict[str, str]] | None:
    """The law that was traced before for the same request, and the versions that made it."""
    path = _path(asked, interpreter)
    if path is None:
        return None
    try:
        data = json.loads(store.unpacked(read_bytes(path, LAW_BYTES)))
        made = store.load_packed(data, key)
        return None if made is None else (made, dict(data["made_by"]))
    except (UnreadableFile, *store.NOT_A_LAW):
        return None


def write(asked: str, key: store.LawKey, interpreter: str | None, made: MadeLaw, versions: Mapping[str, str]) -> None:
    """Keep a law, whole or not at all."""
    path = _path(asked, interpreter)
    if path is None:
        return
    packed = gzip.compress(json.dumps(store.law_file(key, made, versions), separators=(",", ":")).encode(), mtime=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as unfinished:
            unfinished.write(packed)
        os.replace(unfinished.name, path)
    except OSError:
        return


def directory() -> Path | None:
    """Where the files are; None where none are wanted."""
    if os.environ.get("PREFLIGHT_NO_CACHE", "") not in ("", "0"):
        return None
    home = user_directory("cache")
    return home / "laws" if home is not None else None


def _path(asked: str, interpreter: str | None) -> Path | None:
    home = directory()
    found = installed(interpreter).versions if home is not None else ""
    if home is None or not found:
        return None
    text = json.dumps([asked, found, _code(), store.FORMAT])
    return home / f"{hashlib.sha256(text.encode()).hexdigest()}.json.gz"


@lru_cache(maxsize=1)
def _code() -> str:
    """A hash of the code that traces and makes laws."""
    here = Path(__file__).parents[1]
    files = [
        *(here.parents[1] / "tracer").rglob("*.py"),
        *(here / "families").glob("*.py"),
        *(here / "workloads").glob("*.py"),
    ]
    files += [here / f"{name}.py" for name in _MAKERS.split()]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in sorted(files) if file.is_file())).hexdigest()
