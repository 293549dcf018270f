"""The events of a tape at dimensions, layer by layer; and stacks with fewer than four layers.

A tape keeps the blocks of layers 0, 1, one between, L-2 and L-1, and each of the four at the ends differs from the one
between by what only that place has: the first layer takes the embeddings' output, the last one's output is the head's.
In a shorter stack a layer stands at several of these places, the only one of a stack of one at the first and the last.
Its block is the one between with the changes of all its places made to it, as two edits of one text are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from typing import TypeAlias

from msgspec.structs import replace

from preflight.memory.device.law.tape import EDGE, NotRegular, Tape, TapeItem, Token, block_of
from preflight.vocabulary.caches import BoundedCache

MIDDLE = 2
"""Index of the block between the ends, among a pass's five."""
_AT_END = {0: 0, 1: 1, -1: 4, -2: 3}
"""A layer counted from an end -> its block."""
Name: TypeAlias = "tuple[object, ...]"
"""The name of a birth in every block of its pass, or of a token: equal where blocks agree."""
Named: TypeAlias = "tuple[Token, Name]"
_SHORT: BoundedCache[Tape] = BoundedCache(16)


def at_depth(tape: Tape, dims: Mapping[str, int]) -> Tape:
    """The tape itself, or `shortened` of it where a stack has fewer layers than ends. Raises NotRegular."""
    if all(dims[depth] >= 2 * EDGE for depth in tape.depths.values()):
        return tape
    return shortened(tape, dims)


def expand(tape: Tape, dims: Mapping[str, int]) -> list[tuple[str, int, int, str, int]]:
    """The events in order: (kind, number of the birth, size index or -1, mark, item).

    Raises NotRegular where a stack has fewer layers than the tape can be cut down to.
    """
    tape = at_depth(tape, dims)
    events: list[tuple[str, int, int, str, int]] = []
    starts: list[dict[int, tuple[int, int]]] = []  # of every item: layer -> (its first birth, how many)
    births = 0
    for number, item in enumerate(tape.items):
        layers = dims[tape.depths[item.stack]] if item.stack is not None else 1
        mine: dict[int, tuple[int, int]] = {}
        starts.append(mine)
        counts = [sum(token.kind == "b" for token in block) for block in item.blocks]
        for layer in range(layers - 1, -1, -1) if item.down else range(layers):
            which = block_of(layer, layers) if item.stack is not None else 0
            first = births
            mine[layer] = (first, counts[which])
            for token in item.blocks[which]:
                if token.kind == "b":
                    events.append(("b", births, token.at, token.mark, number))
                    births += 1
                elif token.item < 0 and token.relative and not token.layer:
                    events.append((token.kind, first + token.at, -1, "", number))
                else:
                    home = _layer_of(tape, dims, number, layer, token)
                    start, count = starts[token.item if token.item >= 0 else number].get(home, (0, 0))
                    if token.at >= count:
                        raise NotRegular(f"{layers} layers of {item.stack} are fewer than its ends")
                    events.append((token.kind, start + token.at, -1, "", number))
    return events


def _layer_of(tape: Tape, dims: Mapping[str, int], number: int, layer: int, token: Token) -> int:
    """The layer whose block has the birth that a token of item `number` speaks of."""
    stack = tape.items[token.item if token.item >= 0 else number].stack
    if stack is None:
        return 0
    if token.relative:
        return layer + token.layer
    return token.layer if token.layer >= 0 else token.layer + dims[tape.depths[stack]]


def shortened(tape: Tape, dims: Mapping[str, int]) -> Tape:
    """The tape with a block of its own for every layer of a short stack; itself where it has that.

    Raises NotRegular where the ends of a stack do not fit together.
    """
    short = {stack: dims[depth] for stack, depth in tape.depths.items() if dims[depth] < 2 * EDGE}
    if not any(item.stack in short and len(item.blocks) > 2 * EDGE for item in tape.items):
        return tape
    return _SHORT.get(tape, tuple(sorted(short.items())), lambda: _tape(tape, short))


