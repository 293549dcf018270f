"""FSDP: each unit's weights are gathered before its forward and backward, its gradients reduced after its backward.

Version 2, torch/distributed/fsdp/_fully_shard: FSDPParamGroup.unshard, wait_for_unshard, post_backward and
_backward_prefetch (_fsdp_param_group.py); foreach_all_gather, foreach_all_gather_copy_out and foreach_reduce
(_fsdp_collectives.py); the root is not resharded after forward (_fsdp_state.py, _lazy_init).
Version 1, torch/distributed/fsdp: FlatParamHandle.pre_unshard, unshard, _all_gather_flat_param (_flat_param.py);
_pre_backward_hook, _post_backward_hook, _reduce_grad and _prefetch_handle (_runtime_utils.py).
Moments are those of the process that asks for memory, which is what the allocator counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from preflight.memory.device.law.made import MadeLaw
from preflight.memory.device.law.tape import Tape, Token
from preflight.memory.device.parallel.edit import NOTHING, AddedStorage, Born, Gone, Line, TapeEdit, TapeEdits
from preflight.memory.device.parallel.layout import ShardLayout
from preflight.memory.device.parallel.units import FsdpUnit, Units, weight_sizes

GATHER, WHOLE, REDUCE = "all-gather", "unsharded weights", "reduce-scatter"
CAST, GATHERED, UNSHARDED = 0, 1, 2
"""The events added at the head of a block: cast (or loaded) shards, the buffer of the gather, the weights."""


class Sizes:
    """Bytes that a unit allocates, under a layout."""

    def __init__(self, layout: ShardLayout) -> None:
        self.layout = layout
        self.flat = layout.scheme == "fsdp1"

    def cast(self, unit: FsdpUnit) -> int:
        """The rank's shards in the type that is gathered, and before that on the device where they lie on the host."""
        ways, there = self.layout.shards, self.layout.offload == "parameters"
        loaded = unit.part(ways) if there else 0
        return loaded + (unit.part(ways, self.layout.param_bytes) if self.layout.param_bytes else 0)

    def gathered(self, unit: FsdpUnit) -> int:
        """The buffer of the all-gather; version 1 gathers into the weights themselves."""
        return 0 if self.flat or self.layout.shards == 1 else unit.whole(self.layout.shards, self.layout.param_bytes)

    def whole(self, unit: FsdpUnit) -> int:
        ways, nbytes = self.layout.shards, self.layout.param_bytes
        return ways * unit.flat(ways, nbytes) if self.flat else unit.whole(ways, nbytes)

    def gradients(self, unit: FsdpUnit) -> int:
        """Version 1's flat gradient, which autograd concatenates the parameters' own into."""
        nbytes = self.layout.param_bytes
        return self.layout.shards * unit.flat(self.layout.shards, nbytes, trainable=True) if self.flat else 0

    def reduced(self, unit: FsdpUnit) -> int:
        """The reduce-scatter's input. Version 1 reduces the flat gradient itself unless it must be cast."""
        ways, nbytes = self.layout.shards, self.layout.reduce_bytes
        if self.flat:
            cast = nbytes is not None and nbytes != (self.layout.param_bytes or nbytes)
            return ways * unit.flat(ways, nbytes, trainable=True) if cast else 0
        return unit.whole(ways, nbytes or self.layout.param_bytes, trainable=True)

    def output(self, unit: FsdpUnit) -> int:
        """The rank's part in the reduction's type, where that is not the parameters' own."""
        nbytes = self.layout.reduce_bytes or self.layout.param_bytes
        part = unit.part(self.layout.shards, nbytes, trainable=True)
        return 0 if part == self.kept(unit) else part

    def kept(self, unit: FsdpUnit) -> int:
        """The gradient that stays: the rank's part, as the parameters are stored."""
        part = unit.flat if self.flat else unit.part
        return part(self.layout.shards, trainable=True)


def rank_tape(made: MadeLaw, units: Units, layout: ShardLayout) -> Tape:
    """The tape of one rank."""
    script = TapeEdits(made.tape)
    cast = layout.param_bytes is not None
    sizes = Sizes(layout)
    ends = Ends.of(script, units) if layout.options.flag("custom_sharded_layers") else None
    _root_begins(script, sizes, units if ends is None else replace(units, root=ends.embedding))
    _forward(script, sizes, units, ends)
    if ends is not None:
        _turn(script, sizes, units)
        _backward(script, sizes, units, ends)
        _ends_end(script, sizes, units, ends)
        _own(script, made, layout, cast)
        return script.done()
    if script.trains:
        _turn(script, sizes, units)
        _backward(script, sizes, units)
    _root_ends(script, sizes, units)
    _own(script, made, layout, cast)
    return script.done()


