"""LMDB files that are not there: what a key holds is told by its name, as programs pack pictures, texts and counts."""

from __future__ import annotations

import os
import re
from typing import Any

from ..patches import replace
from ..tape import Tape
from .own_code import asked_by_program, may_be_missing
from .vision import encoded

RECORDS = 256
_COUNTS = re.compile(rb"num|len|count|size|total", re.IGNORECASE)
_TEXTS = re.compile(rb"label|text|caption|word|transcri", re.IGNORECASE)


class _Database:
    """An environment, a transaction and a cursor in one: programs ask them for the same things."""

    def __init__(self) -> None:
        self._at = -1

    def begin(self, *_: Any, **__: Any) -> _Database:
        return self

    cursor = begin

    def __enter__(self) -> _Database:
        return self

    def __exit__(self, *_: Any) -> None: ...
    def close(self) -> None: ...

    abort = commit = close

    def open_db(self, *_: Any, **__: Any) -> None: ...
    def stat(self, *_: Any) -> dict[str, int]:
        return {"entries": RECORDS}

    entries = stat

    def get(self, key: bytes, default: Any = None, **_: Any) -> bytes:
        if _COUNTS.search(key):
            return str(RECORDS).encode()
        return b"word" if _TEXTS.search(key) else encoded().getvalue()

    def __iter__(self) -> Any:
        return iter([(key, self.get(key)) for key in self._keys()])

    iternext = __iter__

    def _keys(self) -> list[bytes]:
        return [f"{number:08}".encode() for number in range(RECORDS)]

    def first(self) -> bool:
        self._at = 0
        return True

    def next(self) -> bool:
        self._at += 1
        return self._at < RECORDS

    def key(self) -> bytes:
        return self._keys()[max(0, self._at)]

    def value(self) -> bytes:
        return self.get(self.key())


def lmdb(module: Any, tape: Tape) -> None:
    """lmdb: `open` of what is not there, for reading."""
    real = module.open

    def opened(path: Any, *args: Any, **kwargs: Any) -> Any:
        named = isinstance(path, (str, os.PathLike))
        if not named or os.path.exists(path) or not asked_by_program() or may_be_missing():
            return real(path, *args, **kwargs)
        tape.data_made_up = True
        words = (
            f"{os.fspath(path)} is not there: {RECORDS} made-up records stand for it, pictures and words by their keys"
        )
        tape.assume(words, "model.config")
        return _Database()

    replace(module, "open", opened)
