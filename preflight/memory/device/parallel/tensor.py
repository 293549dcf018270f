"""Tensor parallelism: each rank has its share of heads, of the feed-forward width and of the vocabulary.

A law's formulas in those dimensions say which of their terms are divided: weights and inner activations of sharded
linear layers carry one of them, norms and the residual stream carry none (Shoeybi et al., 2019, Megatron-LM; megatron/
core/tensor_parallel/layers.py, ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding). With sequence
parallelism what carries none is divided by length instead (Korthikanti et al., 2022, section 4.2.2), but for the input
of a column-parallel layer, which is gathered whole.

torch's loss over a divided vocabulary (torch/distributed/tensor/parallel/loss.py) is written out: its backward returns
`(grad_input + exp(x)) * grad_output` out of place, so four tensors of the rank's logits in fp32 are there at once,
where the kernels of an undivided loss have three.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from preflight.memory.device.families import Family
from preflight.memory.device.law.made import MadeLaw
from preflight.memory.device.law.sizes import Size
from preflight.memory.device.law.tape import Tape
from preflight.memory.device.parallel.edit import Born, Gone, TapeEdits
from preflight.memory.device.parallel.layout import ShardLayout
from preflight.vocabulary.values import Cause, Unknown

DIVIDED = ("a", "k", "f", "V")
"""Heads, key-value heads, feed-forward width, vocabulary."""
LOSS = "parallel loss"


def divided(dims: Mapping[str, int], family: Family | None, layout: ShardLayout) -> dict[str, int] | Unknown:
    """The dimensions of one rank's share, or why the formulas do not show which sizes are divided."""
    ways = layout.tensor
    if ways == 1:
        return dict(dims)
    if family is None:
        return Unknown(
            "parallel.tensor: the law of this model does not depend on heads and widths, so it cannot be divided",
            Cause.not_modelled,
        )
    if "h" not in family.named:
        return Unknown(
            f"parallel.tensor: the law of {family.name} has no width apart from heads x head size", Cause.not_modelled
        )
    if dims["a"] % ways:
        return Unknown(f"parallel.tensor {ways} does not divide {dims['a']} heads", Cause.not_possible)
    names = [name for name in DIVIDED if name in dims and not (name == "V" and layout.whole_vocabulary)]
    # Fewer key-value heads than ranks are repeated; widths that do not divide are padded.
    return {**dims, **{name: max(1, -(-dims[name] // ways)) for name in names}}


def rank_tape(made: MadeLaw, layout: ShardLayout) -> Tape:
    """One more tensor of fp32 logits in torch's parallel loss; with sequence parallelism, terms of a length that carry
    no divided dimension are divided."""
    tape = made.tape
    if layout.tensor == 1:
        return tape
    if layout.scheme.startswith("fsdp") and layout.options.flag("loss_parallel"):
        tape = _written_out(tape)
    if not layout.sequence_parallel:
        return tape
    return replace(tape, sizes=tuple(_by_length(size, layout.tensor) for size in tape.sizes))


def _written_out(tape: Tape) -> Tape:
    """The loss's backward with one more tensor of the logits in fp32, until the block of the loss is over."""
    script = TapeEdits(tape)
    for edit in script.edits:
        if edit.item.phase != "backward" or edit.item.stack is not None:
            continue
        births = (tape.sizes[token.at] for token in edit.item.blocks[0] if token.kind == "b")
        logits = next((size for size in births if _fp32_logits(size)), None)
        if logits is not None:
            edit.heads[0].append(Born(logits, "", LOSS))
            edit.tails[0].append(Gone(0))
            return script.done()
    return tape


def _fp32_logits(size: Size) -> bool:
    return any(coefficient == 4 and {"s", "V"} <= {name for name, _ in monomial} for coefficient, monomial in size)


def _by_length(size: Size, ways: int) -> Size:
    found = []
    for coefficient, monomial in size:
        names = {name for name, _ in monomial}
        split = "b" in names and bool({"s", "t"} & names) and not names & set(DIVIDED)
        value = coefficient / ways if split else coefficient
        found.append((int(value) if value == int(value) else value, monomial))
    return tuple(found)


def gathered_input(width: int) -> Size:
    """Bytes of a column-parallel layer's whole input, which sequence parallelism gathers (megatron/core/
    tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication: its global memory buffer)."""
    return ((width, (("b", 1), ("h", 1), ("s", 1))),)
