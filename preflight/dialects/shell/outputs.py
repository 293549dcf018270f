"""What commands of a script print, read from files of the project: `$(sed -n "${ID}p" params.txt)`, `read`, `mapfile`.

A value that an index of the job chooses (SLURM_ARRAY_TASK_ID) is an expression over that index: `get` of a `dict` that
has the value of each index, with its place in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.dialects.shell.text_tools import TOOLS, Line, Lines, fields_of, in_a_row, lines_of, part, text_of
from preflight.dialects.shell.values import has_blank, is_tuple, of_value, operands_of, split, whole
from preflight.vocabulary.budgets import WORD_CHARACTERS
from preflight.vocabulary.reading import Word
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import (
    Cause,
    Const,
    Expr,
    Op,
    Origin,
    Ref,
    Span,
    Unknown,
    Value,
    evaluate,
    names,
    unknown,
)

MAX_LINES = 1_000
"""Lines of one file: SLURM's controller takes array indices up to 1,000 (MaxArraySize in slurm.conf(5) is 1,001)."""

MAX_INDICES = 500
"""Values that an index chooses; the expressions of a study end at 2,000 parts."""

MAX_PRINTINGS = 5_000
"""Outputs of commands of one script, one for each index; scripts written by people have some hundred."""

READ = ("output", "read", "lines")
"""Operators of values that come from files and commands; see `documents.shell_words` and `documents.shell_reader`."""

Files = Callable[[str], "Source | None"]
"""The text of a file that a command of the script names; None if the project has no such file."""


