"""Rules about what a search does when a trial does not fit."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.vocabulary.findings import Confidence, Finding, Severity
from preflight.vocabulary.rule import Case, Rule
from preflight_rules import spaces, sweep_examples
from preflight_rules.common import device_of, gib, several

HANDLERS = {
    "optuna": "catch torch.cuda.OutOfMemoryError in the objective, empty the cache and raise optuna.TrialPruned()",
    "wandb": (
        "catch torch.cuda.OutOfMemoryError in the program, log it and finish the run: the agent stops after repeated "
        "failures only in the first minute"
    ),
    "hydra": (
        "catch torch.cuda.OutOfMemoryError in the task function and return a bad value: an exception ends the multirun"
    ),
}
"""What to do about it, by what drives the search."""


class OomNotHandled(Rule):
    """A search has combinations that do not fit or may not, and nothing catches the out-of-memory error.

    One unlucky trial then ends the whole study (Optuna lets exceptions through unless `catch` names them), or is
    reported as crashed without a value, so that the sampler proposes its like again.

    It is repaired in the program: catch `torch.cuda.OutOfMemoryError`, free the cache, and prune the trial. The better
    repair is a space that fits, see `space-partly-unsafe`.
    """

    name = "oom-not-handled"
    summary = "A search may run out of memory and nothing catches it"
    examples = sweep_examples.HANDLING

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
        yield Finding(
            rule=self.name,
            severity=Severity.warning,
            confidence=Confidence.medium,
            message=message,
            origin=fact.origin if fact is not None else None,
            settings=("train.batch_size",),
            label="an OutOfMemoryError ends this" if search == "optuna" else "",
            help=(HANDLERS[str(search)],),
        )


RULES: tuple[type[Rule], ...] = (OomNotHandled,)
