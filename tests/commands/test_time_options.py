"""`--time-limit` and `--quiet` on the command line: what each format says of a run that did not come to its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import PROGRAM, SWEEP, Command

from preflight.commands import options
from preflight.vocabulary.progress import Deadline

Write = Callable[[dict[str, str]], Path]
LATE = "2 of 2 files were not read within 30 s (--time-limit)"


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every time limit is over as soon as it begins."""
    monkeypatch.setattr(options, "Deadline", Past)


class Past(Deadline):
    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = lambda: 0.0) -> Deadline:
        return Deadline(seconds, -1.0, lambda: 0.0)


@pytest.fixture
def files(project: Write) -> Path:
    return project({"s.yaml": SWEEP, "train.py": PROGRAM})


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e999", "", "soon", "30s"])
def test_what_is_no_time_is_refused(text: str, files: Path, check: Command) -> None:
    found = check("--time-limit", text)
    assert (found.status, found.out) == (2, "")
    assert "--time-limit" in found.err
    assert found.err.count("\n") == 1


def test_a_limit_that_is_not_reached_changes_nothing(files: Path, check: Command) -> None:
    assert check("--gpu", "RTX 4090", "--time-limit", "1e9") == check("--gpu", "RTX 4090")


@pytest.mark.parametrize("output", ["full", "concise", "github"])
def test_text_never_looks_clean(output: str, files: Path, over: None, check: Command) -> None:
    found = check("--time-limit", "30", "-f", output)
    assert found.status == 0
    assert LATE in found.out
    assert "0 files read and no study judged before the time limit was over" in found.out
    assert "fits" not in found.out


def test_github_gets_an_annotation(files: Path, over: None, check: Command) -> None:
    assert check("--time-limit", "30", "-f", "github").out.startswith(
        f"::warning title=preflight%3A time-limit::{LATE}"
    )


def test_the_exit_status_follows_fail_on(files: Path, over: None, check: Command) -> None:
    assert check("--time-limit", "30", "--fail-on", "warning").status == 1


def test_json_says_it(files: Path, over: None, check: Command) -> None:
    assert json.loads(check("--time-limit", "30", "-f", "json").out)["summary"]["incomplete"] is True
    assert json.loads(check("-f", "json").out)["summary"]["incomplete"] is False


def test_sarif_says_it(files: Path, over: None, check: Command) -> None:
    def invocation(*words: str) -> object:
        return json.loads(check("-f", "sarif", *words).out)["runs"][0]["invocations"]

    said = {"level": "warning", "message": {"text": LATE}, "descriptor": {"id": "time-limit"}}
    assert invocation("--time-limit", "30") == [{"executionSuccessful": False, "toolExecutionNotifications": [said]}]
    assert invocation() == [{"executionSuccessful": True}]


def test_no_baseline_is_written_of_a_part(files: Path, over: None, check: Command) -> None:
    found = check("--time-limit", "30", "--write-baseline", "old.json")
    assert (found.status, found.out) == (2, "")
    assert LATE in found.err
    assert not (files / "old.json").exists()


def test_entries_of_a_baseline_are_not_called_gone(
    files: Path, monkeypatch: pytest.MonkeyPatch, check: Command
) -> None:
    assert check("--gpu", "RTX 4090", "--write-baseline", "old.json").status == 0
    monkeypatch.setattr(options, "Deadline", Past)
    assert "which is gone" not in check("--time-limit", "30", "--baseline", "old.json").out


def test_an_estimate_that_is_late_is_an_error(files: Path, over: None, capsys: pytest.CaptureFixture[str]) -> None:
    from command_line import preflight

    found = preflight(capsys, "estimate", "gpt2", "-s", "train.batch_size=1", "--time-limit", "30")
    assert (found.status, found.out) == (2, "")
    assert found.err == "preflight: error: not finished within 30 s (--time-limit)\n"


def test_quiet_is_known(files: Path, check: Command) -> None:
    assert check("-q") == check("--quiet")
    assert check("-q").status == check().status
