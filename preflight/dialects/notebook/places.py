"""From places in the Python of a notebook to places in the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from preflight.vocabulary.values import Origin

T = TypeVar("T")


def with_origins(value: T, change: Callable[[Origin], Origin]) -> T:
    """A value of the vocabulary (a Reading, links) with each of its origins changed; what has none stays the same."""
    return cast(T, _Changed(change).of(value))


class _Changed:
    """Each object is changed once: expressions share their parts."""

    def __init__(self, change: Callable[[Origin], Origin]) -> None:
        self.change = change
        self._known: dict[int, tuple[object, object]] = {}

    def of(self, value: object) -> object:
        if isinstance(value, (str, int, float, type(None))):
            return value
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = (value, self._of(value))
        return known[1]

    def _of(self, value: object) -> object:
        if isinstance(value, Origin):
            via = tuple(cast(Origin, self.of(one)) for one in value.via)
            return self.change(value if via == value.via else replace(value, via=via))
        if isinstance(value, tuple):
            inner = tuple(self.of(one) for one in value)
            return value if all(new is old for new, old in zip(inner, value, strict=True)) else inner
        if isinstance(value, Mapping):
            return {key: self.of(one) for key, one in value.items()}
        if is_dataclass(value) and not isinstance(value, type):
            old = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
            new = {name: self.of(one) for name, one in old.items()}
            return value if all(new[name] is old[name] for name in old) else replace(value, **new)
        return value
