from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, Rule, Severity, several
from preflight_rules.shared import spaces
from preflight_rules.shared.programs import LOOP, SWEEP

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
STUDY = """
import optuna
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from data import texts


def objective(trial):
    name = trial.suggest_categorical("model", ["bert-base-uncased", "bert-large-uncased"])
    batch_size = trial.suggest_int("batch_size", 4, 24, step=4)
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForSequenceClassification.from_pretrained(name, dtype=torch.float32).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
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


class SpacePartlyUnsafe(Rule):
    """Some combinations of a search do not fit: their trials will run out of memory.

    The search then learns only from the trials that fit. Only parameters that change the memory are counted. The
    message has the number of combinations that exceed or are at risk, and the worst one with its need. The notes have
    the largest part of the search space that is safe.

    The first fix changes a setting outside the search (gradient checkpointing, a smaller micro-batch with more
    accumulation steps, the evaluation batch, the loaders): the search keeps all its combinations, and the runs stay the
    same. The next fix drops values from the search so that every remaining combination fits and as many as possible
    remain; it respects your constraints. It is unsafe, because it changes the search. In a program, each branch that
    draws its own values is narrowed separately. If the safe part differs between models, the notes give it for each.

    Where an Optuna program suggests the model, the fix writes a limit for each model into the calls that suggest the
    other values: `trial.suggest_int("batch", 4, 16 if name == "bert-large-uncased" else 64)`. Optuna refuses other
    choices under one name in one study, so a shorter list of choices gets a name of its own, `batch_to_16`. There is no
    such fix if the program looks the parameter up by its name, or gives trials values of its own (`enqueue_trial`,
    `GridSampler`). A program that suggests no model and has no branches gets a report and no fix.
    """

    name = "space-partly-unsafe"
    summary = "Some combinations of a search do not fit"
    tags = ("gpu-memory", "search")
    examples = (
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
        Example(
            "The larger of two models that a trial may suggest needs smaller batches",
            {"study.py": STUDY},
            fixed={"study.py": STUDY.replace("4, 24,", '4, 8 if name == "bert-large-uncased" else 24,')},
            unsafe=True,
            says=("4 of 12 combinations do not fit", "bert-large-uncased"),
            options={"gpu": "T4"},
        ),
        Example("All of it fits", {"sweep.yaml": SWEEP, "train.py": LOOP}, finds=0, options={"gpu": "A100-80GB"}),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        counts, estimate = case.space.counts, spaces.binding(case)
        if not several(case) or not (counts.unsafe or estimate is not None) or spaces.all_unsafe(case):
            return
        exceeds = counts.exceeds or (estimate is not None and estimate.verdict == "exceeds")
        severity = Severity.error if exceeds else Severity.warning
        said = spaces.counts_text(case) if counts.unsafe else "some of an unbounded number of combinations do not fit"
        yield spaces.space_finding(self, case, said, spaces.worst_text(case), spaces.axis_places(case), severity)
