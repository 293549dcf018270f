"""The last lines: findings, fixes, and the need of the studies. "No findings" and "not recognised" look different."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from preflight.reports.not_known import dry_run_of, nothing_checked, reason_of
from preflight.reports.streams import clean
from preflight.reports.style import COLOURS, Look, verdict, wrap
from preflight.vocabulary.estimates import DeviceEstimate, HostEstimate
from preflight.vocabulary.findings import Safety, Severity
from preflight.vocabulary.outcome import GPU, Outcome, Report, StudyResult
from preflight.vocabulary.values import Cause
from preflight.vocabulary.words import assumed, doubt_of, fits_if, gib, plural, smallest_gpu

DRY_RUN = "a run of the program without a GPU tells what it needs:"
_ORDER = ("fits", "fits-if", "unknown", "at-risk", "exceeds")


def summary(outcome: Outcome, look: Look) -> Iterator[str]:
    """Findings by severity, fixes on offer, studies with the worst need, notes."""
    found = [
        look.paint(plural(count, severity.value), COLOURS[severity])
        for severity, count in outcome.counts.items()
        if count and severity is not Severity.info
    ]
    infos = outcome.counts[Severity.info]
    if infos:
        found.append(look.paint(plural(infos, "remark"), COLOURS[Severity.info]))
    suppressed = sum(report.suppressed for report in outcome.reports)
    if suppressed:
        found.append(f"{suppressed} ignored")
    if outcome.fixed:
        found.append(look.paint(f"{outcome.fixed} fixed", "bold green"))
    if found:
        yield "Found " + ", ".join(found) + _offers(outcome)
    yield from nothing_checked(outcome, look) or [studies_line(outcome, look)]
    machines = [note for _, result in outcome.studies() for note in result.notes]
    remarks = [note for _, result in outcome.studies() for note in result.remarks[:1]]
    notes = [
        *machines,
        *dict.fromkeys(remarks),
        *(note for report in outcome.reports for note in report.notes),
        *outcome.notes,
    ]
    if look.detail == "all":
        for note in dict.fromkeys(
            [
                *_first(*_unknown(outcome)),
                *_host_reasons(outcome),
                *(f"{DRY_RUN} {command}" for command in _dry_run(outcome)),
                *_assumed(outcome),
                *notes,
            ]
        ):
            yield f"note: {clean(note)}"
    else:
        yield from _in_short(outcome, dict.fromkeys(notes), look)


def _in_short(outcome: Outcome, notes: Iterable[str], look: Look) -> Iterator[str]:
    """Why the GPU memory of studies is unknown, by reason, and the notes."""
    reasons: dict[str, list[str]] = {}
    for name, reason in _reasons(outcome):
        reasons.setdefault(reason, []).append(name)
    largest = sorted(reasons.items(), key=lambda item: -len(item[1]))
    for reason, names in largest[:MOST_GROUPS]:
        yield _remark("unknown", f"the GPU memory of {_named(names)}: {reason}", look)
    if left := sum(len(names) for _, names in largest[MOST_GROUPS:]):
        yield _remark(
            "unknown", f"the GPU memory of {plural(left, 'more study')}, with other reasons: see --explain", look
        )
    yield from (_remark("unknown", text, look) for text in dict.fromkeys(_host_reasons(outcome)))
    for command in _dry_run(outcome):  # in a line of its own, so that it can be copied
        yield f"note: {DRY_RUN}\n  {clean(command)}"
    for note in dict.fromkeys([*_assumed(outcome), *notes]):
        yield _remark("note", note, look)


def _host_reasons(outcome: Outcome) -> Iterator[str]:
    """Why the host memory of studies is unknown where a limit is known, with the largest sample that fits."""
    for report, result in outcome.studies():
        worst = result.space.worst
        cause = worst.estimates.causes.get("host")
        limited = worst.job.machine.memory_limit is not None or worst.job.machine.node_memory is not None
        if cause is not None and limited:
            yield f"the host memory of {outcome.shown(report, result.study.paths[0])}: {cause.words}"


def _remark(kind: str, text: str, look: Look) -> str:
    body = wrap(clean(text), look.width, "  ", len(kind) + 2)
    return f"{look.paint(kind, 'bold cyan') if kind == 'unknown' else kind}: {body}"


def _named(names: list[str]) -> str:
    """ "a.yaml, b.yaml and 3 more"."""
    several = dict.fromkeys(names)
    first, left = list(several)[:NAMED], len(names) - min(len(several), NAMED)
    return ", ".join(first) + (f" and {left:,} more" if left else "")


MOST_GROUPS = 3
"""The most reasons that a short summary has."""
NAMED = 1
"""Files that a short reason names; more are counted."""
MOST_REASONS = 5
"""The most studies whose unknown GPU memory, or whose assumptions, are explained one by one."""


def _reasons(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Each study whose GPU memory is unknown, with the reason, if no finding says it."""
    for report, result, reason in _lacking(outcome):
        yield outcome.shown(report, result.study.paths[0]), reason


