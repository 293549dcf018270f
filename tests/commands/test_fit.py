"""`preflight fit` on the command line: what is shown, what is written, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import preflight

from preflight_rules.shared.programs import LOOP

SWEEP = """\
program: train.py
method: grid
parameters:
  batch_size: {values: [8, 64]}
  max_length: {values: [128, 512]}
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("gone.yaml",), ("configs/gone.yaml",), ("train.py", "--field", "train.precision"),
        ("train.py", "--gpu", "RTX 9999"),
        ("train.py", "--set", "train.batchsize=3"), ("gpt2", "--fix"), ("gpt2", "--diff"), (".",), (),
        ("gpt2", "--machine", "gone.toml"), ("train.py", "--machine", "gone.toml"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    run = preflight(capsys, "fit", *words)
    assert run.status == 2
    assert run.out == ""
    assert "Traceback" not in run.err


def test_nothing_is_written_unasked(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("--diff",), ("--diff", "--fix"), ("-f", "json")):
        assert preflight(capsys, "fit", "train.py", "--gpu", "T4", *words).status == 0
        assert (project / "train.py").read_text() == LOOP


def test_an_unsafe_change_is_not_written_by_fix(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = preflight(capsys, "fit", "train.py", "--gpu", "T4", "--field", "length", "--fix")
    assert run.status == 0
    assert "unsafe" in run.out
    assert "no file was changed" in run.out
    assert (project / "train.py").read_text() == LOOP


def test_the_safe_change_is_written(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diff = preflight(capsys, "fit", "train.py", "--gpu", "T4", "--diff").out
    assert "-" in diff
    run = preflight(capsys, "fit", "train.py", "--gpu", "T4", "--fix")
    assert run.status == 0
    assert "1 file changed: train.py" in run.out
    after = LOOP.replace("default=64", "default=32").replace("default=1)", "default=2)")
    assert (project / "train.py").read_text() == after
    again = preflight(capsys, "fit", "train.py", "--gpu", "T4", "--fix")
    assert "no file was changed" in again.out
    assert preflight(capsys, "check", "train.py", "--gpu", "T4").status == 0


def test_a_search_is_solved_for_all_its_combinations(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "sweep.yaml").write_text(SWEEP)
    run = preflight(capsys, "fit", "sweep.yaml", "--gpu", "T4", "-f", "json")
    [study] = json.loads(run.out)["studies"]
    [part] = study["parts"]
    assert part["worst"]["max_length"] == 512
    batch = next(one for one in part["answers"] if one["field"] == "train.batch_size")
    single = json.loads(
        preflight(capsys, "fit", "train.py", "--gpu", "T4", "-f", "json", "-s", "train.seq_len=512").out
    )
    [alone] = [one for one in single["studies"][0]["parts"][0]["answers"] if one["field"] == "train.batch_size"]
    assert batch["value"] == alone["value"]
    cards = [part["answers"][-1]["value"], single_card(capsys)]
    assert cards[0] == cards[1]
    assert study["fix"] is None
    assert any("part of the search" in note for note in study["notes"])


def single_card(capsys: pytest.CaptureFixture[str]) -> str:
    """The card of the largest combination, a job of its own."""
    words = ("-s", "train.seq_len=512", "-s", "train.batch_size=64", "--field", "gpu")
    run = preflight(capsys, "fit", "train.py", "--gpu", "T4", "-f", "json", *words)
    value: str = json.loads(run.out)["studies"][0]["parts"][0]["answers"][0]["value"]
    return value


def test_a_job_and_the_name_of_a_model(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "job.json").write_text(json.dumps({"model": "gpt2", "train": {"batch_size": 8, "seq_len": 256}}))
    of_file = preflight(capsys, "fit", "job.json", "--gpu", "T4")
    of_name = preflight(capsys, "fit", "gpt2", "--gpu", "T4", "-s", "train.batch_size=8", "-s", "train.seq_len=256")
    assert of_file.out == of_name.out
    assert of_file.status == 0
    assert "largest batch" in of_file.out


def test_a_machine_gives_the_card_and_the_memory(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "box.toml").write_text('name = "box"\n[node.one]\nmemory = "32GB"\ncpus = 4\ngpus = 1\ngpu = "T4"\n')
    words = ("gpt2", "--machine", "box.toml", "-s", "train.batch_size=8", "-s", "train.seq_len=256")
    run = preflight(capsys, "fit", *words, "-s", "data.sample_bytes=4096", "--field", "workers")
    assert "on T4" in run.out
    assert "the job has 4 CPUs for each rank" in run.out


def test_what_a_verdict_stands_on_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "train.py").write_text(LOOP.replace("bert-base-uncased", "someone/unseen-model"))
    run = preflight(capsys, "fit", "train.py", "--gpu", "T4")
    assert run.status == 0
    assert "unknown" in run.out
