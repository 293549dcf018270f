"""Limits of a suggested value that depend on another one: what a trial may suggest for each model.

`trial.suggest_int("batch", 4, 64)` becomes `trial.suggest_int("batch", 4, 16 if name == "bert-large-uncased" else 64)`.
Optuna accepts other bounds under one name, and no other choices: a call with choices becomes one for each group of
models, under names of their own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat

from msgspec import Struct

from preflight.documents.layout import line_end, line_start, newline_of
from preflight.documents.python import PythonDocument, parse_python
from preflight.documents.render import render
from preflight.fixes.python_names import SCOPES, Parents, above, binds, called, indent_at, parents_of
from preflight.vocabulary.findings import Change
from preflight.vocabulary.project import Project
from preflight.vocabulary.study import Box, Study
from preflight.vocabulary.text import CannotEdit, Edit
from preflight.vocabulary.values import Axis, Choices, Origin, Range, Span, Value

Kept = tuple[Value, ...]

_BOUNDED = ("suggest_int", "suggest_float", "suggest_uniform", "suggest_loguniform", "suggest_discrete_uniform")
_LISTED = ("print", "pprint", "debug", "info", "warning", "log", "dump", "dumps")
"""Calls that show parameters, whatever names they have."""
_RECORDS = ("params", "best_params", "hyperparameters")
"""Attributes that hold what was suggested, by the names it was suggested under."""
LINE = 120
"""Characters of a line up to which a limit stays in it."""


def branch_name(name: str, kept: Kept) -> str:
    """The name under which a trial suggests only some of an axis's choices: `batch_to_16`."""
    numbers = [one for one in kept if isinstance(one, (int, float)) and not isinstance(one, bool)]
    return f"{name}_to_{max(numbers)}" if len(numbers) == len(kept) else f"{name}_{len(kept)}"


def limited(change: Change, study: Study, project: Project) -> tuple[Edit, ...] | None:
    """The edits of the calls that suggest an axis. None where a call, or the place of the other axis's value, is not
    plain. Raises CannotEdit, DocumentError."""
    other = _other(change, study, project)
    edits: list[Edit] = []
    calls = _calls(change, study)
    for axis, kept in calls:
        if all(_is_whole(axis, one) for one in kept.values()):
            continue
        if axis.origin is None or other.origin is None or axis.origin.path != other.origin.path:
            return None
        call = _Call(parse_python(project.source(axis.origin.path)), axis, other, kept)
        if isinstance(axis.domain, Choices):
            if len(calls) > 1 and not _is_whole(axis, call.groups[0][0]):
                raise CannotEdit("another call would suggest other choices under the same name")
            _names_are_free(call, study, project)
        edits.append(call.edit())
    return tuple(edits) or None


def _calls(change: Change, study: Study) -> list[tuple[Axis, dict[Value, Kept]]]:
    """The calls that suggest the axis, each with what stays for the values of the other axis that lead to it. Raises
    CannotEdit where that is not known for all of them."""
    assert change.by is not None
    kept = dict(change.by.kept)
    found: dict[Origin | None, tuple[Axis, dict[Value, Kept]]] = {}
    for box in study.boxes:
        axis = next((one for one in box.axes if one.name == change.field), None)
        if axis is None:
            continue
        known, own = found.setdefault(axis.origin, (axis, {}))
        if known.domain != axis.domain:
            raise CannotEdit("one call suggests several ranges")
        for value in _values(change.by.axis, box):
            if not isinstance(value, str):
                raise CannotEdit("what the limit depends on is no text")
            if value in kept:
                own[value] = kept[value]
    return list(found.values())


def _values(name: str, box: Box) -> tuple[Value, ...]:
    axis = next((one for one in box.axes if one.name == name), None)
    if axis is not None and isinstance(axis.domain, Choices):
        return axis.domain.values
    if name in box.fixed:
        return (box.fixed[name],)
    raise CannotEdit("what the limit depends on is not known everywhere")


def _other(change: Change, study: Study, project: Project) -> Axis:
    """The axis that the limits depend on, all of whose choices are written where they are listed: of a function or a
    class, only its name is known."""
    assert change.by is not None
    for box in study.boxes:
        for axis in box.axes:
            domain = axis.domain
            if axis.name == change.by.axis and isinstance(domain, Choices):
                if not domain.origins or not all(map(_is_text, domain.origins, domain.values, repeat(project))):
                    raise CannotEdit("the choices are not written as texts")
                return axis
    raise CannotEdit("no call suggests what the limit depends on")


