"""What was made once and is kept beside its owner, each thing with its type."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Kind(Generic[T]):
    """One sort of thing that is kept; the reader that keeps it holds the only one. `name` is for people.

    `of_many`: it was made of several files, so that a change of any text makes it out of date.
    """

    def __init__(self, name: str, of_many: bool = False) -> None:
        self.name, self.of_many = name, of_many

    def __repr__(self) -> str:
        return f"Kind({self.name!r})"


class Remembered:
    """Things by their kind and by where they belong: a path first, where they were made of a file."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Kind[Any], tuple[Hashable, ...]], Any] = {}

    def get(self, kind: Kind[T], make: Callable[[], T], *where: Hashable) -> T:
        """What is kept there, made at the first call. What `make` raises is not kept."""
        key = (kind, where)
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def known(self, kind: Kind[T], *where: Hashable) -> T | None:
        """What is kept there, None where nothing was."""
        return self._kept.get((kind, where))

    def put(self, kind: Kind[T], value: T, *where: Hashable) -> None:
        self._kept[kind, where] = value

    def all(self, kind: Kind[T], *where: Hashable) -> Iterator[T]:
        """What is kept of a kind there and below, the oldest first: of a path whatever it was read as."""
        for (one, place), value in self._kept.items():
            if one is kind and place[: len(where)] == where:
                yield value

    def without(self, paths: Collection[str]) -> Remembered:
        """A copy that has forgotten what was made of some files."""
        copy = Remembered()
        copy._kept = {
            (kind, where): value
            for (kind, where), value in self._kept.items()
            if not (paths and kind.of_many) and (not where or where[0] not in paths)
        }
        return copy