def places(layer: int, layers: int) -> list[int]:
    """The blocks of a deep stack whose places a layer of a short one has."""
    from_end = layers - 1 - layer
    return [layer] * (layer < EDGE) + [4 - from_end] * (from_end < EDGE)


def _tape(tape: Tape, short: Mapping[str, int]) -> Tape:
    try:
        return _Shortened(tape, short, True).tape()
    except NotRegular:
        return _Shortened(tape, short, False).tape()


class _Shortened:
    """A tape whose `short` stacks (path -> layers, fewer than four) have a block for every layer.

    `forwards`: where an end has fewer births of a kind, the last of the middle's are those that it lacks.
    """

    def __init__(self, tape: Tape, short: Mapping[str, int], forwards: bool) -> None:
        self.whole, self.short = tape, short
        passes = {n: item for n, item in enumerate(tape.items) if item.stack in short}
        self.ends: dict[tuple[object, ...], Named] = {}
        """(item, below or above, birth): replaces that of a layer before the first one, or after the last one."""
        self.instead: dict[tuple[int, int, Name], Name] = {}
        """(item, block, birth): the birth that has its part in the first or the last layer, where that lacks it."""
        self.names = {
            n: [_names(item, block, forwards) for block in range(len(item.blocks))] for n, item in passes.items()
        }
        self.merged = {
            n: [
                self._merged(n, item, places(layer, short[item.stack or ""]))
                for layer in range(short[item.stack or ""])
            ]
            for n, item in passes.items()
        }
        self.numbers = {n: [_numbers(block) for block in blocks] for n, blocks in self.merged.items()}
        self._dead: set[object] = set()

    def tape(self) -> Tape:
        items = []
        for number, item in enumerate(self.whole.items):
            if number in self.merged:
                blocks = tuple(
                    tuple(self._renumbered(number, layer, named)) for layer, named in enumerate(self.merged[number])
                )
            else:
                blocks = tuple(
                    tuple(self._renumbered(number, 0, [(token, self._name(number, -1, token)) for token in block]))
                    for block in item.blocks
                )
            items.append(replace(item, blocks=blocks))
        found = replace(self.whole, items=tuple(items), one=None)
        return self._released(found) if 1 in self.short.values() else found

    def _released(self, tape: Tape) -> Tape:
        """The tape with a death for what later layers alone would have let go, had there been any: a name of the module
        that runs the layers held it, and goes when that is done."""
        deep, short = (self._deaths(one, deep) for one, deep in ((self.whole, True), (tape, False)))
        items = list(tape.items)
        for home, item in enumerate(tape.items):
            for layer, block in enumerate(item.blocks):
                births = [at for at, _ in enumerate(t for t in block if t.kind == "b")]
                for at in births:
                    if (home, layer, at) in short or self._deep(home, layer, at) not in deep:
                        continue
                    after = self._after(home)
                    if after is not None:
                        death = Token("d", at, "", home, layer, item.stack is None)
                        items[after] = replace(items[after], blocks=(self._put(items[after], death),))
        return replace(tape, items=tuple(items))

    def _deaths(self, tape: Tape, deep: bool) -> set[tuple[int, int, int]]:
        """(item, layer, number) of the births that die. `deep`: (item, block, number) instead."""
        found: set[tuple[int, int, int]] = set()
        for number, item in enumerate(tape.items):
            for index, block in enumerate(item.blocks):
                for token in block:
                    if token.kind == "d":
                        home = _home(number, token)
                        within = tape.items[home].stack is not None
                        of = _block(index, token) if deep or home not in self.merged else token.layer
                        found.add((home, of if within else 0, token.at))
        return found

    def _deep(self, home: int, layer: int, at: int) -> tuple[int, int, int]:
        """The same birth in a deep stack: (item, block, number)."""
        if home not in self.merged:
            return home, layer, at
        name = [name for token, name in self.merged[home][layer] if token.kind == "b"][at]
        for block in (0, 4):
            if name in self.names[home][block]:
                return home, block, self.names[home][block].index(name)
        return home, MIDDLE, at

    def _after(self, home: int) -> int | None:
        """The stretch that follows the first pass of a short stack from an item on, in one phase with it."""
        items = self.whole.items
        passes = [n for n in range(home, len(items)) if n in self.merged and items[n].phase == items[home].phase]
        follows = passes[0] + 1 if passes else len(items)
        if follows == len(items) or items[follows].stack is not None or items[follows].phase != items[home].phase:
            return None
        return follows

    def _put(self, item: TapeItem, death: Token) -> tuple[Token, ...]:
        """A stretch with a death where the module that ran the layers before it is done."""
        number = next(n for n, one in enumerate(self.whole.items) if one.stack in self.short and n >= death.item)
        owner = (self.whole.items[number].stack or "").rpartition(".")[0]
        (block,) = item.blocks
        own = [at for at, t in enumerate(block) if t.kind == "b" and _within(self.whole.modules[t.where], owner)]
        later = [at for at, t in enumerate(block) if t.kind == "b" and at > (own[-1] if own else -1)]
        end = later[0] if later else len(block)
        return (*block[:end], death, *block[end:])

    def _merged(self, number: int, item: TapeItem, roles: Sequence[int]) -> list[Named]:
        """The block of a layer that stands at the places of several."""
        named = [
            [(token, self._name(number, block, token, births)) for token in tokens]
            for block, tokens in enumerate(item.blocks)
            for births in [iter(self.names[number][block])]
        ]
        self._learn(number, named)
        if len(roles) == 1:
            return named[roles[0]]
        return _merge(named[MIDDLE], [named[role] for role in roles])

    def _learn(self, number: int, named: Sequence[Sequence[Named]]) -> None:
        """Replacements for the layers before the first one and after the last one, and for births of those two."""
        for end, beside, step in ((0, 1, -1), (4, 3, 1)):
            for (token, name), instead in _replaced(named[MIDDLE], named[end]):
                if token.relative and token.layer == step:
                    self.ends[_home(number, token), step < 0, name[-1]] = instead
            for (token, name), (other, name_there) in _replaced(named[MIDDLE], named[beside]):
                alike = (token.relative, token.layer, token.item) == (other.relative, other.layer, other.item)
                if alike and token.relative and token.layer == step:
                    target, there = name[-1], name_there[-1]
                    assert isinstance(target, tuple)
                    assert isinstance(there, tuple)
                    self.instead[_home(number, token), end, target] = there

    def _name(self, number: int, block: int, token: Token, births: Iterator[Name] | None = None) -> Name:
        """The name of a token, which does not depend on how a block numbers its births."""
        if token.kind == "b":
            return next(births) if births is not None else ()
        home = _home(number, token)
        target: Name = (token.at,)
        if home in self.names:
            target = self.names[home][_block(block, token)][token.at]
        return (token.kind, home, token.layer, token.relative, target)

    def _renumbered(self, number: int, layer: int, block: Sequence[Named]) -> Iterator[Token]:
        """Tokens with births counted as the merged blocks have them; those of layers that are not there left out."""
        for token, name in block:
            if token.kind == "b":
                yield token
                continue
            found = self._resolved(number, layer, token, name)
            if found is None:
                continue
            home, there, at, where = found
            if token.kind == "d":
                if where in self._dead:  # of two for layers that do not exist
                    continue
                self._dead.add(where)
            yield replace(
                token,
                at=at,
                item=-1 if home == number else home,
                layer=there,
                relative=home not in self.merged and token.relative,
            )

    def _resolved(self, number: int, layer: int, token: Token, name: Name) -> tuple[int, int, int, object] | None:
        """(item, layer, number among its births, the birth) that a token speaks of; None: nothing that there is."""
        home = _home(number, token)
        if home not in self.merged:
            own = (home, token.layer, token.at) if self.whole.items[home].stack is None else object()
            return home, token.layer, token.at, own
        layers = len(self.merged[home])
        there = layer + token.layer if token.relative else token.layer + (layers if token.layer < 0 else 0)
        target = name[-1]
        if not 0 <= there < layers:
            instead = self.ends.get((home, there < 0, target))
            return None if instead is None else self._resolved(number, 0 if there < 0 else layers - 1, *instead)
        assert isinstance(target, tuple)
        births = self.numbers[home][there]
        for end in places(there, layers):
            target = target if target in births else self.instead.get((home, end, target), target)
        at = births.get(target)
        if at is None:
            raise NotRegular(f"the ends of {layers} layers of {self.whole.items[home].stack} do not fit together")
        return home, there, at, (home, there, target)


