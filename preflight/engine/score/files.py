"""A table of Jobs in, a table of verdicts out: in parts that are written whole, so that an interrupted run goes on.

The parts lie in a folder beside the output, each with where it ends in the input as its name. They are joined at the
end. A run goes on where the input, its options and the release are those that the folder was begun with.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

from msgspec import Struct
from msgspec.structs import replace
from pydantic_core import to_json

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

from preflight import __version__
from preflight.engine.score.columns import COLUMNS, VERSION, Answer, Row
from preflight.engine.score.naming import Naming, checked
from preflight.engine.score.scorer import Scorer
from preflight.engine.score.tables import AT_ONCE, arrow, stated
from preflight.engine.score.text_rows import Delimiters, File, Lines, numbered
from preflight.vocabulary.errors import UsageError

MANIFEST = "run.json"
UNFINISHED = ".unfinished"


class Source(Protocol):
    """Where rows come from, in steps: bytes, rows or files. `launches` and `left_out` are those of Counted, after the
    last piece."""

    @property
    def launches(self) -> int: ...
    @property
    def left_out(self) -> int: ...
    def size(self) -> int: ...
    def columns(self) -> Sequence[str] | None:
        """The names of its columns; None: each row has its own."""

    def state(self) -> object:
        """What another input, or a changed one, does not have. JSON."""

    def pieces(self, start: int) -> Iterator[tuple[list[object], int]]:
        """Rows from a step on, and the step at which each piece ends. A row is a Job or an Answer."""


class Format(Protocol):
    """How rows are read and verdicts written."""

    def source(self, path: Path) -> Source: ...
    def write(self, path: Path, rows: list[Row]) -> None: ...
    def join(self, path: Path, parts: list[Path]) -> None: ...


class Rows(File, frozen=True):
    """A Job in each row of a Parquet file. `wanted`: the columns that are read; None: all."""

    wanted: tuple[str, ...] | None = None

    def size(self) -> int:
        return int(_parquet().read_metadata(self.path).num_rows)

    def columns(self) -> Sequence[str]:
        names: list[str] = _parquet().read_schema(self.path).names
        return names

    def pieces(self, start: int) -> Iterator[tuple[list[object], int]]:
        at = 0
        with _parquet().ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=AT_ONCE, columns=self.wanted):
                at += batch.num_rows
                if at > start:
                    yield [stated(row) for row in batch.to_pylist()], at


class JsonLines:
    """A Job, as JSON, in each line."""

    def source(self, path: Path) -> Source:
        return Lines(path)

    def write(self, path: Path, rows: list[Row]) -> None:
        path.write_bytes(b"".join(to_json(row) + b"\n" for row in rows))

    def join(self, path: Path, parts: list[Path]) -> None:
        with path.open("wb") as whole:
            for part in parts:
                with part.open("rb") as file:
                    shutil.copyfileobj(file, whole)


class Delimited(Struct, frozen=True):
    """A Job in each line of a table whose columns a character separates."""

    delimiter: str

    def source(self, path: Path) -> Source:
        return Delimiters(path)

    def write(self, path: Path, rows: list[Row]) -> None:
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=self.delimiter, lineterminator="\n").writerows(row.values() for row in rows)

    def join(self, path: Path, parts: list[Path]) -> None:
        with path.open("wb") as whole:
            whole.write((self.delimiter.join(COLUMNS) + "\n").encode())
            for part in parts:
                with part.open("rb") as file:
                    shutil.copyfileobj(file, whole)


class Parquet:
    """A Job in each row, its fields in columns by dotted names. Needs pyarrow."""

    def source(self, path: Path) -> Source:
        return Rows(path)

    def write(self, path: Path, rows: list[Row]) -> None:
        _parquet().write_table(arrow(rows), path)

    def join(self, path: Path, parts: list[Path]) -> None:
        module = _parquet()
        with module.ParquetWriter(path, arrow([]).schema) as writer:
            for part in parts:
                writer.write_table(module.read_table(part))


FORMATS: dict[str, Callable[[], Format]] = {
    ".jsonl": JsonLines, ".ndjson": JsonLines, ".parquet": Parquet,
    ".csv": partial(Delimited, ","), ".tsv": partial(Delimited, "\t"),
}  # fmt: skip


class Counted(Struct, frozen=True):
    """What a run did: rows in this run and before it, Jobs that were judged in this run, and its replays. `launches`:
    rows of a directory that are no Jobs, but launches that were read there. `left_out`: files of a directory that
    hold no job."""

    rows: int
    before: int
    judged: int
    replays: int
    launches: int = 0
    left_out: int = 0


def score_file(
    source: Path,
    out: Path,
    scorer: Scorer,
    progress: Callable[[int, float], None] = lambda rows, share: None,
    naming: Naming | None = None,
) -> Counted:
    """Judges every row of `source`, a table or a directory, and writes `out`. `naming`: the table's own names.

    Raises UsageError for files that cannot be read or written.
    """
    writer = _format(out)
    if out.is_dir():
        raise UsageError(f"{out} is a directory")
    if out.exists() and out.samefile(source):
        raise UsageError(f"{out}: the output would replace the input")
    try:
        rows = source_of(source, scorer.machine)
        checked(source, rows.columns(), naming)
        if naming is not None and source.is_dir():
            raise UsageError(f"{source}: a directory has no columns")
        if naming is not None:
            rows = Named(rows, naming)
        return _run(source, out, scorer, rows, writer, progress)
    except OSError as error:
        raise UsageError(f"{error.filename or source}: {error.strerror or error}") from error
    except ValueError as error:  # pyarrow's own errors are ValueErrors
        raise UsageError(f"{source}: {' '.join(str(error).split())}") from error


def source_of(path: Path, gpu: str | None = None) -> Source:
    """The rows of a table, or of a directory of configurations on a GPU. Raises UsageError."""
    if not path.is_dir():
        return _format(path).source(path)
    from preflight.engine.score.folders import Folder

    return Folder(path, gpu)


class Named(Struct, frozen=True):
    """Rows of a table that has its own names."""

    rows: Source
    naming: Naming
    launches: ClassVar[int] = 0
    left_out: ClassVar[int] = 0

    def size(self) -> int:
        return self.rows.size()

    def columns(self) -> Sequence[str] | None:
        return self.rows.columns()

    def state(self) -> object:
        return self.rows.state(), self.naming.text()

    def pieces(self, start: int) -> Iterator[tuple[list[object], int]]:
        rows = self.rows
        if isinstance(rows, Rows):  # what is not read can be of any type
            rows = replace(rows, wanted=tuple(dict.fromkeys(self.naming.columns.values())))
        for some, end in rows.pieces(start):
            yield [numbered(self.naming.row(row)) for row in some], end


def _run(
    source: Path, out: Path, scorer: Scorer, rows_in: Source, writer: Format, progress: Callable[[int, float], None]
) -> Counted:
    folder = out.with_name(out.name + ".parts")
    said = [VERSION, __version__, str(source.resolve()), rows_in.state(), scorer.machine, scorer.exact]
    run = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    with _alone(folder, out):
        done = _begun(folder, run)
        start, before = (done[-1][0], sum(rows for _, rows, _ in done)) if done else (0, 0)
        total = max(rows_in.size(), 1)
        parts, count = [part for _, _, part in done], 0
        for rows, end in rows_in.pieces(start):
            part = folder / f"{end:020d}-{len(rows)}"
            answers = iter(scorer.score([row for row in rows if not isinstance(row, Answer)]))
            _whole(part, [row.row if isinstance(row, Answer) else next(answers) for row in rows], writer.write)
            parts.append(part)
            count += len(rows)
            progress(before + count, end / total)
        _whole(out, parts, writer.join)
        _removed(folder)
    return Counted(count, before, scorer.judged, scorer.replays, rows_in.launches, rows_in.left_out)


@contextmanager
def _alone(folder: Path, out: Path) -> Iterator[None]:
    """The folder of parts, made if need be, for one run at a time; the lock ends with it. Raises UsageError."""
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError:  # a file has the name
        raise UsageError(f"{folder} is in the way: it holds no parts of a run") from None
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror or error}") from error
    handle = os.open(folder, os.O_RDONLY) if fcntl is not None else None
    try:
        if fcntl is not None and handle is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle or 0)
        raise UsageError(f"{out}: another preflight writes it") from None
    except OSError:  # a network file system without locks
        pass
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _begun(folder: Path, run: str) -> list[tuple[int, int, Path]]:
    """(end in the input, rows, file) of the parts that an interrupted run wrote; parts of others are removed."""
    manifest = folder / MANIFEST
    if manifest.is_file() and manifest.read_text(encoding="utf-8") == run:
        found = [part for part in folder.iterdir() if part.name != MANIFEST and part.suffix != UNFINISHED]
        split = [(part.name.partition("-"), part) for part in found]
        return sorted((int(end), int(rows), part) for (end, _, rows), part in split)
    entries = sorted(folder.iterdir())
    if entries and not manifest.is_file():
        raise UsageError(f"{folder} is in the way: it holds no parts of a run")
    for part in sorted(entries, key=lambda one: one == manifest):  # the last to go: parts without it are in the way
        part.unlink()
    manifest.write_text(run, encoding="utf-8")
    return []


def _removed(folder: Path) -> None:
    """Removes the folder of a run. At once, as far as another run can see: some of its parts would be taken for all."""
    gone = folder.with_name(folder.name + UNFINISHED)
    shutil.rmtree(gone, ignore_errors=True)
    os.replace(folder, gone)
    shutil.rmtree(gone)


def _whole(path: Path, content: Any, write: Callable[[Path, Any], None]) -> None:
    """Writes a file that is there whole or not at all."""
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        write(unfinished, content)
    except OSError as error:  # of a full disk, it has no name
        raise UsageError(f"{path}: {error.strerror or error}") from error
    os.replace(unfinished, path)


def _format(path: Path) -> Format:
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise UsageError(f"{path}: the name of a table ends in {', '.join(FORMATS)}")
    if found is Parquet:
        _parquet()
    return found()


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError('Parquet needs pyarrow: pip install "preflight-lint[batch]"') from error
    return pyarrow.parquet
