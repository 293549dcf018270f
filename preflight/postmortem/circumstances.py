"""The circumstances of a failure: where the logs report it, the moment in the run, the trial of a search.

The phase of the run comes from the names of functions in the traceback; without one, from the last progress.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from preflight.postmortem.collect import CollectedEvidence
from preflight.postmortem.evidence import Evidence, LogPlace, TracebackFrame, Trial
from preflight.postmortem.trace import library

MOST_PLACES = 4
"""Lines of the logs that are shown for a diagnosis."""

_RULES: tuple[tuple[str, int, re.Pattern[str]], ...] = (
    (
        "validation",
        2,
        re.compile(
            r":(?!\w*train|cross_)(?:\w*validat\w*|_?evaluat\w*|eval(?:_\w+)?|\w*_eval|prediction_step|prediction_loop"
            r"|test_step|_?run_sanity_check|sanity_check\w*)$"
        ),
    ),
    ("save", 2, re.compile(r":(?:save\w*|_save\w*|state_dict|full_state_dict|consolidate\w*)$")),
    (
        "optimizer",
        2,
        re.compile(
            r"(?:torch/optim/|bitsandbytes/optim|apex/optimizers|zero/stage\w*\.py).*:\w*step\w*$|:optimizer_step$"
            r"|torch/optim/.*:_(?:init_group|multi_tensor\w*|single_tensor\w*|foreach\w*|fused\w*)$"
        ),
    ),
    ("backward", 2, re.compile(r"torch/autograd/.*:backward$|:(?:loss_)?backward$|:_(?:engine_)?run_backward$")),
    ("generation", 2, re.compile(r":(?:generate|_sample|_beam_search|_greedy_search|greedy_search|beam_search)$")),
    ("forward", 1, re.compile(r":(?:forward|_call_impl|_wrapped_call_impl|training_step|compute_loss|__call__)$")),
    (
        "load",
        0,
        re.compile(
            r":(?:from_pretrained|_load_\w+|load_state_dict|load_checkpoint|_from_config|caching_allocator_warmup|__init__"
            r"|_init_weights|init_process_group)$|(?:nn/modules/module|modeling_utils)\.py:(?:to|cuda|half|float|_apply)$"
        ),
    ),
)
"""Phases by frames, as `path:function`, with weights: a phase contains inner frames of the same weight or less
(validation contains its forward passes), and a frame of a higher weight replaces it."""

_TRAINING = re.compile(r":(?:closure|training_step|fit|train|train_one_epoch|train_epoch|_inner_training_loop)$")
"""Frames within which a step begins anew: Lightning runs it as the optimizer's closure, a cross-validation trains."""


class LoggedMoment(Struct, frozen=True):
    """When in the run something failed. `phase` has the estimates' names of phases; "": not known."""

    phase: str = ""
    frame: TracebackFrame | None = None
    """The innermost frame of the user's own code."""
    beneath: TracebackFrame | None = None
    """The innermost frame of all."""
    last: LogPlace | None = None
    """The last line before it that shows progress."""


def moment_of(frames: tuple[TracebackFrame, ...]) -> LoggedMoment:
    """The moment that the frames of a traceback tell, read from the outermost to the innermost."""
    if not frames:
        return LoggedMoment()
    phase, weight = "", -1
    for frame in frames:
        name = f"{frame.path}:{frame.function}"
        if _TRAINING.search(name):
            phase, weight = "", -1
        for candidate, strength, rule in _RULES:
            if strength > weight and rule.search(name):
                phase, weight = candidate, strength
                break
    own = [frame for frame in frames if not library(frame)]
    return LoggedMoment(phase, own[-1] if own else None, frames[-1])


def places_of(*groups: Sequence[Evidence]) -> list[LogPlace]:
    """Where pieces of evidence are, in the order given."""
    return [one.place for group in groups for one in group]


def when(places: Sequence[LogPlace], found: CollectedEvidence, frames: tuple[TracebackFrame, ...]) -> LoggedMoment:
    """The moment by the traceback, else by the last progress (a .err file has none: then that of the other logs)."""
    told = moment_of(frames)
    seen = [one for place in places for one in found.before.get((place.path, place.line), ())]
    if not seen:
        ends = [progress for progress in found.last.values() if progress]
        seen = list(ends[-1]) if ends else []
    phase = told.phase or (seen[-1].phase if seen else "")
    return LoggedMoment(phase, told.frame, told.beneath, seen[-1].place if seen else None)


def trial_of(places: Sequence[LogPlace], found: CollectedEvidence) -> Trial | None:
    """The trial that a failure belongs to: named in the same line, else started last before it."""
    if not places:
        return None
    lines = {(place.path, place.line) for place in places}
    trials = found.of(Trial)
    for one in trials:
        if (one.place.path, one.place.line) in lines:
            return one
    path, line = places[0].path, places[0].line
    before = [one for one in trials if one.place.path == path and one.place.line <= line and not one.error]
    if before:
        return before[-1]
    near = [one for one in trials if "emory" in one.error and one.place.path == path]
    return min(near, key=lambda one: abs(one.place.line - line), default=None)
