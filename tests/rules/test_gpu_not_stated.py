"""No GPU stated: one warning for a project, which one line of its settings answers."""

from __future__ import annotations

import json

import pytest
from command_line import Run, preflight
from folders import Write

PROGRAM = """\
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=2)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2")
training = TrainingArguments(per_device_train_batch_size=args.bs)
Trainer(model=model, args=training, train_dataset=data).train()
"""
SET = "[set]\ntrain.seq_len = 512\n"
FILES = {"train.py": PROGRAM, "preflight.toml": SET}
JOB = "#!/bin/bash\n#SBATCH --gres={}\npython train.py --bs {}\n"
CPU_NODES = 'name = "c"\n[node.cpu]\nmemory = "100GB"\ncpus = 8\n'
NO_NAME = 'name = "c"\n[node.gpu]\nmemory = "100GB"\ncpus = 8\ngpus = 2\n'


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Run, list[dict]]:  # type: ignore[type-arg]
    run = preflight(capsys, "check", *words, "-f", "json")
    data = json.loads(run.out)
    found = [one for one in data["findings"] if one["rule"] == "gpu-not-stated"]
    assert data["summary"]["warnings"] == sum(one["severity"] == "warning" for one in data["findings"])
    return run, found


SILENT = {
    "the need is not known": {**FILES, "preflight.toml": ""},
    "the settings": {**FILES, "preflight.toml": f'gpu = "A100 80GB"\n{SET}'},
    "the type that is asked for": {**FILES, "job.sh": JOB.format("gpu:h100:1", 2), "preflight.toml": SET},
    "the type with its memory": {**FILES, "job.sh": JOB.format("gpu:A100m40:1", 2), "preflight.toml": SET},
    "a slice": {**FILES, "job.sh": JOB.format("gpu:a100_3g.20gb:1", 2), "preflight.toml": SET},
    "a constraint": {**FILES, "job.sh": JOB.format("gpu:1\n#SBATCH -C h100", 2), "preflight.toml": SET},
    "a setting": {**FILES, "preflight.toml": f'{SET}machine.gpu = "A100 80GB"\n'},
    "a GPU by its memory": {**FILES, "preflight.toml": f"{SET}machine.gpu_memory = 80000000000\n"},
    "the processor": {**FILES, "preflight.toml": f'{SET}machine.accelerator = "cpu"\n'},
    "a machine without GPUs": {**FILES, "preflight.toml": f'machine = "c.toml"\n{SET}', "c.toml": CPU_NODES},
    "nothing that trains": {"a.py": "print(1)\n", "preflight.toml": SET},
    "not selected": {**FILES, "preflight.toml": f'ignore = ["gpu-not-stated"]\n{SET}'},
}


