"""`preflight init`: what is shown and written, at a terminal and elsewhere, and what keeps it from writing."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from command_line import preflight
from processes import HANGS

from preflight.engine import settings
from preflight.engine.init import run as steps

SMI = "#!/bin/sh\necho 'NVIDIA GeForce RTX 4090'\necho 'NVIDIA GeForce RTX 4090'\n"
SLURM = "#!/bin/bash\n#SBATCH --gres=gpu:a100:1\npython train.py\n"
PROGRAM = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("out", per_device_train_batch_size=4)).train()
"""
SCONTROL = """\
#!/bin/sh
case "$2" in
config) echo 'SLURM_VERSION = 24.05.1'; echo 'ClusterName = demo'; echo 'SelectType = select/cons_tres';;
node) echo 'NodeName=n1 CPUTot=8 RealMemory=64000 Gres=gpu:a100:2 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1';;
partition) echo 'PartitionName=gpu Default=YES Nodes=n1 State=UP';;
esac
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout for GitHub, on a computer without any of the programs that are asked."""
    folder, programs = tmp_path / "project", tmp_path / "bin"
    (folder / ".git").mkdir(parents=True)
    (folder / ".github").mkdir()
    (folder / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    programs.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(programs))
    settings._in_folder.cache_clear()
    return folder


def program(project: Path, name: str, text: str) -> None:
    path = project.parent / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- what must not happen -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--dry-run",), ("--diff",)])
def test_nothing_is_written_unasked(project: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    before = contents(project)
    run = preflight(capsys, "init", *words)
    assert run.status == 1
    assert contents(project) == before
    assert "+++ b/.pre-commit-config.yaml" in run.out
    assert words or "nothing was written" in run.err


@pytest.mark.parametrize("words", [("gone",), ("pyproject.toml",), (".", "."), ("--yes", "--dry-run"), ("",)])
def test_a_wrong_command_line(project: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    before = contents(project)
    assert preflight(capsys, "init", *words).status == 2
    assert contents(project) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [("pyproject.toml", "[a\n"), (".pre-commit-config.yaml", "repos: [\n"), (".gitlab-ci.yml", "a: [\n")],
)
def test_one_malformed_file_and_nothing_is_written(
    project: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    (project / name).write_text(text + "# preflight\n")
    before = contents(project)
    run = preflight(capsys, "init", "--yes")
    assert run.status == 2
    assert name in run.err
    assert len([line for line in run.err.splitlines() if "error" in line]) == 1
    assert contents(project) == before


def test_nothing_of_the_project_is_started(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of the checkout are not found, and its Python is read alone."""
    marker = project.parent / "started"
    for name in ("nvidia-smi", "scontrol", "git"):
        (project / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
        (project / name).chmod(0o755)
    (project / "train.py").write_text(f"open({str(marker)!r}, 'w')\n" + PROGRAM)
    monkeypatch.setenv("PATH", f".:{os.curdir}::{os.environ['PATH']}")
    assert preflight(capsys, "init", "--yes").status == 0
    assert not marker.exists()


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_folder(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project.chmod(0o555)
    run = preflight(capsys, "init", "--yes")
    project.chmod(0o755)
    assert run.status == 2
    assert "read-only" in run.err


def test_a_file_that_changed_meanwhile_is_left(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from preflight.vocabulary.progress import QUIET

    plan = steps.planned(project, QUIET)
    (project / "pyproject.toml").write_text("[other]\n")
    (project / ".pre-commit-config.yaml").write_text("repos: []\n")
    before = contents(project)
    for one in plan.files[:2]:
        with pytest.raises(Exception, match="was not written"):
            steps.write(one)
    assert contents(project) == before


# --- what must ------------------------------------------------------------------------------------------------------


def test_it_is_written_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(project, "nvidia-smi", SMI)
    assert preflight(capsys, "init", "--yes").status == 0
    settings._in_folder.cache_clear()
    after = contents(project)
    assert b'gpu = "RTX 4090"' in after["pyproject.toml"]
    assert after["pyproject.toml"].startswith(b"[project]\nname = 'a'\n")
    assert yaml.safe_load(after[".pre-commit-config.yaml"])["repos"]
    assert ".github/workflows/preflight.yml" in after
    again = preflight(capsys, "init", "--yes")
    assert again.status == 0
    assert "nothing to write" in again.out
    assert contents(project) == after


def test_what_is_written_governs_a_check(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(project, "nvidia-smi", SMI)
    (project / "train.py").write_text(PROGRAM)
    preflight(capsys, "init", "--yes")
    settings._in_folder.cache_clear()
    rtx_4090 = " of 23.5 GiB"
    assert rtx_4090 in preflight(capsys, "check", "train.py", "--no-cache").out


def test_a_cluster_becomes_a_machine_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(project, "scontrol", SCONTROL)
    program(project, "nvidia-smi", SMI)
    run = preflight(capsys, "init", "--yes")
    assert run.status == 0, run.err
    settings._in_folder.cache_clear()
    assert 'machine = "cluster.toml"' in (project / "pyproject.toml").read_text()
    assert "RTX 4090" not in (project / "pyproject.toml").read_text()
    assert "gpu: a100" in preflight(capsys, "machine", "show", "cluster.toml").out
    (project / "train.py").write_text(PROGRAM)
    assert preflight(capsys, "check", "train.py", "--no-cache").status in (0, 1)


def test_the_gpu_that_the_files_ask_for(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "train.py").write_text(PROGRAM)
    (project / "job.sbatch").write_text(SLURM)
    run = preflight(capsys, "init", "--dry-run")
    assert '+gpu = "A100 40GB"' in run.out
    assert "asked for in job.sbatch" in run.out


@pytest.mark.parametrize(
    "said", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\necho 'Unseen X1'\n", "#!/bin/sh\nprintf '\\377'\n"]
)
def test_an_odd_nvidia_smi(project: Path, capsys: pytest.CaptureFixture[str], said: str) -> None:
    program(project, "nvidia-smi", said)
    run = preflight(capsys, "init", "--yes")
    assert run.status == 0
    assert "nvidia-smi" in run.err
    assert '# gpu = "A100 80GB"' in (project / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("answers", "written"), [("y\nn\ny\n", 2), ("n\nn\nn\n", 0), ("\n\n\x04", 0), ("yes\nY\ny\n", 3)]
)
def test_at_a_terminal_each_change_is_asked_about(project: Path, answers: str, written: int) -> None:
    leader, follower = pty.openpty()
    os.write(leader, answers.encode())
    done = subprocess.Popen(
        [sys.executable, "-I", "-m", "preflight", "init", "-q"], cwd=project, stdin=follower, stdout=follower,
        stderr=follower, env={**os.environ, "TERM": "dumb"},
    )  # fmt: skip
    os.close(follower)
    said = b""
    try:
        while chunk := os.read(leader, 4096):
            said += chunk
    except OSError:  # the other end is closed
        pass
    assert done.wait(HANGS) == 0
    os.close(leader)
    assert said.count(b"[y/N]") == 3
    assert said.count(b" was written\r\n") == written
    names = ("preflight.yml", ".pre-commit-config.yaml")
    assert len([name for name in contents(project) if name.endswith(names)]) <= written
