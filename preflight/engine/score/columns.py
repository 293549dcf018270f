"""The columns of a verdict on one row. Their names and meanings are a contract, as those of the JSON output are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from preflight.machines.gpus import smallest_that_fits
from preflight.reports.figures import MARKS, mark
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import Job
from preflight.vocabulary.standing import Assumption, Standing
from preflight.vocabulary.values import Cause

Row: TypeAlias = "dict[str, str | int | None]"

VERSION = 1
COLUMNS: Mapping[str, tuple[type, str]] = {
    "id": (str, "the row's own `id`, as text"),
    "verdict": (str, "fits, fits-if, at-risk, exceeds or unknown: the worse of device and host"),
    "standing": (
        str,
        "the weakest way in which a value is known that the verdict stands on: read (the row states it), default (it "
        "does not), or what `standings` of the row say",
    ),
    "by": (str, "bound: decided without a replay; replay: with one; empty for an error"),
    "device_verdict": (str, "the verdict on the memory of one GPU"),
    "host_verdict": (str, "the verdict on the memory of one node"),
    "requested": (int, "bytes of all tensors at the peak, on one GPU"),
    "allocated": (int, "bytes that PyTorch has allocated at the peak (replay)"),
    "reserved": (int, "bytes that PyTorch's allocator holds (replay)"),
    "process_low": (int, "bytes of the process as nvidia-smi shows it, low end (replay)"),
    "process_expected": (int, "the same, expected (replay)"),
    "process_high": (int, "the same, high end (replay)"),
    "process_bound": (
        int,
        "the high end from above, less what batches of other lengths leave in a cache with room (bound)",
    ),
    "phase": (str, "the phase of the peak (replay)"),
    "capacity": (int, "bytes that the GPU gives the job"),
    "gpu_unused": (int, "capacity less the high end, where the device fits: what was requested too much"),
    "smallest_gpu": (str, "the smallest GPU that holds the high end and can do what the job asks for"),
    "host_low": (int, "bytes of the node, low end (replay)"),
    "host_expected": (int, "the same, expected (replay)"),
    "host_high": (int, "the same, high end (replay)"),
    "host_limit": (int, "bytes that the job may use on a node, as --mem says"),
    "host_unused": (int, "limit less the high end, where the host fits (replay)"),
    "assumptions": (str, "fields that the verdict depends on and that are not known well, comma-separated"),
    "unknown": (str, "Job fields to state before both sides are known, comma-separated"),
    "cause": (
        str,
        "why a side is unknown, as one word: not-set, model-not-known, ..., lower-bound (only the least that it takes "
        "is known); of an error: bad-row, internal; of a file that holds no job: malformed, unreadable, crashed",
    ),
    "reasons": (str, "the same in words"),
    "error": (str, "what is wrong with the row; then every other column but id and cause is empty"),
    "mark": (str, f"what stands before a figure of the GPU in a report: {MARKS} exceeds"),
}
"""Name -> type and meaning. An empty value is null."""
_WEAKEST = (
    Standing.unknown, Standing.assumed, Standing.by_name, Standing.default, Standing.read, Standing.dry_run,
    Standing.measured,
)  # fmt: skip
GPU = "machine.gpu"
LOWER_BOUND = "lower-bound"
LONGEST = 500
"""Letters of an error: a hostile value is not repeated whole."""
EMPTY: Row = dict.fromkeys(COLUMNS)


def of_error(words: str, cause: str = "bad-row") -> Row:
    """The row of a Job that cannot be judged."""
    return {**EMPTY, "cause": cause, "error": " ".join(words.split())[:LONGEST].encode("utf-8", "replace").decode()}


class Answer(Struct, frozen=True):
    """A row of the output that needs no judging: of an input that is no Job, or was judged in another way."""

    row: Row


def standing_of(held: Iterable[Standing], assumptions: Iterable[Assumption] = ()) -> str:
    """The weakest standing that a verdict stands on: of its assumptions, and of the values that hold."""
    doubted = [one.standing for one in assumptions]
    certain = [one for one in held if one.holds]
    return min([*doubted, *certain] or [Standing.default], key=_WEAKEST.index).value


def of_estimates(found: Estimates, job: Job, held: Iterable[Standing]) -> Row:
    """The row of a full estimate. `held`: how the fields of the job are known."""
    causes = {side: (one.cause.value, one.words) for side, one in found.causes.items()}
    unknown = [*found.unknown]
    if found.device is not None and found.device.verdict == "unknown":
        if found.device.capacity is None:
            causes["device"] = (Cause.not_set.value, f"{GPU} is not known")
            unknown.append(GPU)
        elif found.device.lower_bound:
            causes["device"] = (LOWER_BOUND, "; ".join(found.device.notes))
    row: Row = {
        **EMPTY,
        "verdict": found.verdict,
        "standing": standing_of(held, found.assumptions),
        "by": "replay",
        "assumptions": ",".join(one.field for one in found.assumptions) or None,
        "unknown": ",".join(dict.fromkeys(unknown)) or None,
        "cause": ",".join(dict.fromkeys(cause for cause, _ in causes.values())) or None,
        "reasons": "; ".join(f"{side}: {words}" for side, (_, words) in causes.items()) or None,
    }
    if (device := found.device) is not None:
        smallest = None if device.lower_bound else smallest_that_fits(device.process.high, job)
        row |= {
            "device_verdict": device.verdict,
            "requested": device.requested.expected,
            "allocated": device.allocated.expected,
            "reserved": device.reserved.expected,
            "mark": mark(device) or None,
            "process_low": device.process.low,
            "process_expected": device.process.expected,
            "process_high": device.process.high,
            "phase": device.phase,
            "capacity": device.capacity,
            "gpu_unused": device.capacity - device.process.high if device.capacity and device.fitting else None,
            "smallest_gpu": smallest.name if smallest is not None else None,
        }
    if (host := found.host) is not None:
        row |= {
            "host_verdict": host.verdict,
            "host_low": host.per_node.low,
            "host_expected": host.per_node.expected,
            "host_high": host.per_node.high,
            "host_limit": host.limit,
            "host_unused": host.limit - host.per_node.high if host.limit and host.fitting else None,
        }
    return row


def job_schema(where: str = "#/$defs/") -> dict[str, Any]:
    """The JSON schema of a row that is a Job; its parts are named from `where` on."""
    return Job.model_json_schema(ref_template=where + "{model}")
