"""Texts of a project's own model and training loop, kept in this process under a digest that a Job names.

A Job says `model.target: read:net.py:Net#3f2a...`. What is kept is a description for the tracer, as JSON: the files'
texts, which files they import, and how the model and the step are made of them (`preflight/tracer/own.py`). A Job of
another process names a text that is not here: then the model is unknown.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import Any

from msgspec import Struct

PREFIX = "read:"
"""How the targets of such models begin."""
_MOST = 512
"""Texts that are kept. A check of a repository of two thousand files meets some fifty such programs."""
_KEPT: OrderedDict[str, OwnCode] = OrderedDict()
"""By target, the one that was kept last at the end."""


class OwnCode(Struct, frozen=True):
    """A class of the project and the step of its training loop."""

    path: str
    line: int
    """The file and the line of the class."""
    name: str
    described: dict[str, Any]
    """JSON for the tracer: "sources", "imports", "model" and "step", as `preflight/tracer/own.py` says."""

    @property
    def target(self) -> str:
        """The import target that names it."""
        text = json.dumps(self.described, sort_keys=True)
        return f"{PREFIX}{self.path}:{self.name}#{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def keep(code: OwnCode) -> str:
    """Keeps a text, and lets go of the oldest past `_MOST`; returns its target."""
    target = code.target
    _KEPT[target] = code
    _KEPT.move_to_end(target)
    while len(_KEPT) > _MOST:
        _KEPT.popitem(last=False)
    return target


def kept(target: str) -> OwnCode | None:
    """What was kept under a target.

    None if it is of another process, or too long ago.
    """
    return _KEPT.get(target)


def plain(target: str) -> str:
    """A target in words for people: the file and the class, without the digest. Other targets are as they are."""
    return target.removeprefix(PREFIX).partition("#")[0] if target.startswith(PREFIX) else target
