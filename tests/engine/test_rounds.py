"""Fixes through the whole engine: after all of them nothing is left to fix, and nothing but their edits changed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.engine import check as engine
from preflight.engine import registry
from preflight.engine.files import Batch
from preflight.engine.rounds import fixed, write
from preflight.vocabulary.outcome import Report
from preflight.vocabulary.rule import Example
from preflight.vocabulary.settings import Settings


def fixable() -> Iterator[object]:
    for name, rule in registry.rules().items():
        for example in rule.examples:
            if example.fixed is not None:
                for ending in ("\n", "\r\n"):
                    script = any(file.endswith((".sh", ".sbatch", ".slurm")) for file in example.files)
                    if ending == "\n" or not script:  # bash does not read such a script
                        marks = pytest.mark.slow if "Hydra is told" in example.title else ()  # three seconds of Hydra
                        yield pytest.param(example, ending, id=f"{name}: {example.title}-{ending!r}", marks=marks)


def unchanged(report: Report) -> Report:
    return report


def ask(root: Path, example: Example) -> tuple[engine.Project, engine.CheckSetup]:
    batch = Batch(root, Settings(**example.options), None, (next(iter(example.files)),), ())
    return engine.setup(batch, engine.CheckOptions(), root)


@pytest.mark.parametrize(("example", "ending"), list(fixable()))
def test_fixing_twice_changes_nothing_the_second_time(example: Example, ending: str, tmp_path: Path) -> None:
    for name, text in example.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(textwrap.dedent(text).lstrip("\n").replace("\n", ending).encode())
    first = fixed(*ask(tmp_path, example), True, unchanged)
    assert first.count
    write(first)
    for name, text in (example.fixed or {}).items():
        expected = textwrap.dedent(text).lstrip("\n").replace("\n", ending)
        assert (tmp_path / name).read_bytes().decode() == expected
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == sorted(Path(n).name for n in example.files)
    second = fixed(*ask(tmp_path, example), True, unchanged)
    assert second.texts == {}
    assert second.count == 0