def _dry_run(outcome: Outcome) -> Iterator[str]:
    """The first command that would tell what a study needs whose GPU memory is unknown."""
    lacking = ((report, one) for report, one, _ in _lacking(outcome) if not (_only_the_gpu(one) or one.outdated))
    found = ((report, dry_run_of(result.study)) for report, result in lacking)
    report, command = next(((report, one) for report, one in found if one), (None, ""))
    if report is not None:
        folder = outcome.shown(report, ".")  # the program's path is relative to the root of its project
        there = command if folder == "." else f"cd {shlex.quote(folder)} && {command}"
        yield there


def _only_the_gpu(result: StudyResult) -> bool:
    """Whether the need is known, and not which GPU has to hold it."""
    device = result.space.worst.estimates.device
    return device is not None and {one.field for one in device.assumptions} == {GPU}


def _lacking(outcome: Outcome) -> Iterator[tuple[Report, StudyResult, str]]:
    """Studies whose GPU memory is unknown, with the reason, if no finding says it."""
    only_if = {id(one): {f.study for f in one.findings if f.rule == "fits-only-if"} for one in outcome.reports}
    for report, index, result in _numbered(outcome):
        told = index in only_if[id(report)]
        reason = reason_of(result)
        if reason and not told and result.unjudged is None:
            yield report, result, reason


def _unknown(outcome: Outcome) -> tuple[list[str], str]:
    lines = [f"the GPU memory of {name} is unknown: {reason}" for name, reason in _reasons(outcome)]
    return lines, "the GPU memory of {} more {} is unknown"


def _assumed(outcome: Outcome) -> Iterator[str]:
    doubtful, fitting = assumptions(outcome)
    yield from _first(doubtful, "the need of {} more {} is doubtful")
    yield from _first(fitting, "{} more {} fit only if their assumptions hold")


def assumptions(outcome: Outcome) -> tuple[list[str], list[str]]:
    """Doubts about a need that is too much, and the assumptions of each study that fits only if they hold."""
    fitting: list[str] = []
    doubtful: list[str] = []
    for report, index, result in _numbered(outcome):
        found, name = result.space.worst.estimates, outcome.shown(report, result.study.paths[0])
        if found.verdict == "fits-if":
            fitting.append(f"{name} {fits_if(found.assumptions)}")
        elif result.space.counts.fits_if:
            fitting.append(
                f"{plural(result.space.counts.fits_if, 'combination')} of {name} fit if what is assumed holds"
            )
        elif found.device is not None and found.device.assumptions and found.device.verdict == "at-risk":
            if any(one.study == index and one.rule == "gpu-memory-exceeded" for one in report.findings):
                continue
            said = found.device.assumptions
            doubtful.append(f"the need of {name} {doubt_of(said).value}: {assumed(said)}")
        if found.verdict != "fits-if" and found.host is not None and found.host.verdict == "fits-if":
            fitting.append(f"the host memory of {name} {fits_if(found.host.assumptions)}")
    return doubtful, fitting


def _numbered(outcome: Outcome) -> Iterator[tuple[Report, int, StudyResult]]:
    """Every study with its report and its index in it."""
    for report in outcome.reports:
        for index, result in enumerate(report.studies):
            yield report, index, result


def _first(lines: list[str], more: str) -> Iterator[str]:
    """The first lines, and how many follow."""
    yield from lines[:MOST_REASONS]
    left = len(lines) - MOST_REASONS
    if left > 0:
        yield f"{more.format(left, 'study' if left == 1 else 'studies')}; --explain shows their fields"


def _offers(outcome: Outcome) -> str:
    """How many fixes `--fix` and `--unsafe-fixes` would write. Either shows them together with `--diff`."""
    fixes = list(outcome.fixes())
    safe = sum(fix.safety is Safety.safe for fix in fixes)
    unsafe = len(fixes) - safe
    offers = [f"{plural(safe, 'fix')} with --fix"] if safe else []
    if unsafe:
        number = f"{unsafe:,} more" if safe else plural(unsafe, "fix")
        offers.append(f"{number} with --unsafe-fixes, which change{'s' if unsafe == 1 else ''} the run")
    them = "it" if len(fixes) == 1 else "them"
    return f" ({', '.join(offers)}; add --diff to see {them} first)" if offers else ""


