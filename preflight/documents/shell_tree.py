"""What a job script says, as its reader hands it on: assignments and commands, and what they stand inside."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.documents.shell_words import ShellWord
from preflight.vocabulary.values import Expr, Span


@dataclass(frozen=True, slots=True)
class Block:
    """Something that a command stands inside: `kind` is loop, conditional, function or subshell.

    A `for` loop has its variable as `name` and what it goes through as `words`; a function has its name.
    """

    kind: str
    span: Span
    name: str = ""
    words: tuple[ShellWord, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """`name=value`. `append` for `+=`; `index` for one element of an array; `default` for `${X:=d}`.

    An array is `Op("tuple", ...)`. `blocks` are what it stands inside, the outermost first.
    """

    name: str
    expr: Expr
    span: Span
    exported: bool = False
    append: bool = False
    index: Expr | None = None
    default: bool = False
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its words (the first is the program), and assignments that hold for it alone."""

    words: tuple[ShellWord, ...]
    span: Span
    environment: tuple[Assignment, ...] = ()
    background: bool = False
    blocks: tuple[Block, ...] = ()

    @property
    def name(self) -> str | None:
        """The program's name where it is literal."""
        return self.words[0].literal if self.words else None
