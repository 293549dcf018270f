"""Blocks of a tape as they are filed: most differ from another one in a few tokens, so only those are written.

A filed block is a text of words: its tokens, "|", and its runs of modules (see `tape.block_text`). In it, a death or an
accumulation of a birth in the same block counts births backwards ("-1": the last one born), so that a token more or
less leaves the rest as it was. A block that is like an earlier one reads "=N" and then its changes, between ";": the
number of words that stay, ":", the number of words of block N that go, and the words that come in their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import MutableMapping, Sequence
from difflib import SequenceMatcher

from preflight.vocabulary.caches import regex

_OWN = regex(r"([-+])(\d+)$")
LOOK_BACK = 250
"""Earlier blocks that one is compared with: laws follow each other by setup, so what is alike is near."""
CANDIDATES = 6
SHORTEST = 6
"""Words below which a block is written as it is."""


def shorten(texts: Sequence[str], start: int = 0, compared: bool = True) -> list[str]:
    """Block texts from `start` on as they are filed, in the same order (those before it are filed already). `compared`:
    with earlier ones, which takes longer than in proportion to their words."""
    words = [_recounted(text.replace("|", " | ").split()) for text in texts]
    bags = [Counter(block) for block in words]
    filed = []
    for number, block in enumerate(words[start:], start):
        best = " ".join(block)
        if compared and len(block) > SHORTEST:
            earlier = range(max(0, number - LOOK_BACK), number)
            alike = sorted(earlier, key=lambda n: -_likeness(bags[n], bags[number]))[:CANDIDATES]
            best = min([best, *(f"={n} {_changes(words[n], block)}" for n in alike)], key=len)
        filed.append(best)
    return filed


def whole(filed: Sequence[str], number: int, known: MutableMapping[int, list[str]] | None = None) -> str:
    """Block `number` as `tape.parse_block` reads it. `known`: blocks that were looked up before."""
    words = _recounted(_words(filed, number, {} if known is None else known))
    bar = words.index("|")
    return " ".join(words[:bar]) + "|" + " ".join(words[bar + 1 :])


def _likeness(one: Counter[str], other: Counter[str]) -> float:
    return (one & other).total() / (1 + abs(one.total() - other.total()) / 4 + other.total())


def _words(filed: Sequence[str], number: int, known: MutableMapping[int, list[str]]) -> list[str]:
    if number not in known:
        text = filed[number]
        if text.startswith("="):
            head, _, changes = text.partition(" ")
            known[number] = _changed(_words(filed, int(head[1:]), known), changes)
        else:
            known[number] = text.split()
    return known[number]


def _changes(old: Sequence[str], new: Sequence[str]) -> str:
    found, at = [], 0
    for kind, start, end, first, last in SequenceMatcher(None, old, new, False).get_opcodes():
        if kind != "equal":
            found.append(" ".join([f"{start - at}:{end - start}", *new[first:last]]))
            at = end
    return ";".join(found)


def _changed(old: Sequence[str], changes: str) -> list[str]:
    new: list[str] = []
    at = 0
    for change in changes.split(";") if changes else ():
        counts, *come = change.split()
        stay, go = map(int, counts.split(":"))
        new += [*old[at : at + stay], *come]
        at += stay + go
    return [*new, *old[at:]]


def _recounted(words: Sequence[str]) -> list[str]:
    """Own births counted from the block's start <-> back from here: the same step both ways, births - number."""
    births = 0
    found: list[str] = []
    for at, word in enumerate(words):
        if word == "|":
            return [*found, *words[at:]]
        own = _OWN.match(word)
        births += word[0] not in "-+"
        found.append(f"{own[1]}{births - int(own[2])}" if own else word)
    return found
