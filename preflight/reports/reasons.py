"""Why the GPU memory of a study is unknown, with the cause that the files give for the field that is missing."""

from __future__ import annotations

from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.study import Box
from preflight.vocabulary.values import Cause, Const, Unknown
from preflight.vocabulary.words import why_unknown


def reason_of(result: StudyResult) -> str:
    """In words; "" where it is known. "train.seq_len is not known" is followed by why it is not."""
    reason = why_unknown(result.space.worst.estimates)
    cause = result.space.worst.estimates.causes.get("device")
    if not reason or cause is None or cause.cause is not Cause.not_set or len(cause.fields) != 1:
        return reason
    bound = worst_box(result).fields.get(cause.fields[0])
    value = bound.expr.value if bound is not None and isinstance(bound.expr, Const) else None
    return f"{reason}: {value.words}" if isinstance(value, Unknown) and value.words != reason else reason


def worst_box(result: StudyResult) -> Box:
    """The box that contains the worst combination."""
    return next(one.box for one in result.space.boxes if one.worst is result.space.worst)
