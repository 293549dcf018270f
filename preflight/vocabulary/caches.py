"""Two caches: of the latest results, by the object that they were made from; and of all that readers made of files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BoundedCache(Generic[T]):
    """The latest results, by the object that they were made from and a key.

    Objects are compared by identity, since comparing their values is slow. Each object is kept as long as its result:
    no other object gets its identity.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[int, Hashable], tuple[object, T]] = OrderedDict()

    def get(self, of: object, key: Hashable, make: Callable[[], T]) -> T:
        """The result for `of` and `key`; `make` makes it if it is not kept. An exception of `make` is not kept."""
        at = (id(of), key)
        found = self._kept.get(at)
        if found is None:
            found = self._kept[at] = (of, make())
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(at)
        return found[1]

    def clear(self) -> None:
        self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)


class Kind(Generic[T]):
    """The key of one kind of thing, with its type; only the reader that keeps them has it. `name` is for people.

    `of_many`: such a thing was made from several files, so that a change of any text makes it out of date.
    """

    def __init__(self, name: str, of_many: bool = False) -> None:
        self.name, self.of_many = name, of_many

    def __repr__(self) -> str:
        return f"Kind({self.name!r})"


class Remembered:
    """Things that readers made, by their kind and their place. A place of a file begins with its path."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Kind[Any], tuple[Hashable, ...]], Any] = {}

    def get(self, kind: Kind[T], make: Callable[[], T], *where: Hashable) -> T:
        """The thing of this kind in this place, made at the first call. An exception of `make` is not kept."""
        key = (kind, where)
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def known(self, kind: Kind[T], *where: Hashable) -> T | None:
        """The thing of this kind in this place, or None."""
        return self._kept.get((kind, where))

    def put(self, kind: Kind[T], value: T, *where: Hashable) -> None:
        self._kept[kind, where] = value

    def all(self, kind: Kind[T], *where: Hashable) -> Iterator[T]:
        """All objects of one type in a folder and below it, the oldest first."""
        for (one, place), value in self._kept.items():
            if one is kind and place[: len(where)] == where:
                yield value

    def without(self, paths: Collection[str]) -> Remembered:
        """A copy without the things that come from some files."""
        copy = Remembered()
        copy._kept = {
            (kind, where): value
            for (kind, where), value in self._kept.items()
            if not (paths and kind.of_many) and (not where or where[0] not in paths)
        }
        return copy
