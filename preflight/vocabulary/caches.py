"""Two caches: of the latest results, by the object that they were made from; and of all that readers made of files.

And regular expressions that are compiled when they are first used."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, AnyStr, Generic, TypeVar, cast

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


class CacheKind(Generic[T]):
    """The key of one kind of thing, with its type; only the reader that keeps them has it. `name` is for people.

    `of_many`: such a thing was made from several files, so that a change of any text makes it out of date.
    """

    def __init__(self, name: str, of_many: bool = False) -> None:
        self.name, self.of_many = name, of_many

    def __repr__(self) -> str:
        return f"Kind({self.name!r})"


_Key = tuple[CacheKind[Any], tuple[Hashable, ...]]

EVERY_FILE = ""
"""Among the files that were asked for: something that was made from several, nobody knows which."""


class Remembered:
    """Things that readers made, by their kind and their place. A place of a file begins with its path."""

    def __init__(self, under: Remembered | None = None, hidden: Collection[str] = ()) -> None:
        self._kept: dict[Hashable, dict[_Key, Any]] = {}
        """By the first part of the place."""
        self._under, self._hidden = under, frozenset(hidden)
        self._watching: list[set[Hashable]] = under._watching if under is not None else []

    @contextmanager
    def watched(self) -> Iterator[set[Hashable]]:
        """The files that are asked for meanwhile, by their text or by what was made of it: with other texts of other
        files, the answers are the same."""
        asked: set[Hashable] = set()
        self._watching.append(asked)
        try:
            yield asked
        finally:
            self._watching.pop()

    def ask(self, first: Hashable) -> None:
        """Notes that a file is asked for."""
        for asked in self._watching:
            asked.add(first)

    def get(self, kind: CacheKind[T], make: Callable[[], T], *where: Hashable) -> T:
        """The thing of this kind in this place, made at the first call. An exception of `make` is not kept."""
        for inside in self._places(kind, where):
            if (kind, where) in inside:
                found: T = inside[kind, where]
                return found
        made = make()
        self.put(kind, made, *where)
        return made

    def known(self, kind: CacheKind[T], *where: Hashable) -> T | None:
        """The thing of this kind in this place, or None."""
        return next((inside[kind, where] for inside in self._places(kind, where) if (kind, where) in inside), None)

    def put(self, kind: CacheKind[T], value: T, *where: Hashable) -> None:
        self._kept.setdefault(where[:1], {})[kind, where] = value

    def all(self, kind: CacheKind[T], first: Hashable) -> Iterator[T]:
        """All objects of one type in the places that begin with `first`, the oldest first."""
        for inside in reversed(list(self._places(kind, (first,)))):
            yield from (value for (one, _), value in inside.items() if one is kind)

    def without(self, paths: Collection[str]) -> Remembered:
        """Another memory without the things that come from some files. It sees the rest of this one: a copy for each
        fix of a large project would take longer than the fix."""
        return Remembered(self, paths)

    def _places(self, kind: CacheKind[T], where: tuple[Hashable, ...]) -> Iterator[Mapping[_Key, Any]]:
        """What is kept in a place, in this memory and in those under it that are up to date there."""
        self.ask(EVERY_FILE if kind.of_many or not where else where[0])
        memory: Remembered | None = self
        while memory is not None:
            inside = memory._kept.get(where[:1])
            if inside is not None:
                yield inside
            if memory._hidden and (kind.of_many or (where and where[0] in memory._hidden)):
                return
            memory = memory._under


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` returns, for the top of a module.

    A check imports some hundred expressions and uses a fifth. To compile one takes as long as to import a small module.
    """
    return cast("re.Pattern[AnyStr]", _Later(text, flags))


class _Later:
    """Stands for a compiled expression: what is asked of it is asked of that one, and kept."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copies and pickles look for what an expression does not have
            raise AttributeError(name)
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found
