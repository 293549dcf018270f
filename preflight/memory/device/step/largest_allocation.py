"""The largest single allocation of a job, written as a product of dimensions."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.memory.device.law.sizes import Size, with_derived
from preflight.memory.device.law.tape import Tape
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.replay import Phase
from preflight.vocabulary.estimates import LargestAllocation

_WORDS = {
    "V": "vocabulary", "f": "feed-forward width", "a": "heads", "k": "key-value heads", "d": "head size", "h": "width",
    "L": "layers", "P": "positions", "n": "image patches", "m": "image tokens", "t": "target tokens", "r": "rank",
    "D": "projection width", "u": "sides of 64 pixels", "i": "side",
}  # fmt: skip

_OF_BOXES = {"k": "sides of 32 pixels", "V": "classes", "o": "boxes"}
"""Where boxes are counted (`o`), the model finds objects in images."""


def largest_allocation(prepared: PreparedJob, beside: tuple[Phase, ...]) -> LargestAllocation | None:
    """The largest storage that one operation requests, in training and in the other phases."""
    found = _in_tape(prepared.laws.made.tape, prepared.dims)
    for phase in beside:
        other = _in_tape(phase.tape, phase.dims)
        if other is not None and (found is None or other.bytes > found.bytes):
            found = other
        if phase.kept and (found is None or phase.kept[0] > found.bytes):
            found = LargestAllocation(phase.kept[0], "accumulated logits", "logits of the whole evaluation set")
    return found


def _in_tape(tape: Tape, dims: Mapping[str, int]) -> LargestAllocation | None:
    full = dict(dims)
    tape = tape.at(full)
    values = tape.values(full)
    if not values:
        return None
    best = max(range(len(values)), key=values.__getitem__)
    births = (t for item in tape.items for block in item.blocks for t in block if t.kind == "b" and t.at == best)
    where = next((tape.modules[birth.where] for birth in births), "")
    return LargestAllocation(values[best], where or "loss", spelled(tape.sizes[best], full))


def spelled(size: Size, dims: dict[str, int]) -> str:
    """A size as a product a person can check: "200 tokens x 10,000,000 vocabulary x 4"."""
    texts = []
    for coefficient, monomial in size:
        powers = dict(monomial)
        full = with_derived(dims, set(powers))
        factors = []
        if powers.get("b") and powers.get("s"):
            factors.append(f"{full['b'] * full['s']:,} tokens")
            powers["b"] -= 1
            powers["s"] -= 1
        names = {"b": "batch", "s": "length", **_WORDS, **(_OF_BOXES if "o" in dims else {})}
        for name, power in powers.items():
            if (name, power) == ("i", 2):
                factors.append(f"{full[name] ** 2:,} pixels")
            elif power:
                word = names.get(name, names.get(name.rstrip("0123456789"), name))
                factors.append(f"{full[name] ** power:,} {word}" + ("" if power == 1 else f"^{power}"))
        texts.append(" x ".join([*factors, f"{coefficient:,}"]))
    return " + ".join(texts)
