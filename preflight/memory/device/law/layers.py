"""Finding the layers in a tape: which stretches of it repeat, so that it can be extended to any depth.

Events carry the module they happened in. A *pass* is a run through a stack of equal layers (up forward, down backward)
in which every layer has one stretch of events, a *block*. Blocks 2 to L-3 of a pass must be equal (sizes, and deaths
relative to their own layer): one of them is the template for any number of layers. The two layers at each end are kept
as they are, because what differs there (first inputs, last outputs) is real.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from preflight.vocabulary.caches import regex

_LAYER = regex(r"^(.*?[A-Za-z_]\w*)\.(\d+)(?:\.|$)")

Where: TypeAlias = "tuple[str, str, int] | None"
"""(phase, stack, layer), None outside of any stack."""


class RawEvent(Struct, frozen=True):
    """A birth (`birth` is its own index) or the death of the birth with that index; `size` is any hashable key."""

    birth: int
    dies: bool
    size: object
    tag: str
    mark: str = ""


def place(tag: str, stacks: dict[str, int]) -> Where:
    """Phase, stack and layer of a tag "phase:module.path"."""
    phase, _, path = tag.partition(":")
    match = _LAYER.match(path)
    if match is None or match[1] not in stacks:
        return None
    return phase, match[1], int(match[2])


def find_stacks(names: Sequence[str]) -> dict[str, int]:
    """Stacks of layers in a model, by the names of its parameters: path of the list -> number of layers (3 or more)."""
    found: dict[str, set[int]] = {}
    for name in names:
        match = _LAYER.match(name)
        if match is not None:
            found.setdefault(match[1], set()).add(int(match[2]))
    return {
        stack: len(layers) for stack, layers in found.items() if layers == set(range(len(layers))) and len(layers) > 2
    }


class LayerBlock(Struct):
    """Consecutive events with one place."""

    where: Where
    events: list[RawEvent]


class LayerItem(Struct):
    """A literal stretch (stack None) or a pass: one block per layer, in the order they run."""

    stack: str | None
    blocks: list[LayerBlock]


def split(events: Sequence[RawEvent], stacks: dict[str, int]) -> list[LayerItem]:
    """The tape as literals and passes, in order."""
    blocks = _blocks(events, stacks)
    items: list[LayerItem] = []
    at = 0
    while at < len(blocks):
        length = _pass_length(blocks, at, stacks)
        if length:
            where = blocks[at].where
            assert where is not None
            items.append(LayerItem(where[1], _complete(blocks[at : at + length], stacks[where[1]])))
            at += length
            continue
        if items and items[-1].stack is None and _phase(items[-1].blocks[0]) == _phase(blocks[at]):
            items[-1].blocks[0].events += blocks[at].events
        else:
            items.append(LayerItem(None, [LayerBlock(None, list(blocks[at].events))]))
        at += 1
    return items


def _blocks(events: Sequence[RawEvent], stacks: dict[str, int]) -> list[LayerBlock]:
    """Runs of one place. Events outside of any layer, between two layers of a pass, belong to the layer before."""
    birth_place = {e.birth: place(e.tag, stacks) for e in events if not e.dies}
    blocks: list[LayerBlock] = []
    for event in events:
        where = place(event.tag, stacks)
        if where is None and event.dies:
            of = birth_place[event.birth]
            # Things that die together after a pass (autocast's weight cache) are a pass of their own.
            where = None if of is None else (event.tag.partition(":")[0] + "~", of[1], of[2])
        if not blocks or blocks[-1].where != where or (where is None and _phase(blocks[-1]) != _phase_of(event)):
            blocks.append(LayerBlock(where, []))
        blocks[-1].events.append(event)
    merged: list[LayerBlock] = []
    for index, block in enumerate(blocks):
        after = blocks[index + 1].where if index + 1 < len(blocks) else None
        if merged and (
            _belongs(merged[-1].where, block.where, after)
            or (block.where is not None and merged[-1].where == block.where)
        ):
            merged[-1].events += block.events
        else:
            merged.append(LayerBlock(block.where, list(block.events)))
    return merged


def _phase_of(event: RawEvent) -> str:
    return event.tag.partition(":")[0]


def _phase(block: LayerBlock) -> str:
    """The phase of a block's first event: what a literal is cut by, so that every item lies in one phase."""
    return _phase_of(block.events[0]) if block.events else ""


def _belongs(before: Where, here: Where, after: Where) -> bool:
    """Whether a stretch between two layers of one pass is part of it."""
    if before is None or after is None or before[:2] != after[:2] or abs(before[2] - after[2]) > 1:
        return False
    return here is None or here[0].endswith("~")


def _pass_length(blocks: list[LayerBlock], at: int, stacks: dict[str, int]) -> int:
    """How many blocks from `at` on make a pass; 0 if none. One layer at either end may have nothing in it."""
    where = blocks[at].where
    if where is None:
        return 0
    run: list[int] = []
    for block in blocks[at:]:
        if block.where is None or block.where[:2] != where[:2]:
            break
        layer = block.where[2]
        step = run[1] - run[0] if len(run) > 1 else layer - run[-1] if run else 1
        if run and (layer - run[-1] != step or abs(step) != 1):
            break
        run.append(layer)
    whole = len(run) >= 4 and min(run) <= 1 and max(run) >= stacks[where[1]] - 2
    return len(run) if whole else 0


def _complete(blocks: list[LayerBlock], layers: int) -> list[LayerBlock]:
    """The blocks of a pass with empty ones for the layers at its ends that have nothing in them."""
    wheres = [block.where for block in blocks]
    assert wheres[0] is not None
    assert wheres[-1] is not None
    phase, stack, first = wheres[0]
    last = wheres[-1][2]
    down = last < first
    before = range(layers - 1, first, -1) if down else range(first)
    after = range(last - 1, -1, -1) if down else range(last + 1, layers)
    return [
        *(LayerBlock((phase, stack, n), []) for n in before),
        *blocks,
        *(LayerBlock((phase, stack, n), []) for n in after),
    ]
