"""Tables that are not there (CSV, TSV, JSON lines, Parquet): made up, with a column for each name that is used.

Nothing tells how many columns the true table has, nor what is in them: the verdict depends on it. A program that takes
columns by their places gets some more than the places that it names.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import linecache
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from ..patches import wrap
from ..tape import Tape
from .data_sets import cell
from .folders import MADE, MORE
from .guesses import Guesses
from .own_code import MOST, asked_by_program, iterated_names, may_be_missing, names_used, own_files, own_texts, tree_of

ROWS = 256
ROWS_OF_NUMBERS = 4096
"""Rows of a table of numbers alone: more than a batch of most programs."""
PARTS = 4
"""Parts of a cell that the program goes through."""
PLACES = 8
"""Columns of a made-up table whose columns are taken by their places."""
_BY_PLACE = re.compile(r"\.iloc\[[^\]\n]*,|\.shape\[1\]|header\s*=\s*None|\.columns\[|\.values\b(?!\()|\.to_numpy\(")
_NAMES_OF_WIDTH = "input_size|input_dim|in_dim|num_features?|n_features?|num_feat|in_features|enc_in|feature_dim"
_WIDTH = re.compile(rf"\b({_NAMES_OF_WIDTH})\s*=\s*([1-9]\d{{0,2}})\b")
_WIDTH_ASKED = re.compile(rf"--({_NAMES_OF_WIDTH})[= ]([1-9]\d{{0,2}})(?!\d)")
"""How programs name the number of columns that a model takes."""
_TAKEN_OUT = re.compile(r"^\s*\w*col\w*\.remove\(([\"'])(\w+)\1\)", re.MULTILINE)
"""`cols.remove("date")`."""
_DAYS = re.compile(r"(^|_)(date|datetime|timestamp|day)(_|$)", re.IGNORECASE)
_TEXTS = re.compile(
    r"token|vocab|sentence|sequence|text|caption|question|answer|prompt|review|comment|summary|title", re.IGNORECASE
)
_LANGUAGE = re.compile(r"tokeniz|vocab|sentence|corpus|transformers|nltk|spacy|tiktoken", re.IGNORECASE)
_READERS = ("read_csv", "read_table", "read_parquet", "read_excel", "read_feather", "read_json")
_TEXT_TABLES = (".csv", ".tsv", ".jsonl")
_PICTURES = re.compile(r"Image\.open|cv2\.imread|read_image|io\.imread")
_LETTERS = re.compile(r"\w+")
_PLACE = "column {}"
_MADE = "made up by a dry run"


def places_used() -> int:
    """Columns of a table whose columns the program takes by their places; 0 if it does not."""
    if not any(_BY_PLACE.search("".join(linecache.getlines(path))) for path in own_files()):
        return 0
    numbers = [number for path in own_files() for number in _columns_named(tree_of(path))]
    return max(width_stated() + 1 or PLACES, max(numbers, default=0) + 2)


def width_stated() -> int:
    """The number of columns that the command, or the program, says that a model takes; -1 if neither does."""
    asked = _WIDTH_ASKED.search(" ".join(sys.argv[1:]).replace("-", "_").replace("__", "--"))
    texts = ("".join(linecache.getlines(path)) for path in own_files())
    found = asked or next((one for text in texts for one in _WIDTH.finditer(text)), None)
    return int(found[2]) if found is not None else -1


def _columns_named(tree: ast.AST) -> Iterator[int]:
    """The numbers in `iloc[:, 3]`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Subscript) or getattr(node.value, "attr", "") != "iloc":
            continue
        if isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
            found = [getattr(one, "value", None) for one in ast.walk(node.slice.elts[1])]
            yield from (one for one in found if type(one) is int and one < MOST)


def _column(name: str, count: int) -> list[Any]:
    """The values of a column. Where the program has to do with no text, one that names nothing known has numbers."""
    if _DAYS.search(name):
        return [f"{2000 + i // 336}-{i // 28 % 12 + 1:02}-{i % 28 + 1:02}" for i in range(count)]
    found = [cell(name, i) for i in range(count)]
    if name in iterated_names():
        return [[f"{one}"] * PARTS for one in found]
    texts = isinstance(found[0], str) and not found[0].endswith(".jpg")
    return [i / ROWS for i in range(count)] if texts and not _reads_texts(name) else found


def _reads_texts(name: str = "") -> bool:
    """Whether a column is one of texts, or the program has to do with texts."""
    return bool(_TEXTS.search(name)) or any(_LANGUAGE.search("".join(linecache.getlines(one))) for one in own_files())


