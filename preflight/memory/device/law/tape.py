"""Symbolic tapes: births and deaths of a step at any dimensions and any depth, small enough to ship.

A tape is a list of items. A literal item is one block of tokens, a pass has a block for the first two layers, one for
all between, and one for the last two. A token is a birth (index into the table of sizes, marked `g` for a gradient, `o`
for what the model returns, `r` beside it where the loss is made after that, `h` for what lives as long as the loss, `c`
for the workspace of a convolution, `x` for a returned tensor of 16 bits), a death (position of the birth: in its own
block, or in another item's block, or some layers away), or `+p`: the gradient born as number p of this block is added
to `.grad` here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from preflight.memory.device.law.layers import LayerBlock, LayerItem
from preflight.memory.device.law.sizes import Size, evaluate, with_derived
from preflight.vocabulary.caches import regex

_LAYER_NUMBER = regex(r"(?<=[a-z_])\.\d+\.")

WORKSPACE = "c"
"""Mark of the birth of a convolution's workspace."""
NARROW = "x"
"""Mark of the birth of what the model returns in 16 bits."""
EDGE = 2
"""Layers kept as they are at each end of a pass."""


class NotRegular(ValueError):
    """The blocks between the ends of a pass are not equal, so the tape holds for its own depth only."""


class Token(Struct, frozen=True):
    """Birth: kind "b", `at` an index of the size table, `where` one of the module table. Death "d", accumulation "+":
    `item` (-1: its own), `layer` (offset from its own layer where `relative`, else counted from the start, or from the
    end when negative), and `at`, the number of the birth in that block."""

    kind: str
    at: int
    mark: str = ""
    item: int = -1
    layer: int = 0
    relative: bool = True
    where: int = 0

    def renumbered(self, at: int, where: int) -> Token:
        """A birth with other indices."""
        return Token("b", at, self.mark, -1, 0, True, where)

    def text(self) -> str:
        if self.kind == "b":
            return f"{self.at}{self.mark}"
        head = "-" if self.kind == "d" else "+"
        where = "" if self.item < 0 else f"/{self.item}"
        if self.layer or not self.relative:
            where += ("~" if self.relative else "@") + str(self.layer)
        return f"{head}{self.at}{where}"


@lru_cache(maxsize=1 << 14)
def parse_token(text: str, where: int = 0) -> Token:
    """The inverse of `Token.text`. The tokens of a family's laws are mostly the same, and each is made once.

    `where`: the module of a birth.
    """
    if text[0] not in "-+":
        digits = text.rstrip("cghiorwx")
        return Token("b", int(digits), text[len(digits) :], where=where)
    kind, rest = ("d" if text[0] == "-" else "+"), text[1:]
    relative, layer = True, 0
    for sign in "~@":
        rest, found, tail = rest.partition(sign)
        if found:
            relative, layer = sign == "~", int(tail)
    at, _, item = rest.partition("/")
    return Token(kind, int(at), "", int(item) if item else -1, layer, relative)


class TapeItem(Struct, frozen=True):
    """`stack` None: a literal, blocks[0]. Else a pass: blocks of layers 0, 1, middle, L-2, L-1; `down`: from L-1 on."""

    stack: str | None
    down: bool
    blocks: tuple[tuple[Token, ...], ...]
    phase: str = ""

    @property
    def computes(self) -> bool:
        """Whether layers run here: what only dies together, layer by layer (autocast's weight cache, a list of hidden
        states), is a pass of its own in which no layer does anything."""
        return self.stack is not None and any(token.kind == "b" for block in self.blocks for token in block)


class Tape(Struct, frozen=True):
    """`depths`: stack -> the dimension that holds its number of layers."""

    sizes: tuple[Size, ...]
    modules: tuple[str, ...]
    """Modules in which storages are born, "*" for the number of a layer."""
    items: tuple[TapeItem, ...]
    depths: Mapping[str, str]
    one: Tape | None = None
    """The tape at batch 1, where that is another: what has one row is laid out anew without a copy."""

    def at(self, dims: Mapping[str, int]) -> Tape:
        """The tape that holds at dimensions."""
        return self.one if self.one is not None and dims.get("b") == 1 else self

    def values(self, dims: Mapping[str, int]) -> list[int]:
        """Bytes of every size at dimensions."""
        names = {name for size in self.sizes for _, monomial in size for name, _ in monomial}
        full = with_derived(dims, names)
        return [evaluate(size, full) for size in self.sizes]


def block_of(layer: int, layers: int) -> int:
    """Which of a pass's blocks layer number `layer` of `layers` uses: of the five kept ones, or of a short stack's."""
    if layers < 2 * EDGE or layer < EDGE:  # expand.shortened has a block for every layer
        return layer
    from_end = layers - 1 - layer
    return 4 - from_end if from_end < EDGE else 2


