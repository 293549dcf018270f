"""`python -m benchmarks.accuracy.unseen`: docs/held-out.md, the figures and verdicts that are held out, on one page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.accuracy import heldout, reports
from benchmarks.accuracy.measure import measure
from benchmarks.accuracy.tool import Preflight

PAGE = Path(__file__).parents[2] / "docs" / "held-out.md"
INTRO = """# Runs that preflight was not developed beside

Made by `python -m benchmarks.accuracy.unseen`. Public figures of training runs, and reports of runs that died or
worked, each described as a Job from what its source states and its program fixes (`benchmarks/accuracy/public/`),
before preflight was run on it. Nothing was adjusted to them, and no row was taken out for being off.

Some are not held out any more, since what they showed was then built: Hugging Face's table of bert-large (softmax and
kernels of old torch), torchtitan (FSDP that gathers in 16 bits, the parallel loss; first errors -4 to +19 %), the rows
of mmaction2 with flow and TimeSformer (channels, attention written out; refused and -31 % at first), and one row of
images and text. A row's quality: A, program and figure are exact; B, a setting is inferred; C, a length or the counter
is vague.
"""
SHIPPED = """Here with the laws that ship alone (`--shipped`): what would have to be traced is refused, or unknown.
"""
REPORTS = """## Fitted or died

More dead runs are said to fit than the 2 % that [the other reports](accuracy.md) keep to, and where what is unknown
here is traced, one in six: whoever writes a report leaves things out, and a program holds what its settings do not
show.
"""


def page(tracing: bool) -> tuple[str, list[str]]:
    """The page, and what crashed."""
    tool = Preflight(tracing=tracing)
    chosen = list(heldout.held())
    found = measure([each.run for each in chosen], [], tool)
    verdicts = reports.verdicts(list(reports.rows()), tool)
    figures = heldout.text(found.scores, {each.run.id: each.stated for each in chosen})
    parts = [INTRO, *(() if tracing else (SHIPPED,)), "## Figures\n", figures, REPORTS, reports.text(verdicts)]
    return "\n".join(parts), [*found.crashes, *tool.crashes]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.unseen", description=__doc__)
    parser.add_argument("--shipped", action="store_true", help="shipped laws only: models without one are refused")
    options = parser.parse_args(argv)
    text, crashes = page(tracing=not options.shipped)
    part = PAGE.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(PAGE)
    print(text)
    for crash in crashes:
        print(f"crash: {crash}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
