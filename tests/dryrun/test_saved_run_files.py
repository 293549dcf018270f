"""The file of a saved dry run: what is no such file, damaged or poisoned is refused with one reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from saved_runs import changed, run_in, written

from preflight.memory.device import saved_run
from preflight.memory.device.saved_run import NotSaved, SavedRun, read


@pytest.fixture
def run(tmp_path: Path) -> SavedRun:
    (tmp_path / "train.py").write_text("")
    return run_in(tmp_path, "--bs", "8")


def test_a_file_is_read_as_it_was_written(run: SavedRun) -> None:
    found = read(written(run))
    assert saved_run.plain(found) == saved_run.plain(run)
    assert found.law is not None
    assert run.law is not None
    assert found.law.at(20, 96).events == run.law.at(20, 96).events


NO_FILES = {
    "empty": (b"", "it is no JSON"),
    "no JSON": (b"\x80\x04K\x01.", "it is no JSON"),
    "deep": (b"[" * 100_000, "it is no JSON"),
    "another's": (b'{"events": []}', "it is no saved dry run"),
    "a list": (b"[]", "it is no saved dry run"),
    "large": (b" " * (saved_run.BYTES + 1), "it is larger than 32 MiB"),
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_no_saved_run(kind: str) -> None:
    data, why = NO_FILES[kind]
    with pytest.raises(NotSaved) as error:
        read(data)
    assert str(error.value) == why


POISONED = {
    "a newer version": ("version", 3),
    "no version": ("version", None),
    "a storage that dies twice": ("tape.events", [5, -1, -1, 5]),
    "a death before its birth": ("tape.events", [-3, 5, 5, 5]),
    "a storage of all memory": ("tape.events.0", 1 << 60),
    "a number that is none": ("tape.events.0", 1.5),
    "a number as text": ("tape.events.0", "8"),
    "no events": ("tape.events", []),
    "phases without end": ("tape.phases", [["load", 1 << 39]]),
    "too few phases": ("tape.phases", [["load", 1]]),
    "a phase of no length": ("tape.phases", [["load", -1], ["load", 5]]),
    "another part": ("tape.parts", {"0": "none"}),
    "a part of a death": ("tape.parts", {"3": "weights"}),
    "a part of nothing": ("tape.parts", {"99": "weights"}),
    "a field that no run sees": ("values", {"model.law": "/etc/passwd"}),
    "a value that its field does not take": ("values", {"train.batch_size": -8}),
    "a model's name": ("values", {"model.name": "gpt2"}),
    "a law of one size": ("law.other_batch", 8),
    "a law of other events": ("law.sizes", [1]),
    "a law with negative sizes": ("law.sizes.0", -1),
    "a law without runs": ("law.runs", []),
    "a length of one size": ("law.lengths.other", 128),
    "a long text": ("command", ["a" * 5000]),
    "a long list": ("command", ["a"] * 6000),
    "sources that are no texts": ("sources", {"train.py": 5}),
    "another standing": ("doubts", [{"field": "x", "standing": "sure", "why": ""}]),
    "a program that is a text": ("program", "train.py"),
    "no capability": ("capability", [8]),
}


@pytest.mark.parametrize("kind", POISONED)
def test_a_poisoned_file(run: SavedRun, kind: str) -> None:
    with pytest.raises(NotSaved, match=r"^(it has version|it is damaged)") as error:
        read(changed(written(run), *POISONED[kind]))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["command", "directory", "program", "sources", "values", "whole", "tape", "law"])
def test_a_part_is_missing(run: SavedRun, name: str) -> None:
    import json

    whole = json.loads(written(run))
    del whole[name]
    with pytest.raises(NotSaved, match="it is damaged"):
        read(json.dumps(whole).encode())
