"""Laws that were traced here before: files in the user's cache directory, which can be deleted at any time.

A file's name is a hash of all that a law depends on: what was asked for, the versions of the libraries that were
traced, and the code that traced it and made the law. What cannot be read is as if it were not there, and what cannot
be written is not kept. PREFLIGHT_NO_CACHE=1 leaves the directory alone.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from preflight.memory.device import store
from preflight.memory.device.make import Made

LIBRARIES = ("torch", "transformers", "peft", "timm", "torchvision", "diffusers")
"""What makes the models that are traced."""
_ASK = """
import json, sys
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
print(json.dumps([sys.version, {name: version(name) for name in sys.argv[1:]}]))
"""
TIME_LIMIT_S = 30
_MAKERS = """
    adapters batch_one blocks layers make perception_make polynomial primes quantization setup single sizes sparse store
    tape
"""
"""Modules of this package that make a law of traces, or file it."""


def read(asked: str, key: store.LawKey, interpreter: str | None) -> tuple[Made, dict[str, str]] | None:
    """The law that was traced before for the same request, and the versions that made it."""
    path = _path(asked, interpreter)
    if path is None:
        return None
    try:
        data = json.loads(gzip.decompress(path.read_bytes()))
        made = store.load_packed(data, key)
        return None if made is None else (made, dict(data["made_by"]))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, IndexError):
        return None


def write(asked: str, key: store.LawKey, interpreter: str | None, made: Made, versions: Mapping[str, str]) -> None:
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
    from platformdirs import user_cache_path

    return user_cache_path("preflight") / "laws"


def _path(asked: str, interpreter: str | None) -> Path | None:
    home = directory()
    found = _versions(interpreter) if home is not None else None
    if home is None or found is None:
        return None
    text = json.dumps([asked, found, _code(), store.FORMAT])
    return home / f"{hashlib.sha256(text.encode()).hexdigest()}.json.gz"


@lru_cache(maxsize=4)
def _versions(interpreter: str | None) -> str | None:
    """Versions of an interpreter and its libraries; None where it does not say."""
    try:
        command = [interpreter or sys.executable, "-c", _ASK, *LIBRARIES]
        reply = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIME_LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return reply.stdout


@lru_cache(maxsize=1)
def _code() -> str:
    """A hash of the code that traces and makes laws."""
    here = Path(__file__).parent
    files = [
        *(here.parents[1] / "tracer").glob("*.py"),
        *(here / "families").glob("*.py"),
        *(here / "workloads").glob("*.py"),
    ]
    files += [here / f"{name}.py" for name in _MAKERS.split()]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in sorted(files) if file.is_file())).hexdigest()
