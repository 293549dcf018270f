"""Making the law of a family: a few small traces, whose sizes are read as formulas and whose layers are folded.

Two probes of six layers with different primes (more where they leave a doubt) give the formulas; another, deeper one
with other primes again is not looked at until the tape is made, and must then come out to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

from msgspec.structs import replace

from preflight.memory.device.families import Family
from preflight.memory.device.fit.primes import PRIMES, Basis, MonomialReader, ProbePoint, patch_sides
from preflight.memory.device.law import layers
from preflight.memory.device.law.expand import expand
from preflight.memory.device.law.made import (
    CHECK_LAYERS,
    PROBE_LAYERS,
    MadeLaw,
    ParameterRow,
    Parameters,
    Runner,
    TraceRequest,
)
from preflight.memory.device.law.setup import Setup
from preflight.memory.device.law.sizes import Monomial, Size, number
from preflight.memory.device.law.tape import NARROW, NotRegular, build

FEWEST_PROBES, MOST_PROBES = 2, 4
"""With two, a sum of two terms can agree by accident; the check then fails, and another probe is added."""

# Lengths are taken from here: no two of them round to the same multiple of 32, and none to the same multiple of 8 as of
# 32, or a rounding would hide; neither they nor the next number (a token after a cache of so many) are multiples of 8.
# Eighths of head sizes as well: above 256 other attention kernels are chosen.
_GIVEN = {
    "s": (67, 101, 131, 163, 197),
    "t": (37, 73, 107, 139, 173),
    "e": (11, 13, 17, 19, 23),
    "E": (29, 31, 23, 11, 13),
    "R": (29, 41, 47, 43, 59),  # twice these are less than any head at the same probe
}
# The smallest prime of other base variables: positions lie above lengths, vocabulary and feed-forward apart.
_LOWEST = {"P": 211, "V": 257, "f": 307, "F": 401, "D": 503, "B": 191, "M": 191, "u": 251}


LOSS_PIECES = 8
"""Pieces of a chunked loss (tracer/losses.py): probes have that many rows to share out."""


class SizeReader(Protocol):
    """Turns the byte counts of one event at all points into a formula; see primes.Reader."""

    def learn(self, all_values: Sequence[tuple[int, ...]]) -> None: ...

    def size(self, values: tuple[int, ...]) -> Size | None: ...


class CannotMake(ValueError):
    """No law can be made of these traces; the message says why."""


def probe(
    family: Family, turn: int, depth: int, extra: Sequence[str] = (), pieces: int = 1
) -> tuple[ProbePoint, dict[str, int]]:
    """The `turn`-th probe point of a family, and the dimensions to trace at (layers included)."""
    variables = sorted({v for _, exponents in family.named.values() for v in exponents} | set(extra))
    primes: dict[str, int] = {}
    # No prime is used twice, at one probe or at several: equal products would pass for constants.
    taken = {prime for values in _GIVEN.values() for prime in values}
    sides = patch_sides(family.tokens) if "q" in variables else {}
    taken |= {*sides, *sides.values()}
    for earlier in range(turn + 1):
        primes = _primes(variables, earlier, taken, sides)
        taken |= set(primes.values())
    point = basis_of(family, extra, pieces).point(primes)
    depth_names = sorted(set(family.depths.values()))
    dims = dict(point.dims) | {name: depth + i for i, name in enumerate(depth_names)}
    if "q" in primes:
        dims["i"] = primes["q"] * dims["p"]
    return point, dims


def basis_of(family: Family, extra: Sequence[str], pieces: int = 1) -> Basis:
    """The dimensions of the formulas: a family's dimensions and `extra` ones. `pieces`: batches are multiples of it."""
    named = {**family.named, **{name: (1, {name: 1}) for name in extra}}
    if pieces > 1:
        named["b"] = (pieces, {"b": 1})
    return Basis(named, family.lengths)


def _primes(variables: Sequence[str], turn: int, taken: set[int], sides: Mapping[int, int]) -> dict[str, int]:
    primes = {name: values[turn] for name, values in _GIVEN.items() if name in variables}
    if "q" in variables:
        side = list(sides)[turn]
        primes |= {"q": side, **({"m": sides[side]} if "m" in variables else {})}
    for variable in variables:
        if variable not in primes:
            lowest = _LOWEST.get(variable, PRIMES[0])
            primes[variable] = next(p for p in PRIMES if p >= lowest and p not in taken and p not in primes.values())
    return primes


