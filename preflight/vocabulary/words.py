"""Words for amounts, jobs and values, the same in every message: never both 0.58 GiB and 594 MiB in one report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from preflight.vocabulary.own_code import plain
from preflight.vocabulary.standing import Doubt
from preflight.vocabulary.values import Range, Value, brief

if TYPE_CHECKING:
    from preflight.vocabulary.estimates import DeviceEstimate, Estimates
    from preflight.vocabulary.job import Job
    from preflight.vocabulary.standing import Assumption

MIB = 2**20
GIB = 2**30


def gib(size: float) -> str:
    """Bytes as people read them: "23.5 GiB", below one GiB in MiB ("594.3 MiB", "11.1 MiB"), then in KiB and bytes."""
    if abs(size) >= GIB:
        return f"{size / GIB:,.2f}".rstrip("0").rstrip(".") + " GiB"
    if abs(size) < 2**10 and size == int(size):
        return f"{int(size)} bytes"
    number, unit = (size / MIB, "MiB") if abs(size) >= MIB or size != int(size) else (size / 2**10, "KiB")
    return f"{number:.4g} {unit}" if abs(number) >= 100 else f"{number:.3g} {unit}"


def at_most(size: int) -> str:
    """Bytes in words, rounded down, so that a size that is reported to fit does fit."""
    unit, parts = (GIB, 100) if size >= GIB else (MIB, 10) if size >= MIB else (2**10, 10)
    return gib(size * parts // unit * unit // parts)


def plural(number: int, noun: str) -> str:
    """ "1 study", "2 studies", "3 fixes", "4 processes", "5 launches"."""
    if number != 1:
        noun = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith(("s", "x", "ch")) else "s")
    return f"{number:,} {noun}"


def sum_of(breakdown: Mapping[str, int], limit: int = 5) -> str:
    """The largest parts in words: "weights 1.25 GiB, activations 20.1 GiB"."""
    largest = sorted(breakdown.items(), key=lambda item: -item[1])[:limit]
    return ", ".join(f"{name.replace('_', '-')} {gib(size)}" for name, size in largest if size > 0)


def model_name(job: Job) -> str:
    """The name of the model in a message."""
    model = job.model
    name = model.name or (plain(model.target) if model.target else None) or model.path or model.architecture
    if name is None and model.config is not None:
        name = str(model.config.get("model_type") or "model by dimensions")
    if name is None and (count := model.parameters or model.least_parameters) is not None:
        name = f"{'' if model.parameters else 'at least '}{count:,} parameters"
    return name or "unnamed model"


def describe(job: Job) -> str:
    """The bound numbers: "bert-large-uncased, batch 48 x 480, bf16-mixed, adamw (foreach)"."""
    train = job.train
    words = [model_name(job)]
    if train.vocab_size is not None:
        words.append(f"vocabulary {train.vocab_size:,}")
    words.append(batch_text(job))
    if train.grad_accum is not None and train.grad_accum > 1:
        words.append(f"accumulation {train.grad_accum}")
    words.append(train.precision or "precision unknown")
    implementation = f" ({train.optimizer_impl})" if train.optimizer_impl else ""
    words.append((train.optimizer or "optimizer unknown") + implementation)
    if train.gradient_checkpointing:
        words.append("gradient checkpointing")
    if train.peft.method:
        words.append(f"{train.peft.method} r={train.peft.r}")
    if job.parallel.strategy not in ("none", None):
        words.append(str(job.parallel.strategy))
    return ", ".join(words)


def batch_text(job: Job) -> str:
    """ "batch 48 x 480", "batch 4 pairs x 1024", "batch 2 (8 sequences each) x 512"."""
    train = job.train
    each = {1: "", 2: " pairs", None: " (? sequences each)"}
    more = each.get(train.sequences_per_sample, f" ({train.sequences_per_sample} sequences each)")
    size = train.image_size if train.seq_len is None else train.seq_len
    batch = "?" if train.batch_size is None else train.batch_size
    return f"batch {batch}{more}" + ("" if size is None else f" x {size}")


def values_text(kept: tuple[Value, ...], domain: object = None) -> str:
    """Values kept of an axis, in words: "16, 32", or "16 to 64" for a range."""
    if isinstance(domain, Range) and len(kept) == 2:
        return f"{_text(kept[0])} to {_text(kept[1])}"
    return ", ".join(_text(value) for value in kept)


def assignment_text(assignment: Mapping[str, Value]) -> str:
    """One combination in words: "train.batch_size=48, tok.max_length=480"."""
    return ", ".join(f"{name}={_text(value)}" for name, value in assignment.items())


VERDICTS: Mapping[str, str] = {"fits-if": "fits if its assumptions hold", "at-risk": "at risk"}
"""Verdicts whose words differ from their names."""

SHOWN = 4
"""The most assumptions that a line names."""


def fits_if(assumptions: Sequence[Assumption], most: int = SHOWN) -> str:
    """ "fits if train.batch_size = 8 (only the name of the setting bs suggests it)"."""
    return f"fits if {assumed(assumptions, most, 'allows it')}"


def doubt_of(assumptions: Sequence[Assumption]) -> Doubt:
    """What is doubted of a need that is too much."""
    return next((one.doubt for one in assumptions if one.doubt is not None), Doubt.implausible)


def assumed(assumptions: Sequence[Assumption], most: int = SHOWN, unknown: str = "not known") -> str:
    """Assumptions in words, those of one reason together:
    "train.batch_size = 8 (only the name of the setting bs suggests it)". `unknown`: the words after a field without a
    value."""
    by_reason: dict[str, list[str]] = {}
    for one in assumptions[:most]:
        value = unknown if one.value is None else f"= {setting_text(one.value)}"
        by_reason.setdefault(one.why, []).append(f"{one.field} {value}")
    words = [", ".join(fields) + (f" ({why})" if why else "") for why, fields in by_reason.items()]
    left = len(assumptions) - most
    return ", ".join([*words, *([f"and {left} more, which --explain shows"] if left > 0 else [])])


def setting_text(value: object) -> str:
    """The value of a setting, in words."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else brief(value).strip("'\"") or "''"


def why_unknown(estimates: Estimates) -> str:
    """Why nothing is known of the GPU memory, or whether it fits, in words; empty where its verdict says it."""
    device = estimates.device
    if device is None:
        return estimates.reasons.get("device", "")
    least = "at least " if device.lower_bound else ""
    need = f"it needs {least}{gib(device.process.expected)}"
    if device.verdict != "unknown":
        return ""
    if device.assumptions:
        return f"{need} with {assumed(device.assumptions)}"
    return f"{need} for its parameters alone" if device.lower_bound else ""


def _text(value: Value) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 9999 else str(value)


def smallest_gpu(device: DeviceEstimate, name: str) -> str:
    """Names the smallest GPU that fits a need. `name`: that GPU; "": no known GPU fits.

    A lower bound shows which GPUs are too small, and cannot show which GPU fits.
    """
    if device.lower_bound:
        return "which one fits is not known"
    return f"the smallest GPU that fits is {name}" if name else "no single GPU known here fits"
