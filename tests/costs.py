"""Which tests a plain `pytest` leaves to `pytest -m slow`, by what they cost: tests/costly.txt, one test id a line.

`python scripts/costly_tests.py` measures and writes the list. Most of these tests start processes.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("costly.txt")
MEASURED = os.environ.get("PREFLIGHT_MEASURE_TESTS")
"""A folder: then nothing is left out because of the list, and each process writes there what its tests cost."""
STALE = pytest.StashKey[frozenset[str]]()
"""Lines of the list that are no test; only where all tests were collected."""


def listed() -> frozenset[str]:
    return frozenset(LIST.read_text(encoding="utf-8").splitlines())


def spent() -> float:
    """Seconds of a processor, of this process and of those it started: a tracer or a server runs on after a test."""
    took = os.times()
    running = [int(pid) for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()]
    return took.user + took.system + took.children_user + took.children_system + sum(map(spent_by, running))


def spent_by(pid: int) -> float:
    """Seconds of a processor, of a child and of the processes that it waited for; 0 where Linux does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def left_to_slow(costs: Iterable[tuple[str, float]], bound: float, always: tuple[str, ...]) -> list[str]:
    """The tests that take more than `bound` seconds. Each file keeps its cheapest; files of `always` keep all."""
    files: dict[str, list[tuple[float, str]]] = {}
    for test, seconds in costs:
        if not test.startswith(always):
            files.setdefault(test.split("::")[0], []).append((seconds, test))
    return sorted(test for rows in files.values() for seconds, test in sorted(rows)[1:] if seconds > bound)


def stale(costly: Iterable[str], collected: set[str]) -> frozenset[str]:
    """Lines that are no test, of files that gave tests or are gone. Without a package, a file may give none."""
    files = {test.split("::")[0] for test in collected}
    unknown = {test: test.split("::")[0] for test in costly if test not in collected}
    return frozenset(test for test, file in unknown.items() if file in files or not Path(file).exists())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    costly = listed()
    if not MEASURED:
        for item in items:
            if item.nodeid in costly:
                item.add_marker(pytest.mark.slow)
    if config.args == config.getini("testpaths"):
        config.stash[STALE] = stale(costly, {item.nodeid for item in items})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    if not MEASURED:
        return (yield)
    before = spent()
    ended = yield
    with Path(MEASURED, str(os.getpid())).open("a", encoding="utf-8") as file:
        file.write(f"{spent() - before:.3f} {item.nodeid}\n")
    return ended