def _gather(sizes: Sizes, unit: FsdpUnit | None, at: int = CAST) -> list[Line]:
    """Births CAST and GATHERED (`at`: the former's number), and the former's death: it is copied into the latter."""
    cast, gathered = (0, 0) if unit is None else (sizes.cast(unit), sizes.gathered(unit))
    return [Born(cast, "w", GATHER), Born(gathered, "w", GATHER), Gone(at)]


def _root_begins(script: TapeEdits, sizes: Sizes, units: Units) -> None:
    script.front.heads[0] = [*_gather(sizes, units.root), Born(sizes.whole(units.root), "w", WHOLE)]


class Ends(Struct, frozen=True):
    """The embedding, and what lies behind the layers, as units of their own (torchtune's custom_sharded_layers;
    torchtitan's parallelize_llama): the items of the tape in which each is whole."""

    embedding: FsdpUnit
    head: FsdpUnit
    forward: TapeEdit
    """The first item behind the layers."""
    loss: TapeEdit
    """The last item before the layers' backward."""
    after: TapeEdit
    """The first item behind it."""
    middle: tuple[TapeEdit, ...]
    behind: tuple[TapeEdit, ...]

    @classmethod
    def of(cls, script: TapeEdits, units: Units) -> Ends | None:
        """None where the tape does not train, or has nothing in one of these places."""
        params = units.root.params
        if not script.trains or len(params) < 3 or not script.up or not script.down:
            return None
        first, last = script.edits.index(script.up[-1]), script.edits.index(script.down[0])
        end = script.edits.index(script.down[-1])
        middle = tuple(e for e in script.edits[first:last] if e.item.stack is None)
        behind = tuple(e for e in script.edits[end:] if e.item.stack is None)
        if not middle or not behind:
            return None
        return cls(FsdpUnit(params[:1]), FsdpUnit(params[1:]), middle[0], middle[-1], behind[0], middle, behind)


def _ends_end(script: TapeEdits, sizes: Sizes, units: Units, ends: Ends) -> None:
    """The head's gradients are reduced before the layers' backward, the embedding's in the end."""
    joined, reduced = _reduce(sizes, ends.head, _unsharded(script, ends.middle))
    ends.loss.tails[0] = [*joined, Gone(UNSHARDED, ends.forward), *reduced]
    ahead = sizes.layout.prefetch and sizes.layout.reshard
    there = not sizes.layout.reshard or (sizes.flat and ahead)
    came = Gone(NEXT_GATHERED, script.down[-1], 0, False)
    ends.after.heads[0] = [
        Born(0 if there else sizes.whole(ends.embedding), "w", WHOLE),
        *([] if sizes.flat else [came]),
    ]
    whole = [Gone(UNSHARDED, script.front)] if not sizes.layout.reshard else [came] if there else [Gone(0, ends.after)]
    pending = units.first[script.down[-1].item.stack or ""]
    script.last.heads[0] = [Born(0 if sizes.flat else sizes.reduced(pending), "", REDUCE)]
    joined, reduced = _reduce(sizes, ends.embedding, _unsharded(script, ends.behind))
    script.last.tails[0] = [*joined, *whole, Gone(0), *reduced]


def _unsharded(script: TapeEdits, edits: Sequence[TapeEdit]) -> list[Line]:
    """The deaths of the gradients that are born in some items."""
    deaths: list[Line] = []
    for edit in edits:
        births = [t for t in edit.item.blocks[0] if t.kind == "b"]
        found = [at for at, token in enumerate(births) if "g" in token.mark]
        deaths += [Token(kind, at, "", script.edits.index(edit)) for at in found for kind in "d+"]
    return deaths


