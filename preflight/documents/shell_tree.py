"""Assignments and commands of a job script, and the blocks around them."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.documents.shell_words import ShellWord
from preflight.vocabulary.values import Expr, Span


@dataclass(frozen=True, slots=True)
class Block:
    """A block around a command: `kind` is loop, conditional, function or subshell.

    The `name` is the variable of a `for` loop or the name of a function; `words` is the list of a `for` loop.
    """

    kind: str
    span: Span
    name: str = ""
    words: tuple[ShellWord, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
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
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its words (the first is the program), and the assignments before it (`A=1 python x.py`)."""

    words: tuple[ShellWord, ...]
    span: Span
    environment: tuple[Assignment, ...] = ()
    background: bool = False
    blocks: tuple[Block, ...] = ()

    @property
    def name(self) -> str | None:
        """The name of the program if it is literal."""
        return self.words[0].literal if self.words else None
