"""Examples of the rules about search spaces: their tests, and what their pages show."""

from __future__ import annotations

from preflight.vocabulary.rule import Example
from preflight_rules.gpu_examples import LOOP

SWEEP = """
program: train.py
method: grid
parameters:
  batch_size:
    values: [8, 16, 64]  # samples
  max_length:
    values: [128, 512]
"""

STUDY = """
import optuna
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from data import texts


def objective(trial):
    batch_size = trial.suggest_categorical("batch_size", [8, 16, 64])
    tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased").cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=trial.suggest_float("lr", 1e-5, 1e-4, log=True))
    dataset = tokenizer(texts, padding="max_length", truncation=True, max_length=512)
    for batch in DataLoader(dataset, batch_size=batch_size):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


study = optuna.create_study()
study.optimize(objective, n_trials=20)
"""

HANDLED = STUDY.replace("    for batch in", "    try:\n        for batch in").replace(
    """batch_size=batch_size):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    """batch_size=batch_size):
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        raise optuna.TrialPruned()
""",
)

MULTIRUN = """
python train.py -m model=small,large
"""
GROUPS = {
    "conf/config.yaml": "defaults:\n  - model: small\nbatch_size: 8\nmax_length: 128\n",
    "conf/model/small.yaml": "name: gpt2\n",
    "conf/model/large.yaml": "name: gpt2-xl\n",
}
APP = """
import hydra
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from data import dataset


@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    model = AutoModelForCausalLM.from_pretrained(cfg.model.name)
    arguments = TrainingArguments("out", per_device_train_batch_size=cfg.batch_size, bf16=True)
    Trainer(model, arguments, train_dataset=dataset(cfg.max_length)).train()


if __name__ == "__main__":
    main()
"""

PARTLY = (
    Example(
        "One of three batch sizes does not fit at the longer length",
        {"sweep.yaml": SWEEP, "train.py": LOOP},
        fixed={"sweep.yaml": SWEEP.replace("[8, 16, 64]", "[8, 16]")},
        unsafe=True,
        says=("of 6 combinations do not fit", "batch_size=64, max_length=512"),
        options={"gpu": "T4"},
    ),
    Example(
        "Of two models that Hydra is told to try, the larger one does not fit",
        {"run.sh": MULTIRUN, "train.py": APP, **GROUPS},
        fixed={"run.sh": MULTIRUN.replace("small,large", "small")},
        unsafe=True,
        says=("1 of 2 combinations do not fit", "model=large"),
        options={"gpu": "T4"},
    ),
    Example("All of it fits", {"sweep.yaml": SWEEP, "train.py": LOOP}, finds=0, options={"gpu": "A100-80GB"}),
)

ALL = (
    Example(
        "Every batch size is too large",
        {"sweep.yaml": SWEEP.replace("[8, 16, 64]", "[64, 128]").replace("[128, 512]", "[384, 512]"), "train.py": LOOP},
        says=("none of the 4 combinations fits",),
        options={"gpu": "T4"},
    ),
    Example("Some of it fits", {"sweep.yaml": SWEEP, "train.py": LOOP}, finds=0, options={"gpu": "T4"}),
)

NUMBER = (
    Example(
        "PyYAML reads 1e-5 as text",
        {"sweep.yaml": SWEEP + "  lr:\n    values: [1e-5, 1.0e-4]\n", "train.py": LOOP},
        fixed={"sweep.yaml": SWEEP + "  lr:\n    values: [1.0e-5, 1.0e-4]\n"},
        says=("1e-5",),
    ),
    Example(
        "With its dot it is a number",
        {"sweep.yaml": SWEEP + "  lr:\n    values: [1.0e-5, 1.0e-4]\n", "train.py": LOOP},
        finds=0,
    ),
)

CONSTRAINT = (
    Example(
        "The longest text times the largest batch is above what was agreed",
        {"sweep.yaml": SWEEP, "train.py": LOOP},
        says=("batch_size * max_length <= 16384", "batch_size=64"),
        options={"constraints": {"tokens": "batch_size * max_length <= 16384"}},
    ),
    Example(
        "It holds for every combination",
        {"sweep.yaml": SWEEP, "train.py": LOOP},
        finds=0,
        options={"constraints": {"tokens": "batch_size * max_length <= 32768"}},
    ),
)

HANDLING = (
    Example(
        "A study whose largest batch does not fit",
        {"study.py": STUDY},
        says=("nothing catches an out-of-memory error",),
        options={"gpu": "T4"},
    ),
    Example("The trial is pruned", {"study.py": HANDLED}, finds=0, options={"gpu": "T4"}),
)
