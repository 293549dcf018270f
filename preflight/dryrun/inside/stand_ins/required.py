"""Questions whether a file is there, of programs that end if it is not: they are answered yes.

What the program then does with the file decides: it is made up, or one line names it.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from .. import places
from ..patches import wrap
from ..tape import Tape
from .own_code import called_by_program, ends, may_be_missing, program_frame, tree_of

_ASKS = ("exists", "isfile", "isdir", "is_file", "is_dir")


@functools.cache
def _required_at(path: str) -> frozenset[int]:
    """Lines of a file on which a question stands whose answer "no" ends the program."""
    found: set[int] = set()
    asked: set[str] = set()
    for node in ast.walk(tree_of(path)):
        tests: list[ast.expr] = []
        if isinstance(node, ast.Assert):
            tests = _parts(node.test, ast.And)
        elif isinstance(node, ast.If):
            if ends(node.body):
                parts = _parts(node.test, ast.Or)
                tests = [one.operand for one in parts if isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.Not)]
            elif ends(node.orelse):
                tests = _parts(node.test, ast.And)
        for one in tests:
            if _asks(one):
                found.update(range(one.lineno, (one.end_lineno or one.lineno) + 1))
            elif isinstance(one, ast.Call):
                asked.add(getattr(one.func, "attr", "") or getattr(one.func, "id", ""))
    for node in ast.walk(tree_of(path)):  # functions that answer such a question: `return os.path.exists(folder)`
        if isinstance(node, ast.FunctionDef) and node.name in asked:
            for answer in ast.walk(node):
                if isinstance(answer, ast.Return) and any(map(_asks, ast.walk(answer))):
                    found.update(range(answer.lineno, (answer.end_lineno or answer.lineno) + 1))
    return frozenset(found)


def _asks(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _ASKS


def _parts(test: ast.expr, kind: type[ast.boolop]) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, kind) else [test]


class Required:
    """The answers to such questions. `made`: whether a name was made up for a folder, so that it is a file there."""

    def __init__(self, tape: Tape, made: Callable[[str], bool]) -> None:
        self._tape, self._made = tape, made

    def _asked(self, real: Any, path: Any, *args: Any, **kwargs: Any) -> bool:
        if real(path, *args, **kwargs):
            return True
        if sys._getframe(2).f_code.co_filename.startswith(places.HERE):
            return False  # a stand-in asks
        frame = program_frame() if isinstance(path, (str, os.PathLike)) else None
        if frame is not None and self._made(os.fspath(path)):
            return True
        if frame is None or frame.f_lineno not in _required_at(frame.f_code.co_filename) or may_be_missing():
            return False
        self._tape.data_made_up = True
        self._tape.assume(f"{os.fspath(path)} is not there, and the program needs it: it was told that it is")
        return True

    def paths(self, module: Any) -> None:
        """os.path."""
        for name in ("exists", "isfile", "isdir"):
            wrap(module, name, self._asked)

    def integrity(self, module: Any) -> None:
        """torchvision.datasets.utils: whether a file is whole, asked by a data set of the program's own."""

        def whole(real: Any, path: Any, *args: Any, **kwargs: Any) -> bool:
            if real(path, *args, **kwargs):
                return True
            if os.path.exists(path) or not called_by_program() or may_be_missing():
                return False
            self._tape.data_made_up = True
            self._tape.assume(f"{os.fspath(path)} is not there, and the program needs it: it was told that it is")
            return True

        wrap(module, "check_integrity", whole)

    def objects(self, module: Any) -> None:
        """pathlib."""
        for name in ("exists", "is_file", "is_dir"):
            wrap(module.Path, name, self._asked)
