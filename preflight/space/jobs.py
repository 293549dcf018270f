"""Makes the Jobs of a Box from a value for each axis, with the fields that are unknown."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property

from msgspec import Struct

from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.edits_of_job import unchecked
from preflight.vocabulary.job import Job, identity
from preflight.vocabulary.job import build as build_job
from preflight.vocabulary.spelling import Invalid, normal
from preflight.vocabulary.study import Bound, Box, Source
from preflight.vocabulary.values import Cause, Const, Unknown, Value, evaluate, names, shape, thawed, without_places

_MAKERS: BoundedCache[JobMaker] = BoundedCache(64)
_MADE: BoundedCache[MadeJob] = BoundedCache(256)
"""Jobs by their values: the launches of a tree are many, and have few different ones."""


OF_RELEASES = ("train.attention",)
"""Fields whose default depends on the release of the library: transformers computed attention step by step before its
models had scaled_dot_product_attention."""


class MadeJob(Struct, frozen=True):
    """One combination as a Job. `unknown`: for each unknown Job field, the reason."""

    job: Job
    unknown: Mapping[str, str]


class JobMaker(Struct, frozen=True, dict=True):
    """Makes the Jobs of one box. Fields that no axis feeds are evaluated once."""

    box: Box

    def at(self, assignment: Mapping[str, Value]) -> MadeJob:
        """The Job for these values of the axes. An axis without a value is unknown."""
        if not self._varying:
            return self._base
        env = {name: Const(value) for name, value in assignment.items()}
        values: dict[str, object] = {}
        unknown = dict(self._base.unknown)
        for bound in self._varying:
            _put(bound, evaluate(bound.expr, env), values, unknown)
        if any(isinstance(value, (dict, list)) for value in values.values()):  # not checked field by field
            return _made({**self._fixed[0], **values}, dict(unknown))
        return MadeJob(unchecked(self._base.job, values), unknown)

    def key(self, assignment: Mapping[str, Value]) -> tuple[str, ...]:
        """The values that the memory of the Job depends on: equal keys mean equal estimates."""
        env = {name: Const(value) for name, value in assignment.items()}
        return tuple(_memory_key(bound.field, evaluate(bound.expr, env)) for bound in self._varying)

    @cached_property
    def meaning(self) -> Hashable:
        """What decides the Jobs of the box, without the places where it is written."""
        varying = tuple((bound.field, bound.setting, shape(bound.expr)) for bound in self._varying)
        axes = tuple((axis.name, without_places(axis.domain), axis.fields) for axis in self.box.axes)
        return identity(self._base.job), varying, axes

    @cached_property
    def _base(self) -> MadeJob:
        """The Job with the fields that all combinations share; fields that an axis feeds have their defaults."""
        values, unknown = self._fixed
        key = repr(values), tuple(unknown.items())
        return _MADE.get(None, key, lambda: _made(dict(values), dict(unknown)))

    @cached_property
    def _varying(self) -> tuple[Bound, ...]:
        return tuple(bound for bound in self.box.fields.values() if any(True for _ in names(bound.expr)))

    @cached_property
    def _fixed(self) -> tuple[Mapping[str, object], Mapping[str, str]]:
        values: dict[str, object] = {}
        unknown: dict[str, str] = {}
        varying = {bound.field for bound in self._varying}
        for bound in self.box.fields.values():
            if bound.field not in varying and not _left_to_the_law(bound):
                _put(bound, evaluate(bound.expr), values, unknown)
        return values, unknown


def _left_to_the_law(bound: Bound) -> bool:
    """Whether a default is preflight's, of a field for which laws know another: of the model and its release."""
    return bound.default and bound.source is Source.preflight and bound.field in OF_RELEASES


def job_maker(box: Box) -> JobMaker:
    """The maker of a box's Jobs, shared by all that ask for one: the search of each side, rules, fixes."""
    return _MAKERS.get(box, None, lambda: JobMaker(box))


def _memory_key(field: str, value: Value) -> str:
    """The part of a value that memory depends on.

    Accumulation over 2 or 20 micro-batches needs the same memory: gradients live through the next forward pass.
    """
    if field == "train.grad_accum" and isinstance(value, (int, float)):
        value = min(value, 2)
    return repr(value)


def _put(bound: Bound, value: Value, values: dict[str, object], unknown: dict[str, str]) -> None:
    try:
        found = normal(bound.field, value, bound.setting)
    except Invalid as error:
        found = Unknown(str(error), Cause.invalid)
    if isinstance(found, Unknown):
        unknown[bound.field] = found.words
        values[bound.field] = None
    elif _holds_unknown(found):
        unknown[bound.field] = "a part of it is unknown"
        values[bound.field] = thawed(_known_part(found))
    else:
        values[bound.field] = thawed(found)


def _holds_unknown(value: Value) -> bool:
    if isinstance(value, tuple):
        return any(_holds_unknown(item) for item in value)
    if isinstance(value, Mapping):
        return any(_holds_unknown(item) for item in value.values())
    return isinstance(value, Unknown)


def _known_part(value: Value) -> Value:
    if isinstance(value, Mapping):
        return {key: _known_part(item) for key, item in value.items() if not _holds_unknown(item)}
    return None if _holds_unknown(value) else value


def _made(values: dict[str, object], unknown: dict[str, str]) -> MadeJob:
    """A Job of the values. A field that the schema refuses is unknown."""
    from pydantic import ValidationError

    values = _nested(values)
    for _ in range(len(values) + 1):
        try:
            return MadeJob(build_job(values), unknown)
        except ValidationError as error:
            for detail in error.errors():
                _drop(".".join(str(part) for part in detail["loc"]), detail["msg"], values, unknown)
    return MadeJob(Job(), unknown)


def _drop(location: str, message: str, values: dict[str, object], unknown: dict[str, str]) -> None:
    """Make the field at a location of the schema unknown (or the field that contains the location)."""
    matches = [name for name in values if location == name or location.startswith(f"{name}.")]
    for name in matches or [name for name in values if name.startswith(f"{location}.")] or list(values)[:1]:
        values.pop(name)
        unknown.setdefault(name, message)


def _nested(values: dict[str, object]) -> dict[str, object]:
    """The values, with fields of a mapping (`model.config.n_layer`) put into a copy of it (`model.config`)."""
    found: dict[str, object] = {}
    for name in sorted(values, key=lambda field: field.count(".")):
        value = values[name]
        parent, _, key = name.rpartition(".")
        holder = found.get(parent)
        if isinstance(holder, dict):
            holder[key] = value
        else:
            found[name] = dict(value) if isinstance(value, dict) else value
    return found
