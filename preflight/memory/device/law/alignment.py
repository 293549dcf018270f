"""The tape at lengths that are multiples of 8: there attention needs no copy of its bias.

Memory-efficient attention wants the rows of its bias to begin at multiples of 8 elements (ATen/native/transformers/
attention.cpp, pad_bias), so a length of no such multiple is padded: a copy is born, and in backward its gradient is cut
and copied back. Tapes are traced at such lengths, because a size that is rounded up shows there alone. At a multiple of
8 what would be copied is used as it is: the copies are no storages of their own, and what they were made of lives
until the last of them is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from preflight.memory.device.law.expand import expand
from preflight.memory.device.law.sizes import Monomial, Size
from preflight.memory.device.law.tape import Tape

ALIGNMENT = 8
Event: TypeAlias = "tuple[str, int, int, str, int]"
"""As `expand.expand` gives them. Kind "": an event that is none here."""


@lru_cache(maxsize=512)
def padded(sizes: tuple[Size, ...]) -> Mapping[str, Mapping[int, int]]:
    """Length -> the sizes that are padded copies along it -> the size of what is copied: indices of `sizes`."""
    at = {_sorted(size): number for number, size in enumerate(sizes)}
    found: dict[str, dict[int, int]] = {}
    for number, size in enumerate(sizes):
        names = {name for _, monomial in size for name, _ in monomial}
        for name in names:
            length = name.removesuffix(str(ALIGNMENT))
            if length != name and length.isalpha():
                plain = at.get(_sorted(tuple((c, _renamed(m, name, length)) for c, m in size)))
                if plain is not None:
                    found.setdefault(length, {})[number] = plain
    return found


def aligned(sizes: tuple[Size, ...], dims: Mapping[str, int]) -> frozenset[str]:
    """The lengths among those that a tape pads which need no padding at dimensions."""
    return frozenset(length for length in padded(sizes) if dims.get(length, 1) % ALIGNMENT == 0)


def events_at(tape: Tape, dims: Mapping[str, int]) -> list[Event]:
    """The events of a tape in order, as they are at dimensions. Raises NotRegular (see `expand.expand`)."""
    events = expand(tape, dims)
    lengths = aligned(tape.sizes, dims)
    return [event for event in joined(events, tape.sizes, lengths) if event[0]] if lengths else events


def joined(events: Sequence[Event], sizes: tuple[Size, ...], lengths: frozenset[str]) -> list[Event]:
    """The events if `lengths` are multiples of 8: a padded copy is replaced by its original."""
    plain = {copy: of for length in lengths for copy, of in padded(sizes)[length].items()}
    found = list(events)
    same: dict[int, int] = {}
    for at, birth, root in _copies(events, plain):
        same[birth] = root
        found[at] = ("", root, -1, "", events[at][4])
    if not same:
        return found
    last: dict[int, int] = {}
    members: dict[int, int] = {}
    for root in same.values():
        members[root] = members.get(root, 1) + 1
    for at, (kind, birth, size, mark, item) in enumerate(found):
        root = same.get(birth, birth)
        if kind == "d" and root in members:
            members[root] -= 1
            last[root] = at
            found[at] = ("", root, -1, "", item)
        elif kind not in ("", "b"):
            found[at] = (kind, root, size, mark, item)
    for root, at in last.items():
        if members[root] == 0:  # none of them stays
            found[at] = ("d", root, -1, "", found[at][4])
    return found


def _copies(events: Sequence[Event], plain: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """(index of the event, birth, what it is a copy of): padded copies, and what is cut out of them in turn."""
    found: list[tuple[int, int, int]] = []
    root: dict[int, int] = {}
    alive: dict[int, list[int]] = {size: [] for size in plain.values()}
    size_of: dict[int, int] = {}
    for at, (kind, birth, size, _, _) in enumerate(events):
        if kind == "b":
            size_of[birth] = size
            if size in plain:
                source = alive[plain[size]]
                if source:
                    root[birth] = root.get(source[-1], source[-1])
                    found.append((at, birth, root[birth]))
            elif size in alive:
                cut = _cut_from(events, at, plain, size_of)
                if cut is not None and cut in root:
                    root[birth] = root[cut]
                    found.append((at, birth, root[birth]))
                alive[size].append(birth)
        elif kind == "d" and size_of.get(birth) in alive:
            alive[size_of[birth]].remove(birth)
    return found


def _cut_from(events: Sequence[Event], at: int, plain: Mapping[int, int], size_of: Mapping[int, int]) -> int | None:
    """The padded gradient that a birth is cut out of: it dies right after."""
    following = events[at + 1] if at + 1 < len(events) else None
    if following is None or following[0] != "d":
        return None
    padded_size = size_of.get(following[1], -1)
    return following[1] if plain.get(padded_size) == events[at][2] else None


def _renamed(monomial: Monomial, name: str, length: str) -> Monomial:
    powers: dict[str, int] = {}
    for one, exponent in monomial:
        key = length if one == name else one
        powers[key] = powers.get(key, 0) + exponent
    return tuple(sorted(powers.items()))


def _sorted(size: Size) -> Size:
    return tuple(sorted(size, key=repr))