class _Table(io.StringIO):
    """A made-up table that was opened as text."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(text)
        self.path = path


class Tables:
    """What stands for tables that are not there."""

    def __init__(self, tape: Tape, guesses: Guesses) -> None:
        self._tape, self._guesses = tape, guesses

    def _values(self, columns: list[str]) -> dict[str, list[Any]]:
        return _values(columns, 2 * MORE if self._guesses.many else 1)

    def _columns(self, path: Any, stated: Any = None) -> list[str]:
        """The columns of a table that is not there, which is said; none where it cannot be made up."""
        if not isinstance(path, (str, os.PathLike)) or "://" in os.fspath(path) or may_be_missing():
            return []
        texts = [one for one in stated if isinstance(one, str)] if isinstance(stated, (list, tuple)) else []
        count = 0 if texts else places_used()
        beside = _named_beside_places(count)
        columns = texts or [*beside, *(_PLACE.format(i) for i in range(len(beside), count))] or names_used()
        if columns:
            self._tape.data_made_up = True
            what = f"{count} columns of numbers" if count else "a column for each name that the program uses"
            rows = len(next(iter(self._values(columns).values())))
            name = os.fspath(path)
            several = bool(MADE.match(os.path.basename(name)))  # one of many with a made-up name
            named = f"tables of {os.path.dirname(name)} are" if several else f"table {name} is"
            self._tape.assume(f"the {named} made up: {rows} rows, {what}", "model.config")
            where = os.path.dirname(name) if several else name
            self._tape.assume(f"the texts of {where} are longer than most programs cut them", "train.seq_len")
        return columns

    def downloaded(self, path: str) -> bytes | None:
        """The bytes of a table at an address; None if its name is not that of a table, or nothing asks for columns."""
        ending = os.path.splitext(path)[1]
        names = names_used() if ending in (*_TEXT_TABLES, ".json") else []
        if not names:
            return None
        made = _values(names)
        rows = [{name: made[name][number] for name in names} for number in range(ROWS)]
        return (json.dumps(rows) if ending == ".json" else _written(rows, ending)).encode()

    def pandas(self, module: Any) -> None:
        """pandas: functions that read a table, and columns that a made-up one gets when they are asked for."""

        def read(real: Any, path: Any = None, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(path, *args, **kwargs)
            except FileNotFoundError:
                if not asked_by_program():
                    raise
                columns = self._columns(path, kwargs.get("names") or kwargs.get("usecols"))
                if not columns:
                    raise
            except ValueError:
                stated = kwargs.get("usecols")
                columns = self._columns(path.path, stated) if isinstance(path, _Table) and stated else []
                if not columns:
                    raise
            index = kwargs.get("index_col")
            if isinstance(index, str) and index not in columns:
                columns = [index, *columns]
            frame = module.DataFrame(self._values(columns))
            if kwargs.get("header", 0) is None and columns[0] == _PLACE.format(0):
                frame.columns = range(len(columns))
            if isinstance(index, str):
                frame = frame.set_index(index)
                frame.index = module.to_datetime(frame.index) if kwargs.get("parse_dates") else frame.index
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
                    frame[name] = _column(name, len(frame))
                return real(frame, key)

        def named(real: Any, frame: Any, name: str) -> Any:
            """`frame.kfold`."""
            try:
                return real(frame, name)
            except AttributeError:
                if name.startswith("_") or not frame.attrs.get(_MADE) or not asked_by_program():
                    raise
            return taken(module.DataFrame.__getitem__, frame, name)

        def filtered(
            real: Any, frame: Any, items: Any = None, like: Any = None, regex: Any = None, **kwargs: Any
        ) -> Any:
            """Columns by a part of their names: those of a made-up table have it."""
            found = real(frame, items=items, like=like, regex=regex, **kwargs)
            part = _LETTERS.match(str(like or regex or "").lstrip("^"))
            if not frame.attrs.get(_MADE) or len(found.columns) or part is None or not kwargs.keys() <= {"axis"}:
                return found
            count = max(width_stated(), 0) or PLACES
            self._tape.assume(f"{count} columns {part[0]}... are made up", "model.config")
            for number in range(count):
                frame[f"{part[0]}{number}"] = [_value_of_number(row + number) for row in range(len(frame))]
            return real(frame, items=items, like=like, regex=regex, **kwargs)

        for name in _READERS:
            wrap(module, name, read)
        wrap(module.DataFrame, "__getitem__", taken)
        wrap(module.DataFrame, "__getattr__", named)
        wrap(module.DataFrame, "filter", filtered)

    def files(self, module: Any) -> None:
        """`open` of a table that is not there, for reading as text."""

        def opened(real: Any, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            try:
                return real(file, mode, *args, **kwargs)
            except FileNotFoundError:
                ending = os.path.splitext(str(file))[1]
                if ending not in _TEXT_TABLES or mode not in ("r", "rt") or not asked_by_program():
                    raise
                columns = self._columns(file)
                if not columns:
                    raise
            made = self._values(columns)
            count = len(made[columns[0]])
            rows = [{name: made[name][number] for name in columns} for number in range(count)]
            return _Table(str(file), _written(rows, ending))

        wrap(module, "open", opened)


def _named_beside_places(count: int) -> list[str]:
    """Columns that the program names, of a table whose others it takes by their places: those of days, and those that
    it takes out of a list of all."""
    if not count:
        return []
    taken = [found[2] for found in _TAKEN_OUT.finditer(own_texts())]
    days = (name for name in names_used() if _DAYS.fullmatch(name))
    return list(dict.fromkeys([*taken, *days]))[: count - 1]


def _values(columns: list[str], more: int = 1) -> dict[str, list[Any]]:
    """The columns with their values. Of those that are taken by their places, the last is that of a class."""
    found = {name: _column(name, ROWS * more) for name in columns}
    if columns[-1].startswith(_PLACE.format("")):
        value, count = (_value_of_text, ROWS) if _reads_texts() else (_value_of_number, ROWS_OF_NUMBERS)
        count *= more
        if _reads_pictures():  # names of files, and what is in each
            return {
                name: [number % 2 if at else cell("image", number) for number in range(count)]
                for at, name in enumerate(columns)
            }
        by_name = {name: _column(name, count) for name in columns if not name.startswith(_PLACE.format(""))}
        found = {name: by_name.get(name) or [value(number) for number in range(count)] for name in columns}
        found[columns[-1]] = [number % 2 for number in range(count)]
    return found


def _reads_pictures() -> bool:
    """Whether the program opens pictures, and has to do with no text."""
    return bool(_PICTURES.search(own_texts())) and not _reads_texts()


def _value_of_text(_: int) -> str:
    return str(cell("text", 0))


def _value_of_number(number: int) -> float:
    return number % 97 / 97


def _written(rows: list[dict[str, Any]], ending: str) -> str:
    if ending == ".jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter="\t" if ending == ".tsv" else ",")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
