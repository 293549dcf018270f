"""Loops over a module's parameters that switch their gradients, and the names that they test.

`for name, p in model.named_parameters(): p.requires_grad = "head" in name` freezes all parameters but those with "head"
in their name: ("*", "!*head*"). Such a text is a path of a module or parameter, or a pattern of `fnmatch` that whole
names of parameters match; "!" before it: they are trained. A later one decides over an earlier one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from msgspec import Struct

from preflight.program.call_site import around, assigned_values, scope_of
from preflight.python.objects import CallRecord
from preflight.vocabulary.project import Project

EVERY = "*"
EXCEPT = "!"


class Switched(Struct, frozen=True):
    """What a loop does: the parts, in the order of the program; none where the text does not say which. `trains`: it
    takes no gradients, but gives them."""

    parts: tuple[str, ...] = ()
    trains: bool = False


def is_pattern(part: str) -> bool:
    """Whether a text is a pattern, and not a path."""
    return any(sign in part for sign in "*?[")


def switched_in_loop(record: CallRecord, project: Project) -> Switched | None:
    """What the loop over a call's result (`model.parameters()`) switches; None if it switches nothing."""
    for node in around(record, project):
        if isinstance(node, ast.For):
            return _loop(node, record, project) if _within(node.iter, record.node) else None
        if isinstance(node, ast.comprehension):
            continue
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return _comprehension(node)
        if isinstance(node, ast.stmt):
            return None
    return None


def _within(whole: ast.AST, part: ast.AST) -> bool:
    return any(node is part for node in ast.walk(whole))


def _comprehension(node: ast.ListComp | ast.GeneratorExp) -> Switched | None:
    """`[p.requires_grad_(False) for p in model.parameters()]`."""
    values = [found[0] for call in ast.walk(node.elt) if (found := _set_by(call)) is not None]
    if not values:
        return None
    value = _bool(values[0])
    if len(values) > 1 or len(node.generators) > 1 or node.generators[0].ifs or value is None:
        return Switched(trains=all(_bool(one) for one in values))
    return Switched((EXCEPT + EVERY if value else EVERY,), value)


def _loop(loop: ast.For, record: CallRecord, project: Project) -> Switched | None:
    values = [found[0] for node in ast.walk(loop) if (found := _set_by(node)) is not None]
    if not values:
        return None
    trains = all(_bool(one) is True for one in values)
    changes = _changes(loop, _Names(loop, record, project)) if loop.iter is record.node else None
    parts = () if changes is None else tuple(part if not value else EXCEPT + part for part, value in changes)
    return Switched(parts, trains)


def _set_by(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """What `p.requires_grad = VALUE` or `p.requires_grad_(VALUE)` sets, and of what."""
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
            return node.value, target.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        return (given[0] if given else ast.Constant(True)), node.func.value
    return None


def _bool(node: ast.expr) -> bool | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, bool) else None


_Changes = list[tuple[str, bool]]
"""Parts, and whether they are trained from then on."""


def _changes(loop: ast.For, names: _Names) -> _Changes | None:
    """What a loop's body switches; None where the text does not say."""
    if loop.orelse or names.parameter is None:
        return None
    body, kept = list(loop.body), []
    if isinstance(body[0], ast.If) and not body[0].orelse and [type(one) for one in body[0].body] == [ast.Continue]:
        test = names.tested(body[0].test)  # `if "head" in name: continue`
        if test is None or not test.positive:
            return None
        kept, body = [(pattern, True) for pattern in test.patterns], body[1:]
    switching = [one for one in body if any(_set_by(node) is not None for node in ast.walk(one))]
    if len(switching) != 1 or any(
        isinstance(node, (ast.Break, ast.Continue)) for one in body for node in ast.walk(one)
    ):
        return None
    found = _of_statement(switching[0], names)
    if found is None or (kept and found != [(EVERY, False)]):
        return None
    return [*found, *kept]


def _of_statement(statement: ast.stmt, names: _Names) -> _Changes | None:
    if not isinstance(statement, ast.If):
        node = statement.value if isinstance(statement, ast.Expr) else statement
        found = _set_by(node)
        if found is None or not names.is_parameter(found[1]):
            return None
        value = _bool(found[0])
        if value is not None:
            return [(EVERY, value)]
        test = names.tested(found[0])
        return None if test is None else _decided(test, True, False)
    test = names.tested(statement.test)
    yes, no = _constant(statement.body, names), _constant(statement.orelse, names)
    if test is None or yes is None or (statement.orelse and no is None):
        return None
    if no is None and test.positive:
        return [(pattern, yes) for pattern in test.patterns]
    if no is None and not yes:
        return [(EVERY, False), *((pattern, True) for pattern in test.patterns)]
    return None if no is None else _decided(test, yes, no)


def _constant(body: Sequence[ast.stmt], names: _Names) -> bool | None:
    """The value that a block of one statement sets."""
    if len(body) != 1:
        return None
    found = _set_by(body[0].value if isinstance(body[0], ast.Expr) else body[0])
    return _bool(found[0]) if found is not None and names.is_parameter(found[1]) else None


def _decided(test: _Test, yes: bool, no: bool) -> _Changes:
    """One value where a test holds, and one where it does not."""
    matching, others = (yes, no) if test.positive else (no, yes)
    return [(EVERY, others), *((pattern, matching) for pattern in test.patterns)]


