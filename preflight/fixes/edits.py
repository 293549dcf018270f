"""From a Change of a Job field (or of an axis, or of the request) to edits of the text that the field comes from.

A Change becomes an edit only if the field is the text itself or one invertible operation on it. A new setting is
inserted only if the program or library is known to accept it. In all other cases there are no edits: None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from preflight.fixes import in_chunks
from preflight.fixes.guarded import GUARDED, guarded
from preflight.fixes.in_loop import in_loop, is_in_loop
from preflight.fixes.insert import insertion
from preflight.fixes.invert import solutions
from preflight.fixes.limits import limited
from preflight.fixes.text_edits import keep_items, replace_text
from preflight.vocabulary.findings import Change
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.spelling import Invalid, normal
from preflight.vocabulary.study import Bound, Box, Study
from preflight.vocabulary.text import CannotEdit, DocumentError, Edit
from preflight.vocabulary.values import (
    Axis,
    Cause,
    Choices,
    Const,
    Domain,
    Origin,
    Range,
    Ref,
    Unknown,
    Value,
    evaluate,
)

if TYPE_CHECKING:
    from preflight.vocabulary.verdicts import BoxVerdict

Edits = tuple[Edit, ...]


def edits(change: Change, study: Study, boxes: Sequence[BoxVerdict], project: Project) -> Edits | None:
    """The edits that carry out a change in every box of a study; None if no provable edits exist.

    An empty tuple means that the files have the value already.
    """
    meant = [verdict.box for verdict in boxes if _keeps(verdict, change)] if change.keep is not None else []
    return edits_in(change, study, project, meant)


def _keeps(verdict: BoxVerdict, change: Change) -> bool:
    """Whether the change keeps exactly the safe part of this box. Several branches may use one name for their axes."""
    return verdict.safe is not None and verdict.safe.keep.get(change.field) == change.keep


def edits_in(change: Change, study: Study, project: Project, meant: Sequence[Box] = ()) -> Edits | None:
    """The same without verdicts; `meant` are the boxes whose axis the change narrows (none: all boxes)."""
    try:
        if change.field.startswith("request."):
            return _request(change, study, project)
        if change.field == GUARDED:
            return guarded(study, project)
        if change.field == "validation.batch_size" and in_chunks.FACT in study.facts:
            return in_chunks.in_chunks(change.value, study, project)
        if is_in_loop(change, study):
            return in_loop(change, study, project)
        if change.by is not None:
            return limited(change, study, project)
        if change.keep is not None:
            return _axis(change, meant or study.boxes, project, bool(meant))
        return _field(change, study, project)
    except (CannotEdit, DocumentError, UnreadableFile, KeyError):
        return None


# --- Job fields -----------------------------------------------------------------------------------------------------


def _field(change: Change, study: Study, project: Project) -> Edits | None:
    found: dict[Edit, None] = {}
    for box in study.boxes:
        some = _in_box(change, box, study, project)
        if some is None:
            return None
        found.update(dict.fromkeys(some))
    return tuple(found)


def _in_box(change: Change, box: Box, study: Study, project: Project) -> Edits | None:
    bound = box.fields.get(change.field)
    if bound is None or (bound.default and bound.origin is None):
        if bound is not None and _worth(bound) == change.value:
            return ()
        return insertion(change, study, project)
    if _worth(bound) == change.value:
        return ()
    if bound.stated_by_user or isinstance(bound.expr, Ref):
        return None
    for literals in solutions(bound.expr, change.value):
        made = [_literal(const, value, bound, project) for const, value in literals]
        if all(edit is not None for edit in made):
            return tuple(edit for edit in made if edit is not None)
    return insertion(change, study, project)


def _worth(bound: Bound) -> Value:
    try:
        return normal(bound.field, evaluate(bound.expr), bound.setting)
    except Invalid:
        return Unknown("it is not a value that the field can have", Cause.invalid)


def _literal(const: Const, value: Value, bound: Bound, project: Project) -> Edit | None:
    """The edit of one literal. A name is written only if it is read back as the same value."""
    assert const.origin is not None
    if isinstance(value, str) and isinstance(const.value, str) and not _reads_back(const.value, value, bound):
        return None
    return replace_text(const.origin, value, project)


def _reads_back(old: str, value: str, bound: Bound) -> bool:
    """Whether the place accepts a name as a Job spells it, where it has another name now (`16-mixed`, `bf16-mixed`)."""
    try:
        same_spelling = normal(bound.field, old, bound.setting) == old
    except Invalid:
        return False
    return same_spelling or (bound.field in ("train.precision",) and "-" in value and "-" in old)


# --- axes -----------------------------------------------------------------------------------------------------------


def _axis(change: Change, boxes: Sequence[Box], project: Project, all_meant: bool) -> Edits | None:
    """Narrows an axis to the kept values: removes items of a list, or moves the bounds of a range."""
    assert change.keep is not None
    domains: dict[str, Domain] = {}
    for box in boxes:
        axis = _named(change.field, box)
        if axis is not None:
            domains.setdefault(repr(axis.domain), axis.domain)
    if not domains or (len(domains) > 1 and not all_meant):  # several branches use one name for different lists
        return None
    found: dict[Edit, None] = {}
    for domain in domains.values():
        some = _narrowed(domain, change.keep, project)
        if some is None:
            return None
        found.update(dict.fromkeys(some))
    return tuple(found)


def _narrowed(domain: Domain, keep: tuple[Value, ...], project: Project) -> Edits | None:
    if isinstance(domain, Choices):
        return _choices(domain, keep, project)
    return _range(domain, keep, project) if isinstance(domain, Range) else None


def _named(name: str, box: Box) -> Axis | None:
    """The axis of that name, else the axis that alone decides the Job field of that name."""
    by_name: Mapping[str, Axis] = {axis.name: axis for axis in box.axes}
    if name in by_name:
        return by_name[name]
    bound = box.fields.get(name)
    return by_name.get(bound.expr.name) if bound is not None and isinstance(bound.expr, Ref) else None


def _choices(domain: Choices, keep: tuple[Value, ...], project: Project) -> Edits | None:
    if len(domain.origins) != len(domain.values) or any(origin is None for origin in domain.origins):
        return None
    indices = [i for i, value in enumerate(domain.values) if any(_equal(value, one) for one in keep)]
    if not indices:
        return None
    if len(indices) == len(domain.values):
        return ()
    return keep_items([origin for origin in domain.origins if origin is not None], indices, project)


def _equal(one: Value, other: Value) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _range(domain: Range, keep: tuple[Value, ...], project: Project) -> Edits | None:
    found: list[Edit] = []
    for wanted, old, origin in (
        (keep[0], domain.low, domain.low_origin),
        (keep[-1], domain.high, domain.high_origin),
    ):
        if wanted == old:
            continue
        edit = None if origin is None or not origin.editable else replace_text(origin, wanted, project)
        if edit is None:
            return None
        found.append(edit)
    return tuple(found)


# --- the request ----------------------------------------------------------------------------------------------------

_OPTIONS = {"memory": "mem", "cpus_per_task": "cpus-per-task", "nodes": "nodes", "tasks_per_node": "ntasks-per-node"}
"""Fields of the request for which a new directive may be inserted."""


def _request(change: Change, study: Study, project: Project) -> Edits | None:
    name, request = change.field.removeprefix("request."), study.request
    if request is None or change.value is None or isinstance(change.value, (Unknown, Mapping, tuple)):
        return None
    size = name.startswith("memory")
    origin = request.origins.get(name)
    if origin is not None and getattr(request, name, None) is not None:
        if size and not _in_script(origin):
            written = _written_size(change.value, origin, project)
            edit = None if written is None else replace_text(origin, written, project)
            return None if edit is None else (edit,)
        edit = replace_text(origin, change.value, project, "slurm-size" if size else None)
        return None if edit is None else (edit,)
    if request.insert_at is None or name not in _OPTIONS or (size and _states_memory(request.origins)):
        return None
    return (_directive(_OPTIONS[name], change.value, request.insert_at, size, project),)


def _written_size(value: Value, origin: Origin, project: Project) -> Value:
    """A size for the configuration of a launcher: a number of GiB under `mem_gb`, else a text as sbatch takes it."""
    from preflight.documents.render import render

    if not isinstance(value, int):
        return None
    if origin.route and origin.route[-1] == "mem_gb":
        return value // 2**30 if value % 2**30 == 0 else None
    old = project.source(origin.path).text[origin.span.start : origin.span.end].strip("\"'")
    return render(old, value, "slurm-size")


def _in_script(origin: Origin) -> bool:
    return not origin.path.endswith((".yaml", ".yml", ".json"))


def _states_memory(origins: Mapping[str, Origin]) -> bool:
    """Whether memory is requested already: --mem, --mem-per-cpu and --mem-per-gpu exclude one another."""
    return bool({"memory", "memory_per_cpu", "memory_per_gpu"} & set(origins))


def _directive(option: str, value: Value, at: Origin, size: bool, project: Project) -> Edit:
    """A new `#SBATCH` line behind the last directive of the script."""
    from preflight.documents.render import render

    text = project.source(at.path).text
    written = render("1G", value, "slurm-size") if size else str(value)
    newline = "\r\n" if "\r\n" in text else "\n"
    start = at.span.start
    before = "" if start == 0 or text[start - 1] == "\n" else newline
    after = newline if (start < len(text) and not text.startswith(("\r", "\n"), start)) or before == "" else ""
    return Edit(at.path, at.span, f"{before}#SBATCH --{option}={written}{after}")