def make(family: Family, task: str, kind: str, setup: Setup, structure: Mapping[str, object], run: Runner) -> MadeLaw:
    """The tape and parameters of a family under a setup. Raises CannotMake (or what `run` raises)."""
    extra = ("r",) if setup.peft is not None else ()
    family = family.at(structure)
    pieces = LOSS_PIECES if setup.loss == "chunked" else 1
    basis = basis_of(family, extra, pieces)
    checked = probe(family, MOST_PROBES, CHECK_LAYERS, extra, pieces)
    probes = [probe(family, turn, PROBE_LAYERS, extra, pieces) for turn in range(FEWEST_PROBES)]
    *traces, check = run([request(family, task, kind, setup, structure, dims) for _, dims in [*probes, checked]])
    while True:
        try:
            made = fold(family.depths, MonomialReader(basis, [point for point, _ in probes]), traces)
            verify(made, check, checked[1])
        except CannotMake:
            if len(probes) == MOST_PROBES:
                raise
            probes.append(probe(family, len(probes), PROBE_LAYERS, extra, pieces))
            traces += run([request(family, task, kind, setup, structure, probes[-1][1])])
        else:
            return made


def request(
    family: Family, task: str, kind: str, setup: Setup, structure: Mapping[str, object], dims: Mapping[str, int]
) -> dict[str, Any]:
    config = family.at(structure).config(dims)
    for key, value in family.switches(structure).items():
        head, _, tail = key.partition(".")
        if tail:
            config.setdefault(head, {})[tail] = value
        else:
            config[key] = value
    point = {key: dims[key] for key in ("b", "s", "t", "i") if key in dims}
    model = {"architecture": family.model_type, "task": task, "config": config}
    return {**TraceRequest(model, setup, kind).at(dims), "point": point}


def fold(depths: Mapping[str, str], reader: SizeReader, traces: Sequence[Mapping[str, Any]]) -> MadeLaw:
    """Fold traces of one model at several points (equal depth) into a symbolic tape."""
    first = traces[0]
    counts = {len(t["events"]) for t in traces}
    if len(counts) != 1:
        raise CannotMake("the number of events changes with the dimensions")
    values = [tuple(t["events"][i][0] for t in traces) for i in range(len(first["events"]))]
    births = [v for v in values if v[0] >= 0]
    numels = [tuple(t["parameters"][i][2] for t in traces) for i in range(len(first["parameters"]))]
    buffers = [(name, tuple(t["buffers"][i][1] for t in traces)) for i, (name, _) in enumerate(first["buffers"])]
    reader.learn([*births, *numels, *(values for _, values in buffers)])
    stacks = layers.find_stacks([name for name, *_ in first["parameters"]])
    if "*" in depths:  # any stack of the depth that was asked for
        named: dict[str, str | None] = {s: depths["*"] if n == PROBE_LAYERS else None for s, n in stacks.items()}
    else:
        named = {stack: _depth_name(stack, depths) for stack in stacks}
    stacks = {stack: count for stack, count in stacks.items() if named[stack] is not None}
    raw, sizes = _raw_events(first, values, reader)
    items = layers.split(raw, stacks)
    try:
        tape = build(items, {k: v for k, v in named.items() if v is not None}, sizes)
    except NotRegular as error:
        raise CannotMake(f"layers differ: {error}") from error
    depth_of = {stack: named[stack] or "" for stack in stacks}
    return MadeLaw(
        tape, replace(_parameters(first, numels, reader, stacks), buffers=_buffers(buffers, reader, depth_of))
    )


def _buffers(rows: Sequence[tuple[str, tuple[int, ...]]], reader: SizeReader, depth_of: Mapping[str, str]) -> Size:
    """The bytes of all buffers: those of a layer stand once, times the depth."""
    total: dict[Monomial, Fraction] = {}
    for name, values in rows:
        size = reader.size(values)
        if size is None:
            raise CannotMake(f"no formula for the size of the buffer {name}")
        where = layers.place(":" + name, dict.fromkeys(depth_of, 0))
        if where is not None and where[2] != 1:
            continue
        for coefficient, monomial in size:
            deep = monomial if where is None else tuple(sorted((*monomial, (depth_of[where[1]], 1))))
            total[deep] = total.get(deep, Fraction(0)) + Fraction(coefficient)
    return tuple((number(coefficient), monomial) for monomial, coefficient in total.items())


