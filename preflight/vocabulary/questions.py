"""Questions that the user can answer with one line of settings, and that would make something known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GPU = "machine.gpu"
"""The field that a setting of its own (`gpu`) states."""

AnswerKind = Literal["text", "number", "choice", "truth"]


@dataclass(frozen=True)
class Question:
    """A Job field that no file states, or that is only assumed. `words` ask for it.

    `studies` lack it, and the files of `replaces` other studies state another value, which the setting would replace.
    `assumed`: the value that the estimate has now, if it has one. `choices`: all values, if they are few.
    """

    field: str
    words: str
    kind: AnswerKind
    studies: int
    replaces: int = 0
    assumed: object = None
    choices: tuple[str, ...] = ()
    hint: str = ""

    @property
    def key(self) -> str:
        """The dotted key of the setting: "gpu", or "set.train.seq_len"."""
        return "gpu" if self.field == GPU else f"set.{self.field}"

    @property
    def line(self) -> str:
        """The line of settings, with a gap for the answer."""
        return f"{self.key} = {self._gap}"

    @property
    def _gap(self) -> str:
        return {"number": "NUMBER", "truth": "true"}.get(self.kind, '"..."')