class _Test(Struct, frozen=True):
    """Whether a name matches one of some patterns, or none of them."""

    patterns: tuple[str, ...]
    positive: bool = True


class _Names:
    """The variables of a loop: a parameter and, in a loop over `named_parameters()`, its name."""

    def __init__(self, loop: ast.For, record: CallRecord, project: Project) -> None:
        self._record, self._project = record, project
        target = loop.target
        named = record.method == "named_parameters"
        both = target.elts if named and isinstance(target, ast.Tuple) and len(target.elts) == 2 else [None, target]
        name, parameter = both[0], both[1]
        self.name = name.id if isinstance(name, ast.Name) else None
        self.parameter = parameter.id if isinstance(parameter, ast.Name) and (named == (name is not None)) else None

    def is_parameter(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self.parameter

    def tested(self, node: ast.expr) -> _Test | None:
        """What a condition tests of the name; None where it tests something else."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.tested(node.operand)
            return None if inner is None else _Test(inner.patterns, not inner.positive)
        if isinstance(node, ast.BoolOp):
            return self._joined(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compared(node.left, node.ops[0], node.comparators[0])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and self._is_name(node.func.value):
            return self._ends(node.func.attr, node.args)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "any":
            return self._any(node.args)
        return None

    def _is_name(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self.name

    def _joined(self, node: ast.BoolOp) -> _Test | None:
        """`"a" in name or "b" in name`; `"a" not in name and "b" not in name`."""
        tests = [self.tested(one) for one in node.values]
        positive = isinstance(node.op, ast.Or)
        if any(one is None or one.positive != positive for one in tests):
            return None
        return _Test(tuple(pattern for one in tests if one is not None for pattern in one.patterns), positive)

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> _Test | None:
        if isinstance(op, (ast.In, ast.NotIn)) and self._is_name(right):
            texts = self._texts(left)
            form = "*{}*"
        elif isinstance(op, (ast.In, ast.NotIn)) and self._is_name(left):
            texts = None if isinstance(self._literal(right), str) else self._texts(right)  # a list of whole names
            form = "{}"
        elif isinstance(op, (ast.Eq, ast.NotEq)) and self._is_name(left):
            texts = self._texts(right)
            form = "{}"
        else:
            return None
        return _matching(texts, form, isinstance(op, (ast.In, ast.Eq)))

    def _ends(self, method: str, given: Sequence[ast.expr]) -> _Test | None:
        form = {"startswith": "{}*", "endswith": "*{}"}.get(method)
        return None if form is None or len(given) != 1 else _matching(self._texts(given[0]), form)

    def _any(self, given: Sequence[ast.expr]) -> _Test | None:
        """`any(word in name for word in ("head", "norm"))`."""
        if len(given) != 1 or not isinstance(given[0], (ast.GeneratorExp, ast.ListComp)):
            return None
        made = given[0]
        generator, element = made.generators[0], made.elt
        if len(made.generators) > 1 or generator.ifs or not isinstance(generator.target, ast.Name):
            return None
        word, texts = generator.target.id, self._texts(generator.iter)

        def is_word(node: ast.expr) -> bool:
            return isinstance(node, ast.Name) and node.id == word

        if isinstance(element, ast.Compare) and len(element.ops) == 1 and isinstance(element.ops[0], ast.In):
            fits = is_word(element.left) and self._is_name(element.comparators[0])
            return _matching(texts, "*{}*") if fits else None
        if isinstance(element, ast.Call) and isinstance(element.func, ast.Attribute) and len(element.args) == 1:
            form = {"startswith": "{}*", "endswith": "*{}"}.get(element.func.attr)
            fits = self._is_name(element.func.value) and is_word(element.args[0])
            return _matching(texts, form) if fits and form is not None else None
        return None

    def _texts(self, node: ast.expr) -> list[str] | None:
        value = self._literal(node)
        found = [value] if isinstance(value, str) else value
        texts = isinstance(found, (list, tuple)) and found and all(isinstance(one, str) for one in found)
        return [str(one) for one in found] if texts and isinstance(found, (list, tuple)) else None

    def _literal(self, node: ast.expr) -> object:
        """The value of a literal, or of a name that is assigned one and nothing else."""
        for one in self._values(node):
            try:
                found: object = ast.literal_eval(one)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                return None
            return found
        return None

    def _values(self, node: ast.expr) -> Iterator[ast.expr]:
        if not isinstance(node, ast.Name):
            yield node
            return
        scope = scope_of(self._record, self._project)
        found = assigned_values(node.id, scope) if scope is not None else []
        if scope is not None and len(found) == 1 and not _changed(node.id, scope):
            yield found[0]


def _changed(name: str, scope: ast.AST) -> bool:
    """Whether a name gets values in several places, or a method of its value may change it."""
    stored = 0
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and node.id == name:
            stored += isinstance(node.ctx, (ast.Store, ast.Del))
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.value, ast.Name):
            stored += node.value.id == name
    return stored > 1


def _matching(texts: Sequence[str] | None, form: str, positive: bool = True) -> _Test | None:
    if texts is None or any(not text for text in texts):
        return None
    plain = (text.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]") for text in texts)
    return _Test(tuple(form.format(text) for text in plain), positive)
