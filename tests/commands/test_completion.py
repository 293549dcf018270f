"""Completion in shells: click's scripts, and what preflight adds to them."""

from __future__ import annotations

import pytest
from command_line import preflight

from preflight.cli import COMPLETION
from preflight.engine.registry import summaries


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What a shell is offered for the last of some words."""

    def ask(*words: str) -> list[str]:
        monkeypatch.setenv(COMPLETION, "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["preflight", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        run = preflight(capsys)
        assert (run.status, run.err) == (0, "")
        return run.out.splitlines()

    return ask


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: str) -> None:
    if shell == "bash":  # click asks the bash that is there for its version
        monkeypatch.setattr("click.shell_completion.BashComplete._check_version", staticmethod(lambda: None))
    monkeypatch.setenv(COMPLETION, f"{shell}_source")
    run = preflight(capsys)
    assert (run.status, run.err) == (0, "")
    assert f"{COMPLETION}={shell}_complete" in run.out


def test_unknown_shell_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(COMPLETION, "tcsh_source")
    run = preflight(capsys)
    assert (run.status, run.out, run.err.count("\n")) == (2, "", 1)
    assert "write bash_source, zsh_source or fish_source" in run.err


def test_commands_and_options(completed) -> None:
    assert "plain,check" in completed("")
    assert completed("ch") == ["plain,check"]
    assert {"plain,--stdin-filename", "plain,--statistics"} <= set(completed("check", "--st"))
    assert completed("check", "-f", "g") == ["plain,github", "plain,gitlab"]


def test_paths_are_left_to_the_shell(completed) -> None:
    assert completed("check", "swe") == ["file,swe"]


def test_rules_also_behind_a_comma(completed) -> None:
    assert completed("check", "--select", "gpu-memory-e") == ["plain,gpu-memory-exceeded"]
    assert completed("rule", "gpu-memory-e") == ["plain,gpu-memory-exceeded"]
    assert completed("check", "--ignore", "oom-not-handled,gpu-memory-e") == [
        "plain,oom-not-handled,gpu-memory-exceeded"
    ]
    assert len(completed("check", "--ignore", "")) == len(summaries())


def test_gpus_in_any_case(completed) -> None:
    assert all(line.startswith("plain,A100") for line in completed("check", "--gpu", "a100"))
    assert completed("check", "--gpu", "a100")
