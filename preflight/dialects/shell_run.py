"""A job script followed from top to bottom, nothing run: which commands it would start, with which words.

Assignments hold from where they stand; what depends on a condition is unknown afterwards; loops over listed words are
unrolled; functions are followed where they are called; `source FILE` is read as if it stood there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from preflight.dialects.reading import Word
from preflight.documents.base import Source
from preflight.documents.bash import Assignment, BashDocument, Block, Command, apply_defaults, reparse
from preflight.documents.shell_words import ShellWord
from preflight.values import Const, Expr, Op, Origin, Ref, Span, Unknown, names, substitute, unknown

MAX_UNROLLED = 64
"""Iterations of one loop that are followed; a longer list is read once, with its variable unknown."""

MAX_NESTED = 8
"""Functions, sourced files and command strings within each other."""

MAX_RUNS = 500
"""Commands followed in one script."""

Step = Assignment | Command
Sourced = Callable[[str], "BashDocument | None"]


@dataclass(frozen=True)
class Run:
    """A command as it would be started: its words, what its environment holds beyond the job's, where, and when.

    Equal `group`: at the same time (`&`); `directory` is where `cd` has led, relative to the script's start (None:
    nobody knows).
    """

    words: tuple[Word, ...]
    environment: Mapping[str, Expr]
    origin: Origin
    group: int
    directory: str | None


@dataclass
class Shell:
    """The state of a script at one point. `axes` are names that stay open (SLURM_ARRAY_TASK_ID)."""

    source: Source
    variables: dict[str, Expr]
    arguments: tuple[Word, ...] = ()
    axes: frozenset[str] = frozenset()
    sourced: Sourced | None = None
    exported: set[str] = field(default_factory=set)
    directory: str | None = "."
    functions: dict[str, tuple[list[Step], int]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    group: int = 0
    pending: bool = False
    nested: int = 0
    ended: bool = False
    turns: tuple[Origin, ...] = ()
    """Where the current values of the loops around are written: what tells unrolled commands apart."""

    def follow(self, document: BashDocument) -> None:
        """Everything that a script does."""
        self._steps(document.steps, 0)

    def follow_text(self, expr: Expr) -> None:
        """A command string (`bash -c`, `eval`)."""
        if self.nested < MAX_NESTED:
            self.nested += 1
            self.follow(reparse(self.source, expr))
            self.nested -= 1

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _steps(self, steps: Sequence[Step], depth: int) -> None:
        def block(step: Step) -> Block | None:
            return step.blocks[depth] if len(step.blocks) > depth else None

        for around, group in groupby(steps, block):
            inside = list(group)
            if self.ended or len(self.runs) >= MAX_RUNS:
                return
            if around is not None:
                self._block(around, inside, depth + 1)
                continue
            for step in inside:
                if not self.ended:
                    self._step(step)

    def _block(self, block: Block, steps: list[Step], depth: int) -> None:
        if block.kind == "function":
            self.functions[block.name] = (steps, depth)
        elif block.kind == "loop":
            self._loop(block, steps, depth)
        elif block.kind == "conditional":
            self._conditional(steps, depth)
        else:
            held, directory = dict(self.variables), self.directory
            self._steps(steps, depth)
            self.variables, self.directory = held, directory

    def _loop(self, block: Block, steps: list[Step], depth: int) -> None:
        values = [expr for word in block.words for expr in self._values(word)]
        if block.name and 0 < len(values) <= MAX_UNROLLED and not any(_is_unknown(value) for value in values):
            outer = self.turns
            for value in values:
                self.variables[block.name] = value
                self.turns = (*outer, value.origin) if value.origin is not None else outer
                self._steps(steps, depth)
            self.turns = outer
            return
        changed = {step.name for step in steps if isinstance(step, Assignment)} | (
            {block.name} if block.name else set()
        )
        for name in changed:
            self.variables[name] = unknown(f"{name} changes in a loop")
        self._steps(steps, depth)

    def _conditional(self, steps: list[Step], depth: int) -> None:
        before, directory, ended = dict(self.variables), self.directory, self.ended
        self._steps(steps, depth)
        self.ended = ended
        for name, expr in list(self.variables.items()):
            if before.get(name) != expr:
                self.variables[name] = unknown(f"{name} is set under a condition", expr.origin)
        if self.directory != directory:
            self.directory = None

    # --- steps --------------------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        if isinstance(step, Assignment):
            self._assign(step)
            return
        words = tuple(word for shell_word in step.words for word in self._words(shell_word))
        name = word_text(words[0]) if words else None
        if name is None:
            return
        rest = words[1:]
        if name in self.functions:
            self._call(name, rest)
        elif name in ("cd", "pushd"):
            self._cd(rest)
        elif name in ("source", "."):
            self._source(rest)
        elif name == "eval":
            self.follow_text(_joined(rest))
        elif name == "wait":
            self.group += self.pending
            self.pending = False
        elif name == "shift":
            self.arguments = self.arguments[1:]
        elif name == "exit":
            self.ended = True
        elif name not in (
            "export",
            "declare",
            "local",
            "readonly",
            "unset",
            "set",
            "echo",
            "printf",
            "test",
            "[",
            "[[",
        ):
            self._run(step, words)

    def _run(self, step: Command, words: tuple[Word, ...]) -> None:
        own = {one.name: self.closed(one.expr) for one in step.environment}
        shared = {name: self.variables[name] for name in self.exported if name in self.variables}
        origin = replace(step.words[0].origin, via=self.turns)
        self.runs.append(Run(words, {**shared, **own}, origin, self.group, self.directory))
        if step.background:
            self.pending = True
        elif not self.pending:
            self.group += 1

    def _assign(self, step: Assignment) -> None:
        value = self.closed(step.expr)
        old = self.variables.get(step.name)
        if step.index is not None:
            value = unknown(f"one element of {step.name} is set", step.expr.origin)
        elif step.append and old is not None:
            if _is_tuple(old) and _is_tuple(value):
                value = Op("tuple", (*_operands(old), *_operands(value)), value.origin)
            else:
                value = Op("concat", (old, value), value.origin)
        self.variables[step.name] = value
        if step.exported:
            self.exported.add(step.name)

    def _call(self, name: str, arguments: tuple[Word, ...]) -> None:
        if self.nested >= MAX_NESTED:
            return
        self.nested += 1
        held, self.arguments = self.arguments, arguments
        steps, depth = self.functions[name]
        self._steps(steps, depth)
        self.arguments = held
        self.nested -= 1

    def _cd(self, words: tuple[Word, ...]) -> None:
        target = word_text(words[0]) if words else None
        if target is None or target.startswith(("/", "~", "-")):
            self.directory = None
        elif self.directory is not None:
            self.directory = f"{self.directory}/{target}"

    def _source(self, words: tuple[Word, ...]) -> None:
        target = word_text(words[0]) if words else None
        document = self.sourced(target) if target is not None and self.sourced is not None else None
        if document is not None and self.nested < MAX_NESTED:
            self.nested += 1
            self.follow(document)
            self.nested -= 1

    # --- values -------------------------------------------------------------------------------------------------------

    def closed(self, expr: Expr) -> Expr:
        """`expr` with variables replaced by their values here; names that nobody sets are unknown."""
        known = {**self.variables, **self._positional()}
        free = {name: value for name, value in known.items() if name not in self.axes}
        found = substitute(apply_defaults(expr, known), free)
        return self._open(found) if any(name not in self.axes for name in names(found)) else found

    def _open(self, expr: Expr) -> Expr:
        if isinstance(expr, Ref) and expr.name not in self.axes:
            return unknown(f"{expr.name} is not set in the script", expr.origin)
        if isinstance(expr, Op):
            return Op(expr.operator, tuple(self._open(operand) for operand in expr.operands), expr.origin)
        return expr

    def _positional(self) -> dict[str, Expr]:
        found: dict[str, Expr] = {"#": Const(len(self.arguments))}
        for index, word in enumerate(self.arguments, 1):
            found[str(index)] = _whole(word)
        return found

    def _values(self, word: ShellWord) -> Iterator[Expr]:
        """The values that one word of a `for` list stands for."""
        for one in self._words(word):
            yield _whole(one)

    def _words(self, word: ShellWord) -> Iterator[Word]:
        """The words that the shell makes of one written word."""
        if any(piece.expr is not None and _is_all_arguments(piece.expr) for piece in word.pieces):
            yield from self.arguments
            return
        head, rest = word.partition("=")
        if rest is not None:
            value = self.closed(rest)
            if not (word.splits and _has_blank(value)):
                yield Word(head, value, word.origin)
                return
        literal = word.literal
        if literal is not None:
            yield from _brace_words(literal, word.origin) or (literal_word(literal, word.origin),)
            return
        value = self.closed(word.expr)
        if not word.splits:
            yield _of_value(value, word.origin)
        elif _is_tuple(value):
            for operand in _operands(value):
                yield _of_value(operand, operand.origin or word.origin)
        elif _has_blank(value):
            yield from _split(value, word.origin)
        elif not (isinstance(value, Const) and value.value == ""):
            yield _of_value(value, word.origin)


def literal_word(text: str, origin: Origin) -> Word:
    """A word of known text, cut at its first `=` so that the value has a place of its own."""
    head, equals, tail = text.partition("=")
    if not equals:
        return Word(text, None, origin) if text.startswith("-") else Word("", Const(text, origin), origin)
    length = origin.span.end - origin.span.start
    start = origin.span.start + len(head) + 1 + (length == len(text) + 2)
    exact = origin.editable and length in (len(text), len(text) + 2)
    place = Origin(origin.path, Span(start, start + len(tail)), editable=True) if exact else origin
    return Word(head + equals, Const(tail, place), origin)


def word_text(word: Word) -> str | None:
    """A word as the program sees it, None where its value is not known."""
    if word.value is None:
        return word.prefix
    if isinstance(word.value, Const) and not isinstance(word.value.value, Unknown):
        return f"{word.prefix}{word.value.value}"
    return None


def _of_value(value: Expr, origin: Origin) -> Word:
    if isinstance(value, Const) and isinstance(value.value, str):
        found = literal_word(value.value, value.origin or origin)
        return Word(found.prefix, found.value, origin)
    if isinstance(value, Op) and value.operator == "concat" and isinstance(value.operands[0], Const):
        first = value.operands[0]
        head, equals, tail = str(first.value).partition("=")
        if equals and isinstance(first.value, str):  # "--bs=" next to something that is not a constant
            rest = (Const(tail, first.origin), *value.operands[1:]) if tail else value.operands[1:]
            return Word(head + equals, rest[0] if len(rest) == 1 else Op("concat", rest, value.origin), origin)
    return Word("", value, origin)


def _split(value: Expr, origin: Origin) -> Iterator[Word]:
    """The words that the shell cuts an unquoted value into, at white space."""
    pieces: list[Expr] = []
    for part in _operands(value) if isinstance(value, Op) else (value,):
        if not (isinstance(part, Const) and isinstance(part.value, str)):
            pieces.append(part)
            continue
        for match in re.finditer(r"\s+|\S+", part.value):
            if not match.group().isspace():
                pieces.append(Const(match.group(), _within(part, match.start(), match.end())))
            elif pieces:
                yield _of_value(_side_by_side(pieces), origin)
                pieces = []
    if pieces:
        yield _of_value(_side_by_side(pieces), origin)


def _side_by_side(pieces: list[Expr]) -> Expr:
    return pieces[0] if len(pieces) == 1 else Op("concat", tuple(pieces), pieces[0].origin)


def _within(part: Const, start: int, end: int) -> Origin | None:
    """The place of a piece of a constant, where the file holds the constant as it is."""
    origin, text = part.origin, str(part.value)
    if origin is None:
        return None
    extra = origin.span.end - origin.span.start - len(text)
    if not origin.editable or extra not in (0, 2):
        return Origin(origin.path, origin.span, None, origin.via, False)
    at = origin.span.start + extra // 2
    return Origin(origin.path, Span(at + start, at + end), None, origin.via)


def _whole(word: Word) -> Expr:
    if word.value is None:
        return Const(word.prefix, word.origin)
    return word.value if not word.prefix else Op("concat", (Const(word.prefix), word.value), word.origin)


def _joined(words: tuple[Word, ...]) -> Expr:
    parts: list[Expr] = []
    for word in words:
        parts += [Const(" "), _whole(word)] if parts else [_whole(word)]
    return parts[0] if len(parts) == 1 else Op("concat", tuple(parts))


def _brace_words(text: str, origin: Origin) -> tuple[Word, ...]:
    """`{0..4}` and `{a,b}` as the whole of a word; nothing for any other text."""
    numbers = re.fullmatch(r"\{(-?\d{1,6})\.\.(-?\d{1,6})\}", text)
    if numbers is not None:
        first, last = int(numbers[1]), int(numbers[2])
        step = 1 if last >= first else -1
        return tuple(
            Word("", Const(str(n), origin), origin) for n in range(first, last + step, step)[: MAX_UNROLLED + 1]
        )
    return ()


def _is_tuple(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.operator == "tuple"


def _operands(expr: Expr) -> tuple[Expr, ...]:
    return expr.operands if isinstance(expr, Op) else ()


def _is_all_arguments(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.operator == "all" and expr.operands == (Ref("@", expr.origin),)


def _is_unknown(expr: Expr) -> bool:
    return isinstance(expr, Const) and isinstance(expr.value, Unknown)


def _has_blank(expr: Expr) -> bool:
    """Whether a value has white space where the shell would cut it."""
    if isinstance(expr, Const):
        return isinstance(expr.value, str) and bool(re.search(r"\s", expr.value))
    return isinstance(expr, Op) and expr.operator == "concat" and any(_has_blank(operand) for operand in expr.operands)
