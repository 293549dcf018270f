"""Trials of Optuna and functions of W&B agents: judged before anything is loaded, ended well where memory runs out.

Optuna's samplers learn from pruned trials and from constraints, and nothing from failed ones. A traceback that somebody
keeps holds the tensors of the failed trial; its frames are cleared.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Union

from .laws import Need, Search, need_of
from .memory_errors import OutOfMemory, classify, gib, words
from .release import free
from .room import at, room, stated
from .services import OF_GUARD, Services

JobOf = Union[Callable[[Any], Any], str, "os.PathLike[str]"]
"""A trial -> its Job, or a dict of one; or a file that preflight reads the search from."""
SUGGESTIONS = ("suggest_categorical", "suggest_int", "suggest_float")
"""The methods of a trial that all others call."""
CONSTRAINT = "gpu"
ACCUMULATION = "accumulation"


def optuna(
    objective: Callable[..., Any],
    *,
    job: JobOf | None = None,
    gpu: str | None = None,
    headroom: bool = False,
    halve: str | None = None,
    batch: int | None = None,
    floor: int = 1,
) -> Callable[..., Any]:
    """An objective that prunes what does not fit, and what ran out of memory.

    `job`: a function of the trial that gives its Job, or a file that preflight reads the search from (`__file__`).
    `headroom`: judge by the high end of the need, not by its middle. `halve`: the name of the objective's parameter for
    the batch; the trial is tried again with half of it, and with twice the `accumulation`, if it has that parameter.
    `batch`: where to begin; else the parameter's default.
    """
    sizes = _sizes(objective, halve, batch, floor)
    if "torch" in sys.modules:
        from .counters import follow_fractions

        follow_fractions(sys.modules["torch"])
    judge = _Judge(job, gpu, headroom)

    @functools.wraps(objective)
    def guarded(trial: Any, *args: Any, **kwargs: Any) -> Any:
        with judge.of(trial) as judged:
            return attempts(judged, args, kwargs)

    def attempts(judged: _Judged, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        trial, told = judged.trial, ""
        for size, accumulation in sizes:
            given = {**kwargs, **_given(objective, halve, size, accumulation)}
            error: BaseException | None = None
            with Services() as services:
                try:
                    value = objective(trial, *args, **given)
                except Exception as raised:
                    error = raised
                    if classify(raised) is None:
                        services.end_if_pruned(raised)
                        raise
                else:
                    _note_peaks(trial, at(judged.job, size, accumulation))
                    return value
                services.end("oom")
            found = classify(error)
            assert found is not None
            free(error)
            del error
            _note(trial, found, size, at(judged.job, size, accumulation))
            told = words(found)
            if not found.recoverable:
                break
        raise _pruned(f"out of memory: {told}")

    return guarded


def _sizes(objective: Any, halve: str | None, batch: int | None, floor: int) -> list[tuple[int | None, int]]:
    """The batch and accumulation of each attempt."""
    if halve is None:
        return [(None, 1)]
    start = batch if batch is not None else inspect.signature(objective).parameters[halve].default
    if not isinstance(start, int):
        raise TypeError(f"guard.optuna: state batch=: the parameter {halve} has no number as its default")
    found: list[tuple[int | None, int]] = []
    size, accumulation = start, 1
    while size >= max(1, floor):
        found.append((size, accumulation))
        if size % 2:
            break  # the effective batch would not be kept
        size, accumulation = size // 2, accumulation * 2
    return found


def _given(objective: Any, halve: str | None, size: int | None, accumulation: int) -> dict[str, int]:
    if halve is None or size is None:
        return {}
    takes = inspect.signature(objective).parameters
    if accumulation > 1 and ACCUMULATION not in takes:
        raise TypeError(
            f"guard.optuna: the objective takes no {ACCUMULATION}=, so a smaller batch would be another run"
        )
    return {halve: size, **({ACCUMULATION: accumulation} if ACCUMULATION in takes else {})}


@dataclass
class _Judged:
    """A trial, with its job once that is known."""

    trial: Any
    job: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class _Judge:
    """Judges trials by their jobs: a function says what each is, or a file that preflight reads."""

    job: JobOf | None
    gpu: str | None
    headroom: bool

    def __post_init__(self) -> None:
        if self.job is not None and not callable(self.job):
            object.__setattr__(self, "job", Search(os.fspath(self.job), self.gpu))

    @contextmanager
    def of(self, trial: Any) -> Iterator[_Judged]:
        """A trial that begins. Raises TrialPruned for one that certainly exceeds: at once, or, where a file says what
        it is, as soon as the parameters are suggested that decide it."""
        judged = _Judged(trial)
        recorder = getattr(sys, "_preflight_recorder", None)
        if isinstance(self.job, Search):
            begun = _watched(trial, functools.partial(self._suggested, judged, self.job))
        else:
            begun = nullcontext()
            judged.job = stated(self.job(trial)) if callable(self.job) else None
        if recorder is not None:
            recorder.enter("load")
            recorder.recent.clear()
        if judged.job is not None:
            self._prune(trial, need_of(judged.job, self.gpu))
        with begun:
            yield judged

    def _suggested(self, judged: _Judged, search: Search, values: Mapping[str, Any]) -> None:
        found = search.at(values) if judged.job is None else None
        if found is not None:
            judged.job = found[0]
            self._prune(judged.trial, found[1])

    def _prune(self, trial: Any, need: Need | None) -> None:
        """The need as user attributes and as a constraint, and the end of what certainly exceeds."""
        if need is None:
            return
        for name in ("low", "expected", "high"):
            trial.set_user_attr(f"preflight.{name}", getattr(need, name))
        capacity = room(need)
        if capacity is None:
            return
        over = (need.high if self.headroom else need.expected) - capacity
        _constrain(trial, over)
        if need.low > capacity or (self.headroom and over > 0):
            _tell(trial, need, capacity)
            raise _pruned(f"it needs {gib(need.expected)}, and the GPU has {gib(capacity)}")


@contextmanager
def _watched(trial: Any, suggested: Callable[[Mapping[str, Any]], None]) -> Iterator[None]:
    """Calls `suggested` after each suggestion with all that are known. What the program gets is Optuna's own."""
    values = dict(trial.params)

    def watching(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def suggest(name: str, *args: Any, **kwargs: Any) -> Any:
            values[name] = found = method(name, *args, **kwargs)
            suggested(values)
            return found

        return suggest

    for name in SUGGESTIONS:
        setattr(trial, name, watching(getattr(trial, name)))
    try:
        suggested(values)
        yield
    finally:
        for name in SUGGESTIONS:
            delattr(trial, name)


def _constrain(trial: Any, over: int) -> None:
    """The constraint of Optuna 5, above 0 where it does not fit; in GiB, for samplers that weigh constraints."""
    if hasattr(trial, "set_constraint"):
        trial.set_constraint(CONSTRAINT, over / 2**30)
    trial.set_user_attr("preflight.over", over)


def _tell(trial: Any, need: Need, capacity: int) -> None:
    number = getattr(trial, "number", "?")
    sys.stderr.write(f"preflight guard: trial {number} is pruned: {gib(need.expected)} of {gib(capacity)}\n")


def _note(trial: Any, found: OutOfMemory, size: int | None, job: Mapping[str, Any] | None) -> None:
    """What is known of the end, for the study's dashboard and for people."""
    recorder = getattr(sys, "_preflight_recorder", None)
    trial.set_user_attr("preflight.oom", found.kind)
    trial.set_user_attr("preflight.oom_phase", recorder.phase if recorder is not None else "")
    trial.set_user_attr("preflight.oom_config", {name: str(value) for name, value in trial.params.items()})
    if found.tried is not None:
        trial.set_user_attr("preflight.oom_tried", found.tried)
    if size is not None:
        trial.set_user_attr("preflight.oom_batch", size)
    if recorder is not None:
        recorder.note("guard", text=words(found))
        recorder.enter(recorder.phase)
        recorder.note("trial", job=job, peaks=recorder.recent, memory=found.kind, tried=found.tried)
        recorder.recent.clear()
    sys.stderr.write(f"preflight guard: trial {getattr(trial, 'number', '?')}: {words(found)}\n")


def _note_peaks(trial: Any, job: Mapping[str, Any] | None) -> None:
    """The peaks of this trial; of none where trials of several threads share the GPU's counters."""
    recorder = getattr(sys, "_preflight_recorder", None)
    if recorder is None or threading.current_thread() is not threading.main_thread():
        return
    recorder.enter(recorder.phase)
    for phase, tiers in recorder.recent.items():
        for tier, size in tiers.items():
            trial.set_user_attr(f"preflight.peak.{phase}.{tier}", size)
    recorder.note("trial", job=job, peaks=recorder.recent)
    recorder.recent.clear()


def _pruned(text: str) -> Exception:
    import optuna as library

    found = library.TrialPruned(text)
    setattr(found, OF_GUARD, True)
    return found


class Outcome:
    """The end of a trial that was asked for: what to tell the study."""

    def __init__(self) -> None:
        self.value: Any = None
        self.pruned = False

    @property
    def told(self) -> tuple[Any, ...]:
        """The arguments of `study.tell` after the trial."""
        import optuna as library

        state = library.trial.TrialState
        return (None, state.PRUNED) if self.pruned else (self.value, state.COMPLETE)


@contextmanager
def trial(asked: Any, *, job: JobOf | None = None, gpu: str | None = None, headroom: bool = False) -> Iterator[Outcome]:
    """A trial of `study.ask()`: an error of memory, or a need that exceeds, ends it as pruned."""
    import optuna as library

    outcome = Outcome()
    error: BaseException | None = None
    judged = _Judged(asked)
    try:
        with Services() as services, _Judge(job, gpu, headroom).of(asked) as judged:
            try:
                yield outcome
                _note_peaks(asked, judged.job)
            except Exception as raised:
                found = classify(raised)
                if found is None:
                    services.end_if_pruned(raised)
                    raise
                services.end("oom")
                error, outcome.pruned = raised, True
                _note(asked, found, None, judged.job)
    except library.TrialPruned:
        outcome.pruned = True
    free(error)


def wandb(function: Callable[[], Any]) -> Callable[[], Any]:
    """The function of a W&B agent. The agent keeps the exceptions of failed runs: they are freed of what they hold."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        with Services() as services:
            try:
                return function(*args, **kwargs)
            except Exception as raised:
                found = classify(raised)
                if found is None:
                    raise
                services.end("oom")
                text = words(found)
                free(raised)
        raise RuntimeError(f"out of memory: {text}")

    return guarded
