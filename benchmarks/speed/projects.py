"""The projects that are timed: written from nothing, the same at every run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

SETTINGS = 'gpu = "RTX 4090"\n'

PROGRAM = '''"""Fine-tunes a classifier."""

import argparse

from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name", default="bert-base-uncased")
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    args = parser.parse_args()
    model = AutoModelForSequenceClassification.from_pretrained(args.model_name, num_labels=2)
    data = load(args.model_name, padding="max_length", max_length=args.max_length)
    arguments = TrainingArguments(
        output_dir="runs",
        per_device_train_batch_size=args.batch_size,
        gradient_accumulation_steps=args.accumulation,
        learning_rate=args.learning_rate,
        bf16=True,
    )
    Trainer(model, arguments, train_dataset=data["train"]).train()


def load(name, padding, max_length):
    from datasets import load_dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name)
    return load_dataset("imdb").map(
        lambda rows: tokenizer(rows["text"], truncation=True, padding=padding, max_length=max_length), batched=True
    )


if __name__ == "__main__":
    main()
'''

SWEEP = """program: train.py
method: bayes
metric: {name: eval/loss, goal: minimize}
parameters:
  model_name: {values: [bert-base-uncased, bert-large-uncased]}
  max_length: {values: [128, 256, 384, 512]}
  batch_size: {values: [8, 16, 32, 64]}
  learning_rate: {distribution: log_uniform_values, min: 1.0e-5, max: 1.0e-3}
"""

SCRIPT = """#!/bin/bash
#SBATCH --job-name=bert
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --mem=32G
#SBATCH --time=12:00:00
set -euo pipefail
MODEL=bert-large-uncased
LENGTH=${LENGTH:-384}
srun python train.py --model_name "$MODEL" --max_length "$LENGTH" --batch_size 32 --learning_rate 3e-5
"""

SPACE = """program: train.py
method: random
metric: {{name: eval/loss, goal: minimize}}
parameters:
  model_name: {{value: bert-base-uncased}}
  max_length: {{min: 1, max: {length}}}
  batch_size: {{min: 1, max: {batch}}}
  accumulation: {{min: 1, max: {accumulation}}}
"""

HYDRA_PROGRAM = '''"""Trains what the config says."""

import hydra
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    model = AutoModelForCausalLM.from_pretrained(cfg.model.name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.optim.lr)
    for batch in DataLoader(dataset(cfg.data.seq_len), batch_size=cfg.data.batch_size, num_workers=cfg.data.workers):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch, labels=batch["input_ids"]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
'''

HYDRA = {
    "train.py": HYDRA_PROGRAM,
    "conf/config.yaml": "defaults:\n  - model: small\n  - data: text\n  - _self_\noptim:\n  lr: 3e-4\nseed: 1\n",
    "conf/model/small.yaml": "name: gpt2\n",
    "conf/model/large.yaml": "name: gpt2-large\n",
    "conf/data/text.yaml": "batch_size: 16\nseq_len: 1024\nworkers: 4\n",
}

DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: service, labels: {app: service}}
spec:
  replicas: 3
  template:
    spec:
      containers:
        - name: web
          image: web:1.2
          resources: {limits: {memory: 512Mi}}
"""

MODULE = '''"""Helpers."""

from __future__ import annotations

import json
from pathlib import Path


def load(path: Path) -> dict[str, int]:
    """What a file says."""
    return {key: int(value) for key, value in json.loads(path.read_text()).items()}


def total(counts: dict[str, int]) -> int:
    return sum(counts.values())
'''

SHELL = '#!/bin/bash\nset -eu\nfor one in "$@"; do\n  gzip -9 < "$one" > "$one.gz"\ndone\n'


def mixed(number: int) -> Iterator[tuple[str, str]]:
    """Paths and texts of about `number` files: of ten, two sweeps, a job script and a program, six of no training."""
    for i in range(number // 10):
        room = f"team{i % 10}/task{i}"
        yield f"{room}/sweep.yaml", SWEEP
        yield f"{room}/second.yaml", SWEEP.replace("bayes", "random").replace("[8, 16, 32, 64]", f"[{1 + i % 8}, 16]")
        yield f"{room}/train.py", PROGRAM
        yield f"{room}/train.slurm", SCRIPT.replace("batch_size 32", f"batch_size {8 + i % 16}")
        yield f"{room}/deployment.yaml", DEPLOYMENT
        yield f"{room}/values.yaml", "replicas: 2\nimage: {name: web, tag: '1.2'}\nports: [80, 443]\n"
        yield f"{room}/compress.sh", SHELL
        yield f"{room}/helpers.py", MODULE
        yield f"{room}/more.py", MODULE.replace("total", "count")
        yield f"{room}/notes.md", "# Notes\n\nNothing to read here.\n"


def write(root: Path, number: int) -> None:
    """All projects, each in a directory of its own under `root`."""
    one = {"train.py": PROGRAM}
    spaces = {
        "million": {"length": 100, "batch": 100, "accumulation": 100},
        "billion": {"length": 500, "batch": 1000, "accumulation": 2000},
    }
    projects: dict[str, dict[str, str]] = {
        "fits": {**one, "sweep.yaml": SWEEP.replace(", 64]", "]")},
        "sweep": {**one, "sweep.yaml": SWEEP},
        "slurm": {**one, "train.slurm": SCRIPT},
        "hydra": HYDRA,
        "mixed": dict(mixed(number)),
        **{name: {**one, "sweep.yaml": SPACE.format(**sizes)} for name, sizes in spaces.items()},
    }
    for project, files in projects.items():
        for name, text in {**files, "preflight.toml": SETTINGS}.items():
            path = root / project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
