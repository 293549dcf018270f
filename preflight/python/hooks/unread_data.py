"""Whether a data set of the project keeps data that were not read: what it indexes for a sample, and nobody knows.

`self.rows = json.load(f)` with `self.rows[index]` keeps the file's content. Lists of file names are small, and what is
mapped from a file takes no memory of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from preflight.python.arrays import array_of
from preflight.python.evaluator import Evaluator
from preflight.python.known_kinds import FILE_NAMES
from preflight.python.objects import (
    Abstract,
    Attribute,
    ClassValue,
    Container,
    Instance,
    Key,
    alternatives,
    has_unknown,
    to_expr,
)
from preflight.python.tables import table_of
from preflight.python.texts import object_bytes, text_of
from preflight.vocabulary.values import Const, Unknown

_SMALL = FILE_NAMES | frozenset({
    "walk", "keys", "range", "permutation", "randperm", "len",
    "load_dataset", "load_from_disk", "File", "memmap", "open_memmap", "open_group", "open_zarr", "from_pretrained",
    "Compose", "LMDB", "Environment", "DataLoader",
})  # fmt: skip
"""Functions that give names, numbers, or what stays in its file."""
_DEPTH = 6


def keeps_unread(data: Instance, variables: Mapping[Key, Abstract], ev: Evaluator) -> bool:
    """Whether what a data set indexes outside of `__init__` may hold any amount of data: its own attributes, or
    `variables` of its module."""
    if data.cls is None:
        return False
    cls = data.cls
    return (
        _fills_cache(cls)
        or any(
            name in data.attributes and _is_unread(data.attributes[name], [*_assigned(cls, name)], ev)
            for name in _indexed(cls)
        )
        or any(
            name in variables and _is_unread(variables[name], [*_set_in_module(cls, name)], ev)
            for name in _indexed_variables(cls)
        )
    )


def _is_unread(value: Abstract, given: Sequence[ast.expr], ev: Evaluator, depth: int = 0) -> bool:
    """`given`: the expressions that the value may be of."""
    for one in alternatives(value):
        if array_of(one) is not None or depth > _DEPTH:
            continue
        if isinstance(one, Container) and one.count is not None and 0 in one.items and object_bytes(one.items[0], ev):
            continue
        if isinstance(one, Container):
            inner = [item for item in one.items.values() if not isinstance(item, Const) and text_of(item) is None]
            if any(_is_unread(item, given, ev, depth + 1) for item in inner):
                return True
            told = one.count is not None and not any(has_unknown(to_expr(item)) for item in one.items.values())
            made = one.open and not (one.superset or told or inner)
            if made and not all(map(_is_small, given or [ast.Name("unseen")])):
                return True
        elif isinstance(one, (Attribute, Instance)) or (isinstance(one, Const) and isinstance(one.value, Unknown)):
            maker: Abstract = one
            while isinstance(maker, Attribute):
                maker = maker.receiver
            own = isinstance(maker, Instance) and (
                maker.cls is not None or table_of(maker) is not None or not _SMALL.isdisjoint(_makers(maker))
            )
            if not own and (depth or not any(map(_is_small, given))):
                return True
    return False


def _makers(value: Instance) -> list[str]:
    mapped = value.record is not None and value.record.argument("mmap_mode", 1) is not None
    return [*value.made_by.split("."), *(["memmap"] if mapped else [])]


def _is_small(value: ast.expr) -> bool:
    """Whether an assigned value is a text, an empty list, or made by functions whose results are small."""
    item = value.value if isinstance(value, ast.DictComp) else getattr(value, "elt", None)
    calls = _calls(item) or _calls(value) if item is not None else _calls(value)
    if not calls:
        return isinstance(value, (ast.List, ast.Dict, ast.Constant))
    return any(ast.unparse(call.func).rpartition(".")[2] in _SMALL for call in calls)


def _calls(value: ast.expr) -> list[ast.Call]:
    return [node for node in ast.walk(value) if isinstance(node, ast.Call)]


def _indexed(cls: ClassValue) -> Iterator[str]:
    """`self.NAME[...]`, `self.NAME.iloc[...]`: the names, in methods other than `__init__`."""
    for node in _of_methods(cls, initial=False):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            where = node.value
            while isinstance(where, ast.Attribute) and not _is_own(where):
                where = where.value
            if isinstance(where, ast.Attribute):
                yield where.attr


def _indexed_variables(cls: ClassValue) -> Iterator[str]:
    """`NAME[...]`, `NAME.iloc[...]` of a name that the method does not set itself."""
    for node in _of_methods(cls, initial=False):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            where = node.value
            while isinstance(where, ast.Attribute):
                where = where.value
            if isinstance(where, ast.Name) and where.id not in _own_names(cls):
                yield where.id


def _fills_cache(cls: ClassValue) -> bool:
    """Whether its methods keep what they load: `self.cache[index] = np.load(...)`, but for what stays in its file."""
    return any(
        isinstance(target, ast.Subscript) and isinstance(target.value, ast.Attribute) and _is_own(target.value)
        and not isinstance(target.slice, ast.Slice) and bool(_calls(node.value)) and not _is_small(node.value)
        for node in _of_methods(cls, initial=False) if isinstance(node, ast.Assign)
        for target in node.targets
    )  # fmt: skip


def _own_names(cls: ClassValue) -> set[str]:
    """Parameters and variables of the methods of a class."""
    nodes = [*_of_methods(cls, initial=True)]
    set_here = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return set_here | {n.arg for n in nodes if isinstance(n, ast.arg)}


def _assigned(cls: ClassValue, name: str) -> Iterator[ast.expr]:
    """The values of `self.NAME = value` and of `self.NAME, x = value, y`."""
    for node in _of_methods(cls, initial=True):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            given = node.value if isinstance(node, ast.Assign) else target
            both = isinstance(target, ast.Tuple) and isinstance(given, ast.Tuple)
            pairs = zip(target.elts, given.elts, strict=False) if both else [(target, given)]  # type: ignore[attr-defined]
            for one, value in pairs:
                if isinstance(one, ast.Attribute) and _is_own(one) and one.attr == name:
                    yield value


def _set_in_module(cls: ClassValue, name: str) -> Iterator[ast.expr]:
    """The values of `NAME = value` in the module of a class."""
    for node in cls.module.nodes:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            yield node.value


def _of_methods(cls: ClassValue, initial: bool) -> Iterator[ast.AST]:
    for one in cls.lineage():
        for method in one.node.body:
            if isinstance(method, ast.FunctionDef) and (initial or method.name != "__init__"):
                yield from ast.walk(method)


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"