class Outputs(Struct):
    """Values of what commands print. `indices` has the possible values of each index; None: any with a line."""

    files: Files
    indices: Mapping[str, tuple[Value, ...] | None] = field(default_factory=dict)
    written: dict[str, Expr | None] = field(default_factory=dict)
    """Files that the script writes, with their text, if the script states it. Their text in the project is older."""
    _longest: int = 0
    _missing: Const | None = None
    """A file that a pipeline reads and that does not exist."""
    _printings: int = 0
    _read: dict[str, Lines] = field(default_factory=dict)
    """The lines of each file of the project."""

    def resolved(self, expr: Expr) -> Expr:
        """`expr` with the output of its commands, and with the elements of its arrays; unknown where not followed."""
        if not isinstance(expr, Op):
            return expr
        operands = tuple(self.resolved(operand) for operand in expr.operands)
        if any(new is not old for new, old in zip(operands, expr.operands, strict=True)):
            expr = Op(expr.operator, operands, expr.origin)
        if expr.operator == "get" and len(operands) == 2:
            return element(*operands) or expr
        return self._value(expr) if expr.operator in READ else expr

    def _value(self, expr: Op) -> Expr:
        free = set(names(expr))
        if not free:
            return self._printed(expr)
        [name, *more] = free
        if more or name not in self.indices:
            return _not_followed(expr)
        self._longest = 0
        given = self.indices[name]
        if given is not None and len(given) > MAX_INDICES:
            return unknown(f"{name} has more than {MAX_INDICES} values", expr.origin, Cause.budget)
        found = {}
        possible = indices_of(expr, name)
        if possible is not None:
            given = tuple(one for one in (sorted(possible) if given is None else given) if one in possible)
        for value in given if given is not None else self._candidates():
            one = self._printed(selected(expr, name, value))
            if isinstance(one, Const) and isinstance(one.value, Unknown):
                return one
            if one != Const("", expr.origin):
                found[value] = one
        return (
            chosen_by(name, found, expr.origin) if found else unknown("no index has a line", expr.origin, Cause.invalid)
        )

    def _candidates(self) -> Iterator[int]:
        """The indices that may have a line, while the files that they read become known."""
        yield 0
        yield from range(1, min(self._longest, MAX_INDICES - 1) + 1)

    # --- one value ----------------------------------------------------------------------------------------------------

    def _printed(self, expr: Op | Expr) -> Expr:
        if not isinstance(expr, Op):
            return expr
        self._printings += 1
        if self._printings > MAX_PRINTINGS:
            return unknown(f"the script reads more than {MAX_PRINTINGS:,} times", expr.origin, Cause.budget)
        if expr.operator == "output":
            lines = self._pipeline(expr.operands, expr)
        else:
            given = expr.operands[0]
            stages = given.operands if isinstance(given, Op) and given.operator == "output" else (given,)
            lines = self._pipeline(stages, expr)
        if isinstance(lines, Const):
            return lines
        if expr.operator == "output":
            return as_one_text(lines, expr.origin)
        return _array(lines, expr) if expr.operator == "lines" else _read(lines, expr)

    def _pipeline(self, stages: tuple[Expr, ...], whole: Op) -> Lines | Const:
        """The lines that a pipeline prints; an unknown value if one of its commands is not followed."""
        lines: Lines | None = None
        self._missing = None
        for stage in stages:
            if isinstance(stage, Const):
                return stage if isinstance(stage.value, Unknown) else lines_of(stage)
            if not isinstance(stage, Op):
                return _not_followed(whole)
            lines = self._stage(stage, lines)
            if lines is None:
                return self._missing or next(_unknowns(stage), None) or _not_followed(whole)
        return lines if lines is not None else _not_followed(whole)

    def _stage(self, stage: Op, stdin: Lines | None) -> Lines | None:
        if stage.operator == "file":
            name = evaluate(stage.operands[0])
            return self._lines(name, stage.origin) if isinstance(name, str) else None
        if stage.operator == "text":
            return lines_of(text) if (text := flat(stage.operands[0])) is not None else None
        words = list(self._words(stage)) if stage.operator == "command" else []
        if not words or any(isinstance(word.value, Unknown) for word in words):
            return None
        name, rest = text_of(words[0]), words[1:]
        if name == "echo":
            rest = rest[1:] if rest and text_of(rest[0]) == "-n" else rest
            return None if rest and text_of(rest[0]).startswith("-") else lines_of(in_a_row(rest, " "))
        if name == "xargs" and not rest and stdin is not None:  # it removes white space around each word
            return [in_a_row([word for line in stdin for word in fields_of(line, None)], " ")]
        tool = TOOLS.get(name)
        return (
            None
            if tool is None
            else tool([text_of(word) for word in rest], stdin, lambda file: self._lines(file, stage.origin))
        )

    def _words(self, stage: Op) -> Iterator[Line]:
        for operand in stage.operands:
            cut = isinstance(operand, Op) and operand.operator == "words"
            inner = operands_of(operand)[0] if cut else operand
            for one in operands_of(inner) if is_tuple(inner) else (inner,):
                text = flat(one)
                if text is None:
                    yield next(_unknowns(one), Const(Unknown("it is not followed", Cause.not_read)))
                elif cut:
                    yield from fields_of(text, None)
                else:
                    yield text

    def _lines(self, name: str, origin: Origin | None) -> Lines | None:
        plain = plain_name(name)
        if plain in self.written:
            stated = self.written[plain]
            text = None if stated is None else flat(stated)
            if text is None:
                self._missing = unknown(f"the script writes {name}", origin, Cause.run_time)
            return None if text is None else self._limited(text, name, origin)
        source = self.files(name)
        if source is None:
            self._missing = unknown(f"{name} is not in the project", origin, Cause.file_not_found)
            return None
        known = self._read.get(source.path)
        if known is not None:
            self._longest = max(self._longest, len(known))
            return known
        text = Const(source.text, Origin(source.path, Span(0, len(source.text))))
        lines = self._limited(text, source.path, origin)
        if lines is not None:
            self._read[source.path] = lines
        return lines

    def _limited(self, text: Line, name: str, origin: Origin | None) -> Lines | None:
        whole = text_of(text)
        if len(whole) > WORD_CHARACTERS or whole.count("\n") > MAX_LINES:
            words = f"{name} is longer than {MAX_LINES:,} lines or {WORD_CHARACTERS // 1024} KiB"
            self._missing = unknown(words, origin, Cause.budget)
            return None
        lines = lines_of(text)
        self._longest = max(self._longest, len(lines))
        return lines


