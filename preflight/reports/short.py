"""A finding in at most eight lines: what, where, need against have, the biggest part, the fix. `-v` shows the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from preflight.reports.bar import bar
from preflight.reports.places import gutter_of, spot
from preflight.reports.streams import clean
from preflight.reports.style import COLOURS, Look, columns, note, wrap
from preflight.vocabulary.findings import Finding, Fix, Part, Safety, TimeCost
from preflight.vocabulary.outcome import Outcome, Report
from preflight.vocabulary.words import gib

MOST_LINES = 8
"""Lines of a finding. It has to be understood at a glance."""
_NARROWEST_BAR = 16
"""A bar of fewer columns shows nothing."""
_HAVE: Mapping[str, str] = {"device": "the GPU has {}", "host": "the job may use {}"}
_PART_WORDS: Mapping[str, str] = {
    "allocator": "what PyTorch's allocator holds back",
    "base": "Python with its libraries",
    "context": "CUDA itself",
    "cuda": "CUDA itself",
    "queue": "batches that wait for the GPU",
    "temporary": "temporary tensors",
    "validation": "loaders of the validation",
    "workers": "loader workers",
}
"""Parts whose names say little, in words."""


def short(outcome: Outcome, report: Report, finding: Finding, look: Look) -> Iterator[str]:
    """The lines of a finding. What does not fit into them ends with three dots."""
    gutter = gutter_of(report, [finding.origin])
    style = COLOURS[finding.severity]
    where = list(_where(outcome, report, finding, look, gutter))
    size = [*_need(finding, look, gutter), *_biggest(finding, look, gutter)]
    remedy = _remedy(finding)
    left = MOST_LINES - len(where) - len(size)
    head = f"{finding.severity.value}[{finding.rule}]"
    said = wrap(clean(finding.headline or finding.message), look.width, "  ", len(head) + 2).split("\n")
    mended = "\n".join(note(*remedy, look, gutter)).split("\n") if remedy else []
    kept = min(len(mended), 2 if finding.fix is not None else 1)
    first = min(len(said), max(left - kept, 1))
    said = cut(said, first, look)
    yield from f"{look.paint(head, style)}: {look.paint(chr(10).join(said), 'bold')}".split("\n")
    yield from where
    yield from size
    yield from cut(mended, left - first, look)


def cut(lines: list[str], most: int, look: Look) -> list[str]:
    """The first lines. Three dots end the last one if there are more."""
    if len(lines) <= most:
        return lines
    dots = "…" if look.unicode else "..."
    kept = lines[:most]
    words = kept[-1].split(" ") if kept else []
    while len(words) > 1 and columns(" ".join(words)) + len(dots) + 1 > look.width:
        words.pop()
    return [*kept[:-1], " ".join(words).rstrip(",;:(") + f" {dots}"] if kept else []


def _where(outcome: Outcome, report: Report, finding: Finding, look: Look, gutter: int) -> Iterator[str]:
    """The place of a finding; of one without a place, the first that it is about."""
    if finding.origin is not None:
        places = [(finding.origin, finding.label, "^", COLOURS[finding.severity])]
    else:
        places = [(origin, words, "-", "bold blue") for origin, words in finding.related[:1]]
    for origin, words, mark, style in places:
        yield from spot(outcome, report, origin, words, mark, style, look, gutter, first=True, dense=True)


def _need(finding: Finding, look: Look, gutter: int) -> Iterator[str]:
    """The need against what there is, with a bar that marks the capacity."""
    if finding.interval is None:
        return
    low, expected, high = finding.interval
    text = gib(expected) + (f" ({gib(low)} to {gib(high)})" if low != high else "")
    if finding.capacity is None:
        yield from note("need", text, look, gutter)
        return
    text += f", {_HAVE.get(finding.side, '{} is there').format(gib(finding.capacity))}"
    used = columns("".join(note("need", text, replace(look, colour=False), gutter)))
    room = look.width - used - 2
    biggest = _largest(finding)
    parts = (biggest, Part("the rest", expected - biggest.bytes)) if biggest is not None else ()
    drawn = bar(parts, finding.capacity, look, room)[:1] if room >= _NARROWEST_BAR else []
    yield "  ".join([*note("need", text, look, gutter), *drawn])


def _largest(finding: Finding) -> Part | None:
    return max(finding.parts, key=lambda part: part.bytes, default=None)


def _biggest(finding: Finding, look: Look, gutter: int) -> Iterator[str]:
    """The part that takes most."""
    part = _largest(finding)
    if part is None or finding.interval is None or not finding.interval[1]:
        return
    name = part.name.replace("_", "-")
    words = f"{name} ({_PART_WORDS[part.name]})" if part.name in _PART_WORDS else name
    share = min(100, round(100 * part.bytes / finding.interval[1]))
    yield from note("most", f"{words} {gib(part.bytes)}, {share} % of it", look, gutter)


def _remedy(finding: Finding) -> tuple[str, str] | None:
    """The fix, with what it costs and the option that writes it; without a fix, the first advice."""
    fix = finding.fix
    if fix is None:
        return ("help", finding.help[0]) if finding.help else None
    costs = "".join(f"; {cost_text(cost)}" for cost in fix.costs)
    reason = f"; it changes the run: {fix.reason}" if fix.safety is Safety.unsafe and fix.reason else ""
    return "fix", f"`{flag_of(fix)}` writes: {fix.title}{costs}{reason}"


def flag_of(fix: Fix) -> str:
    """The option that writes a fix."""
    return "--fix" if fix.safety is Safety.safe else "--unsafe-fixes"


def cost_text(cost: TimeCost) -> str:
    """ "training takes 1 to 2 times as long"."""
    return f"{cost.what} takes {_factor(cost.low)} to {_factor(cost.high)} times as long"


def _factor(number: float) -> str:
    return f"{round(number, 2):g}"
