"""The hooks: which files they are handed, and that pre-commit itself can install and run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from processes import HANGS

from preflight.dialects import DIALECTS, SUFFIXES

ROOT = Path(__file__).parents[1]
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize(
    "name",
    ["README.md", "pyproject.toml", "model.pt", "notes.txt", "a.yaml.bak", "x.pyc", "job.shx", "poetry.lock",
     ".gitignore", "a/.env", "data.jsonl", "conf.d/x.conf", "run.sh/"],
)  # fmt: skip
def test_names_that_must_not_match(hook: str, name: str) -> None:
    assert re.search(HOOKS[hook]["files"], name) is None


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize(
    "name",
    ["sweep.yaml", "conf/model/gpt2.yml", "job.sbatch", "submit.slurm", "scripts/train.sh", "train.py", "a.b.yaml",
     "run.sl", "run.job", "run.bash", "run.zsh", "run.batch", "args.json", "scripts/submit", "submit", "a.b/submit",
     "SWEEP.YAML"],
)  # fmt: skip
def test_names_that_must_match(hook: str, name: str) -> None:
    assert re.search(HOOKS[hook]["files"], name)


@pytest.mark.parametrize("hook", HOOKS)
def test_every_ending_that_a_reader_has_matches(hook: str) -> None:
    """The table of the dialects decides; a kind that is added there has to be added to the pattern."""
    assert [suffix for suffix in SUFFIXES if not re.search(HOOKS[hook]["files"], f"conf/train{suffix}")] == []


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("dialect", [name for name, _ in DIALECTS])
def test_every_file_of_a_dialect_matches(hook: str, dialect: str) -> None:
    """Whatever its folder, and in upper case: a reader takes `TRAIN.PY` as well."""
    suffixes = dict(DIALECTS)[dialect]
    names = [f"{folder}train{case}" for one in suffixes for case in (one, one.upper()) for folder in ("", "a.b/c/")]
    assert [name for name in names if not re.search(HOOKS[hook]["files"], name)] == []


@pytest.mark.parametrize("hook", HOOKS)
def test_no_ending_matches_that_no_reader_has(hook: str) -> None:
    endings = re.search(r"\\\.\((.*?)\)", HOOKS[hook]["files"])
    assert endings is not None
    named = {f".{one}" for one in endings[1].replace("ya?ml", "yaml|yml").split("|")}
    assert named == SUFFIXES - {""}


@pytest.mark.integration
@pytest.mark.parametrize("name", ["job.sbatch", "job.slurm", "job.sh", "sweep.yaml", "train.py"])
def test_every_file_of_ours_has_the_type_that_is_asked_for(tmp_path: Path, name: str) -> None:
    from identify.identify import tags_from_path  # what pre-commit asks

    (tmp_path / name).write_text("#!/bin/bash\n#SBATCH --mem=1G\n")
    assert all(set(hook["types"]) <= tags_from_path(str(tmp_path / name)) for hook in HOOKS.values())


def test_hooks_differ_in_writing_alone() -> None:
    plain, fixing = dict(HOOKS["preflight"]), dict(HOOKS["preflight-fix"])
    assert fixing["entry"] == plain["entry"] + " --fix"
    for hook in (plain, fixing):
        assert hook["require_serial"] is True
        assert hook["language"] == "python"
    assert {key: plain[key] for key in ("types", "files")} == {key: fixing[key] for key in ("types", "files")}


def test_action_runs_no_text_of_a_workflow_as_a_command() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    scripts = [step["run"] for step in action["runs"]["steps"] if "run" in step]
    assert any("sarif=" in script for script in scripts)
    assert not any("${{" in script for script in scripts)


def test_action_names_others_by_the_hash_of_their_commit() -> None:
    """A tag can be moved; and the release is beside it, for those who read it."""
    lines = [line for line in (ROOT / "action.yml").read_text().splitlines() if "uses:" in line]
    assert lines
    assert all(re.search(r"uses: [\w/.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line) for line in lines)


def test_nothing_of_ours_imports_from_the_checkout() -> None:
    """Python looks in the current directory first for `python -m`, unless it is isolated."""
    steps = [step for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"] if "run" in step]
    scripts = [*(step["run"] for step in steps), *(hook["entry"] for hook in HOOKS.values())]
    started = [line for script in scripts for line in script.splitlines() if re.search(r"python\"? -", line)]
    assert len(started) == 5
    assert all(re.search(r"python\"? -I -m ", line) for line in started)
    [install] = [step for step in steps if "pip install" in step["run"]]
    assert install["working-directory"] == "${{ runner.temp }}"


@pytest.mark.integration
def test_try_repo_runs_both_hooks(tmp_path: Path) -> None:
    """pre-commit clones the repository, installs it and hands it files; two of them are none of ours."""

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "deploy.yaml").write_text("kind: Service\nspec: {ports: [80]}\n")
    (tmp_path / "notes.md").write_text("# notes\n")
    git("add", ".")
    for hook in HOOKS:
        done = subprocess.run(
            [sys.executable, "-m", "pre_commit", "try-repo", str(ROOT), hook, "--all-files", "--verbose"],
            cwd=tmp_path, capture_output=True, text=True, timeout=HANGS,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Passed" in done.stdout
        assert "Service" not in done.stdout
