"""Adds the memory of communication to a tape: births and deaths before, within and after its blocks.

A tape counts the births of a block. Births added at a block's head come first, and every block of the item must get
the same number, so that references of other blocks stay right. Only the block itself refers to births at its tail.
Three items are added: `front` before everything, `turn` before backward, `last` after everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.memory.device.law.sizes import Size
from preflight.memory.device.law.tape import Tape, TapeItem, Token

NOTHING: Size = ()


class Born(Struct, frozen=True):
    """A birth of `nbytes`; `mark` as on a tape: w for weights, g for a gradient."""

    nbytes: int | Size
    mark: str
    module: str


class Gone(Struct, frozen=True):
    """The death of a birth: number `at` of those written at the head of an item's block. `item`: an Edit, or None for
    the own one; `layer`, `relative` as in Token. `tail`: counted among those at the own block's tail instead."""

    at: int
    item: TapeEdit | None = None
    layer: int = 0
    relative: bool = True
    tail: bool = False


class AddedStorage(Struct, frozen=True):
    """The moment a gradient is added to what earlier micro-steps left: one written at the own block's tail, or at the
    head of `item`."""

    at: int
    item: TapeEdit | None = None


Line = Born | Gone | AddedStorage | Token


class TapeEdit(Struct, eq=False):
    """One item of the tape, and the events to add to each of its blocks."""

    item: TapeItem
    heads: list[list[Line]] = field(default_factory=list)
    tails: list[list[Line]] = field(default_factory=list)
    rewrite: Callable[[Token, int], Sequence[Token]] | None = None
    """The key of a token of the tape; the number is a birth's index among the births of its block, else -1."""

    def __post_init__(self) -> None:
        self.heads = [[] for _ in self.item.blocks]
        self.tails = [[] for _ in self.item.blocks]

    @property
    def shift(self) -> int:
        """Births at the head of every block."""
        counts = {sum(isinstance(line, Born) for line in head) for head in self.heads}
        assert len(counts) == 1, "blocks of one item begin with as many births"
        return counts.pop()


class TapeEdits:
    """A tape being edited."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        phase = tape.items[0].phase.rstrip("~") if tape.items else "forward"
        self.front = TapeEdit(TapeItem(None, False, ((),), phase))
        self.edits = [TapeEdit(item) for item in tape.items]
        backward = [n for n, item in enumerate(tape.items) if item.phase == "backward"]
        self.turn_at = backward[0] if backward else len(tape.items)
        after = "backward" if backward else phase
        self.turn = TapeEdit(TapeItem(None, False, ((),), after))
        self.last = TapeEdit(TapeItem(None, False, ((),), after))
        self._sizes: dict[Size, int] = {}
        for at, size in enumerate(tape.sizes):
            self._sizes.setdefault(size, at)
        self._table = list(tape.sizes)
        self._modules = {name: at for at, name in reversed(list(enumerate(tape.modules)))}
        self._names = list(tape.modules)

    @property
    def trains(self) -> bool:
        return self.turn_at < len(self.tape.items)

    @property
    def up(self) -> list[TapeEdit]:
        """Passes up through a stack, in forward, validation or generation."""
        return [e for e in self.edits if e.item.computes and not e.item.down]

    @property
    def down(self) -> list[TapeEdit]:
        return [e for e in self.edits if e.item.computes and e.item.down]

    def size(self, nbytes: int | Size) -> int:
        """The index of a size, made where it is new."""
        size: Size = nbytes if isinstance(nbytes, tuple) else ((nbytes, ()),) if nbytes else NOTHING
        if size not in self._sizes:
            self._sizes[size] = len(self._table)
            self._table.append(size)
        return self._sizes[size]

    def module(self, name: str) -> int:
        if name not in self._modules:
            self._modules[name] = len(self._names)
            self._names.append(name)
        return self._modules[name]

    @property
    def _order(self) -> list[TapeEdit]:
        return [self.front, *self.edits[: self.turn_at], self.turn, *self.edits[self.turn_at :], self.last]

    def births(self, edit: TapeEdit, block: int) -> int:
        """The original births of a block, without the added ones."""
        return sum(token.kind == "b" for token in edit.item.blocks[block])

    def done(self) -> Tape:
        """The edited tape."""
        order = self._order
        at = {id(edit): n for n, edit in enumerate(order)}
        moved = {n: at[id(edit)] for n, edit in enumerate(self.edits)}
        shifts = {n: edit.shift for n, edit in enumerate(self.edits)}
        items = [self._item(edit, at, moved, shifts) for edit in order]
        return Tape(tuple(self._table), tuple(self._names), tuple(items), dict(self.tape.depths))

    def _item(self, edit: TapeEdit, at: dict[int, int], moved: dict[int, int], shifts: dict[int, int]) -> TapeItem:
        own = next((n for n, one in enumerate(self.edits) if one is edit), -1)
        blocks = []
        for number, block in enumerate(edit.item.blocks):
            tokens: list[Token] = []
            after = edit.shift + self.births(edit, number)
            for line in edit.heads[number]:
                tokens.append(self._line(line, at, 0, moved, shifts, own))
            count = 0
            for token in block:
                found: Sequence[Token] = (token,)
                if edit.rewrite is not None:
                    found = edit.rewrite(token, count if token.kind == "b" else -1)
                count += token.kind == "b"
                tokens += [_moved(one, moved, shifts, own) for one in found]
            for line in edit.tails[number]:
                tokens.append(self._line(line, at, after, moved, shifts, own))
            blocks.append(tuple(tokens))
        return replace(edit.item, blocks=tuple(blocks))

    def _line(
        self, line: Line, at: dict[int, int], after: int, moved: dict[int, int], shifts: dict[int, int], own: int
    ) -> Token:
        if isinstance(line, Token):
            return _moved(line, moved, shifts, own)
        if isinstance(line, Born):
            return Token("b", self.size(line.nbytes), line.mark, where=self.module(line.module))
        if isinstance(line, AddedStorage):
            return Token("+", after + line.at) if line.item is None else Token("+", line.at, "", at[id(line.item)])
        if line.tail:
            return Token("d", after + line.at)
        item = -1 if line.item is None else at[id(line.item)]
        return Token("d", line.at, "", item, line.layer, line.relative)


def _moved(token: Token, moved: dict[int, int], shifts: dict[int, int], own: int) -> Token:
    """A token of the tape with its references where they now are."""
    if token.kind == "b":
        return token
    home = own if token.item < 0 else token.item
    item = -1 if token.item < 0 else moved[token.item]
    return replace(token, item=item, at=token.at + shifts.get(home, 0))
