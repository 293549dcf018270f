"""Static interpreter of job scripts: which commands a script would start, with which words. Nothing is run.

An assignment holds for the lines below it. A variable that is set under a condition is unknown afterwards. Loops over
listed words are unrolled, functions are followed where they are called, and `source FILE` inserts that file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from preflight.dialects.shell.values import (
    brace_words,
    has_blank,
    is_all_arguments,
    is_tuple,
    is_unknown,
    joined,
    literal_word,
    of_value,
    operands_of,
    perhaps_longer,
    size_of,
    split,
    tidy,
    whole,
    word_text,
)
from preflight.documents.bash import BashDocument, reparse
from preflight.documents.shell_reader import Assignment, ShellBlock, ShellCommand
from preflight.documents.shell_words import ShellWord, apply_defaults
from preflight.vocabulary.budgets import LOOP_ROUNDS, SCRIPT_RUNS, SCRIPT_STEPS, WORD_CHARACTERS
from preflight.vocabulary.reading import Word
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Ref, evaluate, names, substitute, unknown

MAX_NESTED = 8
"""Nested functions, sourced files and command strings."""


Step = Assignment | ShellCommand
Sourced = Callable[[str], "BashDocument | None"]


@dataclass(frozen=True)
class StartedCommand:
    """A command as it would be started: its words, its own environment variables, and its place.

    Commands of the same `group` run at the same time (`&`). `directory` is the current directory relative to the start
    of the script, or absolute (the root of the project is `/` too); None if it is unknown.
    """

    words: tuple[Word, ...]
    environment: Mapping[str, Expr]
    origin: Origin
    group: int
    directory: str | None


@dataclass
class Shell:
    """The state of a script at one point. `axes` are variables that stay symbolic (SLURM_ARRAY_TASK_ID).

    `arguments` are `$1`, `$2`, ...; None: nobody knows with which the script is started.
    """

    source: Source
    variables: dict[str, Expr]
    arguments: tuple[Word, ...] | None = ()
    axes: frozenset[str] = frozenset()
    sourced: Sourced | None = None
    exported: set[str] = field(default_factory=set)
    directory: str | None = "."
    functions: dict[str, tuple[list[Step], int]] = field(default_factory=dict)
    runs: list[StartedCommand] = field(default_factory=list)
    group: int = 0
    pending: bool = False
    nested: int = 0
    inside: tuple[str, ...] = ()
    """Functions and sourced files that are being followed; recursion is not followed."""
    ended: bool = False
    steps: int = 0
    assigned: dict[str, list[Expr]] = field(default_factory=dict)
    """The values that the steps of the conditional block around give to each variable."""
    turns: tuple[Origin, ...] = ()
    """The places of the current values of the loops around: they distinguish unrolled commands."""

    def follow(self, document: BashDocument) -> None:
        """Follows a whole script."""
        self._steps(document.steps, 0)

    def follow_text(self, expr: Expr) -> None:
        """Follows a command string (`bash -c`, `eval`)."""
        if self.nested < MAX_NESTED:
            self.nested += 1
            self.follow(reparse(self.source, expr))
            self.nested -= 1

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _steps(self, steps: Sequence[Step], depth: int) -> None:
        def block(step: Step) -> ShellBlock | None:
            return step.blocks[depth] if len(step.blocks) > depth else None

        for around, group in groupby(steps, block):
            inside = list(group)
            if self.ended or len(self.runs) >= SCRIPT_RUNS or self.steps > SCRIPT_STEPS:
                return
            if around is not None:
                self._block(around, inside, depth + 1)
                continue
            for step in inside:
                self.steps += 1
                if not self.ended and self.steps <= SCRIPT_STEPS:
                    self._step(step)

    def _block(self, block: ShellBlock, steps: list[Step], depth: int) -> None:
        if block.kind == "function":
            self.functions[block.name] = (steps, depth)
        elif block.kind == "loop":
            self._loop(block, steps, depth)
        elif block.kind == "conditional":
            self._conditional(steps, depth)
        else:
            saved, directory = dict(self.variables), self.directory
            self._steps(steps, depth)
            self.variables, self.directory = saved, directory

    def _loop(self, block: ShellBlock, steps: list[Step], depth: int) -> None:
        values = [expr for word in block.words for expr in self._values(word)]
        if block.name and 0 < len(values) <= LOOP_ROUNDS and not any(is_unknown(value) for value in values):
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
            self.variables[name] = unknown(f"{name} changes in a loop", cause=Cause.run_time)
        self._steps(steps, depth)

    def _conditional(self, steps: list[Step], depth: int) -> None:
        before, directory, ended = dict(self.variables), self.directory, self.ended
        outer, self.assigned = self.assigned, {}
        self._steps(steps, depth)
        self.ended = ended
        for name, expr in list(self.variables.items()):
            if before.get(name) != expr:
                self.variables[name] = perhaps_longer(name, before.get(name), expr, self.assigned.get(name, ()))
        for name, values in self.assigned.items():
            outer.setdefault(name, []).extend(values)
        self.assigned = outer
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
            self._call(name, rest if self.arguments is not None or not _hands_all_on(step) else None)
        elif name in ("cd", "pushd"):
            self._cd(rest)
        elif name in ("source", "."):
            self._source(rest)
        elif name == "eval":
            self.follow_text(joined(rest))
        elif name == "wait":
            self.group += self.pending
            self.pending = False
        elif name == "shift":
            self.arguments = self.arguments[1:] if self.arguments is not None else None
        elif name == "set" and rest and word_text(rest[0]) == "--":
            self.arguments = rest[1:]
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

    def _run(self, step: ShellCommand, words: tuple[Word, ...]) -> None:
        own = {one.name: self.closed(one.expr) for one in step.environment}
        shared = {name: self.variables[name] for name in self.exported if name in self.variables}
        origin = replace(step.words[0].origin, via=self.turns)
        self.runs.append(StartedCommand(words, {**shared, **own}, origin, self.group, self.directory))
        if step.background:
            self.pending = True
        elif not self.pending:
            self.group += 1

    def _assign(self, step: Assignment) -> None:
        value = self.closed(step.expr)
        old = self.variables.get(step.name)
        if step.index is not None:
            value = unknown(f"only one element of {step.name} is set here", step.expr.origin)
        elif step.append and old is not None:
            if is_tuple(old) and is_tuple(value):
                value = Op("tuple", (*operands_of(old), *operands_of(value)), value.origin)
            else:
                value = Op("concat", (old, value), value.origin)
            if size_of(value) > WORD_CHARACTERS:
                value = unknown("it is longer than any word of a command can be", step.expr.origin, Cause.budget)
        self.variables[step.name] = value
        self.assigned.setdefault(step.name, []).append(value)
        if step.exported:
            self.exported.add(step.name)

    def _call(self, name: str, arguments: tuple[Word, ...] | None) -> None:
        if self.nested >= MAX_NESTED or name in self.inside:
            return
        saved, self.arguments = self.arguments, arguments
        steps, depth = self.functions[name]
        self._enter(name, lambda: self._steps(steps, depth))
        self.arguments = saved

    def _enter(self, name: str, follow: Callable[[], None]) -> None:
        self.nested, self.inside = self.nested + 1, (*self.inside, name)
        follow()
        self.nested, self.inside = self.nested - 1, self.inside[:-1]

    def _cd(self, words: tuple[Word, ...]) -> None:
        target = evaluate(whole(words[0])) if words else None
        if not isinstance(target, str) or target.startswith("-"):
            self.directory = None
        elif target.startswith(("/", "~")):
            self.directory = f"/{target.lstrip('/~')}"
        elif self.directory is not None:
            self.directory = f"{self.directory}/{target}"

    def _source(self, words: tuple[Word, ...]) -> None:
        target = word_text(words[0]) if words else None
        if target is None or self.sourced is None or self.nested >= MAX_NESTED or target in self.inside:
            return
        document = self.sourced(target)
        if document is not None:
            self._enter(target, lambda: self.follow(document))

    # --- values -------------------------------------------------------------------------------------------------------

    def closed(self, expr: Expr) -> Expr:
        """`expr` with the current values of its variables. A variable that is not set is unknown."""
        known = {**self.variables, **self._positional()}
        free = {name: value for name, value in known.items() if name not in self.axes}
        found = substitute(apply_defaults(tidy(expr), known), free)
        if size_of(found) > WORD_CHARACTERS:
            return unknown("it is longer than any word of a command can be", expr.origin, Cause.budget)
        return self._open(found) if any(name not in self.axes for name in names(found)) else found

    def _open(self, expr: Expr) -> Expr:
        if isinstance(expr, Ref) and expr.name not in self.axes:
            return unknown(f"{expr.name} is not set in the script", expr.origin, Cause.not_set)
        if isinstance(expr, Op):
            return Op(expr.operator, tuple(self._open(operand) for operand in expr.operands), expr.origin)
        return expr

    def _positional(self) -> dict[str, Expr]:
        if self.arguments is None:
            return {}
        listed = Op("tuple", tuple(whole(word) for word in self.arguments))
        found: dict[str, Expr] = {"#": Const(len(self.arguments)), "@": listed, "*": listed}
        for index, word in enumerate(self.arguments, 1):
            found[str(index)] = whole(word)
        return found

    def _values(self, word: ShellWord) -> Iterator[Expr]:
        """The values of one word in the list of a `for` loop."""
        for one in self._words(word):
            yield whole(one)

    def _words(self, word: ShellWord) -> Iterator[Word]:
        """The words that the shell makes of one written word."""
        if any(piece.expr is not None and is_all_arguments(piece.expr) for piece in word.pieces):
            yield from self.arguments if self.arguments is not None else (_given_at_start(word.origin),)
            return
        head, rest = word.partition("=")
        if rest is not None:
            value = self.closed(rest)
            if not (word.splits and has_blank(value)):
                yield Word(head, value, word.origin)
                return
        literal = word.literal
        if literal is not None:
            yield from brace_words(literal, word.origin) or (literal_word(literal, word.origin),)
            return
        value = self.closed(word.expr)
        if not word.splits:
            yield of_value(value, word.origin)
        elif is_tuple(value):
            yield from self._items(value, word.origin)
        elif has_blank(value):
            yield from split(value, word.origin, self.source)
        elif not (isinstance(value, Const) and value.value == ""):
            yield of_value(value, word.origin)

    def _items(self, value: Expr, origin: Origin) -> Iterator[Word]:
        """The words of an array. An unquoted expansion in it is split at white space."""
        for operand in operands_of(value):
            cut = isinstance(operand, Op) and operand.operator == "words"
            inner = operands_of(operand)[0] if cut else operand
            place = operand.origin or origin
            if is_tuple(inner):
                yield from self._items(inner, place)
            elif cut and has_blank(inner):
                yield from split(inner, place, self.source)
            elif not (cut and isinstance(inner, Const) and inner.value == ""):
                yield of_value(inner, inner.origin or place)


def _given_at_start(origin: Origin) -> Word:
    """`"$@"` of a script that nobody is seen to start."""
    return Word("", unknown("they are given when the script is started", origin, Cause.not_set), origin)


def _hands_all_on(command: ShellCommand) -> bool:
    """Whether a command has the arguments of the script, and no others: `main "$@"`."""
    pieces = command.words[1].pieces if len(command.words) == 2 else ()
    return any(piece.expr is not None and is_all_arguments(piece.expr) for piece in pieces)
