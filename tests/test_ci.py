"""What continuous integration promises: every supported Python, a budget for each step, actions pinned by commit."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
IN_ALL = 40 * 60
"""Seconds that `.ci/run` may take on two quiet cores."""


def test_the_budgets_of_the_steps_stay_within_their_sum() -> None:
    steps = re.findall(r'^step "([^"]+)" (\d+) ', (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert len(steps) == len(re.findall(r"^step ", (ROOT / ".ci/run").read_text(), re.MULTILINE))
    assert sum(int(budget) for _, budget in steps) <= IN_ALL


def test_a_failed_step_fails_the_run_and_a_slow_one_is_marked(tmp_path: Path) -> None:
    script = (ROOT / ".ci/run").read_text()
    functions = script[script.index("failed=()") : script.index("# A SLURM of one's own")]
    end = script[script.index("printf '\\n== after") :]
    steps = 'step "good" 60 true\nstep "slow" -1 true\nstep "bad" 60 false\n'
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{functions}{steps}{end}"], capture_output=True, text=True, check=False
    )
    rows = done.stdout.splitlines()[-3:]
    assert done.returncode == 1
    assert rows[0].split()[-2:] == ["passed", "good"]
    assert rows[1].endswith("slow  over its budget")
    assert rows[2].split()[-2:] == ["FAILED", "bad"]


def test_the_workflow_tests_every_supported_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    assert workflow["jobs"]["fast"]["strategy"]["matrix"]["python"] == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert 'requires-python = ">=3.10"' in (ROOT / "pyproject.toml").read_text()


def test_every_action_is_pinned_by_commit() -> None:
    used = re.findall(r"uses: (\S+)", (ROOT / ".github/workflows/tests.yml").read_text())
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in used), used