def _forward(script: TapeEdits, sizes: Sizes, units: Units, ends: Ends | None = None) -> None:
    """Implicit prefetch: a gathered buffer lives until the next unit has its own (comm_ctx.all_gather_state)."""
    before: Gone = Gone(GATHERED, script.front)
    for edit in script.up:
        stack = edit.item.stack or ""
        for block in range(len(edit.item.blocks)):
            unit = units.of(stack, block)
            previous = before if block == 0 else Gone(GATHERED, None, -1)
            edit.heads[block] = [*_gather(sizes, unit), previous, Born(sizes.whole(unit), "w", WHOLE)]
            if sizes.layout.reshard or not script.trains:
                edit.tails[block] = [Gone(UNSHARDED)]
        before = Gone(GATHERED, edit, -1, False)
    if ends is not None:
        if sizes.layout.reshard:
            script.up[0].heads[0].append(Gone(UNSHARDED, script.front))
        ends.forward.heads[0] = [*_gather(sizes, ends.head), before, Born(sizes.whole(ends.head), "w", WHOLE)]
        before = Gone(GATHERED, ends.forward)
    if script.trains:
        script.turn.heads[0] = [before]
    else:
        script.last.heads[0] = [before]


def _turn(script: TapeEdits, sizes: Sizes, units: Units) -> None:
    """The root's pre-backward prefetches the unit that ran last; its own weights are still there."""
    first = _last_unit(script.down[0], units) if script.down else None
    script.turn.heads[0] = [*script.turn.heads[0], *_ahead(sizes, first, CAST)]


def _ahead(sizes: Sizes, unit: FsdpUnit | None, at: int) -> list[Line]:
    """The prefetched units, as _gather: version 1 gathers into the weights."""
    if not sizes.layout.reshard or not sizes.layout.prefetch:
        unit = None
    cast, gathered, gone = _gather(sizes, unit, at)
    return (
        [cast, Born(sizes.whole(unit), "w", WHOLE), gone] if sizes.flat and unit is not None else [cast, gathered, gone]
    )


def _last_unit(edit: TapeEdit, units: Units) -> FsdpUnit:
    return units.of(edit.item.stack or "", len(edit.item.blocks) - 1)


MINE, NEXT_CAST, NEXT_GATHERED, PENDING = 0, 1, 2, 3
"""At the head of a block of backward: the own weights, the next unit's prefetch, the reduction still under way."""


def _backward(script: TapeEdits, sizes: Sizes, units: Units, ends: Ends | None = None) -> None:
    """A unit's weights are whole while the next one's are gathered; its gradients are reduced at its end, and the
    reduction's input lives until the next unit has gradients of its own (reduce_scatter_max_input_buffers 1)."""
    came: Gone = Gone(GATHERED, script.turn)
    reduced, before = (None, None) if ends is None else (ends.head, ends.embedding)
    for number, edit in enumerate(script.down):
        stack, blocks = edit.item.stack or "", len(edit.item.blocks)
        onward = script.down[number + 1] if number + 1 < len(script.down) else None
        for block in reversed(range(blocks)):
            unit = units.of(stack, block)
            behind = units.of(stack, block - 1) if block else _last_unit(onward, units) if onward else before
            arrived = came if block == blocks - 1 else Gone(NEXT_GATHERED, None, 1)
            pending = reduced if block == blocks - 1 else units.layer[stack]
            edit.heads[block] = _arrival(sizes, unit, behind, arrived, pending)
            edit.tails[block] = _reduction(script, edit, block, sizes, unit)
        came = Gone(NEXT_GATHERED, edit, 0, False)
        reduced = units.first[stack]


def _arrival(
    sizes: Sizes, unit: FsdpUnit, behind: FsdpUnit | None, arrived: Gone, pending: FsdpUnit | None
) -> list[Line]:
    """pre_backward. Without a prefetch the own weights are gathered here, with nothing left of that but themselves."""
    layout = sizes.layout
    there = not layout.reshard or (sizes.flat and layout.prefetch)  # never freed, or gathered in place ahead of time
    held = sizes.reduced(pending) if pending is not None and not layout.defer and not sizes.flat else 0
    gone = [] if sizes.flat else [arrived]
    mine = Born(0 if there else sizes.whole(unit), "w", WHOLE)
    return [mine, *gone, *_ahead(sizes, behind, NEXT_CAST), Born(held, "", REDUCE)]


