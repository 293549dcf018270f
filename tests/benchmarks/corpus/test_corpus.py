"""The public repositories: the list and the labels are well formed, and the harness runs on a tiny one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from benchmarks.corpus import __main__ as command
from benchmarks.corpus import document, launches, record, repositories, score, supervisor
from benchmarks.corpus.labelled import (
    FOLDER,
    LabelledFinding,
    LabelledLaunch,
    LabelledProblem,
    LabelledValue,
    Labels,
    labels,
)
from benchmarks.corpus.record import Record, StudyRow
from benchmarks.corpus.repositories import Repository, UnknownName, chosen, listed
from preflight.vocabulary.job import fields

NAME = "somebody/tiny"
PROGRAM = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
args = TrainingArguments(output_dir="out", per_device_train_batch_size=4)
Trainer(model=model, args=args).train()
"""
SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n"
LISTED = listed()


@pytest.mark.parametrize(
    "changed",
    [
        {"commit": "main"},
        {"name": "tiny"},
        {"name": "../../etc/passwd"},
        {"group": "test"},
        {"stars": "3"},
        {"licence": "MIT"},
    ],
    ids=str,
)
def test_what_the_list_does_not_allow(changed: dict[str, str], tmp_path: Path) -> None:
    row = {"name": NAME, "commit": "a" * 40, "kind": "torch", "stars": "few", "group": "dev"}
    file = tmp_path / "list.toml"
    for text, allowed in ((_toml(row), True), (_toml(row | changed), False)):
        file.write_text(text)
        if allowed:
            assert [each.name for each in listed(file)] == [NAME]
        else:
            with pytest.raises(ValidationError):
                listed(file)


def _toml(row: dict[str, str]) -> str:
    return "[[repository]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in row.items())


def test_the_list_names_each_repository_once_and_keeps_some_back() -> None:
    assert len({each.name.lower() for each in LISTED}) == len(LISTED) >= 60
    assert sum(each.stars == "few" for each in LISTED) >= 25
    assert sum(each.group != "dev" for each in LISTED) >= len(LISTED) // 5


def test_labels_are_of_listed_repositories_that_are_not_held_back() -> None:
    known = {each.folder: each for each in LISTED}
    names = [path.stem for path in FOLDER.glob("*.toml")]
    assert sum(bool((labels(known[name]) or Labels()).launch) for name in names) >= 8
    for name in names:
        found = labels(known[name])
        assert found is not None
        assert found.launch or found.finding or found.problem
        assert known[name].group != "held"
        assert {value.field for launch in found.launch for value in launch.values} <= set(fields()), name


def test_the_last_group_is_large_enough_to_decide_and_every_one_of_it_is_labelled() -> None:
    of_it = [each for each in LISTED if each.group == "last"]
    launch_files = [launch for each in of_it for launch in (labels(each) or Labels()).launch]
    assert len(of_it) >= 20
    assert all((labels(each) or Labels()).launch for each in of_it)
    assert len(launch_files) >= 80


