"""Distributions made by hand: a package and its metadata in a folder, as an installer leaves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from preflight import dialects
from preflight.machines import gpus
from preflight.memory.device import optimizers
from preflight.memory.device.workloads import registry as workloads
from preflight.system import entry_points
from preflight.vocabulary import optimizer, spelling

CACHES = (
    entry_points._scan, gpus._added, gpus.gpus, gpus._index, optimizer.added, optimizers._others, optimizers._step,
    spelling._added_spellings, spelling._of_scalar, dialects.added, workloads._added,
)  # fmt: skip
"""What is remembered of the distributions of one process."""

Groups = Mapping[str, Mapping[str, str]]


def forget() -> None:
    for cache in CACHES:
        cache.cache_clear()


def install(site: Path, name: str, groups: Groups, files: Mapping[str, str] | None = None) -> None:
    """Writes what `pip install` would: files of the distribution, and its dist-info with these entry points."""
    for path, text in (files or {}).items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")
    info = site / f"{name.replace('-', '_')}-1.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text("\n".join(_sections(groups)))


def _sections(groups: Groups) -> Iterator[str]:
    for group, points in groups.items():
        yield f"[{group}]"
        yield from (f"{name} = {value}" for name, value in points.items())
