"""Structured configurations: `@dataclass` classes in a ConfigStore, read from the text of the program.

Nothing is imported. Fields and their defaults come from the syntax. A computed default is unknown; a field without a
default is `???`, as in OmegaConf.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from preflight.dialects.hydra.tree import MISSING, ConfigFile, ConfigTable, Entry, Item, Leaf, Listing
from preflight.vocabulary.budgets import NESTED_CLASSES
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.python_grammar import parse_module
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Origin, Span, Unknown


class _Module(Struct):
    """The classes, enumerations and plain lists that files define, by name."""

    classes: dict[str, tuple[ast.ClassDef, Source]] = field(default_factory=dict)
    values: dict[str, tuple[ast.expr, Source]] = field(default_factory=dict)


def stored(paths: Iterable[str], project: Project) -> dict[str, ConfigFile]:
    """Configurations that Python files register, by configuration path ("model/small")."""
    trees = list(_trees(paths, project))
    module = _Module()
    for tree, source in trees:
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                module.classes.setdefault(node.name, (node, source))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                module.values.setdefault(node.targets[0].id, (node.value, source))
    found: dict[str, ConfigFile] = {}
    for tree, source in trees:
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "store":
                one = _store(call, source, module)
                if one is not None:
                    found.setdefault(one[0], one[1])
    return found


def _trees(paths: Iterable[str], project: Project) -> Iterator[tuple[ast.Module, Source]]:
    for path in paths:
        try:
            source = project.source(path)
        except UnreadableFile:
            continue
        if "ConfigStore" in source.text or "@dataclass" in source.text:
            try:
                yield parse_module(source.text), source
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue


def _store(call: ast.Call, source: Source, module: _Module) -> tuple[str, ConfigFile] | None:
    """`store(name=..., node=..., group=..., package=...)` (hydra.core.config_store.ConfigStore.store)."""
    given: dict[str, ast.expr] = dict(zip(("name", "node", "group", "package"), call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    name, group, package = (_text(given.get(key)) for key in ("name", "group", "package"))
    if name is None or "node" not in given:
        return None
    item = _Reader(source, module).item(given["node"], source, 0)
    if not isinstance(item, ConfigTable):
        return None
    origin = _origin(call, source)
    listed = item.items.pop("defaults", None)
    entries = tuple(_entries(listed)) if isinstance(listed, Listing) else ()
    path = f"{group}/{name}" if group else name
    place = listed.origin if listed is not None and listed.origin is not None else origin
    return path.removesuffix(".yaml"), ConfigFile(source.path, item, entries, package, (), (), origin, place)


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _origin(node: ast.expr, source: Source, editable: bool = False) -> Origin:
    """The place of an expression; `ast` counts columns in UTF-8 bytes."""
    ends = []
    for line, column in ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)):
        before = source.line(line or 1).encode()[: column or 0].decode("utf-8", "ignore")
        ends.append(source.offset(line or 1, len(before) + 1))
    return Origin(source.path, Span(ends[0], ends[1]), None, (), editable)


def _entries(listed: Listing) -> Iterator[Entry]:
    for item in listed.items:
        place = item.origin or listed.origin
        if place is None:
            continue
        if isinstance(item, Leaf) and isinstance(item.value, str):
            yield Entry(item.value.partition("@")[0], place, None, item.value.partition("@")[2] or None)
        elif isinstance(item, ConfigTable) and len(item.items) == 1:
            [(key, option)] = item.items.items()
            value = option.value if isinstance(option, Leaf) else None
            *keywords, group = key.split(" ")
            group, _, package = group.partition("@")
            if value is None or isinstance(value, str):
                words = ("optional" in keywords, "override" in keywords)
                yield Entry(value, option.origin or place, group, package or None, *words)


class _Reader(Struct):
    """Makes items from expressions."""

    source: Source
    module: _Module

    def item(self, node: ast.expr, source: Source, depth: int) -> Item:
        """The item of an expression: a literal, a list, a table, or an instance of a known class."""
        origin = _origin(node, source)
        if depth > NESTED_CLASSES:
            return Leaf(Unknown("classes are nested too deeply", Cause.budget), origin)
        literal = _literal(node)
        if not isinstance(literal, Unknown):
            return Leaf(literal, _origin(node, source, editable=True))
        if isinstance(node, (ast.List, ast.Tuple)):
            return Listing(tuple(self.item(one, source, depth + 1) for one in node.elts), origin)
        if isinstance(node, ast.Dict):
            return self._dict(node, source, depth)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._name(node, source, depth)
        if isinstance(node, ast.Call):
            return self._call(node, source, depth)
        return Leaf(Unknown("the program computes its default", Cause.run_time), origin)

    def _dict(self, node: ast.Dict, source: Source, depth: int) -> Item:
        table = ConfigTable({}, _origin(node, source))
        for key, value in zip(node.keys, node.values, strict=True):
            name = _text(key)
            if name is not None:
                table.items[name] = self.item(value, source, depth + 1)
        return table

    def _name(self, node: ast.Name | ast.Attribute, source: Source, depth: int) -> Item:
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name == "MISSING":
            return Leaf(MISSING, _origin(node, source))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in self.module.classes:
            return Leaf(name, _origin(node, source))  # a member of an enumeration, which configurations name so
        if name in self.module.classes:
            return self.table(name, {}, source, depth + 1)
        if name in self.module.values:
            value, where = self.module.values[name]
            return self.item(value, where, depth + 1)
        return Leaf(Unknown(f"the program defines {name}", Cause.out_of_project), _origin(node, source))

    def _call(self, node: ast.Call, source: Source, depth: int) -> Item:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        if name == "field":
            made = given.get("default_factory")
            if isinstance(made, ast.Lambda):
                return self.item(made.body, source, depth + 1)
            if isinstance(made, ast.Name) and made.id in ("list", "dict"):
                return (
                    Listing((), _origin(node, source)) if made.id == "list" else ConfigTable({}, _origin(node, source))
                )
            default = made if made is not None else given.get("default")
            return (
                self.item(default, source, depth + 1) if default is not None else Leaf(MISSING, _origin(node, source))
            )
        if name in ("II", "SI") and node.args:  # omegaconf.II("a.b") is "${a.b}", SI is the text itself
            text = _text(node.args[0])
            if text is not None:
                return Leaf(f"${{{text}}}" if name == "II" else text, _origin(node, source))
        if name in self.module.classes:
            return self.table(name, given, source, depth + 1)
        return Leaf(Unknown(f"the program computes {name}()", Cause.run_time), _origin(node, source))

    def table(self, name: str, given: Mapping[str, ast.expr], source: Source, depth: int) -> ConfigTable:
        """An instance of a dataclass: the defaults of its fields (inherited ones first), and its arguments."""
        found = ConfigTable({}, None)
        node, where = self.module.classes[name]
        if depth <= NESTED_CLASSES:
            for base in node.bases:
                if isinstance(base, ast.Name) and base.id in self.module.classes and base.id != name:
                    found.items |= self.table(base.id, {}, where, depth + 1).items
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                if "ClassVar" in ast.unparse(line.annotation):
                    continue
                place = _origin(line.target, where)
                value = Leaf(MISSING, place) if line.value is None else self.item(line.value, where, depth + 1)
                found.items[line.target.id] = value
        for key, expression in given.items():
            found.items[key] = self.item(expression, source, depth + 1)
        return found


def _literal(node: ast.expr) -> bool | int | float | str | Unknown | None:
    """The value of a literal scalar; Unknown for anything else."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return sign * value
        if sign == 1 and (value is None or isinstance(value, (bool, str))):
            return value
    return Unknown("it is not a literal", Cause.not_read)