def test_a_name_that_is_not_listed() -> None:
    with pytest.raises(UnknownName, match="nobody/nothing"):
        chosen(LISTED, ["nobody/nothing"])
    assert [each.name for each in chosen(LISTED, ["mingpt"])] == ["karpathy/minGPT"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.sh", "# python train.py\n"),
        ("a.sh", "echo python train.py\n"),
        ("a.sh", "python -m pip install torch\n"),
        ("a.sh", "pip install deepspeed==0.9\n"),
        ("a.sh", "source venv/bin/activate\n"),
        ("notes.md", "python train.py\n"),
        ("Makefile", "all:\n\tpython train.py\n"),
    ],
)
def test_what_is_no_launch_file(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert list(launches.scripts(tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.sh", "python train.py\n"),
        ("a.sbatch", "CUDA_VISIBLE_DEVICES=0 python3 -u src/train.py --lr 1\n"),
        ("run", "#!/usr/bin/env bash\ntorchrun --nproc_per_node=2 t.py\n"),
        ("a.slurm", "accelerate launch \\\n  t.py\n"),
        ("a.sh", "python -m torch.distributed.launch t.py\n"),
        ("a.sh", 'python "${ROOT}/train.py"\n'),
        ("a.sh", "wandb agent me/it/1\n"),
    ],
)
def test_what_is_a_launch_file(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert list(launches.scripts(tmp_path)) == [name]


def study(path: str, answer: record.Answer = "figure", **values: object) -> StudyRow:
    named = {name.replace("__", "."): value for name, value in values.items()}
    cause: record.Causes = "model" if answer == "unknown" else ""
    return {
        "paths": [path],
        "dialects": [],
        "answer": answer,
        "cause": cause,
        "bytes": None,
        "stated": [],
        "standings": {},
        "values": named,
    }


def made(*studies: StudyRow, launch_files: tuple[str, ...] = ()) -> Record:
    return {
        "version": record.VERSION, "name": NAME, "commit": "a" * 40, "software": "", "status": 0, "timed_out": False,
        "wall_seconds": 1, "cpu_seconds": 1, "peak_bytes": 1, "errors": [], "files": 1,
        "launch_files": list(launch_files), "studies": list(studies),
        "findings": [{"rule": "r", "severity": "error", "path": "a.sh", "line": 3, "message": ""}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("right", "found", "outcome"),
    [
        (8, 4, "wrong"),
        (8, None, "missed"),
        (1, True, "wrong"),
        ("unknown", 1, "wrong"),
        ("unknown", None, "right"),
        (8, 8, "right"),
        (("bf16", "bf16-mixed"), "bf16-mixed", "right"),
    ],
)
def test_a_value_is_right_missed_or_wrong(right: object, found: object, outcome: str) -> None:
    label = LabelledValue.model_validate({"field": "train.batch_size", "right": right, "at": "a.sh:1"})
    marked = Labels(launch=(LabelledLaunch(path="a.sh", values=(label,)),))
    values = {} if found is None else {"train__batch_size": found}
    assert [each.outcome for each in score.values(made(study("a.sh", **values)), marked)] == [outcome]


def test_a_value_has_the_standing_of_the_report() -> None:
    label = LabelledValue.model_validate({"field": "train.batch_size", "right": 8, "at": "a.sh:1"})
    marked = Labels(launch=(LabelledLaunch(path="a.sh", values=(label,)),))
    judged = study("a.sh", train__batch_size=8)
    judged["standings"], judged["bytes"] = {"train.batch_size": "assumed"}, 2**30
    (found,) = score.values(made(judged), marked)
    assert (found.standing, found.has_figure) == ("assumed", True)


def test_a_launch_that_has_no_study_is_missed_even_where_nothing_is_stated() -> None:
    label = LabelledValue(field="model.name", right="unknown", at="nowhere")
    marked = Labels(launch=(LabelledLaunch(path="a.sh", values=(label,)),))
    assert [each.outcome for each in score.values(made(study("b.sh")), marked)] == ["missed"]


def test_a_finding_has_the_label_of_its_line_before_that_of_its_file() -> None:
    of_file = LabelledFinding(rule="r", path="a.sh", true=True, why="")
    of_line = LabelledFinding(rule="r", path="a.sh", line=3, true=False, why="")
    for given, true in (((), None), ((of_file,), True), ((of_file, of_line), False)):
        assert [each.true for each in score.findings(made(), Labels(finding=given))] == [true]


@pytest.mark.parametrize(
    ("path", "line", "severity", "found"),
    [
        ("b.sh", 3, "error", False),
        ("a.sh", 9, "error", False),
        ("a.sh", 3, "info", False),
        ("a.sh", 4, "warning", True),
        ("a.sh", None, "warning", True),
    ],
)
def test_a_noted_problem_is_found_by_a_warning_beside_it(
    path: str, line: int | None, severity: str, found: bool
) -> None:
    noted = Labels(problem=(LabelledProblem(path=path, line=line, what=""),))
    run = made()
    run["findings"][0]["severity"] = severity
    assert [each for _, each in score.problems(run, noted)] == [found]


def _ran(batch_size: int) -> Record:
    return made(study("a.sh", train__batch_size=batch_size))


def test_the_page_tells_the_labels_of_each_group_apart() -> None:
    value = LabelledValue(field="train.batch_size", right=8, at="a.sh:1")
    marked = Labels(launch=(LabelledLaunch(path="a.sh", values=(value,)),))
    rows = [
        (Repository(name="a/one", commit="a" * 40, kind="torch", stars="few", group="dev"), _ran(8), marked),
        (Repository(name="a/two", commit="a" * 40, kind="torch", stars="few", group="last"), _ran(4), marked),
    ]
    page = "\n".join(document.text(rows, 2))
    dev, _, last = page.partition("### last")
    assert "1 launch files of 1 repositories; 0 (0 %) have a wrong value" in dev
    assert "| all | 1 | 1 (100 %) | 0 (0 %) | 0 (0 %) |" in dev
    assert "1 launch files of 1 repositories; 1 (100 %) have a wrong value" in last


@pytest.mark.parametrize(
    ("origins", "precision", "changed", "answer"),
    [
        (["train.batch_size"], "fp32", {}, "assumed"),
        (["train.precision", "parallel.gpus_per_node"], "fp32", {}, "assumed"),
        (["train.batch_size", "train.precision", "parallel.gpus_per_node"], "fp32", {"combinations": None}, "range"),
        (["train.batch_size", "train.precision", "parallel.gpus_per_node"], "fp32", {"device": None}, "unknown"),
        (["train.batch_size", "train.precision", "parallel.gpus_per_node"], "fp32", {}, "figure"),
        (["train.batch_size", "parallel.gpus_per_node"], "bf16-mixed", {}, "figure"),
    ],
)
def test_a_figure_that_rests_on_a_default_is_assumed(
    origins: list[str], precision: str, changed: dict[str, object], answer: str
) -> None:
    worst = {"train": {"batch_size": 8, "precision": precision}, "parallel": {"gpus_per_node": 1}}
    device = {"lower_bound": False, "process": {"expected": 1}}
    row = {"paths": ["a.sh"], "dialects": [], "combinations": 1, "unknown": ["model.name"], "worst": worst,
           "origins": dict.fromkeys(origins), "standings": {}, "device": device, **changed}  # fmt: skip
    assert [each["answer"] for each in record.studies({"findings": [], "studies": [row]})] == [answer]


def test_a_launch_file_has_the_best_answer_of_its_studies() -> None:
    found = made(
        study("a.sh", "unknown"), study("a.sh", "range"), study("b.py", "unknown"), launch_files=("a.sh", "c.sh")
    )
    assert document.answers(found) == {"range": 1, "unknown: model": 1, "no study": 1}


def test_a_command_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    child = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {'import time; time.sleep(60)'!r}]).wait()"
    )
    command = [sys.executable, supervisor.__file__, "1", str(2**34), str(report), sys.executable, "-c", child]
    subprocess.run(command, check=True)
    ended = json.loads(report.read_text())
    assert ended["timed_out"]
    assert ended["status"] < 0


