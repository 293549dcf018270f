"""What no file states and a need depends on, piece by piece, each with usual values to show the need at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from preflight.api import Case, Estimates, Job, Standing, positions_of, with_fields

Point: TypeAlias = tuple[Mapping[str, object], str]
"""Values of Job fields, and how a message says them after the need: "on 1 GPU"."""

LENGTHS = {"train.seq_len": "length", "train.target_len": "length of the targets"}
"""Job fields that are lengths, with their names in messages."""
BATCH = "train.batch_size"
IMAGE = "train.image_size"
STRATEGY, OFFLOAD = "parallel.strategy", "parallel.offload"
GPUS = ("parallel.gpus_per_node", "parallel.ranks_per_node", "parallel.nodes", STRATEGY, OFFLOAD)
"""Fields that say how a job is spread; the first is asked for."""
NODE = 8
"""GPUs of a node of today's clusters, where none is stated."""
_SMALLER = ("train.peft.method", "train.peft.r", "train.quantization.type", "train.frozen")
MOST_MISSING = 5
"""Pieces that may be missing: the need at usual values of more says little."""


class Piece(Struct, frozen=True):
    """Job fields that are missing together: in words, and the points at which the need is shown, the least demanding
    first."""

    what: str
    fields: tuple[str, ...]
    points: Sequence[Point]
    least: Mapping[str, object] = {}
    """Less usual values that take less than all points."""

    @property
    def field(self) -> str:
        """The field that a message asks for."""
        return self.fields[0]


def missing_pieces(case: Case) -> list[Piece]:
    """All that is missing before the need of GPU memory is known; empty where that is something else, too.

    The estimate names what it lacks first, so each piece is filled in with its least demanding value before the next
    one is looked for.
    """
    found: list[Piece] = []
    pieces = _pieces(case)
    job, estimates = case.job, case.estimates
    while estimates.device is None and len(found) < MOST_MISSING:
        lacks = _lacks(job, estimates)
        piece = next((one for one in pieces if one not in found and lacks & {*one.fields}), None)
        if piece is None:
            return []
        found.append(piece)
        job = with_fields(job, piece.points[0][0])
        estimates = case.estimate(job)
    if estimates.device is None or estimates.device.lower_bound or _may_be_small(case):
        return []
    return found


def _may_be_small(case: Case) -> bool:
    """Whether adapters, quantised weights or frozen parts may take most of the need away, and no file says."""
    return any(one.standing is Standing.unknown and one.field in _SMALLER for one in case.unsure())


def _lacks(job: Job, estimates: Estimates) -> set[str]:
    """The fields that an estimate lacks. An optimizer that has no law names none: everything else is known then."""
    cause = estimates.causes.get("device")
    fields = cause.fields if cause is not None else ()
    if cause is not None and cause.cause.value == "not-modelled" and not fields and job.train.optimizer == "other":
        return {"train.optimizer"}
    return {*fields, *({BATCH, *LENGTHS} & {*estimates.unknown})}


def _pieces(case: Case) -> list[Piece]:
    top = positions_of(case.job)
    most = top.usable if top is not None else 2048
    lengths = [n for n in (128, 512, 2048) if n < most] + [min(most, 2048)]
    spread = _spread(case)
    return [
        Piece("the batch size", (BATCH,), [({BATCH: n}, f"at batch {n}") for n in (1, 8, 32)]),
        *(
            Piece(f"the {what}", (name,), [({name: n}, f"at {what} {n:,}") for n in lengths])
            for name, what in LENGTHS.items()
        ),
        Piece("the size of the images", (IMAGE,), [({IMAGE: n}, f"{n} x {n}") for n in (224, 448, 896)], {IMAGE: 32}),
        _one("the precision", "train.precision", {"bf16-mixed": "bf16-mixed", "fp32": "fp32"}, "bf16"),
        _one(
            "gradient checkpointing",
            "train.gradient_checkpointing",
            {True: "with gradient checkpointing", False: "without gradient checkpointing"},
        ),
        _one(
            "the kind of gradient checkpointing", "train.reentrant", {True: "if it is reentrant", False: "if it is not"}
        ),
        _one(  # COPA has 2 choices, CommonsenseQA 5
            "the number of choices", "train.sequences_per_sample", {2: "with 2 choices", 5: "with 5 choices"}
        ),
        _one(  # Llama 2's and Qwen2.5's
            "the vocabulary",
            "model.config.vocab_size",
            {32000: "with 32,000 tokens", 151936: "with 151,936 tokens"},
            1,  # a tokenizer of one's own may have a few hundred
        ),
        _one(
            "the optimizer", "train.optimizer", {"sgd": "with SGD", "adamw": "with AdamW"}
        ),  # no state of a parameter, and two
        Piece("how many GPUs share the job", GPUS, spread),
    ]


def _one(what: str, field: str, values: Mapping[object, str], least: object = None) -> Piece:
    points = [({field: value}, name) for value, name in values.items()]
    return Piece(what, (field,), points, {} if least is None else {field: least})


def _spread(case: Case) -> list[Point]:
    """On each of several GPUs, split among them unless something says that each holds the whole model; and on one. A
    number of GPUs that is stated stays as it is; that a program which was not read uses one is not stated."""
    job = case.job
    parallel = job.parallel
    stated = parallel.ranks_per_node is not None and parallel.nodes is not None
    stated = stated and (parallel.ranks_per_node != 1 or case.origin(*_NUMBERS) is not None)
    number = parallel.ranks_per_node * parallel.nodes if stated else NODE  # type: ignore[operator]
    alone: dict[str, object] = {} if stated else dict.fromkeys(_NUMBERS, 1)
    among: dict[str, object] = {} if stated else {**dict.fromkeys(_NUMBERS, NODE), "parallel.nodes": 1}
    each, moved = f"on each of {number}" if number > 1 else "on 1 GPU", parallel.offload is None
    if parallel.strategy is not None and parallel.strategy not in ("none", "ddp"):
        ways = [(among, each, parallel.strategy), *([] if stated else [(alone, "on 1 GPU", "")])]
    elif number == 1:
        ways = [(alone, each, "zero3"), (alone, each, "none")]
    else:
        # models beside the one that is trained, in a pipeline of diffusion, are on every GPU
        whole = (not stated and parallel.strategy is not None) or job.task == "diffusion"
        ways = [(among, each, "ddp"), *([] if stated else [(alone, "on 1 GPU", "none")])]
        ways = ways if whole else [(among, each, "zero3"), *ways]
    points: list[Point] = []
    for at, (counts, where, way) in enumerate(ways):
        away = moved and at == 0 and way != "ddp"
        values = {
            **counts,
            **({STRATEGY: way} if way else {}),
            **({OFFLOAD: "parameters" if away else "none"} if moved else {}),
        }
        said = [way] if way not in ("", "none") else []
        said += ["offloaded"] if away else []
        points.append((values, f"{where} ({', '.join(said)})" if said else where))
    return points


_NUMBERS = ("parallel.gpus_per_node", "parallel.ranks_per_node", "parallel.nodes")
