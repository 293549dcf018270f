"""Sets the host law beside every measured point, and writes docs/results/host-memory.md.

Needs no torch. Constants are refitted without each group in turn, and the group is judged by what the others say.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))

from benchmarks.accuracy.host import earlier, jobs, programs, refit  # noqa: E402
from preflight.memory.host.base import bytes_of, parts_of  # noqa: E402
from preflight.memory.host.estimate import estimate_host  # noqa: E402
from preflight.vocabulary.estimates import HostEstimate  # noqa: E402

DOCS = HERE.parents[2] / "docs" / "results" / "host-memory.md"
TEXT = HERE / "host-memory.in.md"
MIB = 2**20
DRAWN = HERE / "drawn.jsonl"
PARTS = {"torch": ["torch"], "torch+tensor": ["torch"], "torch+transformers+AutoModel": ["transformers"],
         "torch+llama": ["transformers"]}  # fmt: skip
"""Earlier measurements of bases -> what was imported, where the parts can say it."""


@dataclass(frozen=True)
class Line:
    """A point beside its estimate, in bytes; `inside`: whether the interval holds it (None: there is no interval)."""

    group: str
    name: str
    measured: float
    expected: float
    inside: bool | None = None

    @property
    def error(self) -> float:
        return self.expected / self.measured - 1


def lines(rows: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """Points beside their estimates."""
    for row in rows:
        if row["what"] == "loader":
            found = estimate_host(jobs.job_of(row), cuda=False, trains=False)
            assert isinstance(found, HostEstimate), found
            size, node = jobs.measured(row), found.per_node
            yield Line(row["group"], row["id"], size, node.expected, node.low <= size <= node.high)
        elif row["what"] == "base":
            yield Line("base", row["id"], jobs.measured(row), bytes_of(parts_of(jobs.loaded(row), trains=False)))
        else:
            yield Line("checkpoint", f"{row['what']}: {row['id']}", jobs.measured(row), jobs.weights_expected(row))


def bases() -> Iterator[Line]:
    """What was imported in processes of the earlier harness."""
    for row in earlier.bases(HERE / "earlier.jsonl"):
        if row["prog"] in PARTS:
            expected = bytes_of(parts_of(PARTS[row["prog"]], trains=False) - {"trainer"})
            yield Line("base", f"earlier: {row['prog']}", row["anon"], expected)


def summary(found: Sequence[Line], left_out: dict[str, list[float]]) -> list[str]:
    """Errors by group; the last column has them with constants that were fitted without the group."""
    text = ["| group | points | median error | worst | inside the interval | left out: median | worst |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    for group in dict.fromkeys(line.group for line in found):
        some = [line for line in found if line.group == group]
        text.append(_row(group, some, left_out.get(group)))
    every = [error for errors in left_out.values() for error in errors]
    text.append(_row("**all**", found, every))
    return text


def drawn(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Errors of the points drawn at random: by the law as it was when they were drawn, and by today's."""
    text = ["| draw | points | law | median error | 9 of 10 within | worst | within 10 % | inside the interval |",
            "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for draw in dict.fromkeys(row["draw"] for row in rows):
        some = [row for row in rows if row["draw"] == draw]
        for name, law in (("before", "before"), ("blind", "when it was looked at")):
            if all(name in row for row in some):
                text.append(_draw(draw, law, [_then(row, name) for row in some]))
        text.append(_draw(draw, "today's", list(lines(some))))
    return text


def _then(row: dict[str, Any], name: str) -> Line:
    """A point beside an estimate of another day, which the row has: low, expected, high."""
    (low, expected, high), size = row[name], jobs.measured(row)
    return Line(row["draw"], row["id"], size, expected, low <= size <= high)


def _draw(name: str, law: str, some: Sequence[Line]) -> str:
    errors = sorted(abs(line.error) for line in some)
    return (
        f"| {name} | {len(errors)} | {law} | {statistics.median(errors):.1%} | {errors[int(0.9 * len(errors))]:.1%} "
        f"| {errors[-1]:.1%} | {sum(error <= 0.1 for error in errors)} | {sum(line.inside is True for line in some)} |"
    )


def _row(name: str, some: Sequence[Line], without: Sequence[float] | None) -> str:
    sizes = [abs(line.error) for line in some]
    judged = [line.inside for line in some if line.inside is not None]
    inside = f"{sum(judged)} of {len(judged)}" if judged else ""
    last = f"{statistics.median(without):.1%} | {max(without):.1%}" if without else " | "
    return f"| {name} | {len(some)} | {statistics.median(sizes):.1%} | {max(sizes):.1%} | {inside} | {last} |"


def every(found: Sequence[Line]) -> list[str]:
    """Every point."""
    text = ["| group | point | measured | law | error | |", "|---|---|---|---|---|---|"]
    for line in found:
        outside = "" if line.inside is not False else "outside"
        text.append(
            f"| {line.group} | {line.name} | {line.measured / MIB:,.1f} | {line.expected / MIB:,.1f} "
            f"| {line.error:+.1%} | {outside} |"
        )
    return text


def facts(rows: Sequence[dict[str, Any]]) -> str:
    """The machine, in a line."""
    machine = rows[-1]["machine"]
    words = [f"{name} {value}" for name, value in machine.items() if name not in ("huge_pages", "cpus", "kernel")]
    return f"Linux {machine['kernel']}, {', '.join(words)}; huge pages: {machine['huge_pages']}"


def main() -> None:
    rows = [json.loads(line) for line in (HERE / "points.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if not row["measured"]["killed"]]
    loaders = [row for row in rows if row["what"] == "loader"] + earlier.rows(HERE / "earlier.jsonl")
    found = [*lines(loaders), *lines([row for row in rows if row["what"] != "loader"]), *bases()]
    left_out = refit.left_out(loaders)
    random = [json.loads(line) for line in DRAWN.read_text(encoding="utf-8").splitlines()]
    random = [row for row in random if not row["measured"]["killed"]]
    found += lines(random)
    worst = sorted(found, key=lambda line: -abs(line.error))
    far = [f"- {line.error:+.1%}: {line.group}: {line.name}" for line in worst if abs(line.error) > 0.1]
    text = TEXT.read_text(encoding="utf-8")
    parts = {"SUMMARY": "\n".join(summary(found, left_out)), "DRAWN": "\n".join(drawn(random)),
             "EVERY": "\n".join(every(found)), "MACHINE": facts(rows), "PROGRAMS": "\n".join(programs.page()),
             "FAR": "\n".join(far) or "None."}  # fmt: skip
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    DOCS.write_text(text, encoding="utf-8")
    print(parts["SUMMARY"], "\n".join(far), f"written: {DOCS.name}", sep="\n\n")


if __name__ == "__main__":
    main()