def _not_followed(expr: Op) -> Const:
    words = "it is the output of a command" if expr.operator == "output" else "it is read while the script runs"
    return unknown(words, expr.origin, Cause.run_time)


def _unknowns(expr: Expr) -> Iterator[Const]:
    if isinstance(expr, Const) and isinstance(expr.value, Unknown):
        yield expr
    for operand in operands_of(expr):
        yield from _unknowns(operand)


def plain_name(name: str) -> str:
    """A path as the key of a file that the script writes."""
    return PurePosixPath(name).as_posix()


def flat(expr: Expr) -> Line | None:
    """The text of a value with its place; None if a part of it is unknown."""
    if isinstance(expr, Const):
        return None if isinstance(expr.value, (Unknown, tuple)) else expr
    value = evaluate(expr)
    if isinstance(value, (Unknown, tuple, Mapping)):
        return None
    return Const(
        str(value), Origin(expr.origin.path, expr.origin.span, None, expr.origin.via, False) if expr.origin else None
    )


def as_one_text(lines: Lines, origin: Origin | None) -> Line:
    """Lines as `$(...)` gives them: without the newlines at the end."""
    last = len(lines)
    while last and not text_of(lines[last - 1]):
        last -= 1
    return in_a_row(lines[:last], "\n", origin)


def _array(lines: Lines, expr: Op) -> Expr:
    return Op("tuple", tuple(lines), expr.origin) if expr.operands[1] == Const(False) else _not_followed(expr)


def _read(lines: Lines, expr: Op) -> Expr:
    """A field of the first line, as `read` sets it; `expr` is described in `documents.shell_reader`."""
    _, separators, index, count, raw, whole = (
        operand.value if isinstance(operand, Const) else None for operand in expr.operands
    )
    if not isinstance(index, int) or not isinstance(count, int) or not isinstance(separators, (str, type(None))):
        return _not_followed(expr)
    line = as_one_text(lines, expr.origin) if whole else lines[0] if lines else Const("", expr.origin)
    text = flat(line)
    if text is None:
        return line
    if not raw and "\\" in text_of(text):
        joined = re.sub(r"\\\n", "", text_of(text))
        if "\\" in joined:
            return _not_followed(expr)
        text = Const(joined, replace(text.origin, editable=False) if text.origin is not None else None)
    fields = fields_of(text, separators, count)
    if not count:
        return Op("tuple", tuple(fields), expr.origin)
    return fields[index] if index < len(fields) else part(text, 0, 0)


# --- values that an index chooses -------------------------------------------------------------------------------------


def chosen_by(name: str, values: Mapping[Value, Expr], origin: Origin | None) -> Expr:
    """The value of each index; arrays by their elements."""
    if any(is_tuple(value) for value in values.values()):
        length = max(len(operands_of(value)) for value in values.values())
        parts = (
            {index: operands_of(value)[at] for index, value in values.items() if len(operands_of(value)) > at}
            for at in range(length)
        )
        return Op("tuple", tuple(chosen_by(name, one, origin) for one in parts), origin)
    pairs = tuple(operand for index, value in values.items() for operand in (Const(index), value))
    return Op("get", (Op("dict", pairs, origin), Ref(name, origin)), origin)


def selected(expr: Expr, name: str, value: Value) -> Expr:
    """`expr` for one value of an index: elements that it chooses stay expressions, with their places."""
    if isinstance(expr, Ref):
        return Const(value, expr.origin) if expr.name == name else expr
    if not isinstance(expr, Op):
        return expr
    operands = tuple(selected(operand, name, value) for operand in expr.operands)
    if expr.operator == "get" and len(operands) == 2:
        return element(operands[0], operands[1]) or Op("get", operands, expr.origin)
    return Op(expr.operator, operands, expr.origin)


