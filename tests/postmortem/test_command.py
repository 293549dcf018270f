"""The command as a user runs it: exit status, errors, what is printed, and what is taken from the logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import PROGRAM, SWEEP, Raises, fake_engine, preflight
from folders import Write

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 23.56 GiB "
    "of which 3.00 GiB is free. Including non-PyTorch memory, this process has 20.50 GiB memory in use. Of the "
    "allocated memory 20.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n"
)
TRACE = 'Traceback (most recent call last):\n  File "/home/u/project/train.py", line 9, in <module>\n    main()\n'


def test_a_cause_is_exit_status_1(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    project({"job.err": OOM})
    run = preflight(capsys, "postmortem", "job.err")
    assert run.status == 1
    assert run.out.startswith(
        "cause[gpu]: GPU 0 ran out of memory: the program requested 4 GiB, and 3 GiB of 23.56 GiB was free"
    )
    assert "--config FILE" in run.out


def test_a_log_without_one_is_exit_status_0(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    project({"job.err": "all is well\n"})
    run = preflight(capsys, "postmortem", "job.err")
    assert run.status == 0
    assert run.out.startswith("nothing found: 1 line in 1 log read")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.log"], "none.log: cannot be read"),
        (["job.err", "--config", "none.yaml"], "none.yaml: there is no such file"),
        (["job.err", "--config", "notes.txt"], "notes.txt is not recognised"),
        (["job.err", "--config", "train.py", "--gpu", "RTX 9999"], "no GPU is known"),
        (["job.err", "--set", "train.batch=1"], "train.batch is not a Job field"),
        (["--job-id", "7; rm -rf x"], "not the number of a SLURM job"),
    ],
)
def test_what_cannot_be_read_is_exit_status_2(
    project: Write, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    project({"job.err": OOM, "notes.txt": "x", "train.py": PROGRAM})
    run = preflight(capsys, "postmortem", *arguments)
    assert run.status == 2
    assert words in run.err
    assert run.err.count("\n") == 1


def test_the_estimate_of_the_configuration_stands_beside_it(
    project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in engine needs 1 GiB + batch x length MiB: 33 GiB for 64 x 512."""
    fake_engine(monkeypatch)
    project({"job.err": OOM, "sweep.yaml": SWEEP, "train.py": PROGRAM})
    run = preflight(capsys, "postmortem", "job.err", "--config", "sweep.yaml")
    assert run.status == 1
    table = [line.split() for line in run.out.splitlines() if line.startswith("  allocated")]
    assert table == [["allocated", "20.00", "24.00", "33.00", "(33.00", "to", "33.00)"]]
    assert "the GPU has 23.56 GiB: it had to fail" in run.out
    assert "the files name no GPU: the size of its memory is taken from the log" in run.out
    assert "Findings of preflight check for sweep.yaml" in run.out


