"""That the fuzzing itself works: inputs are the same for the same number, and what is wrong is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fuzz_inputs
import fuzz_readers
import fuzz_workers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import HANGS
from thorough import examples

ROOT = Path(__file__).resolve().parents[2]


def _rows(read: fuzz_workers.Read, numbers: range) -> list[dict[str, object]]:
    turns: Iterator[range] = iter([numbers])
    return list(fuzz_workers.run(turns, read, 1, lambda: False))


def test_a_number_gives_the_same_input() -> None:
    assert [fuzz_inputs.made(1, number) for number in range(20)] == [fuzz_inputs.made(1, n) for n in range(20)]
    assert fuzz_inputs.made(1, 3) != fuzz_inputs.made(2, 3)


def test_an_error_and_an_end_of_the_process_are_seen_and_the_rest_is_read() -> None:
    def read(number: int) -> str:
        if number == 1:
            raise KeyError(number)
        if number == 2:
            os._exit(3)
        return "fine"

    rows = _rows(read, range(4))
    assert {row["number"]: row.get("why", "") for row in rows} == {0: "", 1: "KeyError", 2: "ended (768)", 3: ""}


def test_an_endless_loop_and_too_much_memory_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_workers, "SECONDS", 0.2)

    def read(number: int) -> str:
        while number == 0:
            pass
        return "x" * (2 * fuzz_workers.MEMORY) if number == 1 else "fine"

    why = {row["number"]: str(row.get("why", "")) for row in _rows(read, range(3))}
    assert why[0].startswith("over the CPU time")
    assert (why[1], why[2]) == ("MemoryError", "")


def test_a_file_that_is_written_is_seen(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "import fuzz_inputs, fuzz_readers\n"
        "from pathlib import Path\n"
        "fuzz_readers.watch()\n"
        "fuzz_readers.READERS = {'hosts': lambda *_: Path(sys.argv[3]).write_text('x')}\n"
        "fuzz_readers.read(fuzz_inputs.Input('hosts', {'a': 'b'}), Path('.'), 0)\n"
    )
    words = [str(ROOT / "tests/fuzz"), str(ROOT / "rules"), str(tmp_path / "written")]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=HANGS, check=False
    )
    assert "Wrong: it did open" in done.stderr


TEXT = st.text(st.sampled_from("ab1=:-,[]{}()\"'$&*!#|<>\n\t \\\ud800é"), max_size=80)


@pytest.mark.parametrize("kind", [kind for kind in fuzz_readers.READERS if kind != "project"])
@given(text=TEXT)
@settings(max_examples=examples(80))
def test_any_text_is_read_or_refused(kind: str, text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    names = {"documents": ("a.yaml", "a.json", "a.sh", "a.py", "a.toml"), "job": ("j.json",)}
    for name in names.get(kind, ("preflight.toml",)):
        fuzz_readers.read(fuzz_inputs.Input(kind, {name: text}), tmp_path_factory.mktemp("f") / "in", len(text))


@pytest.mark.parametrize("number", range(12))
def test_changed_projects(number: int, tmp_path: Path) -> None:
    fuzz_readers.read(fuzz_inputs.made(7, number, "project"), tmp_path / "in", number)
