"""What a data set's `__getitem__` hands out: views of an array in memory, copies of it, or arrays that numpy makes.

-> data.copies_samples and data.samples_from, which decide what the heaps of workers keep. Only what is returned as it
is made counts; a call of something else (a transform) says nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from preflight.dialects.reading import Binding
from preflight.libraries.common import TEXT_RANK, bind
from preflight.project import Project
from preflight.python.module import Module, load_module
from preflight.values import Const

_SHARE = ("from_numpy", "as_tensor")
"""torch functions whose tensor has the array's own memory."""
_COPY = ("tensor", "array")
"""Functions of torch and numpy that make another block of memory of what they are given."""
_COPIES = ("clone", "copy", "float", "half", "long", "astype")
"""Methods that make one of what they are called on (of another type, for casts)."""


def sample_bindings(paths: Sequence[str], project: Project) -> list[Binding]:
    """Of the first data set that tells."""
    for path in paths:
        module = load_module(path, project)
        for found in _told(module) if module is not None else ():
            return [found]
    return []


def _told(module: Module) -> Iterator[Binding]:
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ClassDef) or not any(ast.unparse(one).endswith("Dataset") for one in node.bases):
            continue
        read = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__getitem__"), None)
        for given in _returned(read) if read is not None else ():
            yield from _binding(given, module)


def _returned(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """The sample of what is returned: the first item of a tuple; a name is what it was last assigned."""
    assigned = {
        target.id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        given = node.value.elts[0] if isinstance(node.value, ast.Tuple) and node.value.elts else node.value
        yield assigned.get(given.id, given) if isinstance(given, ast.Name) else given


def _binding(given: ast.expr, module: Module) -> Iterator[Binding]:
    if not isinstance(given, ast.Call) or not isinstance(given.func, ast.Attribute):
        return
    origin, name = module.origin(given), given.func.attr
    inner = given.args[0] if name in (*_SHARE, *_COPY) and given.args else given.func.value
    if name in _SHARE and not _is_item(inner):
        yield bind("data.samples_from", Const("numpy", origin), TEXT_RANK)
    elif name in (*_COPY, *_COPIES) and _is_item(inner):
        yield bind("data.copies_samples", Const(True, origin), TEXT_RANK)


def _is_item(node: ast.expr) -> bool:
    """`self.NAME[...]`"""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and isinstance(node.value.value, ast.Name)
        and node.value.value.id == "self"
    )
