"""Pipeline parallelism: a stage has its share of the layers, one end has the embedding, the other the head.

Under the schedule 1F1B a stage that has s stages after it keeps the activations of s + 1 micro-batches at most
(Narayanan et al., 2021, section 2.2.1; torch/distributed/pipelining/schedules.py, Schedule1F1B: warmup_chunks;
megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_without_interleaving).
The first stage keeps most, the last has the logits: the fuller of the two is the estimate. Micro-batches are
train.grad_accum, as in every schedule that accumulates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from preflight.memory.device.law.expand import expand
from preflight.memory.device.law.made import MadeLaw, Parameters
from preflight.memory.device.law.sizes import Size
from preflight.memory.device.law.tape import Tape, Token
from preflight.memory.device.parallel.edit import NOTHING, Born, Gone, TapeEdits
from preflight.memory.device.parallel.layout import ShardLayout


def stage_dims(dims: Mapping[str, int], made: MadeLaw, layout: ShardLayout) -> dict[str, int]:
    """The layers of one stage: those of every stack, divided, the larger share where they do not divide."""
    depths = set(made.tape.depths.values())
    return {name: -(-value // layout.pipeline) if name in depths else value for name, value in dims.items()}


def in_flight(layout: ShardLayout) -> int:
    """Micro-batches whose activations the stage keeps at once."""
    return 1 if layout.last else min(layout.pipeline, layout.accumulates)


def stage(made: MadeLaw, layout: ShardLayout) -> MadeLaw:
    """The model of one end: without the head's logits, or without the embedding. Tied tables lie at both ends."""
    if layout.pipeline == 1:
        return made
    return MadeLaw(_without_other_end(made.tape, layout), _parameters(made.parameters, layout))


def _parameters(p: Parameters, layout: ShardLayout) -> Parameters:
    tables = [n for n, (size, _, _) in enumerate(p.outside) if _names(size) & {"V"}]
    gone = set() if len(tables) < 2 else {tables[0] if layout.last else tables[-1]}
    return replace(p, outside=tuple(row for n, row in enumerate(p.outside) if n not in gone))


def _names(size: Size) -> set[str]:
    return {name for _, monomial in size for name, _ in monomial}


def _without_other_end(tape: Tape, layout: ShardLayout) -> Tape:
    """Births outside of layers that belong to the other end come to nothing. The head's lie between the last pass
    forward and the first one backward; what layers hand over (no vocabulary in it, no gradient) stays."""
    script = TapeEdits(tape)
    passes = [n for n, item in enumerate(tape.items) if item.computes]
    forward = [n for n in passes if not tape.items[n].down]
    backward = [n for n in passes if tape.items[n].down]
    if not forward:
        return tape
    head = range(max(forward) + 1, min(backward) if backward else len(tape.items))
    nothing = script.size(NOTHING)
    sizes = tape.sizes

    def rewrite(token: Token, _: int) -> Sequence[Token]:
        if token.kind == "b" and ("g" in token.mark or "V" in _names(sizes[token.at])):
            return (Token("b", nothing, token.mark, where=token.where),)
        return (token,)

    for number, edit in enumerate(script.edits):
        if edit.item.stack is None and (number in head) != layout.last:
            edit.rewrite = rewrite
    return script.done()


def saved(tape: Tape, dims: Mapping[str, int]) -> Counter[Size]:
    """The sizes, as often as they occur, of what one micro-batch keeps in layers from its forward to its backward.
    Raises NotRegular."""
    live: dict[int, int] = {}
    for kind, birth, size, mark, item in expand(tape, dims):
        where = tape.items[item]
        if where.phase.startswith("backward"):
            break
        if kind == "b" and where.stack is not None and "w" not in mark:
            live[birth] = size
        elif kind == "d":
            live.pop(birth, None)
    return Counter(tape.sizes[size] for size in live.values())


def with_others(tape: Tape, size: Size) -> Tape:
    """The tape with what the other micro-batches in flight keep, throughout."""
    if not size:
        return tape
    script = TapeEdits(tape)
    script.front.heads[0] = [Born(size, "", "micro-batches in flight")]
    script.last.heads[0] = [Gone(0, script.front)]
    return script.done()
