"""Why a reading ends, and what it may use."""

from __future__ import annotations

import time

from ..building import CannotBuild

STEPS = 1_000_000
"""Nodes of syntax trees that a reading visits. A network of 1,000 layers takes some 100,000."""
SECONDS = 8.0
"""CPU time of one reading. A network of 1,000 layers takes two seconds."""
DEPTH = 60
"""Calls of the project's functions within each other. Networks written by people stay below fifteen."""
ITEMS = 100_000
"""Items of a sequence that is made whole, and characters of a text."""
PIECES = 4096
"""Tensors that one tensor is taken apart into."""
DIMENSIONS = 12
"""Dimensions of a tensor."""
ELEMENTS = 2**42
"""Elements of a tensor: more than any GPU holds."""
DIGITS = 128
"""Bits of a whole number."""
LAYERS = 512
"""Layers that one call of torch makes: `torch.nn.LSTM(..., num_layers=2)`."""
MODULES = 5_000
"""Modules of a model."""


class Stopped(CannotBuild):
    """The reading ended at a line: `what` is not known, or not allowed."""

    def __init__(self, what: str, path: str = "", line: int = 0) -> None:
        super().__init__(what)
        self.what, self.path, self.line = what, path, line

    def at(self, path: str, line: int) -> Stopped:
        """The same, with a place where it has none yet."""
        if not self.path:
            self.path, self.line = path, line
        return self

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.what}" if self.path else self.what

    @property
    def cause(self) -> dict[str, str | int]:
        """As data."""
        return {"path": self.path, "line": self.line, "what": self.what}


class Budget:
    """Counts what a reading uses; past a limit the reading ends."""

    def __init__(self) -> None:
        self.steps = self.depth = self.modules = 0
        self.end = time.process_time() + SECONDS

    def step(self) -> None:
        self.steps += 1
        if self.steps > STEPS:
            raise Stopped(f"reading the model takes more than {STEPS:,} steps")
        if self.steps % 512 == 0 and time.process_time() > self.end:
            raise Stopped(f"reading the model takes more than {SECONDS:.0f} s of CPU time")

    def module(self) -> None:
        self.modules += 1
        if self.modules > MODULES:
            raise Stopped(f"the model has more than {MODULES:,} modules")
