"""What an unknown setting may be at most: the inequality solved for it, or the need at usual values without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.findings import Confidence, Finding, Severity
from preflight.vocabulary.rule import Case, Rule
from preflight_rules import config_examples
from preflight_rules.common import describe, gib, gpu_name, largest, several
from preflight_rules.positions import positions_of, targets_of

LENGTHS = {"train.seq_len": "length", "train.target_len": "length of the targets"}
"""Fields of a length, and what to call them."""
BATCH = "train.batch_size"
OPEN_BATCHES = (32, 8, 1)
"""Batches for which a length is solved where the batch is unknown as well."""
USUAL = (128, 512, 2048)
"""Lengths whose need is told where no GPU is stated."""
LONGEST = 2**17
"""The end of the search for a length: the context of Llama 3.1 and Qwen2.5 (131,072, their model cards)."""


class FitsOnlyIf(Rule):
    """A setting that memory hangs on is nowhere in the files, so the inequality is solved for it.

    With the length unknown: the longest one that fits, for each batch size from the one in use down to 1 (for a few
    batch sizes where that is unknown too). With the batch unknown: the largest that fits. Where no GPU is stated, the
    need at usual values. It is information, never an error; state the setting to have it judged.
    """

    name = "fits-only-if"
    summary = "A setting is unknown: what it may be at most"
    examples = config_examples.UNKNOWN

    def check(self, case: Case) -> Iterator[Finding]:
        if case.estimates.device is not None or several(case):
            return
        unknown = [field for field in case.estimates.unknown if field.startswith(("model.", "train."))]
        lengths = [field for field in unknown if field in LENGTHS]
        if not unknown or len(lengths) > 1 or set(unknown) - {BATCH, *LENGTHS}:
            return
        if lengths:
            yield from _length(case, lengths[0])
        else:
            yield from _batch(case)


def _length(case: Case, field: str) -> Iterator[Finding]:
    batch, top = case.job.train.batch_size, _top(case, field)
    sizes = OPEN_BATCHES if batch is None else [max(1, batch >> n) for n in range(min(4, batch.bit_length()))]
    what = f"the {LENGTHS[field]} is unknown" if batch is not None else f"{LENGTHS[field]} and batch are unknown"
    if not _capacity_known(case, {field: min(top, USUAL[0]), BATCH: sizes[-1]}):
        usual = [*(n for n in USUAL if n < top), *([top] if top < USUAL[-1] else [])]
        batch = sizes[0] if batch is not None else sizes[-1]
        text = _needs(case, [({field: n, BATCH: batch}, f"{n:,}") for n in usual])
        if text:
            yield _info(case, field, f"{what}: at batch {batch} it needs {text} ({describe(case.job)})")
        return
    edge = [(size, _longest(case, {BATCH: size}, field, top)) for size in sizes]
    words = [f"{length:,} at batch {size}" for size, length in edge if length is not None]
    if edge[0][1] == top < LONGEST:
        text = f"{what}: every length that the model takes (up to {top:,}) fits {gpu_name(case)} at batch {sizes[0]}"
        yield _info(case, field, f"{text} ({describe(case.job)})")
    elif words:
        text = f"{what}: it fits {gpu_name(case)} up to {', '.join(words)} ({describe(case.job)})"
        yield _info(case, field, text)
    else:
        text = f"{what}, and no length fits {gpu_name(case)} at batch {sizes[-1]} ({describe(case.job)})"
        yield _info(case, field, text)


def _batch(case: Case) -> Iterator[Finding]:
    if not _capacity_known(case, {BATCH: 1}):
        text = _needs(case, [({BATCH: size}, str(size)) for size in reversed(OPEN_BATCHES)])
        if text:
            yield _info(case, BATCH, f"the batch size is unknown: it needs {text} ({describe(case.job)})")
        return
    size = _longest(case, {}, BATCH, 2**16)
    if size is not None:
        text = f"the batch size is unknown: it fits {gpu_name(case)} up to {size:,} ({describe(case.job)})"
    else:
        text = f"the batch size is unknown, and not even 1 fits {gpu_name(case)} ({describe(case.job)})"
    yield _info(case, BATCH, text)


def _info(case: Case, field: str, message: str) -> Finding:
    return Finding(
        rule=FitsOnlyIf.name,
        severity=Severity.info,
        confidence=Confidence.medium,
        message=message,
        origin=case.origin(field, BATCH, "model.name", "model.path", "model.target", "model.architecture"),
        settings=(field,),
        help=(f'state it in the settings: [tool.preflight.set] "{field}" = N, or with --set {field}=N',),
        tier="device",
    )


def _device(case: Case, values: dict[str, object]) -> DeviceEstimate | None:
    return case.estimate(with_fields(case.job, values)).device


def _capacity_known(case: Case, values: dict[str, object]) -> bool:
    device = _device(case, values)
    return device is not None and device.capacity is not None


def _needs(case: Case, points: list[tuple[dict[str, object], str]]) -> str:
    """ "3.1 GiB at 128, 9.4 GiB at 512" for the points that an estimate exists for."""
    found = [(_device(case, values), name) for values, name in points]
    return ", ".join(f"{gib(device.process.expected)} at {name}" for device, name in found if device is not None)


def _top(case: Case, field: str) -> int:
    """The longest value that is tried: the model's positions where they are known."""
    if field == "train.target_len":
        return targets_of(case.job) or LONGEST
    positions = positions_of(case.job)
    return positions.usable if positions is not None else LONGEST


def _longest(case: Case, fixed: dict[str, object], field: str, top: int) -> int | None:
    """The largest value of an unknown field that fits, in steps of an eighth of its power of two; None: none does."""
    steps = sorted({n for power in range(top.bit_length()) for n in _eighths(2**power) if n <= top} | {top})

    def good(value: int) -> bool:
        device = _device(case, {**fixed, field: value})
        return device is not None and device.verdict == "fits"

    return largest(steps, good)


def _eighths(power: int) -> list[int]:
    return [power * n // 8 for n in range(8, 16)]
