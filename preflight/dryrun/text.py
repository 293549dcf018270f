"""The result of a dry run as text, and as the JSON of `estimate` with what a dry run adds to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.dryrun.answer import DryRunResult
from preflight.reports import estimate, plain
from preflight.reports.streams import clean
from preflight.reports.style import Look, table
from preflight.vocabulary.estimates import Holder
from preflight.vocabulary.findings import Finding
from preflight.vocabulary.words import gib

WARNING = "preflight dry-run executes your program: {command}"
STANDING = "dry-run"


def render(found: DryRunResult, smallest: str, look: Look, findings: Sequence[Finding] = ()) -> str:
    """The whole text. `smallest`: the smallest GPU that fits, or "". `findings`: those of `check` on the command."""
    device = found.found.estimates.device
    assert device is not None
    blocks = [[look.paint(clean(heading(found)), "bold")]]
    name = found.gpu.name if found.gpu is not None else ""
    blocks += [list(one) for one in estimate.device_blocks(device, name, smallest, look, found.found.moments)]
    blocks.append(_table("the largest at the peak, by line", found.holders.lines, look))
    blocks.append(_table("the largest at the peak, by module", found.holders.modules, look))
    blocks.append(list(estimate.host_lines(found.found.estimates, look)))
    blocks.append([f"{one.severity.value}[{one.rule}]: {clean(one.message)}" for one in findings])
    blocks.append(list(_assumed(found)))
    return "\n\n".join("\n".join(estimate.wrapped(line, look) for line in block) for block in blocks if block) + "\n"


def heading(found: DryRunResult) -> str:
    """What was run, and how far."""
    steps = found.report.whole_steps
    batch = found.found.job.train.batch_size
    words = [found.program.target, f"{steps} optimizer step{'s' if steps != 1 else ''}"]
    if batch is not None:
        words.append(f"batch {batch}")
    words.append(f"{found.answer.seconds:.0f} s")
    return f"dry run of {', '.join(words)}: {_end(found)}"


def _end(found: DryRunResult) -> str:
    report = found.report
    at = f" at {report.place}" if report.place and report.end == "failed" else ""
    if report.end == "failed":
        after = "after training" if report.trained else "before it had made its steps"
        return f"it failed {after} ({report.reason}{at})"
    return report.reason


def _table(title: str, rows: Sequence[Holder], look: Look) -> list[str]:
    cells = [(gib(one.bytes), f"{one.count:,}", one.part, one.name + _via(one)) for one in rows]
    return table(cells, look, ("", "tensors", "", title), right=(0, 1)) if cells else []


def _via(one: Holder) -> str:
    return f" > {one.via}" if one.via and one.via != one.name else ""


def _assumed(found: DryRunResult) -> Iterator[str]:
    for one in found.found.stated:
        yield f"assumed: {clean(one)}"
    if not found.answer.isolated:
        yield (
            f"note: the kernel gave no isolation ({found.answer.why_not}): Python's own layer kept the program from "
            "writing, from other programs and from the network; libraries in C can pass it by"
        )


def document(found: DryRunResult, findings: Sequence[Finding] = (), notes: Sequence[str] = ()) -> dict[str, object]:
    """The JSON contract of `estimate`, version 2, with `dry_run`."""
    sides = plain.estimates(found.found.estimates)
    known = plain.certainty(found.found.estimates, found.found.standings)
    data: plain.Plain = {**estimate.document(plain.job(found.found.job), sides, known, None, notes)}
    report = found.report
    data["dry_run"] = {
        "command": list(found.words),
        "interpreter": found.program.interpreter,
        "end": report.end,
        "reason": report.reason,
        "place": report.place or None,
        "steps": list(report.steps),
        "trained": report.trained,
        "validated": report.validated,
        "isolated": found.answer.isolated,
        "assumptions": list(found.found.stated),
        "refused": list(report.refused),
        "versions": dict(report.versions),
        "seconds": round(found.answer.seconds, 3),
        "lines": [_holder(one) for one in found.holders.lines],
        "modules": [_holder(one) for one in found.holders.modules],
        "timeline": [
            {"phase": one.phase, "allocated": one.allocated, "reserved": one.reserved} for one in found.found.moments
        ],
        "findings": [{"rule": one.rule, "severity": one.severity.value, "message": one.message} for one in findings],
    }
    return data


def _holder(one: Holder) -> dict[str, object]:
    return {"name": one.name, "bytes": one.bytes, "tensors": one.count, "part": one.part, "via": one.via or None}
