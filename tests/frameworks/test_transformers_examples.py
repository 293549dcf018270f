"""transformers' example scripts, started from a checkout that is not the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Unknown, Value, evaluate

COMMON = "--model_name_or_path some/model --output_dir out --do_train --per_device_train_batch_size 4"


def fields(line: str, root: Path, own: str = "") -> dict[str, Value]:
    (root / "run.sh").write_text(f"#!/bin/bash\npython {line}\n")
    if own:
        (root / "run_clm.py").write_text(own)
    (study,) = build(("run.sh",), Project(root, Settings()))[0]
    return {name: evaluate(bound.expr) for name, bound in study.boxes[0].fields.items()}


@pytest.mark.parametrize(
    ("line", "task", "length", "sequences"),
    [
        ("transformers/examples/pytorch/language-modeling/run_clm.py --block_size 256", "causal-lm", 256, "packed"),
        ("-u ../run_mlm.py --max_seq_length 128", "masked-lm", 128, "packed"),
        ("run_mlm.py --max_seq_length 128 --line_by_line", "masked-lm", 128, "bound"),
        ("run_mlm.py --max_seq_length 64 --line_by_line --pad_to_max_length", "masked-lm", 64, "exact"),
        ("run_glue.py --task_name mrpc", "sequence-classification", 128, "exact"),
        ("run_xnli.py --pad_to_max_length False", "sequence-classification", 128, "bound"),
        ("run_ner.py --max_seq_length 200", "token-classification", 200, "bound"),
        ("run_qa.py --dataset_name squad", "token-classification", 384, "exact"),
        ("run_translation.py --max_source_length 512", "seq2seq-lm", 512, "bound"),
    ],
)
def test_length_and_task_of_a_script(line: str, task: str, length: int, sequences: str, tmp_path: Path) -> None:
    found = fields(f"{line} {COMMON}", tmp_path)
    names = ("task", "train.seq_len", "train.sequences", "model.name", "train.batch_size")
    assert [found[name] for name in names] == [task, length, sequences, "some/model", 4]


def test_targets_are_as_long_as_the_script_says(tmp_path: Path) -> None:
    line = f"run_summarization.py {COMMON} --max_target_length 64 --predict_with_generate --do_eval --num_beams 4"
    found = fields(line, tmp_path)
    names = ("train.target_len", "validation.max_new_tokens", "validation.beams", "validation.generates")
    assert [found[name] for name in names] == [64, 64, 4, True]


def test_a_length_that_the_tokenizer_decides_is_not_known(tmp_path: Path) -> None:
    assert isinstance(fields(f"run_clm.py {COMMON}", tmp_path)["train.seq_len"], Unknown)


@pytest.mark.parametrize(
    "line",
    [
        f"run_clm.py {COMMON.replace('--do_train', '--do_eval')} --block_size 256",  # it evaluates
        "run_clm.py --model_name_or_path some/model --batch_size 4 --block_size 256",  # another program of that name
        "run_clm.py --model_type gpt2 --output_dir out --do_train --block_size 256",  # a model that is not named
    ],
)
def test_what_is_no_training_of_a_named_model_has_no_model(line: str, tmp_path: Path) -> None:
    assert isinstance(fields(line, tmp_path).get("model.name", Unknown("", None)), Unknown)  # type: ignore[arg-type]


def test_a_script_of_the_project_is_read_itself(tmp_path: Path) -> None:
    own = "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    own += 'model = AutoModelForCausalLM.from_pretrained("gpt2")\n'
    own += 'Trainer(model, TrainingArguments("out", per_device_train_batch_size=2)).train()\n'
    found = fields(f"run_clm.py {COMMON}", tmp_path, own)
    assert (found["model.name"], found["train.batch_size"]) == ("gpt2", 2)
