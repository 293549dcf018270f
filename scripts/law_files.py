"""What the scripts that make shipped laws share: traces in this process, files, the round over what is asked for."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from preflight.memory.device.fit.few_traces import make_of, make_sparse
from preflight.memory.device.fit.make import CannotMake
from preflight.memory.device.fit.subprocess import TraceError
from preflight.memory.device.law.made import MadeLaw
from preflight.memory.device.law.store import FORMAT, LawKey, key_of, load, other_path, pack
from preflight.memory.device.law.tape import NotRegular
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.workloads.embeddings import Embedder
from preflight.tracer import TRACER_VERSION

SHIPPED_FREE = ("b", "u", "r", "w", "t", "V", "k", "o")
"""Lengths that a shipped law of a model without a family is a function of."""


def make_shipped(resolved: Resolved, kind: str) -> MadeLaw:
    """One law, as a function of all its lengths. Raises CannotMake, TraceError, NotRegular."""
    if isinstance(resolved.workload, Embedder):  # whose law is a function of all of them in any case
        return make_of(resolved, kind, run)
    free = [name for name in SHIPPED_FREE if name in resolved.all_dims]
    fixed = {name: value for name, value in resolved.lengths.items() if name not in free}
    return make_sparse(resolved.request(kind), free, run, fixed, resolved.workload.depths)


def run(traces: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Traces in this process. Raises TraceError."""
    from preflight.tracer.main import serve

    replies = serve({"traces": list(traces)})["traces"]
    for reply in replies:
        if "error" in reply:
            raise TraceError(reply["error"])
    return json.loads(json.dumps(replies))  # type: ignore[no-any-return]


def versions(libraries: Sequence[str]) -> dict[str, str]:
    """What makes the laws: those of the libraries that are installed, and the tracer."""
    found = {}
    for name in libraries:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**found, "tracer": TRACER_VERSION}


def write(path: Path, data: Mapping[str, Any]) -> int:
    """The file, whole or not at all, the same bytes for the same laws. Returns bytes."""
    packed = gzip.compress(json.dumps(data, separators=(",", ":")).encode(), 9, mtime=0)
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}")
    new.write_bytes(packed)
    new.replace(path)
    return len(packed)


def filed(family: str) -> dict[str, MadeLaw]:
    """The laws that a file of another kind than transformers' families has already."""
    path = other_path(family)
    if not path.is_file():
        return {}
    keys = json.loads(gzip.decompress(path.read_bytes()))["laws"]
    found = {key: load(LawKey(family, key)) for key in keys}
    return {key: made for key, made in found.items() if made is not None}


def make_all(
    about: str,
    asked: Iterable[tuple[str, Resolved, str]],
    libraries: Sequence[str],
) -> int:
    """Make what is asked for, (name, what the law is looked up by, kind of step), and is not there yet. The command
    line has words that a name must hold, and --again."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--again", action="store_true", help="make what is there as well")
    options = parser.parse_args()
    there: dict[str, dict[str, MadeLaw]] = {}  # read once: the store remembers files as it first saw them
    for name, resolved, kind in asked:
        if not all(word.lower() in name.lower() for word in options.words):
            continue
        key = key_of(resolved, kind)
        laws = there.setdefault(key.family, filed(key.family))
        if key.text in laws and not options.again:
            continue
        start = time.perf_counter()
        try:
            laws[key.text] = make_shipped(resolved, kind)
        except (CannotMake, TraceError, NotRegular) as error:
            print(f"{name}: not made: {str(error)[:200]}", file=sys.stderr, flush=True)
            continue
        head = {"format": FORMAT, "family": key.family, "made_by": versions(libraries)}
        size = write(other_path(key.family), {**head, **pack(dict(sorted(laws.items())))})
        print(f"{name}: {size} bytes in {key.family}, {time.perf_counter() - start:.0f} s", flush=True)
    return 0
