"""What holds for all tests: none judges how fast the machine is, and what needs a service is marked."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest
from costs import STALE, left_to_slow, spent, stale
from sources import trees

CLOCKS = frozenset(["perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time_ns"])
"""Names of clocks on the wall, however they are imported; and `time.time`. `process_time` is none of them."""
SERVICES = ("slurm.controller", "slurm_live.cluster")
STARTS = frozenset(["started", "running"])
"""What starts daemons of SLURM."""


OF_TESTS = ("tests",)


def reads_a_clock(node: ast.AST) -> bool:
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute):
            of_time = one.attr in ("time", "now") and ast.unparse(one) in ("time.time", "datetime.now")
            if one.attr in CLOCKS or of_time:
                return True
        elif isinstance(one, ast.Name) and one.id in CLOCKS:
            return True
    return False


def clocks_in_asserts(tree: ast.Module) -> Iterator[int]:
    """Lines of asserts that read a clock, or a name of the file that was given a clock's value."""
    timed: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if reads_a_clock(node.value):
                timed |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            names = {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)}
            if reads_a_clock(node.test) or names & timed:
                yield node.lineno


def short_timeouts(tree: ast.Module) -> Iterator[int]:
    """Lines that give up a process after a number of seconds: one that hangs is given up after `processes.HANGS`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            given = [one.value for one in node.keywords if one.arg == "timeout"]
            given += node.args if name == "wait" else []
            yield from (one.lineno for one in given if isinstance(one, ast.Constant) and one.value is not None)


def starts_services(tree: ast.Module) -> bool:
    """Whether the file imports what starts a daemon, at its top: a function that is no test may do so, too."""
    return any(
        isinstance(node, ast.ImportFrom) and node.module in SERVICES and STARTS & {one.name for one in node.names}
        for node in tree.body
    )


def test_no_assert_reads_a_clock_on_the_wall() -> None:
    timed = trees(*CLOCKS, "time.time", "datetime.now", folders=OF_TESTS)
    assert [f"{name}:{line}" for name, tree in timed for line in clocks_in_asserts(tree)] == []


def test_processes_are_given_up_only_when_they_hang() -> None:
    given_up = trees("timeout", "wait", folders=OF_TESTS)
    assert [f"{name}:{line}" for name, tree in given_up for line in short_timeouts(tree)] == []


def test_tests_that_start_a_service_are_marked() -> None:
    own = [(name, tree) for name, tree in trees(*SERVICES, folders=OF_TESTS) if "/test_" in name]
    found = [(name, tree) for name, tree in own if starts_services(tree)]
    assert found
    marked = "pytestmark = pytest.mark.integration"
    assert [name for name, tree in found if marked not in {ast.unparse(node) for node in tree.body}] == []


def test_costly_tests_are_tests(pytestconfig: pytest.Config) -> None:
    if STALE not in pytestconfig.stash:
        pytest.skip("not all tests were collected")
    assert not pytestconfig.stash[STALE], "renamed or gone: repair these lines of tests/costly.txt"


def test_a_renamed_test_and_a_file_that_is_gone_are_seen() -> None:
    lines = ["tests/costs.py::one", "tests/costs.py::old", "tests/gone.py::one", "tests/conftest.py::needs_a_package"]
    assert stale(lines, {"tests/costs.py::one"}) == {"tests/costs.py::old", "tests/gone.py::one"}


def test_what_costs_much_is_left_to_slow_tests() -> None:
    costs = [
        ("a.py::one", 3.0),
        ("a.py::two", 2.0),
        ("b.py::one", 0.1),
        ("b.py::two", 0.3),
        ("c/d.py::one", 9.0),
        ("c/d.py::two", 9.0),
    ]
    assert left_to_slow(costs, 0.2, ("c/",)) == ["a.py::one", "b.py::two"]


@pytest.mark.parametrize(
    "text",
    [
        "assert time.time() < end", "start = time.perf_counter()\nwork()\nassert time.process_time() - start < 5",
        "def test():\n    begun = monotonic()\n    assert spent(begun) < 1", "assert (now := datetime.now()) < later",
        "seconds = time.monotonic_ns() - start\nassert seconds < 3",
    ],
)  # fmt: skip
def test_the_measure_sees_clocks(text: str) -> None:
    assert list(clocks_in_asserts(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    ["assert time.process_time() - start < 5", "end = time.monotonic() + HANGS\nassert x", "assert job.time"],
)
def test_and_nothing_else(text: str) -> None:
    assert not list(clocks_in_asserts(ast.parse(text)))


@pytest.mark.parametrize("text", ["subprocess.run(x, timeout=60)", "one.wait(20)", "one.communicate(timeout=1.5)"])
def test_the_measure_sees_timeouts(text: str) -> None:
    assert list(short_timeouts(ast.parse(text)))
    assert not list(short_timeouts(ast.parse("subprocess.run(x, timeout=HANGS); process.wait()")))


def test_a_process_that_still_runs_counts() -> None:
    work = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    before = spent()
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert spent() - before >= 0.2
        process.communicate(b"\n")
