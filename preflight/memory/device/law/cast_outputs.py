"""A tape whose 16-bit outputs are copied to fp32 when the model returns, as accelerate does under autocast.

accelerate wraps the forward of a model that it prepares (accelerator.py, `prepare_model`; utils/operations.py,
ConvertOutputsToFp32): what the model returned stays alive until each tensor of 16 bits in it has an fp32 copy, and the
caller holds the copies alone. The loss is fp32 already.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from preflight.memory.device.law.sizes import Size
from preflight.memory.device.law.tape import NARROW, Tape, TapeItem, Token

MODULE = "accelerate's ConvertOutputsToFp32"
_RETURNED = "o"


def with_fp32_outputs(tape: Tape) -> Tape:
    """The tape with the copies, at the end of its forward pass. The same where the model returns nothing in 16 bits, or
    where the loss is made after it has returned."""
    one = with_fp32_outputs(tape.one) if tape.one is not None else None
    found = list(_returned(tape))
    narrow = {place: token for place, token in found if is_narrow(token, tape.sizes[token.at])}
    if not narrow or any("r" in token.mark for _, token in found):
        return tape
    dies = _first_death(tape, {place for place, _ in found})
    if dies is None:
        return tape
    sizes, modules = list(tape.sizes), [*tape.modules, MODULE]
    births = []
    for token in narrow.values():
        wide = tuple((2 * coefficient, monomial) for coefficient, monomial in tape.sizes[token.at])
        if wide not in sizes:
            sizes.append(wide)
        births.append(Token("b", sizes.index(wide), _RETURNED, where=len(modules) - 1))
    items = [_held_no_longer(item, number, set(narrow)) for number, item in enumerate(tape.items)]
    home, at = dies
    block = items[home].blocks[0]
    first = sum(token.kind == "b" for token in block[:at])
    items = [_moved(item, number, home, first, len(births)) for number, item in enumerate(items)]
    block = items[home].blocks[0]
    end = at + next((n for n, token in enumerate(block[at:]) if token.kind == "b"), len(block) - at)
    gone = [Token("d", first + number) for number in range(len(births))]
    items[home] = replace(items[home], blocks=((*block[:at], *births, *block[at:end], *gone, *block[end:]),))
    return Tape(tuple(sizes), tuple(modules), tuple(items), tape.depths, one)


def is_narrow(token: Token, size: Size) -> bool:
    """Whether what a model returned has 16 bits an element. Laws that are older than the mark say it by the bytes for
    each element: their sizes are products of named dimensions."""
    return NARROW in token.mark or any(coefficient % 4 == 2 for coefficient, _ in size)


def _returned(tape: Tape) -> Iterator[tuple[tuple[int, int], Token]]:
    """((item, number of the birth in its block), birth) of what the model returns, outside of stacks."""
    for number, item in enumerate(tape.items):
        if item.stack is None:
            births = (token for token in item.blocks[0] if token.kind == "b")
            yield from (((number, at), token) for at, token in enumerate(births) if _RETURNED in token.mark)


def _first_death(tape: Tape, returned: set[tuple[int, int]]) -> tuple[int, int] | None:
    """(item, index of the token) where the first of what the model returned dies, before backward begins."""
    for number, item in enumerate(tape.items):
        if item.phase == "backward":
            return None
        for at, token in enumerate(item.blocks[0] if item.stack is None else ()):
            if token.kind == "d" and (number if token.item < 0 else token.item, token.at) in returned:
                return number, at
    return None


def _held_no_longer(item: TapeItem, number: int, narrow: set[tuple[int, int]]) -> TapeItem:
    """The item whose 16-bit outputs no name of the program holds."""
    if item.stack is not None:
        return item
    births, tokens = 0, []
    for token in item.blocks[0]:
        held = token.kind == "b" and (number, births) in narrow
        births += token.kind == "b"
        tokens.append(replace(token, mark="") if held else token)
    return replace(item, blocks=(tuple(tokens),))


def _moved(item: TapeItem, number: int, home: int, first: int, count: int) -> TapeItem:
    """The item whose references know of `count` births that come before number `first` of item `home`."""

    def moved(token: Token) -> Token:
        refers = token.kind != "b" and (number if token.item < 0 else token.item) == home and token.at >= first
        return replace(token, at=token.at + count) if refers else token

    return replace(item, blocks=tuple(tuple(moved(token) for token in block) for block in item.blocks))
