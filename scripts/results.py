"""Tables that sum up the pages of docs/results, for scripts/generate.py. They are made from these pages alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
ACCURACY_PAGE = "docs/results/accuracy.md"
HELD_OUT_PAGE = "docs/results/held-out.md"
HOST_PAGE = "docs/results/host-memory.md"
INTERVALS_PAGE = "docs/results/intervals.md"
DRY_RUNS = "benchmarks/dryrun"
CORPUS_PAGE = "docs/results/corpus.md"
_TIERS = ("process", "reserved", "allocated")
_QUALITY = {
    "quality A": "program and figure are exact",
    "quality B": "one setting is inferred",
    "quality C": "the length or the counter is vague",
}
_VERDICTS = ("unknown", "exceeds", "at-risk", "fits")
_FIGURES = ("a figure of GPU memory", "a figure that rests on a default")
"""Rows of the corpus page that are an answer in bytes, by their beginnings."""


def figures() -> str:
    """What the measured runs of the accuracy page come to, every tier of every kind of run, and those of a node."""
    kinds: dict[str, dict[str, str]] = {}
    for row in _tables(ACCURACY_PAGE, "median error"):
        error = "" if row["median error"] == "-" else f"{row['median error']} ({row['p90']}), "
        kinds.setdefault(row["runs"], {})[row["tier"]] = f"{error}{row['answered']}"
    lines = [f"| runs | {' | '.join(_TIERS)} |", "|---" * (1 + len(_TIERS)) + "|"]
    for kind, tiers in sorted(kinds.items()):
        lines.append(f"| {kind} | {' | '.join(tiers.get(tier, '') for tier in _TIERS)} |")
    for row in _tables(HOST_PAGE, "median error"):
        if row["group"].startswith("**all"):
            host = f"{row['median error']}, {row['worst']} at worst, {row['inside the interval']} in their intervals"
            lines += ["", f"Host memory of loaders and checkpoints: median error {host}."]
    return "\n".join(lines) + "\n"


def held_out() -> str:
    """Errors on runs that were kept aside, and the verdicts on jobs that died or worked, with the share without one."""
    lines = [
        "| runs kept aside | with an answer | median error | nine in ten within | inside the interval |",
        "|---|---|---|---|---|",
    ]
    for row in _tables(HELD_OUT_PAGE, "median"):
        if row.get("") in _QUALITY:
            asked = int(row["answered"]) + int(row["refused"])
            errors = " | ".join(row[column] for column in ("median", "p90", "inside"))
            lines.append(f"| {_QUALITY[row['']]} | {row['answered']} of {asked} | {errors} |")
    lines += ["", "| reports of jobs | no verdict | exceeds | at risk | fits |", "|---|---|---|---|---|"]
    for row in _tables(HELD_OUT_PAGE, "at-risk"):
        votes = {verdict: float(row[verdict]) for verdict in _VERDICTS}
        shares = " | ".join(f"{votes[verdict] / sum(votes.values()):.0%}" for verdict in _VERDICTS)
        lines.append(f"| that {row['outcome']} | {shares} |")
    return "\n".join(lines) + "\n"


def intervals() -> str:
    """How many of the runs kept aside lie inside an interval that was made without their source, in a sentence."""
    row = next(row for row in _tables(INTERVALS_PAGE, "one vote a source") if row["tier"] == "all")
    inside = f"{row['inside']} lie inside an interval that was made without their source"
    votes = f"{row['one vote a source']} if each of {row['sources']} sources has one vote"
    return f"Of {row['runs']} runs, {inside}; {votes}.\n"


def dry_runs() -> str:
    """Scripts of each batch that reached the second step of an optimizer: at the first try, and the last time."""
    folder = ROOT / DRY_RUNS
    first: dict[str, dict[str, Any]] = {}
    last: dict[str, dict[str, Any]] = {}
    for file in ("results.jsonl", "results_again.jsonl"):
        for line in (folder / file).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            first.setdefault(row["name"], row)
            last[row["name"]] = row
    listed = tomllib.loads((folder / "scripts.toml").read_text(encoding="utf-8"))["scripts"]
    failing = {row["name"] for row in listed if row.get("fails")}
    heads = ("batch", "scripts", "would fail on a GPU, too", "reached the second step at the first try", "later")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for batch in sorted({row["batch"] for row in first.values()}):
        names = [name for name, row in first.items() if row["batch"] == batch]
        counts = [sum(max(rows[name].get("steps", ()), default=0) >= 2 for name in names) for rows in (first, last)]
        fail = sum(name in failing for name in names) or "not noted"
        lines.append(f"| {batch} | {len(names)} | {fail} | {counts[0]} | {counts[1]} |")
    return "\n".join(lines) + "\n"


def repositories() -> str:
    """How many launch files of public repositories get a figure of GPU memory, or bounds, in a sentence: of those that
    were labelled before preflight was run on them for the first time."""
    rows = {row.get("", ""): row for row in _tables(CORPUS_PAGE, "held")}
    groups = [name for name in rows["launch files"] if name not in ("", "dev")]

    def count(*begin: str) -> int:
        found = [row for name, row in rows.items() if name.startswith(begin)]
        return sum(int(row[group].split()[0]) for row in found for group in groups)

    some, bounds, of = count(*_FIGURES), count("a lower bound"), count("launch files")
    return (
        f"In public repositories labelled before any run, {some} of {of} launch files get a figure, {bounds} bounds.\n"
    )


def _tables(path: str, column: str) -> Iterator[dict[str, str]]:
    """Rows of a page's tables that have a column of this name; where the page marks a summary, of the summary alone."""
    text = (ROOT / path).read_text(encoding="utf-8")
    marked = text.partition("<!-- summary -->")[2].partition("<!-- end of summary -->")[0]
    names: list[str] = []
    for line in (marked or text).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells or not names:
            names = cells
        elif column in names and set(cells[0]) != {"-"}:
            # Of columns of the same name the first counts: the later ones are of the groups left out.
            yield dict(reversed([*zip(names, cells, strict=False)]))
