"""Lengths that only a name suggests, and that the model cannot have: they are doubtful, and not used."""

from __future__ import annotations

from dataclasses import replace

from preflight.memory.device.positions import positions_of
from preflight.vocabulary.job import build
from preflight.vocabulary.standing import Standing
from preflight.vocabulary.study import Box, Study
from preflight.vocabulary.values import Cause, Const, Unknown, evaluate

LENGTH = "train.seq_len"
MODEL = ("model.name", "model.architecture", "model.config")


def without_doubtful_lengths(study: Study) -> Study:
    """The study with an unknown length where a setting of that name is longer than the model has positions.

    A length that the program reads is another matter: the program fails with it, or stretches its positions.
    """
    boxes = tuple(_checked(box) for box in study.boxes)
    return (
        study if all(new is old for new, old in zip(boxes, study.boxes, strict=True)) else replace(study, boxes=boxes)
    )


def _checked(box: Box) -> Box:
    bound = box.fields.get(LENGTH)
    if bound is None or bound.standing is not Standing.by_name:
        return box
    length, usable = evaluate(bound.expr), _positions(box)
    if not isinstance(length, int) or usable is None or length <= usable:
        return box
    words = f"only the name of the setting {bound.setting} suggests {length:,}, and the model has {usable:,} positions"
    doubtful = replace(bound, expr=Const(Unknown(words, Cause.not_set, (LENGTH,)), bound.origin))
    return replace(box, fields={**box.fields, LENGTH: doubtful})


def _positions(box: Box) -> int | None:
    """The positions of the model, where the files state it."""
    stated: dict[str, object] = {}
    for name, bound in box.fields.items():
        value = evaluate(bound.expr) if name.startswith(MODEL) and bound.standing.holds else None
        if isinstance(value, (str, int)):
            stated[name] = value
    found = positions_of(build(stated))
    return None if found is None else found.usable
