"""What fits where: a table of batch by length (or image size) with the process's GiB in each cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from preflight.reports.style import Look
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.estimates import LENGTHS, DeviceEstimate, Estimates
from preflight.vocabulary.job import Job

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
IMAGES = (128, 160, 192, 224, 256, 384, 512)
_MARKS = {"fits": ("green", " "), "at-risk": ("yellow", "?"), "exceeds": ("bold red", "!"), "unknown": ("", " ")}
_CELL = 9


def drawn_map(job: Job, estimate: Callable[[Job], Estimates], gpu: str, look: Look) -> Iterator[str]:
    """Lines: a column for each length that the model takes, a row for each batch until nothing fits any more."""
    field, what, sizes = _axis(job)
    grid = {size: _cell(job, estimate, {field: size, "train.batch_size": 1}) for size in sizes}
    known = [size for size in sizes if grid[size] is not None]
    if not known:
        yield f"no map: nothing is known of this model at any {what}"
        return
    legend = (
        f"; ? at risk, ! exceeds {gpu or 'the GPU'}" if any(c is not None and c.capacity for c in grid.values()) else ""
    )
    yield look.paint(f"GiB of the process by batch and {what}{legend}", "bold")
    yield f"{'batch':>7} " + "".join(f"{size:>{_CELL},} " for size in known)
    for batch in BATCHES:
        cells = [_cell(job, estimate, {field: size, "train.batch_size": batch}) for size in known]
        yield f"{batch:>7} " + "".join(_text(cell, look) for cell in cells)
        if all(cell is None or cell.verdict == "exceeds" for cell in cells):
            break


def _axis(job: Job) -> tuple[str, str, tuple[int, ...]]:
    """(field, its name, values): what a model's inputs vary in beside the batch."""
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


def _text(cell: DeviceEstimate | None, look: Look) -> str:
    if cell is None:
        return " " * (_CELL - 1) + "-  "
    style, mark = _MARKS[cell.verdict]
    return look.paint(f"{cell.process.expected / 2**30:>{_CELL},.1f}{mark}", style)
