"""A bounded cache of what was made of objects that are slow to compare."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class BoundedCache(Generic[Made]):
    """The latest results, by the object that they were made of and a key.

    Objects are told apart by identity. Each is kept as long as its result is, so that no other one has its identity.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[int, Hashable], tuple[object, Made]] = OrderedDict()

    def get(self, of: object, key: Hashable, make: Callable[[], Made]) -> Made:
        """The result for `of` and `key`, made now where it is not remembered. What `make` raises is not."""
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