def element(container: Expr, index: Expr) -> Expr | None:
    """An element of a tuple or dict of expressions; None if the index is not known or has none."""
    key, inner = evaluate(index), operands_of(container)
    if isinstance(key, Unknown) or not isinstance(container, Op):
        return None
    if container.operator == "dict":
        return next((v for k, v in zip(inner[::2], inner[1::2], strict=True) if evaluate(k) == key), None)
    if container.operator == "tuple" and isinstance(key, int) and -len(inner) <= key < len(inner):
        return inner[key]
    return None


def indices_of(expr: Expr, name: str, among: Collection[int] = range(MAX_INDICES)) -> set[int] | None:
    """The indices, of those `among`, for which every element that an index chooses exists; None if it chooses none."""
    if not isinstance(expr, Op):
        return None
    found: set[int] | None = None
    for operand in expr.operands:
        inner = indices_of(operand, name, among)
        found = inner if found is None else found if inner is None else found & inner
    if expr.operator == "get" and len(expr.operands) == 2 and name in set(names(expr.operands[1])):
        own = _indices_of_element(expr, name, among)
        found = own if found is None else found & own
    return found


def _indices_of_element(expr: Op, name: str, among: Collection[int]) -> set[int]:
    """The indices for which one choice of an element gives one."""
    container, index = expr.operands
    if isinstance(index, Ref) and isinstance(container, Op) and container.operator == "tuple":
        return {one for one in among if one < len(container.operands)}  # the usual choice, which needs no evaluation
    return {one for one in among if _non_negative(expr, name, one)}


def _non_negative(expr: Op, name: str, one: int) -> bool:
    index = selected(expr.operands[1], name, one)
    key = evaluate(index)
    return isinstance(key, int) and key >= 0 and element(expr.operands[0], index) is not None


def words_at(words: Sequence[Word], name: str, value: Value, splits: bool, script: Source) -> list[Word]:
    """Words for one value of an index, split at white space if the shell splits them."""
    found: list[Word] = []
    for word in words:
        text, origin = selected(whole(word), name, value), word.origin or Origin(script.path, Span(0, 0))
        if splits and has_blank(text):
            found += split(text, origin, script)
        elif not (splits and isinstance(text, Const) and text.value == ""):
            found.append(of_value(text, origin))
    return found


def one_list(table: Mapping[int, list[Word]], axis: str, complete: bool) -> list[Word] | None:
    """The words of each index as one list of words whose values the index chooses; None if the words differ in number
    or in their options."""
    rows = list(table.values())
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        return None
    found = []
    for column in zip(*rows, strict=True):
        first = column[0]
        if any(word.prefix != first.prefix or (word.value is None) != (first.value is None) for word in column):
            return None
        if any(_dashed(word) for word in column) and len({_shown(word) for word in column}) > 1:
            return None
        if complete and len({_shown(word) for word in column}) == 1 and None not in map(_text_of_word, column):
            found.append(first)
        else:
            found.append(_one_word(dict(zip(table, column, strict=True)), axis))
    return found


def _one_word(words: Mapping[int, Word], axis: str) -> Word:
    first = next(iter(words.values()))
    values: dict[Value, Expr] = {index: word.value for index, word in words.items() if word.value is not None}
    return first if not values else Word(first.prefix, chosen_by(axis, values, first.origin), first.origin)


def _text(value: Expr | None) -> str | None:
    return value.value if isinstance(value, Const) and isinstance(value.value, str) else None


def _shown(word: Word) -> str:
    return word.prefix + (_text(word.value) or "")


def _text_of_word(word: Word) -> str | None:
    return word.prefix if word.value is None else _text(word.value)


def _dashed(word: Word) -> bool:
    return not word.prefix and (_text(word.value) or "").startswith("-")