def test_json_holds_the_same(
    project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(monkeypatch)
    project({"job.err": TRACE + OOM, "train.py": PROGRAM})
    run = preflight(capsys, "postmortem", "job.err", "--set", "train.batch_size=8", "-f", "json")
    data = json.loads(run.out)
    assert (data["version"], data["configuration"]) == (1, ["train.py"])  # the traceback names it
    assert data["causes"][0]["gpu"]["tried"] == 4 * 2**30
    assert data["causes"][0]["places"] == [{"path": "job.err", "line": 4}]
    assert data["estimates"][0]["job"]["train"]["batch_size"] == 8
    assert {row["tier"] for row in data["estimates"][0]["tiers"]} == {"allocated", "reserved", "process"}
    assert {"findings", "studies", "summary"} <= data["check"].keys()


def test_of_several_studies_the_one_that_the_log_names(
    project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(monkeypatch)
    project({"job.err": TRACE + OOM, "a.py": PROGRAM, "train.py": PROGRAM})
    run = preflight(capsys, "postmortem", "job.err", "--config", ".", "--set", "train.batch_size=8", "-f", "json")
    data = json.loads(run.out)
    assert [one["paths"] for one in data["estimates"]] == [["train.py"]]
    assert len(data["check"]["studies"]) == 2


def test_another_gpu_than_the_files_name_is_said(
    project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(monkeypatch)
    project({"job.err": OOM, "sweep.yaml": SWEEP, "train.py": PROGRAM})
    run = preflight(capsys, "postmortem", "job.err", "--config", "sweep.yaml", "--gpu", "A100 80GB")
    assert "on another GPU than the one that is configured" in run.out.replace("\n    ", " ")


def test_files_outside_the_current_directory_are_not_followed(
    project: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project({"inner/job.err": TRACE + OOM, "train.py": PROGRAM})
    monkeypatch.chdir(root / "inner")
    run = preflight(capsys, "postmortem", "job.err", "-f", "json")
    assert json.loads(run.out)["configuration"] == []


def test_accounting_is_asked_where_no_logs_are_given(
    project: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project({})
    fake = tmp_path / "bin" / "sacct"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'JobID|State|ExitCode|ReqMem|NNodes'\necho '7|OUT_OF_MEMORY|0:125|64G|1'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    run = preflight(capsys, "postmortem", "--job-id", "7")
    assert run.status == 1
    assert "memory limit of 64 GiB per node" in run.out.replace("\n  ", " ")


def test_help_and_check_import_nothing_of_it() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from preflight.cli import run; run(['check', '--help']); "
        "sys.exit(any(name.startswith('preflight.postmortem') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


FITS = ("--set", "train.batch_size=8", "--set", "train.seq_len=512")
"""The stand-in engine says 5 GiB."""


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is printed, as one line."""
    return " ".join(preflight(capsys, "postmortem", *arguments).out.split())


def test_a_run_that_had_more_than_the_estimate(
    project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(monkeypatch)
    project({"job.err": OOM, "train.py": PROGRAM})
    text = said(capsys, "job.err", "--config", "train.py", *FITS)
    assert "the estimate is too low for this job" in text
    assert "the process needed at least 24.5 GiB" in text


def test_an_estimate_that_fits_without_the_others(
    project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(monkeypatch)
    shared = OOM.replace("Including", "Process 4242 has 19.00 GiB memory in use. Including")
    shared = shared.replace("20.50 GiB memory", "1.50 GiB memory").replace("20.00 GiB is", "1.00 GiB is")
    project({"job.err": shared, "train.py": PROGRAM})
    text = said(capsys, "job.err", "--config", "train.py", *FITS)
    assert "GPU 0 was shared: other processes used 19 GiB" in text
    assert "it fits alone, but not together with the 19 GiB of other processes" in text


def test_what_the_estimate_does_not_know_is_said(
    project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(monkeypatch)
    project({"job.err": OOM.replace("20.00 GiB is", "0.40 GiB is"), "train.py": PROGRAM})
    text = said(capsys, "job.err", "--config", "train.py", *FITS)
    assert "20 GiB of the process was used outside PyTorch" in text
    assert "these files are not those of the run" in text


def test_a_bug_of_ours_is_exit_status_2(
    project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(monkeypatch, Raises)
    project({"job.err": OOM, "train.py": PROGRAM})
    assert preflight(capsys, "postmortem", "job.err", "--config", "train.py", *FITS).status == 2


def test_the_line_that_asks_for_the_time(
    project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(monkeypatch)
    script = "#!/bin/bash\n#SBATCH --time=01:30:00\npython train.py --batch_size 8 --max_length 512\n"
    late = "slurmstepd: error: *** JOB 7 ON n CANCELLED AT 2026-10-02T14:02:37 DUE TO TIME LIMIT ***\n"
    project({"job.err": late, "job.sh": script, "train.py": PROGRAM})
    assert "requests 90 minutes (job.sh:2)" in said(capsys, "job.err", "--config", "job.sh")
