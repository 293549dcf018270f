from __future__ import annotations

from collections.abc import Iterator

from preflight.api import (
    Case,
    Change,
    Confidence,
    Example,
    Finding,
    Proposal,
    Rule,
    Safety,
    Severity,
    device_of,
    gib,
    several,
)
from preflight_rules.shared import spaces

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
GUARDED = STUDY.replace("import torch\n", "import torch\nfrom preflight import guard\n", 1).replace(
    "optimize(objective,", "optimize(guard.optuna(objective),"
)
WRITTEN = GUARDED.replace("import torch\nfrom preflight import guard\n", "import torch\n").replace(
    "import texts\n", "import texts\nfrom preflight import guard\n"
)
HANDLERS = {
    "optuna": (
        "wrap the objective: study.optimize(guard.optuna(objective), ...) after `from preflight import guard`; or "
        "catch torch.cuda.OutOfMemoryError in it, empty the cache and raise optuna.TrialPruned()"
    ),
    "wandb": (
        "catch torch.cuda.OutOfMemoryError in the program, log it and finish the run: the agent stops after repeated "
        "failures only in the first minute. A sweep that is registered keeps the configuration that it was registered "
        "with: register it again after a change (wandb sweep FILE, with --prior_run for the runs to keep)"
    ),
    "hydra": (
        "catch torch.cuda.OutOfMemoryError in the task function and return a bad value: an exception ends the multirun"
    ),
}
"""Advice by the tool that runs the search."""
WRAPPED = Proposal(
    "wrap the objective: guard.optuna prunes a trial that runs out of memory",
    (Change("program.guarded", True),),
    Safety.unsafe,
    "the program then needs preflight where it runs",
)


class OomNotHandled(Rule):
    """A search has combinations that may not fit, and nothing catches the out-of-memory error.

    One such trial then ends the whole study (Optuna passes on every exception that `catch` does not name), or it is
    recorded as crashed without a value, and the sampler proposes similar trials again.

    The fix wraps the objective of Optuna: `study.optimize(guard.optuna(objective), ...)` after `from preflight import
    guard`. It is unsafe, because the program then needs preflight where it runs. Or catch
    `torch.cuda.OutOfMemoryError`, free the cache, and prune the trial. It is better to search a space that fits, see
    `space-partly-unsafe`. A smaller `set_per_process_memory_fraction` frees nothing: it lowers what this process may
    have. Nor does a reset of the GPU help, and it ends the jobs of others: the memory is free when the process ends.
    """

    name = "oom-not-handled"
    summary = "A search may run out of memory, and nothing catches the error"
    tags = ("gpu-memory", "search")
    examples = (
        Example(
            "A study whose largest batch does not fit",
            {"study.py": STUDY},
            fixed={"study.py": WRITTEN},
            unsafe=True,
            says=("nothing catches an out-of-memory error",),
            options={"gpu": "T4", "select": ["oom-not-handled"]},
        ),
        Example("The trial is pruned", {"study.py": HANDLED}, finds=0, options={"gpu": "T4"}),
        Example("The guard prunes it", {"study.py": GUARDED}, finds=0, options={"gpu": "T4"}),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        search, device = case.fact("search"), device_of(case)
        counts = case.space.counts
        if (
            not several(case)
            or search not in HANDLERS
            or case.fact("handles_oom") is True
            or device is None
            or not counts.unsafe
        ):
            return
        if device.verdict not in ("exceeds", "at-risk"):
            return
        message = (
            f"{spaces.counts_text(case)} and nothing catches an out-of-memory error: the worst needs "
            f"{'at least ' if device.lower_bound else ''}{gib(device.process.expected)} of {gib(device.capacity or 0)}"
        )
        fact = case.study.facts.get("handles_oom") or case.study.facts.get("search")
        yield self.finding(
            message,
            fact.origin if fact is not None else None,
            Severity.warning,
            Confidence.medium,
            settings=("train.batch_size",),
            label="an OutOfMemoryError ends this search" if search == "optuna" else "",
            help=(HANDLERS[str(search)],),
            proposals=(WRAPPED,) if search == "optuna" else (),
        )