def _within(module: str, owner: str) -> bool:
    return module == owner or module.startswith(owner + ".")


def _home(number: int, token: Token) -> int:
    """The item whose birth a token of item `number` speaks of."""
    return token.item if token.item >= 0 else number


def _block(block: int, token: Token) -> int:
    """The block that holds the birth a token speaks of. `block`: its own, -1 outside of short stacks."""
    if not token.relative:
        return _AT_END[token.layer]
    return MIDDLE if block == MIDDLE else block + token.layer


def _names(item: TapeItem, block: int, forwards: bool) -> list[Name]:
    """A name for every birth of a block: its number in the block between where that has it too, else where it stands
    among those and what it is."""
    mine, base = (_kinds(item.blocks[number]) for number in (block, MIDDLE))
    found: list[Name] = [()] * len(mine)
    pairs = zip(base, mine, strict=False) if forwards else ()
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    rest = SequenceMatcher(None, base[same:], mine[same:], autojunk=False)
    matched = {n: n for n in range(same)}
    for first, second, size in rest.get_matching_blocks():
        matched |= {same + second + turn: same + first + turn for turn in range(size)}
    before, seen = -1, dict[Name, int]()
    for number, kind in enumerate(mine):
        if number in matched:
            before, seen = matched[number], {}
            found[number] = (before,)
        else:
            seen[kind] = seen.get(kind, 0) + 1
            found[number] = (before, kind, seen[kind])
    return found


