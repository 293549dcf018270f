"""docs/results/corpus.md: what strangers would see, made from the results of runs and the labels."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.corpus import score
from benchmarks.corpus.labelled import Labels, labels
from benchmarks.corpus.launches import SENTENCE
from benchmarks.corpus.record import Record
from benchmarks.corpus.repositories import GROUPS, Repository
from benchmarks.corpus.run import kept
from benchmarks.corpus.score import ScoredFinding, ScoredValue

BEST_FIRST = ("figure", "assumed", "range", "unknown: model", "unknown: batch", "unknown: length", "unknown: other")
"""The answers of a launch file. One with several studies has the first of these that one of them has."""
NO_STUDY = "no study"
SLOW_SECONDS = 60
Row = tuple[Repository, Record, Labels | None]
INTRODUCTION = """# What strangers would see

<!-- Written by `python -m benchmarks.corpus report`. Do not edit. -->

`preflight check .` on public repositories, each at one commit, as somebody would run it first: no settings, and no GPU
named. `benchmarks/corpus/repositories.toml` lists them; none of their files is kept with preflight. `dev` repositories
are used to make preflight better. `held` ones are run and counted, and nobody reads their files or findings to tune a
rule. Many of both groups are also in the dumps that `tests/golden` compares. The other groups were labelled before
preflight was run on them for the first time, by readers who had not seen its source. What those first runs showed has
been repaired since: the figures of this page are of a later run, and those of groups that were never seen are lower. In
first runs 355 of 363 and 135 of 150 values behind a figure were right on 22 November 2026, and 145 of 154 on 20 further
repositories on 28 November, where 38 of 40 errors and 7 of 10 warnings were true. Repositories that could not be
brought for this run are missing."""


def write(repositories: Sequence[Repository], page: Path) -> int:
    """Writes the page from the results that are there. 2 if there are none."""
    rows = [(each, record, labels(each)) for each in repositories if (record := kept(each)) is not None]
    if not rows:
        print("error: there is no result yet: python -m benchmarks.corpus run", file=sys.stderr)
        return 2
    page.write_text("\n".join(text(rows, len(repositories))) + "\n", encoding="utf-8")
    print(f"{page}: {len(rows)} of {len(repositories)} repositories")
    return 0


def text(rows: Sequence[Row], listed: int) -> Iterator[str]:
    """The lines of the page."""
    yield from INTRODUCTION.splitlines()
    yield ""
    yield f"{len(rows)} of the {listed} repositories were run, with {_software(rows)}."
    yield "A file of more than 1 MiB is left out."
    yield ""
    yield from _summary(rows)
    yield from _launches(rows)
    yield from _findings(rows)
    yield from _labels(rows)
    yield from _each(rows)


def _software(rows: Sequence[Row]) -> str:
    return "; ".join(sorted({record["software"] for _, record, _ in rows}))


def _groups(rows: Sequence[Row]) -> dict[str, list[Record]]:
    return {name: [record for each, record, _ in rows if each.group == name] for name in GROUPS}


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    groups = _groups(rows)
    yield from _head("")

    def line(name: str, cells: Iterable[object]) -> str:
        return f"| {name} | {' | '.join(map(str, cells))} |"

    columns = list(groups.values())
    yield line("repositories", map(len, columns))
    yield line("CPU seconds: median, largest", (_spread([r["cpu_seconds"] for r in each]) for each in columns))
    yield line(
        f"over {SLOW_SECONDS} s of CPU", (sum(r["cpu_seconds"] > SLOW_SECONDS for r in each) for each in columns)
    )
    yield line("peak MiB: median, largest", (_spread([r["peak_bytes"] / 2**20 for r in each]) for each in columns))
    yield line("stopped by a limit", (sum(r["timed_out"] or r["status"] < 0 for r in each) for each in columns))
    yield line("ended with an error (status 2)", (sum(r["status"] == 2 for r in each) for each in columns))
    yield line("internal errors", (sum(map(_internal, each)) for each in columns))
    yield line("studies", (sum(len(r["studies"]) for r in each) for each in columns))
    yield line("repositories without a study", (sum(not r["studies"] for r in each) for each in columns))
    yield ""


def _head(*names: str) -> Iterator[str]:
    """The head of a table that has a column for each group."""
    yield f"| {' | '.join((*names, *GROUPS))} |"
    yield f"|{'---|' * (len(names) + len(GROUPS))}"


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f}, {max(values):,.0f}" if values else "-"


def _internal(record: Record) -> int:
    return sum(each["rule"] == "internal-error" for each in record["findings"]) + sum(
        "internal error" in line for line in record["errors"]
    )


def answers(record: Record) -> Counter[str]:
    """How many launch files of a repository have each answer. A script that another one starts is a part of it."""
    parts = {path for study in record["studies"] for path in study["paths"][1:]}
    best: dict[str, str] = dict.fromkeys((path for path in record["launch_files"] if path not in parts), NO_STUDY)
    order = [*BEST_FIRST, NO_STUDY]
    for study in record["studies"]:
        answer = f"unknown: {study['cause']}" if study["answer"] == "unknown" else study["answer"]
        path = study["paths"][0]
        best[path] = min(best.get(path, NO_STUDY), answer, key=order.index)
    return Counter(best.values())


def _launches(rows: Sequence[Row]) -> Iterator[str]:
    words = {
        "figure": "a figure of GPU memory: batch, precision and number of GPUs are stated",
        "assumed": "a figure that rests on a default for one of these",
        "range": "a lower bound, or figures for a few values of what no file states",
        NO_STUDY: "no study: it trains nothing, or preflight cannot read it",
    }
    counts = {name: sum((answers(record) for record in each), Counter[str]()) for name, each in _groups(rows).items()}
    totals = {name: sum(each.values()) for name, each in counts.items()}
    yield "## Launch files"
    yield ""
    yield SENTENCE
    yield "A file with several studies has the best of their answers."
    yield ""
    yield from _head("")
    yield f"| launch files | {' | '.join(str(totals[name]) for name in GROUPS)} |"
    for answer in (*BEST_FIRST, NO_STUDY):
        cells = [_share(counts[name][answer], totals[name]) for name in GROUPS]
        yield f"| {words.get(answer, answer)} | {' | '.join(cells)} |"
    yield ""


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f} %)" if whole else "0"


def _findings(rows: Sequence[Row]) -> Iterator[str]:
    groups = _groups(rows)
    found = {
        name: Counter((each["severity"], each["rule"]) for record in records for each in record["findings"])
        for name, records in groups.items()
    }
    order = {"error": 0, "warning": 1, "info": 2}
    yield "## Findings by rule"
    yield ""
    yield from _head("rule", "severity")
    total = sum(found.values(), Counter[tuple[str, str]]())
    for severity, rule in sorted(total, key=lambda key: (order.get(key[0], 3), -total[key], key[1])):
        cells = " | ".join(str(found[name][severity, rule]) for name in GROUPS)
        yield f"| {rule} | {severity} | {cells} |"
    yield ""


def _labels(rows: Sequence[Row]) -> Iterator[str]:
    marked = [(each, record, label) for each, record, label in rows if label is not None]
    if not marked:
        return
    yield "## Labels made by hand"
    yield ""
    yield "A reader wrote down the right values before preflight was run. Findings were judged afterwards, from the"
    yield "files alone. `missed`: preflight says nothing of the value, or does not read the launch file. A finding that"
    yield "tells a need of the wrong job is not true. Problems: what the reader saw in the files before any run."
    yield ""
    for name in GROUPS:
        if of_it := [(record, label) for each, record, label in marked if each.group == name]:
            yield from _group(name, of_it)


def _group(name: str, marked: Sequence[tuple[Record, Labels]]) -> Iterator[str]:
    scored = [list(score.values(record, label)) for record, label in marked]
    yield f"### {name}"
    yield ""
    read = sum(bool(label.launch) for _, label in marked)
    launches = sum(len(label.launch) for _, label in marked)
    wrong = sum(len({each.launch for each in of_it if each.outcome == "wrong"}) for of_it in scored)
    yield f"{launches} launch files of {read} repositories; {_share(wrong, launches)} have a wrong value."
    yield ""
    yield from _values([each for of_it in scored for each in of_it])
    with_figure = [[each for each in of_it if each.has_figure] for of_it in scored]
    launches = sum(len({each.launch for each in of_it}) for of_it in with_figure)
    yield from _behind_figures([each for of_it in with_figure for each in of_it], launches)
    yield from _precision([found for record, label in marked for found in score.findings(record, label)])
    if noted := [found for record, label in marked for _, found in score.problems(record, label)]:
        yield f"Problems noted: {len(noted)}. A warning or an error stands at {_share(sum(noted), len(noted))}."
        yield ""


def _values(scored: list[ScoredValue]) -> Iterator[str]:
    yield "| field | labelled | right | missed | wrong |"
    yield "|---|---|---|---|---|"
    fields = Counter(each.label.field for each in scored)
    for name, total in [*sorted(fields.items(), key=lambda pair: (-pair[1], pair[0])), ("all", len(scored))]:
        ends = Counter(each.outcome for each in scored if name in ("all", each.label.field))
        shares = " | ".join(_share(ends[end], total) for end in ("right", "missed", "wrong"))
        yield f"| {name} | {total} | {shares} |"
    yield ""


def _behind_figures(scored: list[ScoredValue], launches: int) -> Iterator[str]:
    """Values of launches that got a figure, by the standing that the report gives them."""
    yield f"Values behind a figure of GPU memory ({launches} launch files), by how the report says they are known:"
    yield ""
    yield "| standing | values | right | wrong |"
    yield "|---|---|---|---|"
    known = [each for each in scored if each.outcome != "missed" and each.found is not None]
    for standing in (*sorted({each.standing for each in known}), "all"):
        of_it = [each for each in known if standing in ("all", each.standing)]
        right = sum(each.outcome == "right" for each in of_it)
        shares = f"{_share(right, len(of_it))} | {_share(len(of_it) - right, len(of_it))}"
        yield f"| {standing} | {len(of_it)} | {shares} |"
    yield ""


def _precision(judged: list[ScoredFinding]) -> Iterator[str]:
    yield "| findings | labelled | true | not labelled |"
    yield "|---|---|---|---|"
    for severity in ("error", "warning"):
        of_it = [each for each in judged if each.finding["severity"] == severity]
        known = [each for each in of_it if each.true is not None]
        true = sum(bool(each.true) for each in known)
        yield f"| {severity}s | {len(known)} | {_share(true, len(known))} | {len(of_it) - len(known)} |"
    yield ""


def _each(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Each repository"
    yield ""
    yield "Launch files: with a figure (stated or assumed) / with a range / unknown / without a study."
    yield ""
    yield "| repository | group | trains with | CPU s | MiB | studies | launch files | errors | warnings |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for each, record, _ in rows:
        count = answers(record)
        unknown = sum(value for name, value in count.items() if name.startswith("unknown"))
        files = f"{count['figure'] + count['assumed']} / {count['range']} / {unknown} / {count[NO_STUDY]}"
        severity = Counter(found["severity"] for found in record["findings"])
        ended = "" if record["status"] in (0, 1) else f" (status {record['status']})"
        yield (
            f"| {each.name}{ended} | {each.group} | {each.kind} | {record['cpu_seconds']:.0f} | "
            f"{record['peak_bytes'] >> 20} | {len(record['studies'])} | {files} | {severity['error']} | "
            f"{severity['warning']} |"
        )
