"""What a program does behind its training says nothing of the training: it casts the model, and tokenises prompts."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest
from calls_as_text import HEAD
from programs_as_text import read_program, values

from preflight.vocabulary.values import Value

START = """
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()

def tokenize(row):
    return tokenizer(row["text"], truncation=True, max_length=512)

rows = texts.map(tokenize)
"""
BY_TRAINER = """
trainer = Trainer(model, TrainingArguments("out", per_device_train_batch_size=4), train_dataset=rows)
trainer.train()
"""
BY_LOOP = """
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(3):
    for batch in DataLoader(rows, 4, shuffle=True):
        model(**batch).loss.backward()
        optimizer.step()
"""
BEHIND = """
if args.bf16:
    model = model.bfloat16()
for prompt in prompts:
    words = tokenizer(prompt, truncation=True, max_length=96)
    model.generate(words)
"""


def told(body: str, tmp_path: Path) -> dict[str, Value]:
    return values(read_program(HEAD + dedent(body), tmp_path))


@pytest.mark.parametrize("training", [BY_TRAINER, BY_LOOP], ids=["trainer", "loop"])
@pytest.mark.parametrize("inside", [False, True], ids=["file", "function"])
def test_a_cast_and_prompts_behind_the_training(training: str, inside: bool, tmp_path: Path) -> None:
    body = START + training + BEHIND
    if inside:
        body = f"def run(args):\n{indent(body, '    ')}\n\nrun(args)\n"
    found = told(body, tmp_path)
    assert found["train.seq_len"] == 512
    assert (found.get("train.weights_dtype"), found.get("train.precision", "fp32")) == (None, "fp32")


def test_a_cast_in_front_of_the_training_counts(tmp_path: Path) -> None:
    found = told(START + "model = model.bfloat16()\n" + BY_TRAINER + BEHIND, tmp_path)
    assert found["train.weights_dtype"] == "bf16"


def test_what_the_rounds_of_training_repeat_is_not_behind_it(tmp_path: Path) -> None:
    """An epoch's cast holds in the next one."""
    loop = """
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(3):
    for batch in DataLoader(texts, 4, shuffle=True):
        model(**batch).loss.backward()
        optimizer.step()
    model.half()
"""
    assert told(START + loop, tmp_path)["train.weights_dtype"] == "fp16"


def test_tokens_of_the_training_may_be_made_by_a_function_that_is_called_late(tmp_path: Path) -> None:
    """A collate function: the text shows it in front of the loop, and the loop calls it."""
    body = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()

def collate(rows):
    return tokenizer(rows, truncation=True, max_length=640)
"""
    loop = BY_LOOP.replace("shuffle=True", "shuffle=True, collate_fn=collate").replace("rows", "texts")
    assert told(body + loop, tmp_path)["train.seq_len"] == 640


@pytest.mark.parametrize("training", [BY_TRAINER, BY_LOOP], ids=["trainer", "loop"])
@pytest.mark.parametrize(
    "behind",
    [
        'best = AutoModelForCausalLM.from_pretrained("out/best")\nbest.generate(words)\n',
        'model = AutoModelForCausalLM.from_pretrained("out")\n',
        'if args.do_eval:\n    for one in glob("out/*"):\n        model = AutoModelForCausalLM.from_pretrained(one)\n',
    ],
)
def test_a_model_that_is_loaded_behind_the_training(training: str, behind: str, tmp_path: Path) -> None:
    assert told(START + training + behind, tmp_path)["model.name"] == "gpt2"


def test_models_that_are_trained_in_turns_are_all_read(tmp_path: Path) -> None:
    body = START + BY_TRAINER
    body += 'second = AutoModelForCausalLM.from_pretrained("gpt2-large")\n' + BY_TRAINER.replace("(model", "(second")
    assert told(body, tmp_path)["model.name"] != "gpt2"