def _kinds(block: Sequence[Token]) -> list[Name]:
    return [(token.at, token.mark, token.where) for token in block if token.kind == "b"]


def _numbers(block: Sequence[Named]) -> dict[Name, int]:
    births = [name for token, name in block if token.kind == "b"]
    return {name: number for number, name in enumerate(births)}


def _edits(base: Sequence[Named], side: Sequence[Named]) -> Iterator[tuple[int, int, Sequence[Named]]]:
    """(start, stop, what stands there instead)."""
    text, other = [name for _, name in base], [name for _, name in side]
    for kind, start, stop, first, last in SequenceMatcher(None, text, other, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        if stop - start == last - first and all(t.kind == "d" for t, _ in (*base[start:stop], *side[first:last])):
            yield from ((start + n, start + n + 1, side[first + n : first + n + 1]) for n in range(stop - start))
        else:
            yield start, stop, side[first:last]


def _replaced(base: Sequence[Named], side: Sequence[Named]) -> Iterator[tuple[Named, Named]]:
    """Deaths of a block and those that another has in their place."""
    for start, stop, instead in _edits(base, side):
        if stop - start == len(instead) == 1 and base[start][0].kind == "d":
            yield base[start], instead[0]


def _merge(base: Sequence[Named], sides: Sequence[Sequence[Named]]) -> list[Named]:
    """`base` with the edits of all sides: parts that a side removes are removed, parts that a side inserts are inserted
    once. A replacement of a part that another side removes is removed too."""
    edits = [list(_edits(base, side)) for side in sides]
    out = [{at for start, stop, instead in each if not instead for at in range(start, stop)} for each in edits]
    gone = {at for each in edits for start, stop, _ in each for at in range(start, stop)}
    added: dict[int, list[Named]] = {}
    for number, each in enumerate(edits):
        others = set().union(*(left for turn, left in enumerate(out) if turn != number))
        for start, stop, instead in each:
            if stop - start == 1 == len(instead) and start in others:
                continue
            here = added.setdefault(start, [])
            known = {name for _, name in here}
            here += [one for one in instead if one[1] not in known]
    found: list[Named] = []
    for at in range(len(base) + 1):
        found += added.get(at, [])
        found += [base[at]] if at < len(base) and at not in gone else []
    return found
