"""The post-mortem as text: diagnoses with the lines of the logs, the estimate, misleading figures, findings."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.postmortem.circumstances import LoggedMoment
from preflight.postmortem.compare import Compared, ComparisonRow
from preflight.postmortem.diagnosis import Diagnosis, Misleading
from preflight.postmortem.evidence import Accounting, LogPlace
from preflight.postmortem.run import Postmortem
from preflight.reports.streams import clean
from preflight.reports.style import Look, wrap
from preflight.vocabulary.findings import Confidence
from preflight.vocabulary.words import plural

_SURE = {Confidence.high: "", Confidence.medium: "most likely: ", Confidence.low: "unexplained: "}


_NO_CONFIGURATION = (
    "Add --config FILE (the job script or the configuration) to see how much memory the job needs, and how to fix it."
)

MOST_ERRORS = 3
"""Most logs whose last exception is shown when nothing else was found."""


def render(found: Postmortem, look: Look) -> str:
    """The whole text."""
    causes = found.conclusion.causes
    blocks = ["\n".join(_cause(cause, look, index == 0)) for index, cause in enumerate(causes)]
    if not causes:
        blocks.append(_nothing(found, look))
    blocks += ["\n".join(_compared(one, look)) for one in found.compared]
    if found.conclusion.misleading:
        blocks.append("\n".join(_misleading(found.conclusion.misleading, look)))
    if found.outcome is not None:
        from preflight.reports import render as check

        named = ", which the logs name" if found.from_logs else ""
        blocks.append(look.paint(f"Findings of preflight check for {_names(found.configuration)}{named}", "bold"))
        blocks.append(check("full", found.outcome, look).rstrip("\n"))
    elif causes:
        blocks.append(wrap(_NO_CONFIGURATION, look.width, "  "))
    text = "\n\n".join(blocks)
    for note in (*found.conclusion.notes, *found.notes):
        text += "\n" + wrap(f"note: {clean(note)}", look.width, "      ")
    return text + "\n"


def _nothing(found: Postmortem, look: Look) -> str:
    read = f"{plural(found.found.lines, 'line')} in {plural(len(found.found.files), 'log')} read"
    lines = [f"nothing found: {read}, without a sign of a limit, a kill or a lack of memory."]
    for row in found.found.of(Accounting):
        if not row.step:
            status = "" if row.exit_code is None else f", exit status {row.exit_code}"
            lines.append(f"SLURM's accounting lists job {row.job} as {row.state}{status}.")
    for place in found.found.raised[:MOST_ERRORS]:
        lines.append(f"The last error of the program, at {place}: {place.text}")
    lines.append("Helpful logs: dmesg -T of the node, sacct -j JOB -P --format=ALL, the job's standard error.")
    return "\n".join(wrap(clean(line), look.width, "  ") for line in lines)


def _names(paths: tuple[str, ...]) -> str:
    return ", ".join(map(clean, paths[:3])) + (", ..." if len(paths) > 3 else "")


# --- diagnoses -----------------------------------------------------------------------------------------------------


def _cause(cause: Diagnosis, look: Look, first: bool) -> Iterator[str]:
    head = f"{'cause' if first else 'also'}[{cause.limit}]"
    style = "bold red" if first else "bold yellow"
    title = wrap(_SURE[cause.confidence] + clean(cause.title), look.width, "  ", len(head) + 2)
    yield f"{look.paint(head, style)}: {look.paint(title, 'bold')}"
    yield from _places(cause, look, style)
    for kind, text in _facts(cause):
        yield _note(kind, text, look)


def _places(cause: Diagnosis, look: Look, style: str) -> Iterator[str]:
    bar = look.paint("|", "bold blue")
    gutter = max((len(str(place.line)) for place in cause.places), default=1)
    path = ""
    for index, place in enumerate(_distinct(cause.places)):
        if place.path != path:
            path = place.path
            arrow = look.paint("-->" if index == 0 else ":::", "bold blue")
            yield f"{' ' * gutter}{arrow} {clean(place.path)}:{place.line}"
            yield f"{' ' * gutter} {bar}"
        number = look.paint(str(place.line).rjust(gutter), "bold blue")
        lead = f"{' ' * gutter} {bar}   "
        yield f"{number} {bar} {wrap(clean(place.text), look.width, lead, gutter + 3)}"
    yield f"{' ' * gutter} {bar}"


def _distinct(places: tuple[LogPlace, ...]) -> list[LogPlace]:
    seen: dict[tuple[str, int], LogPlace] = {}
    for place in places:
        seen.setdefault((place.path, place.line), place)
    return sorted(seen.values(), key=lambda place: list(dict.fromkeys(p.path for p in places)).index(place.path))


def _facts(cause: Diagnosis) -> Iterator[tuple[str, str]]:
    if when := _when(cause.when):
        yield "when", when
    if cause.when.last is not None:
        yield "last progress", f'"{_shortened(cause.when.last.text)}" ({cause.when.last})'
    if cause.trial is not None:
        values = ", ".join(f"{name}={value}" for name, value in list(cause.trial.parameters.items())[:12])
        yield "trial", f"{cause.trial.tool} {cause.trial.name}: {values}"
    yield from (("note", note) for note in cause.notes)
    yield from (("help", text) for text in cause.help)


_PHASES = {
    "": "",
    "load": "while the model was loaded or built",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer step",
    "save": "while a checkpoint was saved",
}


def _when(moment: LoggedMoment) -> str:
    words = [_PHASES.get(moment.phase, f"in {moment.phase}")]
    if moment.frame is not None:
        words.append(f"your code: {moment.frame.function} ({moment.frame})")
    if moment.beneath is not None and moment.beneath != moment.frame:
        words.append(f"innermost call: {moment.beneath.function} ({moment.beneath})")
    return "; ".join(filter(None, words))


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 70 else text[:67] + "..."


def _note(kind: str, text: str, look: Look) -> str:
    indent = "   " + "  " + " " * (len(kind) + 2)
    body = wrap(clean(text), look.width, indent, len(indent))
    return f"   {look.paint('=', 'bold blue')} {look.paint(kind, 'bold')}: {body}"


def _misleading(found: tuple[Misleading, ...], look: Look) -> Iterator[str]:
    yield look.paint("Misleading figures in the logs", "bold")
    for one in found:
        text = f"{one.figure} ({one.place}): {one.why}"
        yield "  " + wrap(clean(text), look.width, "    ", 2)


# --- comparison with the estimate -------------------------------------------------------------------------------------


def _compared(one: Compared, look: Look) -> Iterator[str]:
    from preflight.reports.estimate import heading

    candidate = one.candidate
    yield look.paint(f"Estimate for {clean(candidate.result.study.paths[0])}", "bold")
    yield "  " + wrap(clean(heading(candidate.job)), look.width, "    ", 2)
    if candidate.combination:
        values = ", ".join(f"{name}={value}" for name, value in candidate.combination.items())
        which = (
            "the combination that failed"
            if candidate.certain
            else "the worst combination of the search (the logs do not say which one failed)"
        )
        yield "  " + wrap(clean(f"{which}: {values}"), look.width, "    ", 2)
    if one.rows:
        yield from _table(one.rows, look)
    for text in one.words:
        yield "  " + wrap(clean(text), look.width, "    ", 2)


def _table(rows: tuple[ComparisonRow, ...], look: Look) -> Iterator[str]:
    head = f"  {'GiB':<12}{'at the failure':>16}{'with the request':>19}{'estimated peak':>29}"
    yield look.paint(head, "bold")
    for row in rows:
        needed = f"{row.needed / 2**30:.2f}" if row.needed is not None else "-"
        yield f"  {row.tier:<12}{row.seen / 2**30:>16.2f}{needed:>19}{_interval(row):>29}"


def _interval(row: ComparisonRow) -> str:
    found = row.estimate
    if found is None:
        return "unknown"
    return f"{found.expected / 2**30:.2f} ({found.low / 2**30:.2f} to {found.high / 2**30:.2f})"
