"""The README: it is short, says the important first, and its commands run. tests/docs has what holds for all pages."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import HANGS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE = "examples/readme/sweep.yaml"
SHOWN = f"preflight check {EXAMPLE} | head -n 8"


def preflight(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "preflight", *arguments]
    env = {"PATH": "/usr/bin:/bin", "NO_COLOR": "1", "PYTHONUTF8": "1"}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, encoding="utf-8", timeout=HANGS)


def block(kind: str, name: str, language: str) -> str:
    """What stands in the README between a marker and its end, without the fence."""
    found = re.search(
        rf"<!-- {kind}: {re.escape(name)} -->\n\n?```{language}\n(.*?)```\n", README, re.DOTALL
    )  # a command has no blank line above its fence
    assert found is not None, f"no {kind}: {name}"
    return found[1]


def test_the_readme_is_short() -> None:
    assert README.count("\n") <= 150


def test_what_the_readme_says_first() -> None:
    """The promise, the installation and the first run stand on the first screen."""
    first = README.splitlines()[:15]
    assert first[2].startswith("preflight predicts CUDA and host out-of-memory before you submit.")
    assert any(line.startswith("pip install ") for line in first)
    assert any(line.startswith("preflight check ") for line in first)


def test_errors_on_runs_used_in_development_are_not_in_the_readme() -> None:
    assert "<!-- table: held-out -->" in README
    assert "<!-- table: figures -->" not in README


def test_a_process_prints_what_the_readme_shows() -> None:
    done = preflight("check", EXAMPLE)
    assert done.returncode == 1, done.stderr
    assert f"$ {SHOWN}\n{''.join(done.stdout.splitlines(True)[:8])}" == block("output", SHOWN, "text")


def test_the_fix_that_is_shown_makes_the_job_fit(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "readme", tmp_path / "readme")
    fixed = preflight("check", "--fix", "readme/sweep.yaml", cwd=tmp_path)
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    again = preflight("check", "readme/sweep.yaml", cwd=tmp_path)
    assert again.returncode == 0
    assert again.stdout.endswith(": fits\n")

    shown = block("output", f"preflight check --diff {EXAMPLE}", "diff").splitlines()
    added = [line[1:] for line in shown if line.startswith("+") and not line.startswith("+++")]
    before = (ROOT / "examples" / "readme" / "train.py").read_text().splitlines()
    after = (tmp_path / "readme" / "train.py").read_text().splitlines()
    assert added
    assert [line for line in after if line not in before] == added


@pytest.mark.parametrize("name", ["run", "test"])
def test_each_command_is_one_line_that_sets_itself_up(name: str) -> None:
    lines = block("command", name, "console").splitlines()
    assert len(lines) == 1
    steps = [shlex.split(step) for step in lines[0].split("&&")]
    assert steps[0] == ["python3", "-m", "venv", ".venv"]
    then = [".venv/bin/preflight", "echo"] if name == "run" else [".venv/bin/pytest"]
    assert [words[0] for words in steps[1:]] == [".venv/bin/pip", *then]


@pytest.mark.slow
def test_the_main_command_runs_on_the_shipped_examples_and_says_little() -> None:
    words = shlex.split(block("command", "run", "console").split("&&")[2])
    done = preflight(*words[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") <= 30  # a row for each rule, and each kind of unknown once
    whole = preflight(*(word for word in words[1:] if word != "--statistics"), "--output-format", "concise").stdout
    assert EXAMPLE in whole
    for incident in (ROOT / "examples" / "incidents").iterdir():
        assert f"examples/incidents/{incident.name}/" in whole


def test_rules_named_in_the_readme_exist() -> None:
    from preflight.engine.registry import rules

    assert set(re.findall(r"docs/rules/([a-z-]+)\.md", README)) - {"index"} <= set(rules())