def _reduction(script: TapeEdits, edit: TapeEdit, block: int, sizes: Sizes, unit: FsdpUnit) -> list[Line]:
    """post_backward: weights are freed, the pending reduction awaited, gradients copied in, reduced, cast."""
    layout = sizes.layout
    lines: list[Line] = []
    if sizes.flat and layout.reshard and layout.prefetch:
        last = block == len(edit.item.blocks) - 1
        index = script.down.index(edit)
        before = script.down[index - 1] if index else None
        if not last:
            lines.append(Gone(NEXT_GATHERED, None, 1))
        else:
            lines.append(Gone(GATHERED, script.turn) if before is None else Gone(NEXT_GATHERED, before, 0, False))
    lines.append(Gone(MINE))
    if not layout.reshard:
        up = next((e for e in script.up if e.item.stack == edit.item.stack), None)
        if up is not None:
            lines.append(Gone(UNSHARDED, up))
    lines.append(Gone(PENDING))
    if layout.defer:
        return lines
    grads = [at for at, token in enumerate(t for t in edit.item.blocks[block] if t.kind == "b") if "g" in token.mark]
    joined, reduced = _reduce(sizes, unit, [Token(kind, at) for at in grads for kind in "d+"])
    return [*joined, *lines, *reduced]


def _reduce(sizes: Sizes, unit: FsdpUnit, deaths: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """Births at the tail: version 1's flat gradient, the input, the output, the kept part. The first lines are
    autograd's, which joins the flat gradient while the weights are whole; the others follow once they are freed."""
    output, kept, host = sizes.output(unit), sizes.kept(unit), sizes.layout.offload in ("gradients", "parameters")
    flat = sizes.gradients(unit)
    joined: list[Line] = [Born(flat, "", REDUCE), *(deaths if flat else ())]
    before: list[Line] = [Born(sizes.reduced(unit), "", REDUCE), *(() if flat else deaths)]
    after: list[Line] = [Born(output, "", REDUCE), Born(kept, "" if host else "g", REDUCE), Gone(2, tail=True)]
    end: list[Line] = [Gone(3, tail=True)] if host else [AddedStorage(3)]
    return joined, [*before, *after, *end, Gone(0, tail=True), Gone(1, tail=True)]


def _root_ends(script: TapeEdits, sizes: Sizes, units: Units) -> None:
    whole: Line = Gone(UNSHARDED, script.front)
    if not script.trains:
        script.last.heads[0].append(whole)
        return
    lines: list[Line] = [whole]
    if not sizes.layout.defer:
        deaths = _unsharded(script, [edit for edit in script.edits if edit.item.stack is None])
        pending = units.first[script.down[-1].item.stack or ""] if script.down and not sizes.flat else None
        held = sizes.reduced(pending) if pending is not None else 0
        script.last.heads[0] = [Born(held, "", REDUCE)]
        joined, reduced = _reduce(sizes, units.root, deaths)
        lines = [*joined, *lines, Gone(0), *reduced]
    script.last.tails[0] = lines


def _own(script: TapeEdits, made: MadeLaw, layout: ShardLayout, cast: bool) -> None:
    """The tape's own tokens: unsharded gradients are added nowhere; casts that autocast would make are not made where
    the weights are gathered in that type, and gradients are born in it. A tape of weights in that type has no casts."""
    stored = weight_sizes(made, 4)
    nothing = script.size(NOTHING)
    sizes = made.tape.sizes
    tokens = (token for item in made.tape.items for block in item.blocks for token in block)
    gradients = {sizes[token.at] for token in tokens if token.kind == "b" and "g" in token.mark}
    p = made.parameters
    rows = [*p.outside, *(row for each in (p.layer, p.first) for rows in each.values() for row in rows)]
    frozen = any(nbytes == 4 and not trains for _, nbytes, trains in rows)
    casts = cast and (frozen or not gradients or bool(gradients & stored))
    copies = weight_sizes(made, layout.param_bytes) if casts and layout.param_bytes else frozenset()

    def rewrite(token: Token, _: int) -> Sequence[Token]:
        if token.kind == "b":
            size = sizes[token.at]
            if "g" in token.mark:
                if copies and size in stored and layout.param_bytes == 2:
                    half = tuple((c // 2, m) if isinstance(c, int) else (c / 2, m) for c, m in size)
                    return (_resized(token, script.size(half)),)
                return (token,)
            return (_resized(token, nothing),) if size in copies else (token,)
        return () if token.kind == "+" and not layout.defer else (token,)

    for edit in script.edits:
        edit.rewrite = rewrite


def _resized(token: Token, at: int) -> Token:
    return Token("b", at, token.mark, where=token.where)
