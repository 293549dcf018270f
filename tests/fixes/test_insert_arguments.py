"""Settings that a trainer's file or command lacks: written under its own name, where it reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.documents import python
from preflight.fixes.edits import edits_in
from preflight.fixes.insert import insertion
from preflight.study.build import build
from preflight.vocabulary.findings import Change
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.text import splice
from preflight.vocabulary.values import Value, evaluate

HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:1\n"
AXOLOTL = "base_model: x/y\ndatasets: [{path: d}]\nmicro_batch_size: 4 # fits\n"
RECIPE = """\
model:
  _component_: torchtune.models.llama3_2.llama3_2_1b
optimizer:
  _component_: torch.optim.AdamW
batch_size: 4
dtype: bf16
"""
JSON = '{\n  "model_name_or_path": "x/y",\n  "per_device_train_batch_size": 4,\n  "output_dir": "o"\n}\n'
SWIFT = 'swift sft --model x/y --max_length 64 --system "be kind"  # nightly\n'

CASES: dict[str, tuple[dict[str, str], str, Change, str]] = {
    "axolotl": ({"x.yml": AXOLOTL}, "x.yml", Change("train.grad_accum", 4), "# fits\ngradient_accumulation_steps: 4\n"),
    "a recipe": ({"x.yaml": RECIPE}, "x.yaml", Change("train.gradient_checkpointing", True),
                 "batch_size: 4\nenable_activation_checkpointing: true\n"),
    "arguments": ({"x.json": JSON}, "x.json", Change("train.gradient_checkpointing", True),
                  '": 4,\n  "gradient_checkpointing": true,\n'),
    "flags": ({"run.sh": HEAD + SWIFT}, "run.sh", Change("train.grad_accum", 2),
              '"be kind" --gradient_accumulation_steps 2  # nightly'),
    "overrides": ({"run.sh": HEAD + "tune run r --config y batch_size=4\n"}, "run.sh", Change("train.grad_accum", 2),
                  "batch_size=4 gradient_accumulation_steps=2\n"),
}  # fmt: skip


def state(root: Path, path: str, change: Change) -> Value:
    project = Project(root, Settings())
    (study,) = build((path,), project)[0]
    return evaluate(study.boxes[0].fields[change.field].expr)


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_there_is_added(name: str, tmp_path: Path) -> None:
    files, path, change, text = CASES[name]
    for one, content in files.items():
        (tmp_path / one).write_text(content)
    project = Project(tmp_path, Settings())
    (study,) = build((path,), project)[0]
    edits = edits_in(change, study, project)
    assert edits
    after = splice((tmp_path / path).read_text(), edits)
    assert text in after
    (tmp_path / path).write_text(after)
    assert state(tmp_path, path, change) == change.value


@pytest.mark.parametrize(
    ("files", "path", "change"),
    [
        ({"x.yml": AXOLOTL}, "x.yml", Change("train.seq_len", 64)),
        ({"x.yml": AXOLOTL + "gradient_accumulation_steps:\n"}, "x.yml", Change("train.grad_accum", 2)),
        ({"run.sh": HEAD + "litgpt finetune_lora x/y --train.micro_batch_size 1\n"}, "run.sh",
         Change("train.gradient_checkpointing", True)),
    ],
)  # fmt: skip
def test_what_nobody_is_known_to_read_is_not(files: dict[str, str], path: str, change: Change, tmp_path: Path) -> None:
    for one, content in files.items():
        (tmp_path / one).write_text(content)
    project = Project(tmp_path, Settings())
    (study,) = build((path,), project)[0]
    assert not edits_in(change, study, project)


def test_a_program_is_parsed_once_for_all_that_ask_for_a_keyword(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    real = python.parse_python
    monkeypatch.setattr(python, "parse_python", lambda source: (parsed.append(source.path), real(source))[1])
    (tmp_path / "train.py").write_text(
        "from transformers import Trainer, TrainingArguments\n"
        'Trainer("gpt2", TrainingArguments("out", per_device_train_batch_size=4)).train()\n'
    )
    project = Project(tmp_path, Settings())
    [study] = build(("train.py",), project)[0]
    parsed.clear()
    change = Change("train.gradient_checkpointing", True)
    first, second = (insertion(change, study, project) for _ in range(2))
    assert first is not None
    assert first == second
    assert parsed == ["train.py"]
