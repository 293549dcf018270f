"""Unintended changes of edits in a study: fields, axes, settings, the request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from preflight.documents.tree_edits import same
from preflight.vocabulary.findings import Change, Safety
from preflight.vocabulary.reading import Request
from preflight.vocabulary.spelling import Invalid, normal
from preflight.vocabulary.study import Bound, Box, Study
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import (
    Axis,
    Choices,
    Const,
    Domain,
    Expr,
    Op,
    Origin,
    Range,
    Ref,
    Unknown,
    Value,
    evaluate,
    names,
    origins,
    substitute,
)

HARMLESS = ("validation.", "data.", "machine.", "train.batch_size", "train.grad_accum")
"""Fields that a safe fix may change too when they are computed from the value that it edits (Ultralytics validates with
twice the batch). The batches of validation, the loading of data and the memory request do not change what the optimizer
computes. Whether batch and accumulation may change is decided by the rule that proposes it."""

COUNTED = ("validation.samples",)
"""Fields among them that decide what the evaluation says."""


class Intent(Struct, frozen=True):
    """The intended changes of edits."""

    changes: tuple[Change, ...]
    edits: tuple[Edit, ...]
    safety: Safety

    @property
    def named(self) -> frozenset[str]:
        return frozenset(change.field for change in self.changes)

    @property
    def pinned(self) -> dict[str, Expr]:
        """Axes of which one value is kept. They may become plain settings."""
        return {c.field: Const(c.keep[0]) for c in self.changes if c.keep is not None and len(c.keep) == 1}

    def touches(self, places: Iterable[Origin | None]) -> bool:
        """Whether one of the places is edited, or a place that its value passed through."""
        return any(
            place is not None and (any(_touches(edit, place) for edit in self.edits) or self.touches(place.via))
            for place in places
        )


def _touches(edit: Edit, place: Origin) -> bool:
    return edit.path == place.path and edit.span.start <= place.span.end and place.span.start <= edit.span.end


class Difference(Struct, frozen=True):
    """Something that changed although it was not meant to. `harmless`: it has to follow the edited value; a fix with
    such a difference is allowed, but it is not safe."""

    name: str
    harmless: bool = False


def differences(before: Study, after: Study, intent: Intent) -> Iterator[Difference]:
    """The changes between two readings of a study, except the intended ones."""
    if before.program != after.program or not _same_files(before, after, intent):
        yield Difference("the files that belong together")
    yield from requests(before.request, after.request, intent)
    later = {_key(box): box for box in after.boxes}
    for box in before.boxes:
        match = later.pop(_key(box), None)
        if match is None:
            if not _dropped(box, intent):
                yield Difference("a branch of the search")
            continue
        yield from _boxes(box, match, intent)
    if later:
        yield Difference("a branch of the search")


def _same_files(before: Study, after: Study, intent: Intent) -> bool:
    """Whether the same files are read. Files of options that a search drops need not be read any more."""
    if before.paths == after.paths:
        return True
    narrowed = any(change.keep is not None for change in intent.changes)
    return narrowed and after.paths[0] == before.paths[0] and set(after.paths) < set(before.paths)


def carried_over(own: Study, before: Study, after: Study, intent: Intent) -> Iterator[Difference]:
    """Named fields that edits change in another study too, where the change means something else: only half of it
    arrives (accumulation without the batch), or the study has other values."""
    named = [change.field for change in intent.changes if change.keep is None]
    changed = [name for name in named if not _equal(_worths(before, name), _worths(after, name))]
    for name in named if changed else []:
        if not _equal(_worths(before, name), _worths(own, name)) or (name not in changed and name in _stated(before)):
            yield Difference(name)


def _worths(study: Study, name: str) -> list[Value]:
    return [_worth(box.fields[name]) if name in box.fields else None for box in study.boxes]


def _stated(study: Study) -> set[str]:
    return {name for box in study.boxes for name in box.fields}


def _equal(one: list[Value], other: list[Value]) -> bool:
    return len(one) == len(other) and all(same(x, y) for x, y in zip(one, other, strict=True))


def _key(box: Box) -> str:
    return repr(sorted(box.fixed.items()))


def _dropped(box: Box, intent: Intent) -> bool:
    """Whether a branch was meant to be dropped: one of its fixed values is not kept."""
    return any(
        change.keep is not None and change.field in box.fixed and box.fixed[change.field] not in change.keep
        for change in intent.changes
    )


def _boxes(before: Box, after: Box, intent: Intent) -> Iterator[Difference]:
    yield from _axes(before.axes, after.axes, intent)
    for name in sorted(before.fields.keys() | after.fields.keys()):
        old, new = before.fields.get(name), after.fields.get(name)
        if old is not None and new is not None and _same_meaning(old.expr, new.expr, intent):
            continue
        if name in intent.named:
            if new is None or not _as_meant(name, new, intent):
                yield Difference(name)
        elif not _follows(name, old, new, intent):
            yield Difference(name)
        elif intent.changes and (not name.startswith(HARMLESS) or name in COUNTED):
            yield Difference(name, harmless=_bound_to_follow(name, old, before, intent))
    yield from _settings(before, after, intent)


def _as_meant(name: str, bound: Bound, intent: Intent) -> bool:
    """Whether a named field has the value that was asked for. Axes are compared elsewhere."""
    for change in intent.changes:
        if change.field == name and change.keep is None:
            return _worth(bound) is None or same(_worth(bound), change.value)
    return True


def _worth(bound: Bound) -> Value:
    """A field's value as a Job spells it; None if it is unknown or invalid."""
    try:
        value = normal(bound.field, evaluate(bound.expr), bound.setting)
    except Invalid:
        return None
    return None if isinstance(value, Unknown) else value


