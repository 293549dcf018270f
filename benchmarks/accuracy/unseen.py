"""`python -m benchmarks.accuracy.unseen` writes docs/results/held-out.md: held-out figures and verdicts on a page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.accuracy import heldout, reports
from benchmarks.accuracy.measure import measure
from benchmarks.accuracy.tool import Preflight

PAGE = Path(__file__).parents[2] / "docs" / "results" / "held-out.md"
INTRO = """# Held-out runs

This page shows the errors of preflight on runs that it was not developed with: public figures of training runs, and
reports of runs that died or worked. `python -m benchmarks.accuracy.unseen` writes it. Each run was described as a Job
from its source and its program (`benchmarks/accuracy/public/`) before preflight was run on it. Nothing was adjusted to
these runs, and no row was removed because of its error.

Some rows are not held out any more, because preflight was extended after they were seen: Hugging Face's table of
bert-large (softmax and kernels of old torch), torchtitan (FSDP that gathers in 16 bits, the parallel loss; first errors
-4 to +19 %), the rows of mmaction2 with flow and TimeSformer (channels, attention without a fused kernel; refused and
-31 % at first), and one row of images and text.

The quality of a row: A, program and figure are exact; B, a setting is inferred; C, a length or the counter is vague.
"""
SHIPPED = """These results use only the shipped laws (`--shipped`). Models that need a trace are refused, or unknown.
"""
REPORTS = """## Fitted or died

More of the runs that died are judged "fits" than the target of 2 %, which [the other reports](accuracy.md) reach. If
models without a shipped law are traced, it is one in six. Reports leave out settings, and programs hold memory that no
setting shows.
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
