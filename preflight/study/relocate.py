"""A reading of a file that a script writes: each place in the written text becomes the place in the script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from preflight.vocabulary.reading import Reading
from preflight.vocabulary.values import Origin
from preflight.vocabulary.written import Written

Part = TypeVar("Part")


def relocated(reading: Reading, written: Mapping[str, Written], script: str) -> Reading:
    """The same reading with its places in the script at `script`, where that wrote the files it was read from."""
    if not any(one is not None for one in written.values()):
        return reading
    found = _Relocation(written).of(reading)
    reads = tuple(dict.fromkeys(script if written.get(path) is not None else path for path in reading.reads))
    return replace(found, path=script if written.get(reading.path) is not None else reading.path, reads=reads)


class _Relocation:
    def __init__(self, written: Mapping[str, Written]) -> None:
        self.written = written
        self._done: dict[int, tuple[object, object]] = {}
        """What was changed, with what became of it: expressions share their parts."""

    def of(self, part: Part) -> Part:
        if isinstance(part, (str, int, float, type(None))):
            return part
        if id(part) not in self._done:
            self._done[id(part)] = part, self._of(part)
        return cast(Part, self._done[id(part)][1])

    def _of(self, part: object) -> object:
        if isinstance(part, Origin):
            via = tuple(self.of(one) for one in part.via)
            text = self.written.get(part.path)
            moved = None if text is None else text.origin(part)
            return moved or replace(part, via=via)
        if isinstance(part, tuple) and type(part) is tuple:
            return tuple(self.of(one) for one in part)
        if isinstance(part, list):
            return [self.of(one) for one in part]
        if isinstance(part, Mapping):
            return {key: self.of(one) for key, one in part.items()}
        if is_dataclass(part) and not isinstance(part, type):
            old = {one.name: getattr(part, one.name) for one in fields(part) if one.init}
            new = {name: self.of(one) for name, one in old.items()}
            return part if all(new[name] is one for name, one in old.items()) else replace(part, **new)
        return part