@pytest.mark.parametrize("files", SILENT.values(), ids=SILENT.keys())
def test_silent(files: dict[str, str], project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    project(files)
    start = "job.sh" if "job.sh" in files else next(iter(files))
    assert check(capsys, start)[1] == []


def test_one_for_all_studies_of_a_project(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    project({**FILES, **{f"job{size}.sh": JOB.format("gpu:1", size) for size in (4, 64, 8)}})
    run, [found] = check(capsys, ".")
    assert run.status == 0
    assert (found["severity"], found["path"], found["line"]) == ("warning", "job64.sh", 2)
    assert "the largest need of 3 studies is" in found["message"]
    assert "gpt2, batch 64 x 512" in found["message"]
    assert "the smallest GPUs that are large enough: " in found["message"]
    assert 'state your GPU: [tool.preflight] gpu = "NAME"' in found["message"]
    assert found["estimate"]["device"]["verdict"] == "unknown"
    assert check(capsys, ".", "--fail-on", "warning")[0].status == 1
    assert check(capsys, ".", "--fail-on", "warning", "--gpu", "B200")[1] == []


@pytest.mark.parametrize(("precision", "named"), [("fp16", True), ("bf16", False)])
def test_a_card_without_the_precision_is_not_named(
    precision: str, named: bool, project: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PROGRAM.replace("=args.bs)", f"=args.bs, {precision}=True)")
    project({"train.py": text, "preflight.toml": SET})
    run, [found] = check(capsys, ".")
    shown = found["message"].partition("large enough: ")[2].partition(";")[0].split(", ")
    old = {"RTX 2060", "GTX 1660 Ti"}  # of compute capability 7.5, and large enough
    assert bool(old & set(shown)) is named
    assert (json.loads(run.out)["studies"][0]["verdict"]) == "unknown"


def test_a_study_that_no_gpu_can_hold_is_not_the_one_that_is_named(
    project: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    project({**FILES, **{f"job{size}.sh": JOB.format("gpu:1", size) for size in (4, 100_000)}})
    _, [found] = check(capsys, ".")
    assert found["path"] == "job4.sh"
    assert "the need is" in found["message"]
    assert "1 more study would need more than any GPU has" in found["message"]


def test_each_project_has_its_own_answer(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    project({f"{name}/{path}": text for name in "abc" for path, text in FILES.items()})
    project({"b/preflight.toml": f'gpu = "B200"\n{SET}'})
    _, found = check(capsys, "a", "b", "c")
    assert [one["path"] for one in found] == ["a/train.py", "c/train.py"]


def test_a_hook_prints_it(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    project(FILES)
    run = preflight(capsys, "check", "--from-hook", "train.py")
    assert run.status == 0
    assert run.out.startswith("warning[gpu-not-stated]")
    assert preflight(capsys, "check", "--from-hook", "--fail-on", "warning", "train.py").status == 1


def test_it_is_taken_out_as_any_other(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    project(FILES)
    assert preflight(capsys, "check", "train.py", "--write-baseline", "old.json").status == 0
    assert check(capsys, "train.py", "--baseline", "old.json")[1] == []
    assert check(capsys, "train.py", "--ignore", "gpu-not-stated")[1] == []
    demoted = {"preflight.toml": f'{SET}[rules.gpu-not-stated]\nseverity = "error"\n'}
    project({**{f"e/{path}": text for path, text in FILES.items()}, "e/preflight.toml": demoted["preflight.toml"]})
    run, [found] = check(capsys, "e/train.py")
    assert (run.status, found["severity"]) == (1, "error")


def test_nodes_with_gpus_of_no_name_do_not_state_it(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    project({**FILES, "preflight.toml": f'machine = "c.toml"\n{SET}', "c.toml": NO_NAME})
    assert len(check(capsys, "train.py")[1]) == 1


def test_a_type_that_is_not_known_is_named(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    project({**FILES, "job.sh": JOB.format("gpu:fancy:1", 2)})
    run = preflight(capsys, "check", "job.sh")
    assert 'asks for the type "fancy", which preflight does not know' in " ".join(run.out.split())


def test_a_bound_from_below_is_called_one(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    project({"train.py": PROGRAM.replace("gpt2", "mistralai/Mistral-7B-v0.1"), "preflight.toml": ""})
    _, [found] = check(capsys, "train.py", "--set", "model.parameters=7000000000")
    assert "the need is at least " in found["message"]
    assert "a GPU with less memory is too small" in found["message"]


FREEZING = """\
import torch, torchvision
from torch.utils.data import DataLoader

model = torchvision.models.resnet50()
for name, p in model.named_parameters():
    p.requires_grad = is_new(name)
opt = torch.optim.SGD(p for p in model.parameters() if p.requires_grad)
for x, y in DataLoader(data, batch_size=64):
    torch.nn.functional.cross_entropy(model(x), y).backward()
    opt.step()
"""


def test_a_need_that_rests_on_what_was_not_read_is_information(
    project: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    project({"train.py": FREEZING, "preflight.toml": "[set]\ntrain.image_size = 224\n"})
    found = check(capsys, "train.py")[1]
    assert [one["severity"] for one in found] == ["info"]
    assert "with train.frozen = [] (" in found[0]["message"]


def test_needs_that_were_read_come_first(project: Write, capsys: pytest.CaptureFixture[str]) -> None:
    sure = FREEZING.replace("    p.requires_grad = is_new(name)", "    pass")
    sure = sure.replace("batch_size=64", "batch_size=8")
    project({"a.py": FREEZING, "b.py": sure, "preflight.toml": "[set]\ntrain.image_size = 224\n"})
    (found,) = check(capsys, "a.py", "b.py")[1]
    assert found["severity"] == "warning"
    assert found["path"] == "b.py"
