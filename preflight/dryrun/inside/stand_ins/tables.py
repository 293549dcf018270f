"""Tables that are not there (CSV, TSV, JSON lines, Parquet): made up, with a column for each name that is used.

Nothing tells how many columns the true table has, nor what is in them. So a program that takes columns by their
places is not served, and the verdict on one that takes them by name depends on it.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from .. import places
from ..patches import wrap
from ..tape import Tape
from .data_sets import cell
from .weights import asked_by_program, may_be_missing

ROWS = 256
MOST = 32
"""Columns of a made-up table."""
_NAME = re.compile(r"\w[\w .-]{0,40}")
_READERS = ("read_csv", "read_table", "read_parquet", "read_excel", "read_feather", "read_json")
_MADE = "made up by a dry run"


def names_used() -> list[str]:
    """Texts by which the program's own modules take something from something: `row["label"]`, `get("text")`."""
    found: dict[str, None] = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py") and places.is_users(path):
            try:
                with open(path, encoding="utf-8") as file:
                    tree = ast.parse(file.read())
            except (OSError, SyntaxError, ValueError):
                continue
            found.update(dict.fromkeys(_texts(tree)))
    return [name for name in found if _NAME.fullmatch(name)][:MOST]


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            asked = node.slice.elts if isinstance(node.slice, (ast.List, ast.Tuple)) else [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            asked = node.args[:1]
        yield from (one.value for one in asked if isinstance(one, ast.Constant) and isinstance(one.value, str))


class Tables:
    """What stands for tables that are not there."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def _columns(self, path: Any, stated: Any = None) -> list[str]:
        """The columns of a table that is not there, which is said; none where it cannot be made up."""
        if not isinstance(path, (str, os.PathLike)) or "://" in os.fspath(path) or may_be_missing():
            return []
        texts = [one for one in stated if isinstance(one, str)] if isinstance(stated, (list, tuple)) else []
        columns = texts or names_used()
        if columns:
            self._tape.data_made_up = True
            words = f"the table {os.fspath(path)} is made up: {ROWS} rows, a column for each name that the program uses"
            self._tape.assume(words, "model.config")
            self._tape.assume(f"the texts of {os.fspath(path)} are longer than most programs cut them", "train.seq_len")
        return columns

    def pandas(self, module: Any) -> None:
        """pandas: functions that read a table, and columns that a made-up one gets when they are asked for."""

        def read(real: Any, path: Any = None, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(path, *args, **kwargs)
            except FileNotFoundError:
                stated = kwargs.get("names") or kwargs.get("usecols")
                if (kwargs.get("header", 0) is None and not stated) or not asked_by_program():
                    raise
                columns = self._columns(path, stated)
                if not columns:
                    raise
            frame = module.DataFrame({name: [cell(name, number) for number in range(ROWS)] for name in columns})
            frame.attrs[_MADE] = True
            return frame.head(kwargs["nrows"]) if kwargs.get("nrows") else frame

        def taken(real: Any, frame: Any, key: Any) -> Any:
            try:
                return real(frame, key)
            except KeyError:
                missing = [one for one in (key if isinstance(key, list) else [key]) if one not in frame.columns]
                if not frame.attrs.get(_MADE) or not all(isinstance(one, str) for one in missing):
                    raise
                for name in missing:
                    frame[name] = [cell(name, number) for number in range(len(frame))]
                return real(frame, key)

        for name in _READERS:
            wrap(module, name, read)
        wrap(module.DataFrame, "__getitem__", taken)

    def files(self, module: Any) -> None:
        """`open` of a table that is not there, for reading as text."""

        def opened(real: Any, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            try:
                return real(file, mode, *args, **kwargs)
            except FileNotFoundError:
                ending = os.path.splitext(str(file))[1]
                if ending not in (".csv", ".tsv", ".jsonl") or mode not in ("r", "rt") or not asked_by_program():
                    raise
                columns = self._columns(file)
                if not columns:
                    raise
            rows = [{name: cell(name, number) for name in columns} for number in range(ROWS)]
            return io.StringIO(_written(rows, ending))

        wrap(module, "open", opened)


def _written(rows: list[dict[str, Any]], ending: str) -> str:
    if ending == ".jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter="\t" if ending == ".tsv" else ",")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