def studies_line(outcome: Outcome, look: Look) -> str:
    """ "2 studies, worst 7.9 of 23.5 GiB: fits"."""
    results = [result for _, result in outcome.studies()]
    if outcome.incomplete and not results:
        return f"{plural(outcome.files, 'file')} read and no study judged before the time limit was over"
    unjudged = sum(result.unjudged is not None for result in results)
    words = [plural(len(results), "study"), *([f"{unjudged:,} not judged"] if unjudged else [])]
    total = sum(result.space.combinations or 0 for result in results)
    if any(result.study.is_search for result in results):
        unbounded = any(result.space.combinations is None for result in results)
        words.append("unbounded combinations" if unbounded else plural(total, "combination"))
    sides = [text for text in (_device(results, look), _host(results, look)) if text]
    return ", ".join([*words, *(sides or [_nothing_known(results, look)]), *(_gaps(results, look) if sides else ())])


def _gaps(results: list[StudyResult], look: Look) -> Iterator[str]:
    """Unknown GPU memory next to known host memory, or the other way round."""
    lacking = [result for result in results if result.space.worst.estimates.device is None]
    if lacking:
        yield f"GPU memory {_of_them(lacking, results)}{verdict('unknown', look)}"
    limited = [result for result in results if _host_limit(result)]
    lacking = [result for result in limited if result.space.worst.estimates.host is None]
    if lacking:
        yield f"host memory {_of_them(lacking, results)}{verdict('unknown', look)}"


def _of_them(some: list[StudyResult], everything: list[StudyResult]) -> str:
    return "" if len(some) == len(everything) else f"of {plural(len(some), 'study')} "


def _host_limit(result: StudyResult) -> bool:
    machine = result.space.worst.job.machine
    return machine.memory_limit is not None or machine.node_memory is not None


def _device(results: list[StudyResult], look: Look) -> str:
    """The worst GPU need of all studies, with the capacity of its GPU."""
    known = [(result, found) for result in results if (found := result.space.worst.estimates.device) is not None]
    if not known:
        return ""
    result, worst = max(known, key=lambda pair: _badness(pair[1]))
    bound = "at least " if worst.lower_bound else ""
    if worst.capacity is None:
        fits = smallest_gpu(worst, result.smallest.name if result.smallest is not None else "")
        return f"worst needs {bound}{gib(worst.process.expected)} of GPU memory (no GPU is stated: {fits})"
    return f"worst {bound}{_of(worst.process.expected, worst.capacity)}: {verdict(worst.verdict, look)}"


def _host(results: list[StudyResult], look: Look) -> str:
    """The worst host need of all studies, if a limit is known or no GPU memory is known."""
    known = [found for result in results if (found := result.space.worst.estimates.host) is not None]
    limited = [found for found in known if found.limit is not None]
    if limited:
        worst = max(limited, key=_host_badness)
        return f"host {_of(worst.per_node.expected, worst.limit or 0)}: {verdict(worst.verdict, look)}"
    if known and all(result.space.worst.estimates.device is None for result in results):
        return f"host needs {gib(max(found.per_node.expected for found in known))} per node (no limit is stated)"
    return ""


def _of(need: int, capacity: int) -> str:
    """ "7.9 of 23.5 GiB"."""
    return f"{need / 2**30:,.1f} of {capacity / 2**30:,.1f} GiB"


def _badness(estimate: DeviceEstimate) -> tuple[int, float]:
    share = estimate.process.expected / estimate.capacity if estimate.capacity else float(estimate.process.expected)
    return _ORDER.index(estimate.verdict), share


def _host_badness(estimate: HostEstimate) -> tuple[int, float]:
    return _ORDER.index(estimate.verdict), estimate.per_node.expected / (estimate.limit or 1)


def _nothing_known(results: list[StudyResult], look: Look) -> str:
    """Why there is no figure: the fields that would have to be stated. Other reasons are notes."""
    lacking = dict.fromkeys(
        name
        for result in results
        if (cause := result.space.worst.estimates.causes.get("device")) is None or cause.cause is Cause.not_set
        for name in result.space.worst.estimates.unknown
    )
    why = (
        f" ({', '.join(list(lacking)[:4])} not known; preflight check --explain shows where to say)" if lacking else ""
    )
    return f"need {verdict('unknown', look)}{why}"
