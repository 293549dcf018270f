"""Whether the search goes on after a trial that runs out of GPU memory."""

from __future__ import annotations

import ast

from preflight.dialects.optuna.suggest import SuggestedSpace
from preflight.python.evaluator import Evaluator
from preflight.python.objects import CallRecord, TryRecord
from preflight.python.subprocesses import STARTERS
from preflight.vocabulary.reading import Fact
from preflight.vocabulary.values import Origin, Value

CATCHES = ("OutOfMemoryError", "RuntimeError", "Exception", "BaseException", "*")
"""torch.cuda.OutOfMemoryError is torch.OutOfMemoryError, a RuntimeError
(https://docs.pytorch.org/docs/stable/generated/torch.cuda.OutOfMemoryError.html)."""
GUARDS = ("preflight.guard.optuna", "preflight.guard.trial")
"""Calls that prune a trial which runs out of memory."""
UNTAUGHT = ("RandomSampler", "GridSampler", "BruteForceSampler", "QMCSampler")
"""Samplers that propose the same trials, whatever others ended with (Optuna's documentation of samplers)."""
_CONTINUES = (ast.Return, ast.Continue, ast.Pass, ast.Break)


def handles_oom(ev: Evaluator, space: SuggestedSpace) -> tuple[Fact, ...]:
    """The fact `handles_oom`, with the place of the handler or of the call that starts the search; and
    `oom_teaches_nothing`, if the trial fails and the sampler would learn from its end."""
    guarded = next((record for record in ev.calls if record.name in GUARDS), None)
    if guarded is not None:
        return (Fact("handles_oom", True, guarded.origin),)
    for tried in ev.tries:
        if space.reached and not tried.reached:
            continue
        handler = _handler(tried)
        if handler is not None and _trains(tried):
            module = next((m.module for m in ev.modules.values() if m.module.path == tried.path), None)
            place = module.origin(handler, editable=False) if module is not None else None
            return (Fact("handles_oom", True, place),)
    for record in space.optimize:
        caught = record.kwargs.get("catch")
        names = _names(ev.value_of(caught)) if caught is not None else ()
        if any(name.rpartition(".")[2] in CATCHES for name in names):
            place = record.keyword_origins.get("catch")
            taught = not any(one.name.rpartition(".")[2] in UNTAUGHT for one in ev.calls)
            return (Fact("handles_oom", True, place), *([Fact("oom_teaches_nothing", True, place)] if taught else []))
    started = [record for record in ev.calls if record.name in STARTERS and record.reached]
    if started and all(_survives(record, ev) for record in started):  # the error ends only the subprocess
        return (Fact("handles_oom", True, started[0].origin),)
    start: Origin | None = space.optimize[0].origin if space.optimize else None
    return (Fact("handles_oom", False, start),)


def _survives(record: CallRecord, ev: Evaluator) -> bool:
    """Whether a failed subprocess raises no error in the study."""
    checked = record.kwargs.get("check")
    if record.method in ("check_call", "check_output") or (checked is not None and ev.value_of(checked) is not False):
        return bool(record.in_try)
    return True


def _names(value: Value) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, tuple) else ()


def _handler(tried: TryRecord) -> ast.ExceptHandler | None:
    """The first handler that catches an OutOfMemoryError, if the search goes on after it."""
    for names, handler in tried.handlers:
        if any(name.rpartition(".")[2] in CATCHES for name in names):
            return handler if _goes_on(handler) else None
    return None


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler may end only the trial and not the search: it returns, or raises TrialPruned."""
    nodes = [node for statement in handler.body for node in ast.walk(statement)]
    for node in nodes:
        if isinstance(node, ast.Raise) and node.exc is not None and "Pruned" in ast.unparse(node.exc):
            return True
        if isinstance(node, _CONTINUES):
            return True
    return not any(isinstance(node, ast.Raise) for node in nodes)


def _trains(tried: TryRecord) -> bool:
    """Whether the calls in the `try` are the training: a backward pass, a fit, a step, a model moved to its device."""
    methods = {record.method for record in tried.calls}
    return bool(methods & {"backward", "fit", "train", "step", "cuda", "run", "train_epoch", "launch", "main"}) or any(
        "train" in method.lower() for method in methods
    )
