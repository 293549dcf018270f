"""What preflight thinks is alive at a step's peak, storage by storage, to be held against a measured history."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from preflight.memory.device.law.expand import expand
from preflight.memory.device.step.prepared import PreparedJob

Blocks = Counter[tuple[int, str]]
"""(bytes requested, what and where) -> how many."""


@dataclass(frozen=True)
class Alive:
    """The storages at the largest moment of a second iteration, and the phase it lies in."""

    bytes: int
    phase: str
    blocks: Blocks


def alive(ready: PreparedJob, workspaces: tuple[int, ...]) -> Alive:
    """Walk the tape's events, then the optimizer's step. `workspaces`: bytes of cuBLAS's."""
    states: Blocks = Counter()
    for elements, each, _ in ready.rank.rows:
        states[math.ceil(elements * each), "weights"] += 1
    for each_held in ready.rank.storages:
        states[each_held.nbytes, f"held {each_held.part}"] += 1
    for size in ready.optimizer.states:
        states[size, "optimizer"] += 1
    for size in workspaces:
        states[size, "cuBLAS workspace"] += 1
    if ready.buffers:
        states[ready.buffers, "buffers"] += 1
    best = Alive(0, "", Counter())
    gradients: Blocks = Counter()
    for accumulated in (False, True) if ready.accumulating else (False,):
        for phase, live in _moments(ready, accumulated, gradients if accumulated else Counter()):
            best = _larger(best, phase, live)
            gradients = Counter({key: n for key, n in live.items() if key[1] == "gradients"})
    for wave in ready.optimizer.waves or ((),):
        at_step = gradients + Counter((size, "step") for size in wave)
        best = _larger(best, "optimizer", at_step)
    return Alive(best.bytes + _sum(states), best.phase, best.blocks + states)


def _larger(best: Alive, phase: str, live: Blocks) -> Alive:
    size = _sum(live)
    return Alive(size, phase, Counter(live)) if size > best.bytes else best


def _sum(blocks: Mapping[tuple[int, str], int]) -> int:
    return sum(size * count for (size, _), count in blocks.items())


def _moments(ready: PreparedJob, accumulated: bool, before: Blocks) -> Iterator[tuple[str, Blocks]]:
    """The largest moment of each phase of a micro-step, and its end (phase "")."""
    tape = ready.laws.made.tape.at(ready.dims)
    values = tape.values(ready.dims)
    wheres = _modules(ready)
    live: dict[int, tuple[int, str]] = {}
    returned: set[int] = set()
    total, most, kept, phase = 0, -1, dict(live), ""
    for (kind, birth, size, mark, item), where in zip(expand(tape, ready.dims), wheres, strict=True):
        here = tape.items[item].phase.rstrip("~")
        if here != phase and phase:
            yield phase, before + Counter(kept.values())
            most = -1
        phase = here
        if kind == "b":
            live[birth] = (values[size], "gradients" if "g" in mark else f"{here}:{where}")
            total += values[size]
            if "o" in mark:
                returned.add(birth)
            if total > most:
                most, kept = total, dict(live)
        elif (kind == "d" or accumulated) and not (ready.outputs_kept and birth in returned):
            gone = live.pop(birth, None)
            total -= gone[0] if gone is not None else 0
    yield phase, before + Counter(kept.values())
    end = Counter({key: n for key, n in Counter(live.values()).items() if key[1] == "gradients"})
    yield "", before + end


def _modules(ready: PreparedJob) -> Iterator[str]:
    """The module of every event's birth, in the order of `expand`."""
    from preflight.memory.device.law.tape import block_of

    tape = ready.laws.made.tape.at(ready.dims)
    for item in tape.items:
        layers = ready.dims[tape.depths[item.stack]] if item.stack is not None else 1
        for layer in range(layers - 1, -1, -1) if item.down else range(layers):
            for token in item.blocks[block_of(layer, layers) if item.stack is not None else 0]:
                yield tape.modules[token.where] if token.kind == "b" and tape.modules else ""