def _bound_to_follow(name: str, old: Bound | None, before: Box, intent: Intent) -> bool:
    """Whether one text is both this field and a named field: one setting with two names (the length of source and
    target). A model's configuration also follows the fields of the model, and the number of processes and nodes follows
    the request."""
    if name.startswith("model.") or (name.startswith("parallel.") and _requesting(intent)):
        return True
    named = [before.fields[name] for name in intent.named if name in before.fields]
    return old is not None and any(
        list(origins(old.expr)) == list(origins(o.expr)) and same_expr(old.expr, o.expr) for o in named
    )


def _follows(name: str, old: Bound | None, new: Bound | None, intent: Intent) -> bool:
    """Whether a field is computed from the edited text, or is stated now for the first time: by a text that a rule
    proposed, or by the request."""
    asked = name.startswith(("machine.", "parallel.")) and _requesting(intent)
    if old is not None and old.origin is None and asked:  # what the cluster gives by default
        return new is not None
    if old is None or (old.default and old.origin is None):
        return new is not None and (asked or not intent.changes)
    proposed = [new.origin] if new is not None and not intent.changes else []  # the text that was proposed says it now
    return intent.touches([*origins(old.expr), old.origin, *proposed])


def _requesting(intent: Intent) -> bool:
    return any(name.startswith("request.") for name in intent.named)


def _axes(before: Sequence[Axis], after: Sequence[Axis], intent: Intent) -> Iterator[Difference]:
    later = {axis.name: axis for axis in after}
    for axis in before:
        match = later.pop(axis.name, None)
        if match is None:
            if axis.name not in intent.pinned:
                yield Difference(axis.name)
            continue
        if same_domain(axis.domain, match.domain):
            continue
        meant = [change for change in intent.changes if change.field == axis.name or change.field in axis.fields]
        if (not meant and (intent.changes or not intent.touches(_places(axis)))) or any(
            change.keep is not None and not keeps(match.domain, change.keep) for change in meant
        ):
            yield Difference(axis.name)
    yield from (Difference(name) for name in later)


def _places(axis: Axis) -> list[Origin | None]:
    domain = axis.domain
    places = [axis.origin]
    if isinstance(domain, Choices):
        places += domain.origins
    elif isinstance(domain, Range):
        places += [domain.low_origin, domain.high_origin]
    return places


def keeps(domain: Domain, keep: tuple[Value, ...]) -> bool:
    if isinstance(domain, Choices):
        return len(domain.values) == len(keep) and all(same(x, y) for x, y in zip(domain.values, keep, strict=True))
    if isinstance(domain, Range) and keep:
        return bool(domain.low == keep[0] and domain.high == keep[-1])
    return False


