"""`--statistics`: counts in the place of findings, for people; other formats stay as they are."""

from __future__ import annotations

import json

import pytest
from command_line import FITTING, PROGRAM, SWEEP, Command
from folders import Write

FILES = {"a.yaml": SWEEP, "b.yaml": SWEEP + "methd: 1\n", "train.py": PROGRAM}


def test_no_findings_no_counts(project: Write, check: Command) -> None:
    project({"sweep.yaml": FITTING, "train.py": PROGRAM})
    run = check(".", "--gpu", "RTX 4090", "--statistics")
    assert run.status == 0
    assert run.out.startswith("1 study")


@pytest.mark.parametrize("form", ["full", "concise"])
def test_counts_and_the_summary(project: Write, check: Command, form: str) -> None:
    project(FILES)
    run = check(".", "--gpu", "RTX 4090", "--statistics", "-f", form)
    lines = run.out.splitlines()
    assert run.status == 1
    assert [line.split()[:3] for line in lines[:2]] == [["2", "too-large", "[*]"], ["1", "invalid-config", "A"]]
    assert lines[2:4] == ["", "Found 3 errors (2 fixes with --fix; add --diff to see them first)"]
    assert "a.yaml:" not in run.out


def test_json_has_them_without_being_asked(project: Write, check: Command) -> None:
    project(FILES)
    plain = check(".", "--gpu", "RTX 4090", "-f", "json").out
    assert check(".", "--gpu", "RTX 4090", "-f", "json", "--statistics").out == plain
    first, _ = json.loads(plain)["statistics"]
    assert first == {
        "rule": "too-large", "count": 2, "errors": 2, "warnings": 0, "infos": 0, "safe_fixes": 2, "unsafe_fixes": 0,
    }  # fmt: skip