def without_workspaces(tape: Tape) -> Tape:
    """The tape of channels-last convolutions, whose kernels need no copies in another order."""
    kept = [_kept(item.blocks[0]) if item.stack is None else {} for item in tape.items]

    def still(number: int, token: Token) -> Token | None:
        if token.kind == "b":
            return None if token.mark == WORKSPACE else token
        home = number if token.item < 0 else token.item
        if tape.items[home].stack is not None:
            return token
        return replace(token, at=kept[home][token.at]) if token.at in kept[home] else None

    items = []
    for number, item in enumerate(tape.items):
        blocks = tuple(tuple(t for t in (still(number, x) for x in block) if t is not None) for block in item.blocks)
        items.append(replace(item, blocks=blocks))
    return replace(tape, items=tuple(items))


def _kept(block: tuple[Token, ...]) -> dict[int, int]:
    """Number of a birth in a block -> its number when workspaces are left out."""
    births = [token for token in block if token.kind == "b"]
    others = [at for at, token in enumerate(births) if token.mark != WORKSPACE]
    return {at: number for number, at in enumerate(others)}


def build(items: Sequence[LayerItem], depths: Mapping[str, str], sizes: Mapping[object, Size]) -> Tape:
    """A tape from the items of one trace. Raises NotRegular where a pass is not regular."""
    homes = _homes(items)
    table = {key: index for index, key in enumerate(sizes)}
    modules: dict[str, int] = {}
    made = []
    for number, item in enumerate(items):
        tokens = [_tokens(item, number, block, homes, items, table, modules) for block in item.blocks]
        if item.stack is None:
            made.append(TapeItem(None, False, (tokens[0],), _phase(item)))
            continue
        where = item.blocks[0].where
        assert where is not None
        down = where[2] != 0
        ordered = tokens[::-1] if down else tokens
        middle = ordered[EDGE:-EDGE]
        if not middle or any(block != middle[0] for block in middle):
            raise NotRegular(f"{where[0]} through {item.stack}")
        made.append(TapeItem(item.stack, down, (*ordered[:EDGE], middle[0], *ordered[-EDGE:]), _phase(item)))
    return Tape(tuple(sizes.values()), tuple(modules), tuple(made), dict(depths))


def _phase(item: LayerItem) -> str:
    for block in item.blocks:
        for event in block.events:
            return event.tag.partition(":")[0]
    return ""


def _homes(items: Sequence[LayerItem]) -> dict[int, tuple[int, int, int]]:
    """Birth -> (item, layer, number among the births of its block)."""
    homes = {}
    for number, item in enumerate(items):
        for block in item.blocks:
            layer = block.where[2] if item.stack is not None and block.where is not None else 0
            for position, event in enumerate(e for e in block.events if not e.dies and e.mark != "+"):
                homes[event.birth] = (number, layer, position)
    return homes


def _tokens(
    item: LayerItem,
    number: int,
    block: LayerBlock,
    homes: Mapping[int, tuple[int, int, int]],
    items: Sequence[LayerItem],
    table: Mapping[object, int],
    modules: dict[str, int],
) -> tuple[Token, ...]:
    layer = block.where[2] if block.where is not None and item.stack is not None else 0
    tokens = []
    for event in block.events:
        if not event.dies and event.mark != "+":
            module = _LAYER_NUMBER.sub(".*.", event.tag.partition(":")[2] + ".").rstrip(".")
            where = modules.setdefault(module, len(modules))
            tokens.append(Token("b", table[event.size], event.mark, where=where))
            continue
        kind = "+" if event.mark == "+" else "d"
        home, target, position = homes[event.birth]
        other = items[home]
        own = -1 if home == number else home
        if other.stack is None:
            tokens.append(Token(kind, position, "", own, 0, True))
        elif other.stack == item.stack and abs(target - layer) <= 1:
            tokens.append(Token(kind, position, "", own, target - layer, True))
        else:
            layers = len(other.blocks)
            if EDGE <= target < layers - EDGE:
                raise NotRegular(f"layer {target} of {other.stack} is singled out")
            absolute = target if target < EDGE else target - layers
            tokens.append(Token(kind, position, "", own, absolute, False))
    return tuple(tokens)


# --- JSON -------------------------------------------------------------------------------------------------------------


def block_text(block: Sequence[Token], sizes: Sequence[int], modules: Sequence[int]) -> str:
    """Tokens, then "|" and the runs of modules that births happen in ("module*births"). `sizes` and `modules` say how
    the tape's own indices are numbered in the text."""
    tokens = [replace(t, at=sizes[t.at]).text() if t.kind == "b" else t.text() for t in block]
    runs = [(modules[where], len(list(group))) for where, group in groupby(t.where for t in block if t.kind == "b")]
    return f"{' '.join(tokens)}|{' '.join(str(w) if count == 1 else f'{w}*{count}' for w, count in runs)}"


def parse_block(text: str) -> tuple[Token, ...]:
    """The inverse of `block_text`, with the indices of the text."""
    tokens, _, runs = text.partition("|")
    wheres: list[int] = []
    for run in runs.split():
        where, _, count = run.partition("*")
        wheres += [int(where)] * int(count or 1)
    births = iter(wheres)
    return tuple([parse_token(t, 0 if t[0] in "-+" else next(births)) for t in tokens.split()])
