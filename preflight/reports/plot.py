"""Memory during a step as a file: an SVG of preflight's own, or a PNG (needs matplotlib), of the same description."""

from __future__ import annotations

import io
from itertools import groupby
from pathlib import Path
from typing import Any

from preflight.reports.figures import StepFigure
from preflight.reports.svg import COLOURS, colour_of, file_of_step
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.words import gib

FORMATS = {".svg": "svg", ".png": "png"}
GIB = 2**30
COLUMNS = 800
"""The most columns of a figure."""


def format_of(path: Path) -> str:
    """The format of a figure by the suffix of its file. Raises UsageError for another suffix."""
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise UsageError(f"--plot {path}: a figure is an .svg or a .png")
    return found


def figure(title: str, shown: StepFigure, where: str, kind: str) -> bytes:
    """An SVG or PNG (`kind`). `where`: the module of the peak, or "". Raises UsageError for a PNG if matplotlib is not
    installed."""
    place = f" in {where}" if where else ""
    peak = f"{gib(shown.peak.height)}, {shown.peak.phase}{place}"
    if kind == "svg":
        return file_of_step(shown, f"{title}: peak {peak}").encode()
    return _png(title, shown, peak)


def _png(title: str, shown: StepFigure, peak: str) -> bytes:
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("--plot FILE.png needs matplotlib: pip install 'preflight-lint[plot]'") from error
    matplotlib.rcdefaults()  # it has read a matplotlibrc of the current directory, which can have it start LaTeX
    matplotlib.use("Agg")
    from matplotlib import pyplot

    made, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    count = len(shown.columns)
    layers = [[size / GIB for size in sizes] for _, sizes in shown.layers]
    labels = [name for name, _ in shown.layers]
    colours = [COLOURS[int(colour_of(name, at)[1:])] for at, name in enumerate(labels)]
    axes.stackplot(range(count), *layers, labels=labels, colors=colours, step="post", linewidth=0)
    _limits(axes, shown, peak)
    _phases(axes, shown)
    axes.set(title=title, ylabel="GiB", xlim=(0, max(count - 1, 1)), xticks=[], ylim=(0, 1.25 * shown.top / GIB))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")
    out = io.BytesIO()
    made.savefig(out, format="png", dpi=150, metadata={"Software": None})
    pyplot.close(made)
    return out.getvalue()


def _limits(axes: Any, shown: StepFigure, peak: str) -> None:
    """The capacity, and the peak with its place."""
    at = shown.columns.index(shown.peak)
    line = {"arrowstyle": "-", "lw": 0.8}
    label = {"xytext": (0, 18), "textcoords": "offset points", "ha": "center", "fontsize": "small"}
    axes.annotate(peak, (at, shown.peak.height / GIB), arrowprops=line, **label)
    if shown.capacity is not None:
        capacity = shown.capacity / GIB
        axes.axhline(capacity, color="#c44e52", ls="--", lw=1, label=f"GPU {gib(shown.capacity)}")


def _phases(axes: Any, shown: StepFigure) -> None:
    start, count = 0, len(shown.columns)
    for turn, (phase, run) in enumerate(groupby(column.phase for column in shown.columns)):
        width = len(list(run))
        if turn % 2:
            axes.axvspan(start, start + width, color="black", alpha=0.04, lw=0)
        if width * 40 > count:
            axes.text(
                start + width / 2, 0.01, phase, transform=axes.get_xaxis_transform(), ha="center", fontsize="small"
            )
        start += width