def _depth_name(stack: str, depths: Mapping[str, str]) -> str | None:
    for suffix, name in depths.items():
        if stack == suffix or stack.endswith("." + suffix):
            return name
    return None


def _raw_events(
    trace: Mapping[str, Any], values: Sequence[tuple[int, ...]], reader: SizeReader
) -> tuple[list[layers.RawEvent], dict[object, Size]]:
    gradient_of = {index: int(birth) for birth, index in trace["gradients"].items()}
    marks = dict.fromkeys(trace.get("workspaces", ()), "c") | dict.fromkeys(trace.get("held", ()), "h")
    marks |= dict.fromkeys(trace["outputs"], "or" if trace.get("loss_apart") else "o")
    marks |= {birth: marks[birth] + NARROW for birth in trace.get("narrow", ()) if birth in marks}
    marks |= dict.fromkeys(gradient_of.values(), "g")
    added: dict[int, list[int]] = {}
    for before, parameter in trace["accumulations"]:
        if parameter in gradient_of:
            added.setdefault(before, []).append(gradient_of[parameter])
    sizes: dict[object, Size] = {}
    raw: list[layers.RawEvent] = []
    for index, (value, tag) in enumerate(trace["events"]):
        # An accumulation belongs to the place of the gradient's own birth.
        raw += [layers.RawEvent(b, False, None, trace["events"][b][1], "+") for b in added.get(index, ())]
        if value < 0:
            raw.append(layers.RawEvent(-1 - value, True, None, tag))
            continue
        size = reader.size(values[index])
        if size is None:
            raise CannotMake(f"no formula for the sizes {values[index]} in {tag}")
        sizes.setdefault(size, size)
        raw.append(layers.RawEvent(index, False, size, tag, marks.get(index, "")))
    raw += [layers.RawEvent(b, False, None, trace["events"][b][1], "+") for b in added.get(len(trace["events"]), ())]
    return raw, sizes


def _parameters(
    trace: Mapping[str, Any], numels: Sequence[tuple[int, ...]], reader: SizeReader, stacks: Mapping[str, int]
) -> Parameters:
    outside: list[ParameterRow] = []
    by_layer: dict[str, dict[int, list[ParameterRow]]] = {}
    for (name, nbytes, elements, trainable), values in zip(trace["parameters"], numels, strict=True):
        if not elements:  # no row of the embeddings is trained (peft's trainable tokens without `token_indices`)
            continue
        size = reader.size(values)
        if size is None:
            raise CannotMake(f"no formula for the size of {name}")
        each = nbytes / elements  # a fraction for tensors of quantised layers
        row = (size, int(each) if each == int(each) else each, bool(trainable))
        where = layers.place(":" + name, dict(stacks))
        if where is None:
            outside.append(row)
        else:
            by_layer.setdefault(where[1], {}).setdefault(where[2], []).append(row)
    layer = {stack: tuple(rows[1]) for stack, rows in by_layer.items()}
    first: dict[str, tuple[ParameterRow, ...]] = {}
    for stack, rows in by_layer.items():
        spare = list(rows[0])
        for row in layer[stack]:
            if row in spare:
                spare.remove(row)
        first[stack] = tuple(spare)
        if any(rows[n] != rows[1] for n in range(2, len(rows))):
            raise CannotMake(f"the layers of {stack} have different parameters")
    return Parameters(tuple(outside), layer, first)


def verify(made: MadeLaw, trace: Mapping[str, Any], dims: Mapping[str, int]) -> None:
    """The tape, extended to the check's depth and dimensions, must be the check's own, event by event."""
    sizes = made.tape.values(dims)
    events = [e for e in expand(made.tape, dims) if e[0] != "+"]
    actual = trace["events"]
    if len(events) != len(actual):
        raise CannotMake(f"at {CHECK_LAYERS} layers there are {len(actual)} events, not {len(events)}")
    births = {}
    count = 0
    for index, (value, _) in enumerate(actual):
        if value >= 0:
            births[index] = count
            count += 1
    for index, ((kind, birth, size, _, _), (value, tag)) in enumerate(zip(events, actual, strict=True)):
        right = (kind == "b" and sizes[size] == value) if value >= 0 else (kind == "d" and births[-1 - value] == birth)
        if not right:
            raise CannotMake(f"event {index} ({tag}) comes out differently at other dimensions")