def test_a_repository_is_brought_run_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFLIGHT_PUBLIC", str(tmp_path / "cache"))
    tiny = Repository(name=NAME, commit=_committed(tmp_path / "mirrors" / "somebody+tiny"), kind="transformers",
                      stars="few", group="dev")  # fmt: skip
    monkeypatch.setattr(command, "listed", lambda: (tiny,))
    monkeypatch.setattr(command.os, "nice", lambda by: by)
    page = tmp_path / "page.md"
    assert command.main(["report", "--output", str(page)]) == 2
    assert command.main(["bring", "--from", str(tmp_path)]) == 1
    assert command.main(["bring", "tiny", "--from", str(tmp_path / "mirrors")]) == 0
    assert (repositories.checkout(tiny) / "train.py").read_text() == PROGRAM
    assert not (repositories.checkout(tiny) / "large.bin").exists()
    assert command.main(["run", "--time-limit", "300"]) == 0
    found = record.loaded(repositories.result(tiny).read_text())
    assert found is not None
    assert (found["status"], found["launch_files"]) == (0, ["job.sh"])
    assert [each["paths"][0] for each in found["studies"]] == ["job.sh"]
    assert found["studies"][0]["values"]["train.batch_size"] == 4
    kept = repositories.result(tiny).stat().st_mtime_ns
    assert command.main(["run"]) == 0
    assert repositories.result(tiny).stat().st_mtime_ns == kept
    assert command.main(["report", "--output", str(page)]) == 0
    assert f"| {NAME} | dev | transformers |" in page.read_text()


def _committed(folder: Path) -> str:
    """A git directory with one commit, as a mirror has it."""
    folder.mkdir(parents=True)
    for name, content in {"train.py": PROGRAM, "job.sh": SCRIPT, "large.bin": "x" * (2**20 + 1)}.items():
        (folder / name).write_text(content)
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "m"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    asked = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return asked.stdout.strip()
