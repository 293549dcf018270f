"""`preflight estimate` as text: tiers, parts, phases, verdict, and the settings to state if they are unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.reports.bar import bar
from preflight.reports.contract import VERSION, CertaintyJson, EstimateJson, EstimatesJson, Plain
from preflight.reports.drawings import drawn
from preflight.reports.figures import StepPoint, mark, outside_of
from preflight.reports.streams import clean
from preflight.reports.style import Look, table, verdict, wrap
from preflight.vocabulary.estimates import Comparison, DeviceEstimate, Estimates, FrontierRow, HostEstimate, Interval
from preflight.vocabulary.findings import Part
from preflight.vocabulary.job import Job
from preflight.vocabulary.own_code import plain
from preflight.vocabulary.words import assumed, batch_text, fits_if, gib, smallest_gpu

_TIERS = (
    ("requested", "sum of live tensors"),
    ("allocated", "their blocks"),
    ("reserved", "caching allocator"),
    ("process", "what nvidia-smi shows"),
)


def render(
    job: Job,
    found: Estimates,
    gpu: str,
    smallest: str,
    rows: Sequence[FrontierRow],
    compared: Comparison | None,
    look: Look,
    moments: Sequence[StepPoint] = (),
) -> str:
    """The whole text. `gpu` and `smallest` are names, or empty; `moments`: the step to draw."""
    blocks = [[look.paint(clean(heading(job)), "bold")]]
    if found.device is not None:
        blocks += [list(block) for block in device_blocks(found.device, gpu, smallest, look, moments)]
    else:
        blocks.append(
            [f"GPU memory is {verdict('unknown', look)}: {found.reasons.get('device', 'no reason is known')}"]
        )
    if rows:
        blocks.append(_frontier(rows, gpu, look))
    blocks.append(list(host_lines(found, look)))
    if compared is not None:
        blocks.append(list(_compared(compared, look)))
    if found.unknown:
        blocks.append([f"not known: {', '.join(found.unknown)} (say it with --set FIELD=VALUE, or in the settings)"])
    return "\n\n".join("\n".join(wrapped(line, look) for line in block) for block in blocks if block) + "\n"


def wrapped(line: str, look: Look) -> str:
    """A sentence, wrapped. Lines of tables, bars and drawings stay as they are."""
    return line if line.startswith("  ") or "\x1b" in line else wrap(line, look.width, "    ")


def heading(job: Job) -> str:
    """The settings that decide the estimate."""
    model, train = job.model, job.train
    target = plain(model.target) if model.target else None
    name = model.name or target or model.path or model.architecture or "model by dimensions"
    words = [str(name), batch_text(job)]
    if train.grad_accum not in (1, None):
        words.append(f"accumulation {train.grad_accum}")
    implementation = f" ({train.optimizer_impl})" if train.optimizer_impl else ""
    words += [train.precision or "precision unknown", (train.optimizer or "optimizer unknown") + implementation]
    if train.gradient_checkpointing:
        words.append("gradient checkpointing")
    if train.peft.method:
        words.append(f"{train.peft.method} r={train.peft.r}")
    if job.parallel.strategy not in ("none", None):
        words.append(f"{job.parallel.strategy} on {job.parallel.nodes} x {job.parallel.ranks_per_node}")
    return ", ".join(words)


def device_blocks(
    found: DeviceEstimate, gpu: str, smallest: str, look: Look, moments: Sequence[StepPoint]
) -> Iterator[list[str]]:
    """Tiers, parts, the course of the step, phases and the verdict of one GPU."""
    tiers = [(name, *_figures(getattr(found, name)), what) for name, what in _TIERS]
    title = "GPU memory, GiB" + (" at least" if found.lower_bound else "")
    yield table(tiers, look, (title, "low", "expected", "high", ""), right=(1, 2, 3))
    parts = [Part(name, size) for name, size in found.breakdown.items()]
    yield [f"  {line}" for line in bar(parts, found.capacity, look, look.width - 2)]
    if moments:
        outside = outside_of(moments, found)
        yield [look.paint("memory through a step, GiB", "bold"), *drawn(moments, outside, found.capacity, look)]
    least = ">=" if found.lower_bound else ""
    phases = [(name, f"{least}{size / 2**30:.2f}", _peak(found, name)) for name, size in found.phases.items()]
    yield table(phases, look, ("phase", "process, GiB", ""), right=(1,))
    yield list(_verdict_lines(found, gpu, smallest, look))


def _figures(found: Interval) -> tuple[str, str, str]:
    return f"{found.low / 2**30:.2f}", f"{found.expected / 2**30:.2f}", f"{found.high / 2**30:.2f}"


def _peak(found: DeviceEstimate, phase: str) -> str:
    if phase != found.phase:
        return ""
    return "<- the peak" + (f", in {found.where}" if found.where else "")


def _verdict_lines(found: DeviceEstimate, gpu: str, smallest: str, look: Look) -> Iterator[str]:
    largest = found.largest_allocation
    if largest is not None:
        yield f"largest allocation: {gib(largest.bytes)} in {clean(largest.where)} = {largest.product}"
    bound = "a lower bound: " if found.lower_bound else ""
    if found.capacity is None:
        yield f"{bound}no GPU is stated: {smallest_gpu(found, smallest)}; --gpu NAME gives a verdict"
    else:
        room = f"{gib(found.process.expected)} of {gib(found.capacity)} on {gpu or 'the GPU'}"
        yield f"{bound}{room}: {verdict(found.verdict, look)}"
        if found.largest_batch_size:
            yield f"largest batch size that fits: {found.largest_batch_size:,}"
        elif found.largest_batch_size == 0:
            yield "no batch size fits"
    yield from _assumptions(found)
    yield from (f"note: {note}" for note in (*found.notes, *found.recorded))


def _assumptions(found: DeviceEstimate | HostEstimate) -> Iterator[str]:
    """The values that the verdict depends on and that are not known well."""
    if not found.assumptions:
        return
    every = len(found.assumptions)
    if found.fitting:
        yield f"it {fits_if(found.assumptions, every)}"
    else:
        yield f"this is the need with {assumed(found.assumptions, every)}"


def host_lines(found: Estimates, look: Look) -> Iterator[str]:
    host: HostEstimate | None = found.host
    if host is None:
        reason = found.reasons.get("host")
        if reason:
            yield f"host memory is {verdict('unknown', look)}: {reason}"
        return
    need = host.per_node
    limit = f", {gib(host.limit)} available ({host.limited_by})" if host.limit is not None else ""
    judged = f": {verdict(host.verdict, look)}" if host.limit is not None else ""
    yield f"host memory per node: {gib(need.expected)} ({gib(need.low)} to {gib(need.high)}){limit}{judged}"
    parts = [Part(name, size) for name, size in host.breakdown.items()]
    yield from (f"  {line}" for line in bar(parts, host.limit, look, look.width - 2))
    yield from _assumptions(host)
    yield from (f"note: {note}" for note in host.notes)


def _frontier(rows: Sequence[FrontierRow], gpu: str, look: Look) -> list[str]:
    """The largest batch for each length; without a GPU the need of some batches."""
    lengths = ["-" if row.length is None else f"{row.length:,}" for row in rows]
    if any(row.largest_batch is not None for row in rows):
        every = (row.largest_batch for row in rows)
        largest = ["?" if most is None else f"{most:,}" if most else "none" for most in every]
        return table(
            zip(lengths, largest, strict=True), look, ("length", f"largest batch that fits {gpu or 'the GPU'}"), (0, 1)
        )
    batches = [f"batch {batch}" for batch, _ in rows[0].needs]
    figures = [[mark(need) + gib(need.process.expected) for _, need in row.needs] for row in rows]
    needs = [[length, *cells] for length, cells in zip(lengths, figures, strict=True)]
    lines = table(needs, look, ("length", *batches), range(len(batches) + 1))
    return [look.paint("GPU memory by length and batch", "bold"), *lines]


def _compared(found: Comparison, look: Look) -> Iterator[str]:
    side = "above" if found.difference > 0 else "below"
    if found.agrees:
        yield f"measured {gib(found.measured)}: {look.paint('agrees', 'bold green')}, within the interval"
        return
    yield f"measured {gib(found.measured)}: {gib(abs(found.difference))} {side} the estimate, outside its interval"
    for one in found.explanations[:3]:
        moved = f"{one.part} {'+' if one.change > 0 else '-'}{gib(abs(one.change))}"
        yield f"  with {one.field} = {one.value} it would be {gib(one.expected)} ({moved})"
    if not found.explanations:
        yield "  no single setting explains it: is this what nvidia-smi shows for one process, alone on its GPU?"


def document(
    job: Plain,
    found: EstimatesJson,
    known: CertaintyJson,
    compared: Comparison | None,
    notes: Sequence[str] = (),
) -> EstimateJson:
    """The JSON contract of `estimate`. `measured` is there only if it was asked for, `notes` only if there are any."""
    data: EstimateJson = {"version": VERSION, "job": job, **found, **known}  # type: ignore[typeddict-item]
    if notes:
        data["notes"] = list(notes)
    if compared is not None:
        data["measured"] = {
            "bytes": compared.measured,
            "difference": compared.difference,
            "agrees": compared.agrees,
            "explanations": [
                {
                    "field": one.field,
                    "value": one.value,
                    "expected": one.expected,
                    "part": one.part,
                    "change": one.change,
                }
                for one in compared.explanations
            ],
        }
    return data
