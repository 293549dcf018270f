"""The last lines: findings, fixes, and the need of the studies. "No findings" and "not recognised" look different."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from preflight.reports.streams import clean
from preflight.reports.style import COLOURS, Look, verdict
from preflight.vocabulary.estimates import DeviceEstimate, HostEstimate
from preflight.vocabulary.findings import Safety, Severity
from preflight.vocabulary.outcome import Outcome, Report, StudyResult
from preflight.vocabulary.reading import Word
from preflight.vocabulary.study import Study
from preflight.vocabulary.values import Cause, Const, Unknown, evaluate
from preflight.vocabulary.words import assumed, fits_if, gib, plural, smallest_gpu, why_unknown

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
    yield studies_line(outcome, look)
    machines = [note for _, result in outcome.studies() for note in result.notes]
    notes = [note for report in outcome.reports for note in report.notes]
    for note in dict.fromkeys([*_unknown(outcome), *_assumed(outcome), *machines, *notes, *outcome.notes]):
        yield f"note: {clean(note)}"


MOST_REASONS = 5
"""The most studies whose unknown GPU memory, or whose assumptions, are explained one by one."""


def _unknown(outcome: Outcome) -> Iterator[str]:
    """Why the GPU memory of a study is unknown, if no finding says it."""
    lacking: list[str] = []
    commands: list[str] = []
    for report, index, result in _numbered(outcome):
        told = any(one.study == index and one.rule == "fits-only-if" for one in report.findings)
        reason = why_unknown(result.space.worst.estimates)
        if reason and not told and result.unjudged is None:
            lacking.append(f"the GPU memory of {outcome.shown(report, result.study.paths[0])} is unknown: {reason}")
            command = dry_run_of(result.study)
            commands += [command] if command else []
    yield from _first(lacking, "the GPU memory of {} more {} is unknown")
    if commands:
        yield f"a run of the program without a GPU tells what it needs: {commands[0]}"


def dry_run_of(study: Study) -> str:
    """The command that runs the program of a study dry; "" where none is known. Values that are searched or unknown are
    dots, and a launcher that starts several processes is named with their number."""
    link = next((one for one in reversed(study.links) if one.kind in ("program", "module")), None)
    target = link.target if link is not None else study.program or study.paths[0]
    if link is None and not target.endswith(".py"):
        return ""
    words = [_of_word(word) for word in link.words] if link is not None else []
    ranks = study.launch.ranks_per_node
    several = evaluate(ranks) if ranks is not None else None
    start = ["python"]
    if study.launch.launcher == "torchrun" and isinstance(several, int) and several > 1:
        start = ["torchrun", "--nproc_per_node", str(several)]
    module = ["-m"] if link is not None and link.kind == "module" else []
    if module and target.endswith(".py"):
        target = target.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    return " ".join(["preflight dry-run --", *start, *module, shlex.quote(target), *words])


def _of_word(word: Word) -> str:
    """A word for a shell; dots where its value is not one that is known."""
    value = word.value
    if value is None:
        return shlex.quote(word.hydra_prefix + word.prefix)
    if isinstance(value, Const) and not isinstance(value.value, Unknown):
        return shlex.quote(f"{word.hydra_prefix}{word.prefix}{value.value}")
    return f"{word.prefix}..."


def _assumed(outcome: Outcome) -> Iterator[str]:
    doubtful, fitting = assumptions(outcome)
    yield from _first(doubtful, "the need of {} more {} is not plausible")
    yield from _first(fitting, "{} more {} fit only if their assumptions hold")


def assumptions(outcome: Outcome) -> tuple[list[str], list[str]]:
    """Doubts about a need that is not plausible, and the assumptions of each study that fits only if they hold."""
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
            doubtful.append(f"the need of {name} is not plausible: {assumed(found.device.assumptions)}")
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
    """How many fixes `--fix` and `--unsafe-fixes` would write."""
    fixes = [finding.fix for _, finding in outcome.findings() if finding.fix is not None]
    safe = sum(fix.safety is Safety.safe for fix in fixes)
    offers = [f"{plural(safe, 'fix')} with --fix"] if safe else []
    if len(fixes) > safe:
        offers.append(f"{len(fixes) - safe} {'more ' if safe else ''}with --unsafe-fixes")
    return f" ({', '.join(offers)}; --diff shows them)" if offers else ""


def studies_line(outcome: Outcome, look: Look) -> str:
    """ "2 studies, worst 7.9 of 23.5 GiB: fits", or that nothing was recognised, or that nothing trains."""
    results = [result for _, result in outcome.studies()]
    if outcome.incomplete and not results:
        return f"{plural(outcome.files, 'file')} read and no study judged before the time limit was over"
    if not outcome.files:
        total = sum(len(report.unrecognised) for report in outcome.reports)
        hint = (
            "a W&B sweep, Hydra config, SLURM script, Optuna study or training program is; see preflight check --help"
        )
        return f"nothing recognised in {plural(total, 'file')} ({hint})"
    if not results:
        return (
            f"{plural(outcome.files, 'file')} read, nothing in {'it' if outcome.files == 1 else 'them'} trains a model"
        )
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
