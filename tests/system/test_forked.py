"""Work in copies of this process: what may go wrong with a copy first, then what the results are."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from preflight.system import observed
from preflight.system.forked import MOST_PIECES, in_copies, most_copies

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")


def ignore(count: int) -> None:
    """Nobody looks at the number of results."""


def children() -> set[str]:
    """The processes that this one has started (proc(5)); a whole run of the tests has some of its own."""
    return set(Path("/proc/thread-self/children").read_text(encoding="ascii").split())


before: set[str] = set()


@pytest.fixture(autouse=True)
def children_of_other_tests() -> None:
    before.clear()
    before.update(children())


def no_child() -> bool:
    return children() <= before


def test_an_exception_of_a_piece_is_raised_and_ends_all_copies() -> None:
    def work(number: int) -> int:
        if number == 3:
            raise LookupError("three")
        return number

    with pytest.raises(LookupError, match="three"):
        in_copies(10, work, 2, ignore)
    assert no_child()


def test_an_interrupt_leaves_no_copy() -> None:
    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_copies(100, lambda number: number, 2, stop)
    assert no_child()


def test_a_killed_copy_is_said_and_the_others_go_on() -> None:
    def work(number: int) -> int:
        if number == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    record = observed.start()
    try:
        done = in_copies(20, work, 2, ignore)
    finally:
        observed.stop()
    assert done.results == {number: number for number in range(1, 20)}
    assert done.lost == "a process that did a part of the work ended by signal 9"
    assert done.lost in record.flaws
    assert no_child()


def test_a_result_that_cannot_be_sent_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="pickle"):
        in_copies(1, lambda number: lambda: number, 1, ignore)


def test_without_another_process_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refused)
    assert in_copies(3, lambda number: number, 2, ignore).results == {}


def test_too_many_pieces_are_refused() -> None:
    with pytest.raises(ValueError, match="too many"):
        in_copies(MOST_PIECES + 1, lambda number: number, 2, ignore)


def test_another_system_has_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert most_copies() == 0


def test_every_piece_is_done_once_whatever_its_size() -> None:
    done = in_copies(50, lambda number: "x" * (number * 5000), 3, ignore)
    assert {number: len(str(one)) for number, one in done.results.items()} == {n: n * 5000 for n in range(50)}
    assert done.lost == ""


def test_what_a_copy_reads_is_noted_here(tmp_path: Path) -> None:
    record = observed.start()
    try:
        in_copies(2, lambda number: observed.exists(tmp_path / f"{number}.yaml"), 2, ignore)
    finally:
        observed.stop()
    assert {"0.yaml", "1.yaml"} <= record.notes[str(tmp_path)].keys()
