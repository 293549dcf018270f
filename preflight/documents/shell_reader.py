"""Assignments and commands of a shell script, read from its syntax tree, with the blocks around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.documents.shell_tests import condition, matches
from preflight.documents.shell_words import ShellWord, Words
from preflight.vocabulary.budgets import SCRIPT_STATEMENTS, SHELL_DEPTH
from preflight.vocabulary.caches import regex
from preflight.vocabulary.text import DocumentError
from preflight.vocabulary.values import Cause, Const, Expr, Op, Ref, Span, unknown

if TYPE_CHECKING:
    from tree_sitter import Node


class ShellBlock(Struct, frozen=True):
    """A block around a command: `kind` is loop, conditional, branch, function or subshell.

    A conditional has a branch for each `then`, `elif`, `else` and item of a `case`, or no branches (`a && b`). It, or
    the branch, runs if its `condition` holds and no branch before it runs; without a condition, it may run or not. A
    `while` loop has a condition, too.

    The `name` is the variable of a `for` loop or the name of a function; `words` is the list of a `for` loop. `lines`
    is what `while read` reads, one line each turn: each turn sets the variable LINE.
    """

    kind: str
    span: Span
    name: str = ""
    words: tuple[ShellWord, ...] = ()
    lines: Expr | None = None
    condition: Expr | None = None


LINE = "<line>"
"""The name of the line that a turn of `while read` has. No variable of a script can have it."""


class Assignment(Struct, frozen=True):
    """`name=value`. `append` for `+=`; `index` for one element of an array; `default` for `${X:=d}`.

    An array is `Op("tuple", ...)`. `blocks` are the blocks around it, the outermost first.
    """

    name: str
    expr: Expr
    span: Span
    exported: bool = False
    append: bool = False
    index: Expr | None = None
    default: bool = False
    blocks: tuple[ShellBlock, ...] = ()


class ShellCommand(Struct, frozen=True):
    """A simple command: its words (the first is the program), and the assignments before it (`A=1 python x.py`)."""

    words: tuple[ShellWord, ...]
    span: Span
    environment: tuple[Assignment, ...] = ()
    background: bool = False
    blocks: tuple[ShellBlock, ...] = ()
    given: Expr | None = None
    """Its standard input (`<<EOF`), see `Words.given`; None: that of the script."""

    @property
    def name(self) -> str | None:
        """The name of the program if it is literal."""
        return self.words[0].literal if self.words else None


class WrittenFile(Struct, frozen=True):
    """A file that a redirection writes; `text` is what, if the script states it (`cat > file <<EOF`)."""

    target: ShellWord
    span: Span
    text: Expr | None = None
    blocks: tuple[ShellBlock, ...] = ()


ShellStep = Assignment | ShellCommand | WrittenFile


def variables_read(command: ShellCommand, given: Expr | None) -> list[tuple[str, Expr, ShellWord]]:
    """The variables that `read` and `mapfile` set from a known standard input, with their values.

    `Op("read", (text, separators, index, count, raw))` is a field of a text, `Op("lines", (text, keeps))` all its
    lines; a `count` of 0 is all fields as an array. None are given for options that are not followed.
    """
    options = [word.literal or "" for word in command.words[1:]]
    names = [index for index, text in enumerate(options) if re.fullmatch(r"[A-Za-z_]\w*", text)]
    flags, named = options[: names[0]] if names else [], command.words[1:][names[0] :] if names else ()
    own = {one.name: one.expr for one in command.environment}
    if given is None or not named or len(names) != len(named) or set(own) - {"IFS"}:
        return []
    place = named[0].origin
    if command.name in ("mapfile", "readarray"):
        if flags not in ([], ["-t"]) or len(named) != 1:
            return []
        return [(options[names[0]], Op("lines", (given, Const(not flags)), place), named[0])]
    letters = "".join(flag.lstrip("-") for flag in flags if flag)
    if command.name != "read" or any(flag and not flag.startswith("-") for flag in flags) or set(letters) - set("rda"):
        return []
    if ("d" in letters) != ("" in flags) or ("a" in letters and len(named) != 1):
        return []
    count, whole = 0 if "a" in letters else len(named), Const("d" in letters)
    raw, separators = Const("r" in letters), own.get("IFS", Const(None))
    return [
        (word.literal or "", Op("read", (given, separators, Const(index), Const(count), raw, whole), word.origin), word)
        for index, word in enumerate(named)
    ]


def _appends(targets: list[Node]) -> bool:
    return any(sibling.type == ">>" for node in targets for sibling in (node.parent.children if node.parent else ()))


def _has_number(target: Node) -> bool:
    """Whether a redirection is not of the standard output: `2> file`."""
    return target.parent is not None and any(child.type == "file_descriptor" for child in target.parent.children)


def _reads_lines(node: Node) -> bool:
    """Whether the condition of a `while` loop is a `read`."""
    words = [child for child in node.named_children[0].named_children if child.type == "command_name"]
    text = words[0].text if words else None
    return text == b"read"


class ShellReader(Struct):
    """Walks the syntax tree once and records for every step the blocks around it."""

    words: Words
    assignments: list[Assignment] = field(default_factory=list)
    commands: list[ShellCommand] = field(default_factory=list)
    heredocs: list[Span] = field(default_factory=list)
    written: list[WrittenFile] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)
    count: int = 0
    """Statements so far."""
    given: Expr | None = None
    """The standard input of the statement that is read next, see `Words.given`; None: that of the script."""

    def statements(self, node: Node, blocks: tuple[ShellBlock, ...], background: bool, depth: int) -> None:
        """Every statement below a node. `&` belongs to the statement before it."""
        children = node.children
        for index, child in enumerate(children):
            after = children[index + 1].type if index + 1 < len(children) else ""
            self.statement(child, blocks, background or after == "&", depth + 1)

    def statement(self, node: Node, blocks: tuple[ShellBlock, ...], background: bool, depth: int) -> None:
        if depth > SHELL_DEPTH * 3:
            return
        self.count += 1
        if self.count > SCRIPT_STATEMENTS:
            raise DocumentError(f"it is {SCRIPT_STATEMENTS.over}", self.words.span(node))
        kind = node.type
        given, self.given = self.given, None
        if kind in _HOLD_COMMANDS:
            self.substituted(node, blocks, depth)
        if kind == "command":
            self.command(node, blocks, background, given)
        elif kind == "variable_assignment":
            self.assign(node, blocks)
        elif kind == "declaration_command":
            self.declare(node, blocks)
        elif kind == "redirected_statement":
            self.redirected(node, blocks, background, depth)
        elif kind == "pipeline":
            self.piped(node, blocks, background, depth)
        elif kind == "list":
            self.listed(node, blocks, background, depth)
        elif kind in _BLOCKS:
            self.block(node, blocks, background, depth, given)
        elif node.is_named and kind not in ("comment", "heredoc_redirect", "file_redirect", "test_command"):
            self.statements(node, blocks, background, depth)

    def substituted(self, node: Node, blocks: tuple[ShellBlock, ...], depth: int) -> None:
        """Commands in `$(...)` that submit a job and print its number: `ID=$(wandb sweep s.yaml)`."""
        queue = list(node.named_children)
        while queue:
            child = queue.pop()
            if child.type != "command_substitution":
                queue += child.named_children
            elif _SUBMITS.search(self.words.source(child)):
                self.statements(child, blocks, False, depth + 1)

    def listed(self, node: Node, blocks: tuple[ShellBlock, ...], background: bool, depth: int) -> None:
        """`a && b || c`: the command behind `&&` is expected to run, unless the first command is a test. The command
        behind `||` is not. The grammar nests to the left."""
        chain: list[tuple[str, Node]] = []
        while node.type == "list" and len(node.children) >= 3:
            chain.append((node.children[1].type, node.children[2]))
            node = node.children[0]
        self.statement(node, blocks, background, depth + 1)
        asks = node.type in ("test_command", "negated_command") or self.words.source(node).split()[:1] in _QUESTIONS
        test = condition(self.words, node) if asks and len(chain) == 1 else None
        for operator, child in reversed(chain):
            certain = operator == "&&" and not asks
            holds = Op("not", (test,)) if test is not None and operator == "||" else test
            block = ShellBlock("conditional", self.words.span(child), condition=holds)
            inner = blocks if certain else (*blocks, block)
            self.statement(child, inner, background, depth + 1)

    def piped(self, node: Node, blocks: tuple[ShellBlock, ...], background: bool, depth: int) -> None:
        """`a | b`: a loop at the end of the pipeline reads what the commands before it print."""
        *before, last = node.named_children
        for child in before:
            self.statement(child, blocks, background, depth + 1)
        if last.type == "while_statement":
            stages = self.words.stages(before)
            self.given = (
                None
                if stages is None
                else Op("output", stages, self.words.text.origin(*self.words.bounds(node), False))
            )
        self.statement(last, blocks, background, depth + 1)
        self._teed(last, self.words.stages(before), blocks)

    def _teed(self, node: Node, stages: tuple[Expr, ...] | None, blocks: tuple[ShellBlock, ...]) -> None:
        """`... | tee file`, `tee file <<EOF`: a file with the text that the command reads."""
        body = node.child_by_field_name("body") if node.type == "redirected_statement" else node
        if body is None or body.type != "command" or self.words.source(body.named_children[0]) != "tee" or not stages:
            return
        words = [self.words.word(child) for child in body.named_children[1:] if not child.type.endswith("redirect")]
        text = Op("output", stages, self.words.text.origin(*self.words.bounds(node), False))
        if all(not (word.literal or "").startswith("-") for word in words):
            self.written += [WrittenFile(word, word.span, text, blocks) for word in words]

    def block(
        self, node: Node, blocks: tuple[ShellBlock, ...], background: bool, depth: int, given: Expr | None = None
    ) -> None:
        kind, span, name = _BLOCKS[node.type], self.words.span(node), ""
        lines = given if node.type == "while_statement" and _reads_lines(node) else None
        words: tuple[ShellWord, ...] = ()
        body = list(node.named_children)
        if node.type == "for_statement":
            name = self.words.source(body[0])
            words = tuple(self.words.word(child) for child in body[1:] if child.type != "do_group")
            self.assignments.append(self._loop_variable(name, words, body[0], blocks, span))
            body = [child for child in body if child.type == "do_group"]
        elif node.type == "function_definition":
            name = self.words.source(body[0])
            body = body[1:]
        elif node.type == "if_statement":
            self.statement(body[0], blocks, background, depth + 1)  # the test itself always runs
        test = condition(self.words, body[0]) if node.type == "while_statement" and lines is None else None
        if test is not None and self.words.source(node).startswith("until"):
            test = Op("not", (test,), test.origin)
        inner = (*blocks, ShellBlock(kind, span, name, words, lines, test))
        if kind == "conditional":
            for branch, children in self._branches(node):
                for child in children:
                    self.statement(child, (*inner, branch), background, depth + 1)
            return
        for index, child in enumerate(body):
            if lines is not None and index == 0:
                self.given = Op("text", (Ref(LINE),))
            self.statement(child, inner, background, depth + 1)

    def _branches(self, node: Node) -> Iterator[tuple[ShellBlock, list[Node]]]:
        """The branches of an `if` or a `case`, with their statements."""
        children = node.named_children
        if node.type == "case_statement":
            for item in (child for child in children if child.type == "case_item"):
                cut = next((at for at, child in enumerate(item.children) if child.type == ")"), len(item.children))
                patterns = [child for child in item.children[:cut] if child.is_named]
                rest = [child for child in item.children[cut:] if child.is_named]
                chosen = matches(self.words, children[0], patterns)
                yield ShellBlock("branch", self.words.span(item), condition=chosen), rest
            return
        parts = [child for child in children if child.type in ("elif_clause", "else_clause")]
        own = [child for child in children[1:] if child not in parts]
        test = condition(self.words, children[0])
        yield ShellBlock("branch", self.words.span(children[0]), condition=test), own
        for part in parts:
            inner, always = part.named_children, part.type == "else_clause"
            test = Const(True) if always else condition(self.words, inner[0])
            yield ShellBlock("branch", self.words.span(part), condition=test), inner[0 if always else 1 :]

    def _loop_variable(
        self, name: str, words: tuple[ShellWord, ...], node: Node, blocks: tuple[ShellBlock, ...], span: Span
    ) -> Assignment:
        single = len(words) == 1 and not words[0].splits
        place = self.words.text.origin(*self.words.bounds(node), False)
        expr = words[0].expr if single else unknown(f"{name} takes several values in a loop", place, Cause.run_time)
        return Assignment(name, expr, Span(span.start, place.span.end), blocks=blocks)

    # --- commands -----------------------------------------------------------------------------------------------------

    def redirected(self, node: Node, blocks: tuple[ShellBlock, ...], background: bool, depth: int) -> None:
        self.heredocs += self._heredocs(node)
        targets: list[Node] = []
        inner = [one for child in node.named_children for one in child.named_children]
        for child in (*node.named_children, *inner):
            target = child.named_children[-1] if child.type == "file_redirect" and child.named_children else None
            if target is not None and target.type not in ("file_descriptor", "process_substitution"):
                self.words.value(target)  # `> ${LOG:=run.log}` sets LOG
                targets += [target] if child.children[0].type in _WRITES else []
        body = node.child_by_field_name("body") or (node.named_children[0] if node.named_children else None)
        if body is not None and not body.type.endswith("redirect"):
            given = [self.words.given(child) for child in node.named_children if child.type.endswith("redirect")]
            self.given = next((one for one in reversed(given) if one is not None), None)
            self.statement(body, blocks, background, depth + 1)
        if targets:
            given = [self.words.heredoc(child) for child in node.named_children if child.type == "heredoc_redirect"]
            copied = body is not None and self.words.source(body) == "cat" and len(given) == 1
            text = None
            if len(targets) == 1 and not _appends(targets) and not _has_number(targets[0]):
                text = given[0] if copied else self._printed(node)
            self.written += [
                WrittenFile(self.words.word(target), self.words.span(target), text, blocks) for target in targets
            ]
        read = [self.words.given(child) for child in node.named_children if child.type.endswith("redirect")]
        self._teed(node, tuple(one for one in read if one is not None)[-1:], blocks)
        for child in node.named_children:
            if child.type == "heredoc_redirect":
                rest = [c for c in child.named_children if c.type in ("pipeline", "list", "command")]
                for statement in rest:
                    self.statement(statement, blocks, background, depth + 1)

    def _printed(self, node: Node) -> Expr | None:
        """What a command prints into a file; None if it is no simple command."""
        stages = self.words.stages([node])
        return None if stages is None else Op("output", stages, self.words.text.origin(*self.words.bounds(node), False))

    def _heredocs(self, node: Node) -> Iterator[Span]:
        """The bodies of `<<EOF`."""
        for redirect in node.named_children:
            parts = {part.type: part for part in redirect.named_children}
            body = parts.get("heredoc_body")
            if redirect.type == "heredoc_redirect" and "heredoc_start" in parts and body is not None:
                start, end = self.words.text.char(body.start_byte), self.words.text.char(body.end_byte)
                start = self.words.text.text.rfind("\n", 0, start) + 1
                yield self.words.text.span(start, end)

    def command(self, node: Node, blocks: tuple[ShellBlock, ...], background: bool, given: Expr | None = None) -> None:
        own: list[Assignment] = []
        words: list[ShellWord] = []
        children = node.named_children
        for index, child in enumerate(children):
            if child.type == "variable_assignment" and not words:
                own.append(self.assignment(child, blocks))
                if self._line_ends(child, children[index + 1 : index + 2]):  # the grammar joins such lines
                    self.assignments += own
                    own = []
            elif child.type == "herestring_redirect":
                given = self.words.given(child)
            elif not child.type.endswith("redirect"):
                words.append(self.words.word(child))
        self.defaults(blocks)
        if not words:
            return
        start = min([words[0].span.start, *(assignment.span.start for assignment in own)])
        command = ShellCommand(tuple(words), Span(start, words[-1].span.end), tuple(own), background, blocks, given)
        self.commands.append(command)
        self._assigned_by(command, given)

    def _line_ends(self, node: Node, following: list[Node]) -> bool:
        if not following:
            return False
        gap = self.words.text.text[self.words.bounds(node)[1] : self.words.bounds(following[0])[0]]
        return "\n" in gap.replace("\\\n", "")

    def defaults(self, blocks: tuple[ShellBlock, ...]) -> None:
        """Variables that a `${X:=d}` in the last command or assignment sets."""
        for name, expr in self.words.assigned:
            span = expr.origin.span if expr.origin is not None else Span(0, 0)
            self.assignments.append(Assignment(name, expr, span, default=True, blocks=blocks))
        self.words.assigned.clear()

    def _assigned_by(self, command: ShellCommand, given: Expr | None) -> None:
        """Variables that a command sets: `read A`, and `export A` if the grammar reads it as a command."""
        if command.name in ("read", "mapfile", "readarray", "getopts"):
            found = variables_read(command, given) or [
                (name, unknown(f"{name} is read while the script runs", word.origin, Cause.run_time), word)
                for word in command.words[1:]
                if (name := word.literal or "") and re.fullmatch(r"[A-Za-z_]\w*", name)
            ]
            for name, expr, word in found:
                self.assignments.append(Assignment(name, expr, word.span, blocks=command.blocks))
        elif command.name in ("export", "declare", "readonly", "local", "typeset"):
            self.exported.update(word.literal or "" for word in command.words[1:])

    # --- assignments --------------------------------------------------------------------------------------------------

    def assign(self, node: Node, blocks: tuple[ShellBlock, ...], exported: bool = False) -> None:
        assignment = replace(self.assignment(node, blocks), exported=exported)
        self.defaults(blocks)
        self.assignments.append(assignment)

    def assignment(self, node: Node, blocks: tuple[ShellBlock, ...]) -> Assignment:
        head, span = node.named_children[0], self.words.span(node)
        values = node.named_children[1:]
        index = None
        name = self.words.source(head)
        if head.type == "subscript":
            name = self.words.source(head.named_children[0])
            index = self.words.arithmetic(head.named_children[-1])
        if not values:
            expr: Expr = Const("", self.words.text.origin(self.words.bounds(node)[1], self.words.bounds(node)[1]))
        elif values[0].type == "array":
            expr = self.array(values[0])
        elif values[0].type.endswith("_expression") and values[0].type != "brace_expression":
            expr = self.words.arithmetic(values[0])
        else:
            expr = self.words.value(values[0])
        append = any(child.type == "+=" for child in node.children)
        return Assignment(name, expr, span, append=append, index=index, blocks=blocks)

    def array(self, node: Node) -> Expr:
        origin = self.words.text.origin(*self.words.bounds(node), False)
        words = [self.words.word(child) for child in node.named_children if child.type != "comment"]
        named = any(child.type == "variable_assignment" for child in node.named_children)
        if named:
            return unknown("the array is filled by an expansion", origin, Cause.run_time)
        return Op("tuple", tuple(self.words.item(word) for word in words), origin)

    def declare(self, node: Node, blocks: tuple[ShellBlock, ...]) -> None:
        keyword = node.children[0].type
        options = [self.words.source(child) for child in node.named_children if child.type == "word"]
        exported = keyword == "export" or any(option.startswith("-") and "x" in option for option in options)
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.assign(child, blocks, exported)
        if exported:
            self.exported.update(self.words.source(c) for c in node.named_children if c.type == "variable_name")

    def finish(self) -> None:
        """Marks every assignment of a name that is exported somewhere."""
        self.assignments = [replace(a, exported=True) if a.name in self.exported else a for a in self.assignments]


_HOLD_COMMANDS = ("command", "variable_assignment", "declaration_command")
_SUBMITS = regex(r"^[$`(\s]*(?:wandb\s+sweep|python[\d.]*\s+-m\s+wandb\s+sweep|sbatch)\b")
_QUESTIONS = (["command"], ["which"], ["grep"], ["test"], ["["], ["type"], ["hash"])
"""Commands that are run for their exit status."""
_WRITES = (">", ">>", ">|", "&>", "&>>")
_BLOCKS = {
    "for_statement": "loop", "c_style_for_statement": "loop", "while_statement": "loop",
    "if_statement": "conditional", "case_statement": "conditional", "function_definition": "function",
    "subshell": "subshell",
}  # fmt: skip
