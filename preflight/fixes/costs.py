"""What a fix costs in time, as a range with its source. This table is the only place that knows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from preflight.vocabulary.findings import Change, TimeCost
from preflight.vocabulary.study import Box, Study
from preflight.vocabulary.values import Value, evaluate

RECOMPUTED = TimeCost(
    1.2,
    1.35,
    "a step",
    "every forward is computed a second time",
    "transformers' guide to one GPU states about 20 %; Chen et al. 2016 (arXiv:1604.06174) measure 30 %; a forward is "
    "a third of a step's arithmetic",
)


class _Fewer(Struct, frozen=True):
    """What takes longer if a setting gets n times smaller: from as long as now to n times as long."""

    what: str
    why: str
    source: str


_PASSES = "a pass over less takes less: all the time is saved again if passes fill the device, and none if they do not"
_LOADERS = "the same work by fewer processes: nothing is lost if training waits for the GPU"
_FEWER: Mapping[str, _Fewer] = {
    "train.batch_size": _Fewer("training", "{n:g} times as many passes, each over less", _PASSES),
    "validation.batch_size": _Fewer("the evaluation", "{n:g} times as many passes, each over less", _PASSES),
    "data.workers": _Fewer("loading", "{n:g} times fewer workers load the data", _LOADERS),
    "data.validation_workers": _Fewer("loading for validation", "{n:g} times fewer workers load the data", _LOADERS),
}
"""Job field -> what its reduction costs. Others cost nothing, or nobody knows how much."""


def costs_of(changes: Sequence[Change], study: Study | None) -> tuple[TimeCost, ...]:
    """The costs of changes of a study. Nothing is said of a change whose cost is not known."""
    return tuple(_costs(changes, study)) if study is not None else ()


def _costs(changes: Sequence[Change], study: Study) -> Iterator[TimeCost]:
    for change in changes:
        if change.field == "train.gradient_checkpointing" and change.value is True:
            yield RECOMPUTED
        elif change.field in _FEWER and change.keep is None:
            new, old = change.value, [_value(box, change.field) for box in study.boxes]
            if isinstance(new, int) and old and all(isinstance(one, int) and 0 < new < one for one in old):
                fewer = _FEWER[change.field]
                most = max(one for one in old if isinstance(one, int)) / new
                yield TimeCost(1.0, most, fewer.what, fewer.why.format(n=round(most, 2)), fewer.source)


def _value(box: Box, field: str) -> Value:
    """The value of a field in a box; unknown where it differs between its combinations."""
    bound = box.fields.get(field)
    return evaluate(bound.expr) if bound is not None else None
