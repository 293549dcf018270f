"""The map of `preflight estimate --map`: the memory of the process by batch and length, or by batch and image size."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from preflight.reports.style import Cell, Look, table
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.estimates import LENGTHS, DeviceEstimate, Estimates
from preflight.vocabulary.job import Job

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
IMAGES = (128, 160, 192, 224, 256, 384, 512)
_MARKS = {"fits": ("green", ""), "at-risk": ("yellow", "?"), "exceeds": ("bold red", "!"), "unknown": ("", "")}


def drawn_map(job: Job, estimate: Callable[[Job], Estimates], gpu: str, look: Look) -> Iterator[str]:
    """The lines: a column for each length that the model accepts, a row for each batch until nothing fits."""
    field, what, sizes = _axis(job)
    grid = {size: _cell(job, estimate, {field: size, "train.batch_size": 1}) for size in sizes}
    known = [size for size in sizes if grid[size] is not None]
    if not known:
        yield f"no map: the memory of this model is unknown at every {what}"
        return
    legend = (
        f"; ? at risk, ! exceeds {gpu or 'the GPU'}" if any(c is not None and c.capacity for c in grid.values()) else ""
    )
    yield look.paint(f"GiB of the process by batch and {what}{legend}", "bold")
    rows: list[list[Cell]] = []
    for batch in BATCHES:
        cells = [_cell(job, estimate, {field: size, "train.batch_size": batch}) for size in known]
        rows.append([str(batch), *map(_text, cells)])
        if all(cell is None or cell.verdict == "exceeds" for cell in cells):
            break
    yield from table(rows, look, ("batch", *(f"{size:,}" for size in known)), right=range(len(known) + 1))


def _axis(job: Job) -> tuple[str, str, tuple[int, ...]]:
    """The Job field of the columns, its name in words, and its values."""
    train = job.train
    images = job.task in ("image-classification", "diffusion") or (
        train.seq_len is None and train.image_size is not None
    )
    if images:
        stated = (train.image_size,) if train.image_size else ()
        return "train.image_size", "image size", tuple(sorted({*IMAGES, *stated}))
    stated = (train.seq_len,) if train.seq_len else ()
    return "train.seq_len", "length", tuple(sorted({*LENGTHS, *stated}))


def _cell(job: Job, estimate: Callable[[Job], Estimates], values: dict[str, int | None]) -> DeviceEstimate | None:
    return estimate(with_fields(job, values)).device


def _text(cell: DeviceEstimate | None) -> tuple[str, str]:
    """A figure after its mark, and its style."""
    if cell is None:
        return "-", ""
    style, mark = _MARKS[cell.verdict]
    return f"{mark}{cell.process.expected / 2**30:,.1f}", style
