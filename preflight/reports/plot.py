"""Memory during a step as a figure with its parts, phases and peak (needs matplotlib)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.words import gib

FORMATS = {".svg": "svg", ".png": "png"}
GIB = 2**30
_COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860")


class PlotPoint(Protocol):
    """A moment of a step; bytes."""

    @property
    def phase(self) -> str: ...
    @property
    def allocated(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    @property
    def parts(self) -> tuple[int, ...]: ...


def format_of(path: Path) -> str:
    """The format of a figure by the suffix of its file. Raises UsageError for another suffix."""
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise UsageError(f"--plot {path}: a figure is an .svg or a .png")
    return found


def figure(
    title: str,
    names: Sequence[str],
    points: Sequence[PlotPoint],
    context: int,
    capacity: int | None,
    where: str,
    kind: str,
) -> bytes:
    """An SVG or PNG (`kind`). `context`: bytes outside the allocator; `names`: the parts of the points.

    Raises UsageError if matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("--plot needs matplotlib: pip install 'preflight-lint[plot]'") from error
    matplotlib.rcdefaults()  # it has read a matplotlibrc of the current directory, which can have it start LaTeX
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "preflight"  # the same figure is the same file
    from matplotlib import pyplot

    made, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    x = range(len(points))
    layers = [[context / GIB] * len(points)]
    labels, colours = ["context"], ["#c7c7c7"]
    for index, name in enumerate(names):
        sizes = [point.parts[index] / GIB for point in points]
        if any(sizes):
            layers.append(sizes)
            labels.append(name)
            colours.append(_COLOURS[index % len(_COLOURS)])
    axes.stackplot(x, *layers, labels=labels, colors=colours, step="post", linewidth=0)
    axes.plot(
        x, [(point.reserved + context) / GIB for point in points], color="black", lw=1, label="reserved + context"
    )
    _limits(axes, points, context, capacity, where)
    _phases(axes, points)
    axes.set(title=title, ylabel="GiB", xlim=(0, max(len(points) - 1, 1)), xticks=[])
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")
    out = io.BytesIO()
    made.savefig(out, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {"Software": None})
    pyplot.close(made)
    return out.getvalue()


def _limits(axes: Any, points: Sequence[PlotPoint], context: int, capacity: int | None, where: str) -> None:
    """The capacity, and the peak with its place."""
    peak = max(range(len(points)), key=lambda i: points[i].allocated)
    high = (points[peak].allocated + context) / GIB
    text = f"{gib(points[peak].allocated + context)}\n{points[peak].phase}" + (f", {where}" if where else "")
    line = {"arrowstyle": "-", "lw": 0.8}
    label = {"xytext": (0, 18), "textcoords": "offset points", "ha": "center", "fontsize": "small"}
    axes.annotate(text, (peak, high), arrowprops=line, **label)
    top = max(max(point.reserved for point in points) + context, 0) / GIB
    if capacity is not None and capacity / GIB < 4 * top:
        axes.axhline(capacity / GIB, color="#c44e52", ls="--", lw=1, label=f"GPU {gib(capacity)}")
        top = max(top, capacity / GIB)
    axes.set_ylim(0, 1.25 * top)


def _phases(axes: Any, points: Sequence[PlotPoint]) -> None:
    start = 0
    for turn, (phase, run) in enumerate(groupby(point.phase for point in points)):
        width = len(list(run))
        if turn % 2:
            axes.axvspan(start, start + width, color="black", alpha=0.04, lw=0)
        if width * 40 > len(points):
            axes.text(
                start + width / 2, 0.01, phase, transform=axes.get_xaxis_transform(), ha="center", fontsize="small"
            )
        start += width
