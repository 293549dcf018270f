"""Static interpreter of job scripts: which commands a script would start, with which words. Nothing is run.

An assignment holds for the lines below it. A variable that is set under a condition is unknown afterwards. Loops over
listed words are unrolled, functions are followed where they are called, and `source FILE` inserts that file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.dialects.shell.made_files import MadeFiles, name_of, written_by
from preflight.dialects.shell.outputs import MAX_INDICES, Outputs, indices_of, one_list, plain_name, selected, words_at
from preflight.dialects.shell.repeated import DETACHED
from preflight.dialects.shell.values import (
    BUILT_IN,
    brace_words,
    given_at_start,
    hands_all_on,
    has_blank,
    has_hole,
    is_all_arguments,
    is_tuple,
    is_unknown,
    items,
    joined,
    literal_word,
    not_set,
    of_value,
    operands_of,
    perhaps_longer,
    rests_on_default,
    size_of,
    split,
    tidy,
    whole,
    with_installed_program,
    without_arguments,
    word_text,
)
from preflight.documents.bash import BashDocument, reparse
from preflight.documents.shell_reader import LINE, Assignment, ShellBlock, ShellCommand, ShellStep, WrittenFile
from preflight.documents.shell_words import ShellWord, apply_defaults, marked_default
from preflight.vocabulary.budgets import LOOP_ROUNDS, SCRIPT_RUNS, SCRIPT_STEPS, SHELL_NESTED, WORD_CHARACTERS, Budget
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
    evaluate,
    names,
    origins,
    substitute,
    unknown,
)

Sourced = Callable[[str], "BashDocument | None"]


class StartedCommand(Struct, frozen=True):
    """A command as it would be started: its words, its own environment variables, and its place.

    Commands of the same `group` run at the same time (`&`). `directory` is the current directory relative to the start
    of the script, or absolute (the root of the project is `/` too); None if it is unknown.
    """

    words: tuple[Word, ...]
    environment: Mapping[str, Expr]
    origin: Origin
    group: int
    directory: str | None
    made: MadeFiles = field(default_factory=dict)  # what the script wrote before
    given: Expr | None = None  # the text of its standard input (`<<EOF`)


class Shell(Struct):
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
    functions: dict[str, tuple[list[ShellStep], int]] = field(default_factory=dict)
    runs: list[StartedCommand] = field(default_factory=list)
    group: int = 0
    pending: bool = False
    nested: int = 0
    inside: tuple[str, ...] = ()
    """Functions and sourced files that are being followed; recursion is not followed."""
    ended: bool = False
    steps: int = 0
    assumed: set[str] = field(default_factory=set)
    """Variables with the default of a variable that the script does not set: the environment may set it."""
    doubtful: int = 0
    """Conditional blocks around the current step."""
    assigned: dict[str, list[Expr]] = field(default_factory=dict)
    """The values that the steps of the conditional block around give to each variable."""
    outputs: Outputs = field(default_factory=lambda: Outputs(lambda name: None))
    made: MadeFiles = field(default_factory=dict)
    fixed: dict[str, Expr] = field(default_factory=dict)  # axes followed one value at a time, with that value
    unrolled: bool = False  # whether a command was followed for each value of an axis
    cut: Budget | None = None
    """The budget at which the script was followed no further: what it starts beyond is unknown."""
    turns: tuple[Origin, ...] = ()
    """The places of the current values of the loops around: they distinguish unrolled commands."""

    def follow(self, document: BashDocument) -> None:
        """Follows a whole script."""
        self._steps(document.steps, 0)

    def follow_text(self, expr: Expr) -> None:
        """Follows a command string (`bash -c`, `eval`)."""
        if not self._is_over(SHELL_NESTED, self.nested):
            self.nested += 1
            self.follow(reparse(self.source, expr))
            self.nested -= 1

    def _is_over(self, budget: Budget, used: int) -> bool:
        """Whether a budget is used up; then what follows is unknown."""
        self.cut = self.cut or (budget if used >= budget else None)
        return used >= budget

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _steps(self, steps: Sequence[ShellStep], depth: int) -> None:
        def block(step: ShellStep) -> ShellBlock | None:
            return step.blocks[depth] if len(step.blocks) > depth else None

        for around, group in groupby(steps, block):
            inside = list(group)
            if self.ended:
                return
            if self._is_over(SCRIPT_RUNS, len(self.runs)) or self._is_over(SCRIPT_STEPS, self.steps - 1):
                return
            if around is not None:
                self._block(around, inside, depth + 1)
                continue
            for step in inside:
                self.steps += 1
                over = self._is_over(SCRIPT_STEPS, self.steps - 1) or self._is_over(SCRIPT_RUNS, len(self.runs))
                if not over and not self.ended:
                    self._step(step)

    def _block(self, block: ShellBlock, steps: list[ShellStep], depth: int) -> None:
        if block.kind == "function":
            self.functions[block.name] = (steps, depth)
        elif block.kind == "loop":
            self._loop(block, steps, depth)
        elif block.kind == "conditional":
            self._decided(block, steps, depth)
        elif block.kind == "branch":
            self._steps(steps, depth)
        else:
            saved, directory = dict(self.variables), self.directory
            self._steps(steps, depth)
            self.variables, self.directory = saved, directory

    def _loop(self, block: ShellBlock, steps: list[ShellStep], depth: int) -> None:
        values = [whole(one) for word in block.words for one in self._words(word)]
        name = block.name
        if block.lines is not None:
            read = self.closed(Op("lines", (block.lines, Const(False)), None))
            name, values = LINE, list(operands_of(read)) if is_tuple(read) else []
        if name and block.words and not values and self.arguments is not None:  # `for arg in "$@"` without arguments
            return
        if name and 0 < len(values) <= LOOP_ROUNDS and not any(is_unknown(value) for value in values):
            outer = self.turns
            places = [value.origin for value in values]
            for turn, value in enumerate(values):
                self.variables[name] = value
                place = value.origin
                if place is not None and places.count(place) > 1:  # the values of `{1..4}` stand at one place
                    place = replace(place, route=(turn,))
                self.turns = (*outer, place) if place is not None else outer
                self._steps(steps, depth)
            self.turns = outer
            return
        options = any(isinstance(step, ShellCommand) and step.name in ("shift", "getopts") for step in steps)
        if options and self._shifted(block, steps, depth):
            return
        changed = {step.name for step in steps if isinstance(step, Assignment)} | {block.name}
        stay = self.variables.keys() & changed if options and self.arguments is None else ()  # none may be given
        before, self.arguments = {name: self.variables[name] for name in stay}, None if options else self.arguments
        self.variables |= {name: unknown(f"{name} changes in a loop", cause=Cause.run_time) for name in changed - {""}}
        self._steps(steps, depth)
        self.variables |= {name: marked_default(value, "1") for name, value in before.items()}
        self.assumed |= before.keys()

    def _shifted(self, block: ShellBlock, steps: list[ShellStep], depth: int) -> bool:
        """Follows a loop over the arguments of the script (`while [ $# -gt 0 ]`); False if they are not known."""
        if block.condition is None or self.arguments is None or not self._holds(block.condition):
            return False
        for _ in range(LOOP_ROUNDS):
            self._steps(steps, depth)
            holds = None if self.arguments is None else self._holds(block.condition)
            if not holds:
                return holds is False
        return False

    def _decided(self, block: ShellBlock, steps: list[ShellStep], depth: int) -> None:
        """The branch that runs, if the tests can be decided; else every branch that may run, under a condition."""
        left: list[ShellStep] = []
        branches: list[ShellBlock | None] = []
        for branch, group in groupby(steps, lambda step: step.blocks[depth] if len(step.blocks) > depth else None):
            inside = list(group)
            test = branch.condition if branch is not None and branch.kind == "branch" else block.condition
            holds = None if test is None else self._holds(test)
            if holds is False:
                continue
            left += inside
            branches.append(branch)
            if holds and len(branches) == 1:
                self._steps(left, depth)
                return
            if holds:
                break
        if left:
            self._conditional(left, depth)

    def _holds(self, test: Expr) -> bool | None:
        """Whether a test succeeds; None: unknown, or it depends on a default that the environment may replace."""
        if self._is_assumed(test):
            return None
        value = evaluate(self.closed(without_arguments(test, self.arguments)))
        return None if isinstance(value, Unknown) else bool(value)

    def _is_assumed(self, expr: Expr) -> bool:
        return rests_on_default(expr, self.variables.keys() | self._positional().keys(), self.assumed)

    def _conditional(self, steps: list[ShellStep], depth: int) -> None:
        before, directory, ended = dict(self.variables), self.directory, self.ended
        outer, self.assigned = self.assigned, {}
        self.doubtful += 1
        self._steps(steps, depth)
        self.doubtful -= 1
        self.ended = ended
        for name, expr in list(self.variables.items()):
            if before.get(name) != expr:
                self.variables[name] = perhaps_longer(name, before.get(name), expr, self.assigned.get(name, ()))
        for name, values in self.assigned.items():
            outer.setdefault(name, []).extend(values)
        self.assigned, self.directory = outer, directory if self.directory == directory else None

    # --- steps --------------------------------------------------------------------------------------------------------

    def _step(self, step: ShellStep) -> None:
        if isinstance(step, Assignment):
            self._assign(step)
            return
        if isinstance(step, WrittenFile):
            self._write(step.target, step.text)
            return
        words = with_installed_program(self._all_words(step) or ())
        name, rest = word_text(words[0]) if words else None, words[1:]
        if name is None:
            return
        if name in self.functions:
            self._call(name, rest if self.arguments is not None or not hands_all_on(step) else None)
        elif name in ("cd", "pushd"):
            self._cd(rest)
        elif name in ("source", "."):
            self._source(rest)
        elif name == "eval":
            axis = self._chooses(joined(rest))
            if axis is not None:
                self._each(step, axis)
            else:
                self.follow_text(joined(rest))
        elif name == "wait":
            self.group += self.pending
            self.pending = False
        elif name == "shift":
            count = "1" if not rest else word_text(rest[0]) or ""
            known = self.arguments if count.isdecimal() and not self.doubtful else None
            self.arguments = None if known is None else known[int(count) :]
        elif name == "set" and rest and word_text(rest[0]) == "--":
            self.arguments = rest[1:]
        elif name == "exit":
            self.ended = True
        elif name not in BUILT_IN:
            for one in written_by(name, rest, self.outputs.written, self.outputs.files):
                self._made(*one)
            self._run(step, words)

    def _write(self, target: ShellWord, text: Expr | None) -> None:
        """A file that the script writes. Under a condition, it may also be the file that was there before."""
        name = name_of(self.closed(target.expr))
        if name is not None:
            self._made(name, None if text is None or self.doubtful else self.closed(text))

    def _made(self, name: str, text: Expr | None) -> None:
        self.outputs.written[plain_name(name)] = text = None if self.doubtful else text
        key = (name, self.directory)
        self.made = {**{one: old for one, old in self.made.items() if one != key}, key: text}

    def _run(self, step: ShellCommand, words: tuple[Word, ...]) -> None:
        own = {one.name: self.closed(one.expr) for one in step.environment}
        shared = {name: self.variables[name] for name in self.exported if name in self.variables}
        if self.fixed:
            shared = {name: self.closed(value) for name, value in shared.items()}
        origin = replace(step.words[0].origin, via=self.turns)
        text = operands_of(step.given)[0] if isinstance(step.given, Op) and step.given.operator == "text" else None
        given = None if text is None else self.closed(text)
        self.runs.append(StartedCommand(words, {**shared, **own}, origin, self.group, self.directory, self.made, given))
        if step.background or word_text(words[0]) in DETACHED:
            self.pending = True
        elif not self.pending:
            self.group += 1

    def _assign(self, step: Assignment) -> None:
        assumed = self._is_assumed(step.expr) or (step.append and step.name in self.assumed)
        value = self.closed(step.expr)
        old = self.variables.get(step.name)
        (self.assumed.add if assumed else self.assumed.discard)(step.name)
        if is_tuple(value):
            value = self._split_array(value)
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
        if name in self.inside or self._is_over(SHELL_NESTED, self.nested):
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
        if target is None or self.sourced is None or target in self.inside or self._is_over(SHELL_NESTED, self.nested):
            return
        document = self.sourced(target)
        if document is not None:
            self._enter(target, lambda: self.follow(document))

    # --- values -------------------------------------------------------------------------------------------------------

    def closed(self, expr: Expr) -> Expr:
        """`expr` with the current values of its variables. A variable that is not set is unknown."""
        known = {**self.variables, **self._positional(), **self.fixed}
        free = {name: value for name, value in known.items() if name not in self.axes or name in self.fixed}
        found = substitute(apply_defaults(tidy(expr), known), free)
        if size_of(found) > WORD_CHARACTERS:
            return unknown("it is longer than any word of a command can be", expr.origin, Cause.budget)
        if any(name not in self.axes for name in names(found)):
            found = self._open(found)
        return self.outputs.resolved(found)

    def _open(self, expr: Expr) -> Expr:
        if isinstance(expr, Ref) and expr.name not in self.axes:
            return not_set(expr)
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

    # --- values that an index of the job chooses ----------------------------------------------------------------------

    def _all_words(self, step: ShellCommand) -> tuple[Word, ...] | None:
        """The words of a command. None: they differ by the values of an axis, and the command was followed for each."""
        found: list[Word] = []
        for shell_word in step.words:
            words = list(self._words(shell_word))
            axis = next(
                (axis for word in words if word.value is not None for axis in [self._chooses(word.value)] if axis), None
            )
            several = None if axis is None else self._by_index(words, axis, shell_word.splits)
            if axis is not None and several is None:
                self._each(step, axis)
                return None
            found += words if several is None else several
        return tuple(found)

    def _chooses(self, expr: Expr) -> str | None:
        """The axis that chooses an element of an expression; None if there is none, or more than one."""
        axes = set(names(expr)) & self.axes
        [axis, *more] = axes or {""}
        return axis if axis and not more and self._values_of(expr, axis) else None

    def _values_of(self, expr: Expr, axis: str) -> list[int]:
        stated = self.outputs.indices.get(axis)
        among = [one for one in range(MAX_INDICES) if stated is None or one in stated]
        return sorted(indices_of(expr, axis, among) or ())

    def _by_index(self, words: list[Word], axis: str, splits: bool) -> list[Word] | None:
        """Words whose values an axis chooses, for all its values at once; None if their number or options differ."""
        values = self._values_of(Op("tuple", tuple(whole(word) for word in words)), axis)
        stated = self.outputs.indices.get(axis)
        table = {value: words_at(words, axis, value, splits, self.source) for value in values}
        return one_list(table, axis, stated is None or len(table) == len(stated))

    def _each(self, step: ShellCommand, axis: str) -> None:
        """Follows a command for each value of an axis: each is a job of its own."""
        if axis in self.fixed:
            return
        outer, self.unrolled = self.turns, True
        expr = Op("tuple", tuple(self.closed(word.expr) for word in step.words))
        values = self._values_of(expr, axis)
        self._is_over(LOOP_ROUNDS, len(values) - 1)
        for value in values[:LOOP_ROUNDS]:
            self.fixed[axis] = Const(value)
            place = next(
                (place for place in origins(selected(expr, axis, value)) if place.path != self.source.path), None
            )
            self.turns = outer if place is None else (*outer, place)
            self._step(step)
            self.group += 1
        del self.fixed[axis]
        self.turns = outer

    def _split_array(self, value: Expr) -> Expr:
        """An array with a word in each element, where the words are known."""
        found: list[Expr] = []
        for operand in operands_of(value):
            inner = operands_of(operand)[0] if isinstance(operand, Op) and operand.operator == "words" else None
            if inner is None or has_hole(inner):
                found.append(operand)
                continue
            place = operand.origin or inner.origin or Origin(self.source.path, Span(0, 0))
            axis = self._chooses(inner)
            words = (
                list(items(Op("tuple", (operand,)), place, self.source))
                if axis is None
                else self._by_index([of_value(inner, place)], axis, True)
            )
            found += [operand] if words is None else [whole(word) for word in words]
        return Op("tuple", tuple(found), value.origin)

    def _words(self, word: ShellWord) -> Iterator[Word]:
        """The words that the shell makes of one written word."""
        if any(piece.expr is not None and is_all_arguments(piece.expr) for piece in word.pieces):
            yield from self.arguments if self.arguments is not None else (given_at_start(word.origin),)
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
            yield from items(value, word.origin, self.source)
        elif has_blank(value):
            yield from split(value, word.origin, self.source)
        elif not (isinstance(value, Const) and value.value == ""):
            yield of_value(value, word.origin)
