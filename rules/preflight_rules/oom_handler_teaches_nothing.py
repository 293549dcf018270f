from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Confidence, Example, Finding, Rule, Severity, device_of, several
from preflight_rules.oom_not_handled import GUARDED, HANDLED, STUDY, WRAPPED, WRITTEN
from preflight_rules.shared import spaces

CAUGHT = STUDY.replace("n_trials=20", "n_trials=20, catch=(RuntimeError,)")


class OomHandlerTeachesNothing(Rule):
    """`catch=` of `study.optimize` catches a trial that runs out of memory, and the sampler learns nothing from it.

    Optuna marks such a trial as failed. Its samplers leave failed trials out, so TPE goes on to propose what cannot
    fit. A pruned trial counts as one of the worst, and TPE turns away from it. GPSampler and NSGA-II leave pruned
    trials out as well: a constraint teaches them (`trial.set_constraint` of Optuna 5), which `guard.optuna` sets where
    it is given `job=`.

    The fix wraps the objective: `study.optimize(guard.optuna(objective), ...)`. It is unsafe, because the program then
    needs preflight where it runs. Or catch `torch.cuda.OutOfMemoryError` in it and raise `optuna.TrialPruned()`. It is
    better to search a space that fits, see `space-partly-unsafe`. Samplers that learn from no trial, such as
    RandomSampler and GridSampler, are left alone.
    """

    name = "oom-handler-teaches-nothing"
    summary = "A search catches out-of-memory errors in a way that its sampler learns nothing from"
    tags = ("gpu-memory", "search")
    examples = (
        Example(
            "Failed trials are passed over",
            {"study.py": CAUGHT},
            fixed={"study.py": WRITTEN.replace("n_trials=20", "n_trials=20, catch=(RuntimeError,)")},
            unsafe=True,
            says=("the sampler learns nothing",),
            options={"gpu": "T4", "select": ["oom-handler-teaches-nothing"]},
        ),
        Example("The trial is pruned", {"study.py": HANDLED}, finds=0, options={"gpu": "T4"}),
        Example("The guard prunes it", {"study.py": GUARDED}, finds=0, options={"gpu": "T4"}),
        Example(
            "A sampler that learns from no trial",
            {
                "study.py": CAUGHT.replace(
                    "create_study()", "create_study(sampler=optuna.samplers.RandomSampler(seed=0))"
                )
            },
            finds=0,
            options={"gpu": "T4"},
        ),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        fact, device = case.study.facts.get("oom_teaches_nothing"), device_of(case)
        if fact is None or device is None or not several(case) or not case.space.counts.unsafe:
            return
        if device.verdict not in ("exceeds", "at-risk"):
            return
        yield self.finding(
            f"{spaces.counts_text(case)}; `catch=` makes each a failed trial, and the sampler learns nothing from it",
            fact.origin,
            Severity.info,
            Confidence.medium,
            settings=("train.batch_size",),
            label="failed trials are left out by the sampler",
            help=(
                "wrap the objective: study.optimize(guard.optuna(objective), ...) after `from preflight import guard`; "
                "or catch torch.cuda.OutOfMemoryError in it and raise optuna.TrialPruned()",
            ),
            proposals=(WRAPPED,),
        )