def _is_text(origin: Origin | None, value: Value, project: Project) -> bool:
    """Whether a literal text stands at the place of a value."""
    if origin is None:
        return False
    try:
        return bool(ast.literal_eval(project.source(origin.path).text[origin.span.start : origin.span.end]) == value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def _is_whole(axis: Axis, kept: Kept) -> bool:
    domain = axis.domain
    if isinstance(domain, Choices):
        return kept == domain.values
    return isinstance(domain, Range) and kept == (domain.low, domain.high)


def _names_are_free(call: _Call, study: Study, project: Project) -> None:
    """Raises CannotEdit if a new name is used already, or if the program looks the parameter up by its old name."""
    new = [branch_name(call.axis.name, kept) for kept, _ in call.groups[1:]]
    if len(set(new)) < len(new):
        raise CannotEdit("two branches would have one name")
    for path in study.paths:
        if not path.endswith(".py"):
            continue
        document = parse_python(project.source(path))
        for node in ast.walk(document.tree):
            if isinstance(node, ast.Constant) and node.value in new:
                raise CannotEdit("the name of a branch is used already")
        if any(_looked_up(document.tree, call.axis.name)):
            raise CannotEdit("the program looks up what was suggested")


def _looked_up(tree: ast.AST, name: str) -> Iterator[bool]:
    """Whether the program uses what was suggested by its name: for more than to show it, or to look up another one."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Call) and called(node) in _LISTED:
            continue
        if isinstance(node, ast.Subscript) and _is_params(node.value) and isinstance(node.slice, ast.Constant):
            yield node.slice.value == name
            continue
        if isinstance(node, ast.keyword) and node.arg == "params":
            yield any(isinstance(one, ast.Constant) and one.value == name for one in ast.walk(node.value))
        yield _is_params(node) or (isinstance(node, ast.Constant) and node.value == f"params_{name}")
        pending += ast.iter_child_nodes(node)


def _is_params(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _RECORDS


class _Call(Struct, frozen=True, eq=False, dict=True):
    """A call that suggests an axis, and what stays of it for each value of another axis."""

    document: PythonDocument
    axis: Axis
    other: Axis
    kept: Mapping[Value, Kept]

    @cached_property
    def groups(self) -> list[tuple[Kept, list[str]]]:
        """What stays, with the values of the other axis; the widest first, which is what all others get."""
        found: dict[Kept, list[str]] = {}
        for value, kept in self.kept.items():
            found.setdefault(kept, []).append(str(value))
        return sorted(found.items(), key=lambda one: (_width(self.axis, one[0]), len(one[1])), reverse=True)

    @cached_property
    def node(self) -> ast.Call:
        return self._at(self.axis)

    def _at(self, axis: Axis) -> ast.Call:
        for node in ast.walk(self.document.tree):
            if not isinstance(node, ast.Call) or axis.origin is None or self.document.span(node) != axis.origin.span:
                continue
            if isinstance(node.func, ast.Attribute) and not any(key.arg is None for key in node.keywords):
                return node
        raise CannotEdit("it is not suggested by a call")

    def edit(self) -> Edit:
        """The edit of the call's upper bound, or of the call."""
        if isinstance(self.axis.domain, Choices):
            return self._of_choices(self.axis.domain)
        if isinstance(self.axis.domain, Range):
            return self._of_bound(self.axis.domain)
        raise CannotEdit("it has no bounds")

    def _argument(self, name: str, position: int) -> ast.expr:
        given = next((key.value for key in self.node.keywords if key.arg == name), None)
        if given is None and len(self.node.args) > position:
            given = self.node.args[position]
        if given is None or any(isinstance(one, ast.Starred) for one in self.node.args):
            raise CannotEdit(f"{name} is not given by itself")
        return given

    def _of_bound(self, domain: Range) -> Edit:
        node = self._argument("high", 2)
        if called(self.node) not in _BOUNDED or any(kept[0] != domain.low for kept in self.kept.values()):
            raise CannotEdit("a lower bound would have to rise")
        if not isinstance(node, (ast.Constant, ast.Name, ast.Attribute)):
            raise CannotEdit("the bound is no plain number")
        old = self.document.text(node)
        (widest, _), *rest = self.groups
        whole = old if widest[-1] == domain.high else render("1", widest[-1], "python")
        texts = [(render("1", kept[-1], "python"), values) for kept, values in rest]
        span = self.document.span(node)
        limit = "".join(f"{text} if {self._test(values)} else " for text, values in texts)
        if len(texts) < 2 and self._fits_in_line(span, limit):
            return Edit(self._path, span, f"{limit}{whole}")
        limits = {value: text for text, values in texts for value in values}
        indent = indent_at(self.document, span.start)
        table = [f"{indent}    {_quoted(value)}: {limits[value]}," for value in self.kept if value in limits]
        return Edit(self._path, span, self._lines(["{", *table, f"{indent}}}.get({self._value}, {whole})"]))

    def _of_choices(self, domain: Choices) -> Edit:
        name, choices = self._argument("name", 0), self._argument("choices", 1)
        if not isinstance(name, ast.Constant) or name.value != self.axis.name:
            raise CannotEdit("the call has no plain name")
        (widest, _), *rest = self.groups
        if not rest:
            return Edit(self._path, self.document.span(choices), self._choices(domain, widest))
        lines: list[str] = []
        for kept, values in rest:
            called = f"{self.document.text(self.node.func)}({_quoted(branch_name(self.axis.name, kept))}, "
            lines += [f"{'else ' if lines else ''}{called}{self._choices(domain, kept)})", f"if {self._test(values)}"]
        last = self.document.text(self.node)
        if widest != domain.values:
            last = f"{self.document.text(self.node.func)}({self.document.text(name)}, {self._choices(domain, widest)})"
        span = self.document.span(self.node)
        indent = indent_at(self.document, span.start)
        body = [f"{indent}    {line}" for line in (*lines, f"else {last}")]
        return Edit(self._path, span, self._lines(["(", *body, f"{indent})"]))

    def _choices(self, domain: Choices, kept: Kept) -> str:
        """A list of some choices, each as it is written."""
        texts = []
        for value in kept:
            origin = dict(zip(domain.values, domain.origins, strict=False)).get(value)
            own = origin is not None and origin.editable and origin.path == self._path
            old = self.document.source.text[origin.span.start : origin.span.end] if own and origin is not None else ""
            texts.append(old if own else render("", value, "python"))
        return f"[{', '.join(texts)}]"

    # --- the value of the other axis ----------------------------------------------------------------------------------

    def _test(self, values: Sequence[str]) -> str:
        """The condition that the other axis has one of the values."""
        if len(values) == 1:
            return f"{self._value} == {_quoted(values[0])}"
        return f"{self._value} in ({', '.join(map(_quoted, values))})"

    @cached_property
    def _value(self) -> str:
        """The value of the other axis at the call: the variable that holds it, else the trial's own record of it."""
        variable = self._variable()
        if variable is not None:
            return variable
        trial = self.node.func.value if isinstance(self.node.func, ast.Attribute) else None
        if not isinstance(trial, (ast.Name, ast.Attribute)):
            raise CannotEdit("the trial has no name")
        return f"{self.document.text(trial)}.params[{_quoted(self.other.name)}]"

    def _variable(self) -> str | None:
        """The variable of the same function that a statement before the call assigns, and no other one."""
        parents = parents_of(self.document)
        suggested = self._at(self.other)
        assigned = parents[suggested]
        targets = assigned.targets if isinstance(assigned, ast.Assign) else []
        if len(targets) != 1 or not isinstance(targets[0], ast.Name):
            return None
        name = targets[0].id
        around = list(above(self.node, parents))
        scope = next((node for node in around if isinstance(node, SCOPES)), self.document.tree)
        if scope is not next((n for n in above(suggested, parents) if isinstance(n, SCOPES)), self.document.tree):
            return None
        stored = [node for node in ast.walk(scope) if binds(node, name)]
        earlier = self.document.span(assigned).end <= self.document.span(self.node).start
        return name if len(stored) == 1 and earlier and _runs_before(assigned, around, parents) else None

    # --- text ---------------------------------------------------------------------------------------------------------

    @property
    def _path(self) -> str:
        return self.document.source.path

    def _lines(self, lines: Sequence[str]) -> str:
        return newline_of(self.document.source.text, 0).join(lines)

    def _fits_in_line(self, span: Span, more: str) -> bool:
        text = self.document.source.text
        return not more or line_end(text, span.end) - line_start(text, span.start) + len(more) <= LINE


def _width(axis: Axis, kept: Kept) -> float:
    """How much stays: of a range up to where, of choices how many."""
    top = kept[-1]
    return float(top) if isinstance(axis.domain, Range) and isinstance(top, (int, float)) else len(kept)


def _runs_before(statement: ast.AST, around: Sequence[ast.AST], parents: Parents) -> bool:
    """Whether a statement stands in one of the blocks around a later place, so that it always runs before it."""
    holder = parents[statement]
    return any(
        statement in block and any(one in block for one in around)
        for block in (getattr(holder, name, None) for name in ("body", "orelse", "finalbody"))
        if isinstance(block, list)
    )


def _quoted(text: str) -> str:
    """A text as Python writes it, in double quotes where that needs no escapes."""
    return f'"{text}"' if text.isprintable() and not set(text) & set('"\\') else repr(text)
