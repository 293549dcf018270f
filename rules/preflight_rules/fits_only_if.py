from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preflight.api import (
    Case,
    Confidence,
    DeviceEstimate,
    Example,
    Finding,
    Rule,
    Severity,
    describe,
    gib,
    gpu_name,
    largest,
    positions_of,
    several,
    severity_of,
    targets_of,
    with_fields,
)
from preflight_rules.shared.pieces import BATCH, LENGTHS, Piece, Point, missing_pieces
from preflight_rules.shared.programs import LOOP

WITHOUT_LENGTH = LOOP.replace('parser.add_argument("--max_length", type=int, default=512)\n', "").replace(
    ', padding="max_length", truncation=True, max_length=args.max_length', ""
)
OPEN_BATCHES = (32, 8, 1)
"""Batch sizes for which the longest length is computed if the batch size is unknown too."""
USUAL = (128, 512, 2048)
"""Lengths whose need is shown if no GPU is stated."""
FALLS = -1
"""In the place of the largest value that fits: there is none up to which all fit."""
NEAR = 8
"""Values on each side of the largest that are tried: those of twice and half of it."""
LONGEST = 2**17
"""The longest length that is tried: the context of Llama 3.1 and Qwen2.5 (131,072, their model cards)."""


class FitsOnlyIf(Rule):
    """A setting that decides the memory is in no file, so preflight computes the largest value that fits.

    If the length is unknown, the finding has the longest one that fits, for several batch sizes: from the batch size of
    the job down to 1, or for a few usual ones if that is unknown too. If the batch size is unknown, it has the largest
    one that fits. If no GPU is stated, it has the need at usual values. If the launch decides how many GPUs share the
    job and no file has it, the finding has the need on one GPU and on each of eight; in the same way it has the need in
    each precision, or at a few sizes of images. If several such settings are missing, it has the need at the least
    demanding and at the most demanding of their usual values, and names both. The finding is information: state the
    settings to get a verdict. It is a warning if a GPU is stated and none of the shown values fits it, nor a batch size
    and a length of 1 in their place.

    A job that exceeds the GPU even with a batch size and a length of 1 gets an error instead (`gpu-memory-exceeded` or
    `states-exceed-gpu`). A job that is at risk even then gets a warning.
    """

    name = "fits-only-if"
    summary = "A setting is unknown: the largest value that fits"
    tags = ("gpu-memory",)
    remark = True
    examples = (
        Example(
            "The length is nowhere in the files",
            {"train.py": WITHOUT_LENGTH},
            says=("the length is unknown", "at batch 64", "at batch 32"),
            options={"gpu": "T4"},
        ),
        Example("Everything is known", {"train.py": LOOP}, finds=0, options={"gpu": "T4"}),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        if case.estimates.device is not None or several(case):
            return
        missing = missing_pieces(case)
        names = [one.field for one in missing]
        lengths = [name for name in names if name in LENGTHS]
        if len(missing) == 1 and not {*names} & {BATCH, *LENGTHS}:
            yield from _named(case, missing[0].what, missing, missing[0].points)
        elif len(lengths) == 1 and {*names} <= {BATCH, *lengths}:
            yield from _length(case, lengths[0])
        elif names == [BATCH]:
            yield from _batch(case)
        elif missing:
            yield from _several(case, missing)


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
    if any(length == FALLS for _, length in edge):
        usual = [n for n in USUAL if n <= top]
        text = _needs(case, [({field: n, BATCH: sizes[0]}, f"{n:,}") for n in usual])
        what = f"{what}, and near the memory of {gpu_name(case)} shorter ones may need more than longer ones"
        yield _info(case, field, f"{what}: at batch {sizes[0]} it needs {text} ({describe(case.job)})")
        return
    words = [f"{length:,} at batch {size}" for size, length in edge if length is not None]
    if edge[0][1] == top < LONGEST:
        text = f"{what}: every length that the model takes (up to {top:,}) fits {gpu_name(case)} at batch {sizes[0]}"
        yield _info(case, field, f"{text} ({describe(case.job)})")
    elif words:
        text = f"{what}: it fits {gpu_name(case)} up to {', '.join(words)} ({describe(case.job)})"
        yield _info(case, field, text)
    else:
        text = f"{what}, and no length fits {gpu_name(case)} at batch {sizes[-1]} ({describe(case.job)})"
        yield _none_fits(case, field, text, {field: 1, BATCH: sizes[-1]})


def _batch(case: Case) -> Iterator[Finding]:
    if not _capacity_known(case, {BATCH: 1}):
        text = _needs(case, [({BATCH: size}, str(size)) for size in reversed(OPEN_BATCHES)])
        if text:
            yield _info(case, BATCH, f"the batch size is unknown: it needs {text} ({describe(case.job)})")
        return
    size = _longest(case, {}, BATCH, 2**16)
    if size == FALLS:
        what = (
            f"the batch size is unknown, and near the memory of {gpu_name(case)} smaller ones may need more than larger"
        )
        text = _needs(case, [({BATCH: n}, str(n)) for n in reversed(OPEN_BATCHES)])
        yield _info(case, BATCH, f"{what}: it needs {text} ({describe(case.job)})")
    elif size is not None:
        text = f"the batch size is unknown: it fits {gpu_name(case)} up to {size:,} ({describe(case.job)})"
        yield _info(case, BATCH, text)
    else:
        text = f"the batch size is unknown, and not even 1 fits {gpu_name(case)} ({describe(case.job)})"
        yield _none_fits(case, BATCH, text, {BATCH: 1})


def _several(case: Case, missing: Sequence[Piece]) -> Iterator[Finding]:
    """The need at the least demanding and at the most demanding usual values of all that no file states."""
    ends = [[piece.points[at] for piece in missing] for at in (0, -1)]
    points = [
        ({name: value for values, _ in end for name, value in values.items()}, ", ".join(name for _, name in end))
        for end in ends
    ]
    *first, last = (piece.what for piece in missing)
    yield from _named(case, f"{', '.join(first)} and {last}", missing, points)


def _named(case: Case, what: str, missing: Sequence[Piece], points: Sequence[Point]) -> Iterator[Finding]:
    """The need at each of a few values that the files do not choose from."""
    field = missing[0].field
    found = [(device, name) for values, name in points if (device := _device(case, values)) is not None]
    if len(found) != len(points):
        return
    text = ", ".join(f"{gib(device.process.expected)} {name}" for device, name in found)
    text = f"{what} {'are' if len(missing) > 1 else 'is'} unknown: it needs {text}"
    if any(device.capacity is None for device, _ in found):
        yield _info(case, field, f"{text} ({describe(case.job)})")
        return
    verdicts = [(device.process.verdict(device.capacity), name) for device, name in found]
    exceeding = [name for verdict, name in verdicts if verdict == "exceeds"]
    fitting = [name for verdict, name in verdicts if verdict == "fits"]
    if len(exceeding) == len(found):
        least = min((device for device, _ in found), key=lambda device: device.process.expected)
        text = f"{text}, and none of these fits {gpu_name(case)} ({describe(case.job)})"
        smaller: dict[str, object] = {name: 1 for name in points[0][0] if name == BATCH or name in LENGTHS}
        smaller |= {name: value for piece in missing for name, value in piece.least.items()}
        device = _device(case, {**points[0][0], **smaller}) if smaller else least
        if device is None or device.verdict != "exceeds":
            yield _info(case, field, text)  # usual values are not the least that the files allow, or not all is sure
            return
        yield _said(case, field, text, Severity.warning, Confidence.medium, estimate=least)
    elif fitting:
        which = "all of them fit" if len(fitting) == len(found) else f"only {' and '.join(fitting)} surely fit"
        yield _info(case, field, f"{text}; of these {which} {gpu_name(case)} ({describe(case.job)})")
    else:
        yield _info(case, field, f"{text} ({describe(case.job)})")


def _info(case: Case, field: str, message: str) -> Finding:
    return _said(case, field, message, Severity.info, Confidence.medium)


def _none_fits(case: Case, field: str, message: str, least: dict[str, object]) -> Finding:
    """A finding as severe as the smallest job that the setting allows."""
    device = _device(case, least)
    sure = device is not None and device.verdict in ("exceeds", "at-risk")
    if device is None or not sure or severity_of(device.process, device.capacity) is None:
        return _info(case, field, message)
    return _said(case, field, message, estimate=device)


def _said(
    case: Case,
    field: str,
    message: str,
    severity: Severity | None = None,
    confidence: Confidence | None = None,
    estimate: DeviceEstimate | None = None,
) -> Finding:
    return FitsOnlyIf().finding(
        message,
        case.origin(field, BATCH, "model.name", "model.path", "model.target", "model.architecture"),
        severity,
        confidence,
        estimate=estimate,
        settings=(field,),
        help=(f'state it in the settings: [tool.preflight.set] "{field}" = VALUE, or with --set {field}=VALUE',),
        side="device",
    )


def _device(case: Case, values: Mapping[str, object]) -> DeviceEstimate | None:
    """The need with some values; None where no law tells it: a lower bound is no need."""
    device = case.estimate(with_fields(case.job, values)).device
    return device if device is None or not device.lower_bound else None


def _capacity_known(case: Case, values: dict[str, object]) -> bool:
    device = _device(case, values)
    return device is not None and device.capacity is not None


def _needs(case: Case, points: list[tuple[dict[str, object], str]]) -> str:
    """ "3.1 GiB at 128, 9.4 GiB at 512" for the points that an estimate exists for."""
    found = [(_device(case, values), name) for values, name in points]
    return ", ".join(f"{gib(device.process.expected)} at {name}" for device, name in found if device is not None)


def _top(case: Case, field: str) -> int:
    """The longest value that is tried: the positions of the model if they are known."""
    if field == "train.target_len":
        return targets_of(case.job) or LONGEST
    positions = positions_of(case.job)
    return positions.usable if positions is not None else LONGEST


def _longest(case: Case, fixed: dict[str, object], field: str, top: int) -> int | None:
    """The largest value of an unknown field that fits, in steps of an eighth of its power of two. None if none fits,
    FALLS if a smaller one does not.

    The need grows with the field, but what the allocator keeps of freed blocks does not: it is given back when a card
    is full, so that a longer sequence may fit where a shorter one is at risk.
    """
    steps = sorted({n for power in range(top.bit_length()) for n in _eighths(2**power) if n <= top} | {top})

    def quickly(value: int) -> bool | None:
        return case.may_fit(with_fields(case.job, {**fixed, field: value}))

    def good(value: int) -> bool:
        return quickly(value) is not False and case.fits(with_fields(case.job, {**fixed, field: value}))

    found = largest(steps, good, quickly)
    if found is None:
        return None
    at = steps.index(found)
    below, above = steps[max(0, at - NEAR) : at], steps[at + 2 : at + 2 + NEAR]  # the next one is known not to fit
    return found if all(quickly(n) or good(n) for n in below) and not any(map(good, above)) else FALLS


def _eighths(power: int) -> list[int]:
    return [power * n // 8 for n in range(8, 16)]