def same_domain(one: Domain, other: Domain) -> bool:
    if isinstance(one, Choices) and isinstance(other, Choices):
        return same(one.values, other.values)
    if isinstance(one, Range) and isinstance(other, Range):
        return replace(one, low_origin=None, high_origin=None) == replace(other, low_origin=None, high_origin=None)
    return one == other


def _settings(before: Box, after: Box, intent: Intent) -> Iterator[Difference]:
    """Settings of the project that are no Job field. A setting that is computed from the edited value
    (`warmup: ${mul:${batch_size},10}`) may change, but then the fix is not safe. A plain copy of a named field's value
    counts as the same quantity under another name."""
    named = [before.fields[name].expr for name in intent.named if name in before.fields]
    later = [after.fields[name].expr for name in intent.named if name in after.fields]
    for name in sorted(before.constants.keys() | after.constants.keys()):
        old, new = before.constants.get(name), after.constants.get(name)
        if old is None or new is None:
            if intent.changes and old is not None and name not in intent.pinned:
                yield Difference(name)
            continue
        if _same_meaning(old, new, intent):
            continue
        if not intent.touches(origins(old)):
            if not (_among(old, named) and _among(new, later)):
                yield Difference(name)  # else: a named field is read from it, and the command line gives it now
        elif _written_elsewhere(name, old) and not _among(old, named):
            yield Difference(name, harmless=True)


def _among(expr: Expr, exprs: Iterable[Expr]) -> bool:
    return any(same_expr(expr, one) for one in exprs)


def _written_elsewhere(name: str, expr: Expr) -> bool:
    """Whether a number is written under another key than its own name."""
    if not isinstance(evaluate(expr), (int, float)):
        return False
    place = next(origins(expr), None)
    if place is None or place.route is None:
        return False
    return name.rsplit(".", 1)[-1].replace("-", "_") not in [str(step).replace("-", "_") for step in place.route]


def requests(before: Request | None, after: Request | None, intent: Intent) -> Iterator[Difference]:
    if before is None or after is None:
        if before is not after:
            yield Difference("the request")
        return
    for field in Request.__struct_fields__:
        if field in ("origins", "insert_at", "directives"):
            continue
        old, new = getattr(before, field), getattr(after, field)
        name = f"request.{field}"
        if old == new:
            continue
        if name in intent.named:
            wanted = [change.value for change in intent.changes if change.field == name]
            if not any(same(new, value) or _covers(new, value) for value in wanted):
                yield Difference(name)
        elif intent.changes or not (old is None or intent.touches([before.origins.get(field)])):
            yield Difference(name)


def _covers(found: Value, wanted: Value) -> bool:
    """SLURM counts memory in whole units: a request may be rounded up, by a hundredth at most."""
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not isinstance(wanted, (int, float)):
        return False
    return wanted <= found <= wanted * 1.01


def _same_meaning(old: Expr, new: Expr, intent: Intent) -> bool:
    """Whether two expressions are equal. An axis of which one value is kept may have become that value."""
    if same_expr(old, new):
        return True
    if not intent.pinned.keys() & set(names(old)):
        return False
    narrowed = substitute(old, intent.pinned)
    return same_expr(narrowed, new) or (not list(names(narrowed)) and same(evaluate(narrowed), evaluate(new)))


def same_expr(one: Expr, other: Expr) -> bool:
    """Whether two expressions are equal, wherever they are written."""
    if isinstance(one, Const) and isinstance(other, Const):
        return _same_constant(one.value, other.value)
    if isinstance(one, Ref) and isinstance(other, Ref):
        return one.name == other.name
    if isinstance(one, Op) and isinstance(other, Op):
        return (
            one.operator == other.operator
            and len(one.operands) == len(other.operands)
            and all(same_expr(x, y) for x, y in zip(one.operands, other.operands, strict=True))
        )
    return False


def _same_constant(one: Value, other: Value) -> bool:
    if isinstance(one, Unknown) or isinstance(other, Unknown):
        return isinstance(one, Unknown) and isinstance(other, Unknown)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same_constant(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(_same_constant(x, y) for x, y in zip(one, other, strict=True))
    return type(one) is type(other) and same(one, other)
