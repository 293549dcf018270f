"""What a model's name says that the files leave open: the model of a folder, the type that weights were saved in, the
size of a model that nobody knows.

`/data/models/Qwen2-7B-Instruct` is the model of that name, as an assumption. `org/Some-8B-Instruct` has at least 7.2
billion parameters, as an assumption: then the states of training are a lower bound.

People keep models that they downloaded in a folder of the model's own name. Where the folder is not there, its
`config.json` cannot say what lies in it, and its name is all that is known.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from preflight.memory.device.positions import saved_in_fp32
from preflight.memory.device.resolve import least_by_name, model_of_folder
from preflight.vocabulary.standing import AS_SAVED
from preflight.vocabulary.study import Bound, Box, Study
from preflight.vocabulary.values import Const

FIELD = "model.name"
_TYPES = ("train.weights_dtype", "train.precision")
_MARK = "a folder: "
"""Before the path in `Bound.where` of a model that its folder names."""
LEAST = "model.least_parameters"
_SAYS_MORE = ("model.parameters", LEAST, "model.law", "model.path", "model.target", "model.architecture")
_SIZED = "a name: "
"""Before the name in `Bound.where` of a count that only the name says."""


def with_named_folders(study: Study) -> Study:
    """The study with the model that the name of a folder says, where that folder is not there."""
    return _with_boxes(study, _named)


def _with_boxes(study: Study, change: Callable[[Box], Box]) -> Study:
    """The study with its boxes changed; itself where none is."""
    boxes = tuple(map(change, study.boxes))
    same = all(new is old for new, old in zip(boxes, study.boxes, strict=True))
    return study if same else replace(study, boxes=boxes)


def _named(box: Box) -> Box:
    bound = box.fields.get(FIELD)
    path = bound.expr.value if bound is not None and isinstance(bound.expr, Const) else None
    if bound is None or not isinstance(path, str) or bound.stated_by_user:
        return box
    name = model_of_folder(path)
    if name is None:
        return box
    named = replace(bound, expr=Const(name, bound.expr.origin), where=f"{_MARK}{path}")
    return replace(box, fields={**box.fields, FIELD: named})


def with_named_sizes(study: Study) -> Study:
    """The study with the least number of parameters that the name of an unknown model says."""
    return _with_boxes(study, _sized)


def _sized(box: Box) -> Box:
    bound = box.fields.get(FIELD)
    name = bound.expr.value if bound is not None and isinstance(bound.expr, Const) else None
    described = any(field in _SAYS_MORE or field.startswith("model.config") for field in box.fields)
    if bound is None or not isinstance(name, str) or described or (count := least_by_name(name)) is None:
        return box
    sized = replace(bound, field=LEAST, expr=Const(count, bound.expr.origin), losers=(), where=f"{_SIZED}{name}")
    return replace(box, fields={**box.fields, LEAST: sized})


def with_saved_types(study: Study) -> Study:
    """The study with weights in fp32 where a program loads them as they were saved (`torch_dtype="auto"`), and those of
    the model were saved so."""
    boxes = tuple(_loaded(box) for box in study.boxes)
    same = all(new is old for new, old in zip(boxes, study.boxes, strict=True))
    return study if same else replace(study, boxes=boxes)


def _loaded(box: Box) -> Box:
    name = box.fields.get(FIELD)
    if name is None or not isinstance(name.expr, Const) or not saved_in_fp32(name.expr.value):
        return box
    open_ = {field: bound for field in _TYPES if (bound := box.fields.get(field)) is not None and _as_saved(bound)}
    known = {field: replace(bound, expr=Const("fp32", bound.origin), default=True) for field, bound in open_.items()}
    return replace(box, fields={**box.fields, **known}) if known else box


def _as_saved(bound: Bound) -> bool:
    return isinstance(bound.expr, Const) and bound.expr.value == AS_SAVED


def says_only_a_name(bound: Bound) -> str | None:
    """Why a model is assumed that the name of a folder says, and a number of parameters that the name of the model
    says; None for any other."""
    mark, _, name = bound.where.partition(": ")
    if f"{mark}: " == _MARK:
        return f"only the name of the folder {name} says which model lies in it"
    return f"only the name {name} says how large the model is" if f"{mark}: " == _SIZED else None
