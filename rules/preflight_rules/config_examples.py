"""Examples of the rules about contradicting and unknown settings: their tests, and what their pages show."""

from __future__ import annotations

from preflight.vocabulary.rule import Example
from preflight_rules.gpu_examples import LOOP
from preflight_rules.sweep_examples import SWEEP

INVALID = (
    Example(
        "A parameter of a sweep is a mapping, not a number",
        {"sweep.yaml": SWEEP.replace("max_length:\n    values: [128, 512]", "max_length: 512"), "train.py": LOOP},
        says=("max_length",),
    ),
    Example("As W&B wants it", {"sweep.yaml": SWEEP, "train.py": LOOP}, finds=0),
)

POSITIONS = (
    Example(
        "BERT has 512 positions",
        {"train.py": LOOP.replace("default=512", "default=1024")},
        fixed={"train.py": LOOP},
        unsafe=True,
        says=("length 1,024 exceeds the 512 positions of bert-base-uncased",),
    ),
    Example("512 are enough for 512", {"train.py": LOOP}, finds=0),
)

TRAINER = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    deepspeed="ds.json",
)
Trainer(model=model, args=arguments).train()
"""

DEEPSPEED = """
{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 2,
  "zero_optimization": {"stage": 2}
}
"""

MISMATCH = (
    Example(
        "72 is no multiple of 8 x 2",
        {"train.py": TRAINER, "ds.json": DEEPSPEED.replace("64", "72")},
        says=("train_batch_size is 72", "micro-batch 8 x accumulation 2 is 16"),
    ),
    Example(
        "The trainer is told another accumulation",
        {"train.py": TRAINER.replace("steps=2", "steps=4"), "ds.json": DEEPSPEED},
        says=("gradient_accumulation_steps is 2", "the trainer's own arguments say 4"),
    ),
    Example(
        "64 is 8 x 2 on 4 ranks",
        {"train.py": TRAINER, "ds.json": DEEPSPEED},
        finds=0,
    ),
)

WITHOUT_LENGTH = LOOP.replace('parser.add_argument("--max_length", type=int, default=512)\n', "").replace(
    ', padding="max_length", truncation=True, max_length=args.max_length', ""
)

UNKNOWN = (
    Example(
        "The length is nowhere in the files",
        {"train.py": WITHOUT_LENGTH},
        says=("the length is unknown", "at batch 64", "at batch 32"),
        options={"gpu": "T4"},
    ),
    Example("Everything is known", {"train.py": LOOP}, finds=0, options={"gpu": "T4"}),
)
