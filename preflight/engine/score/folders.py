"""A directory of configurations as a table of Jobs: a row for each Job that a file states, and for each launch that the
other files describe, as `check` reads them. Nothing is traced and no code is run."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec.structs import replace

from preflight.engine import check
from preflight.engine.file_findings import findings
from preflight.engine.files import batches
from preflight.engine.job_by_hand import in_found_file
from preflight.engine.score.columns import Answer, Row, of_error, of_estimates
from preflight.system.files import real
from preflight.vocabulary.errors import PreflightError
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.tracing import SHIPPED_ONLY

AT_ONCE = 500
"""Files that are read together."""


class Folder:
    """The files below a directory whose names a dialect may know. `gpu`: the one of all jobs."""

    def __init__(self, root: Path, gpu: str | None) -> None:
        self.root, self.gpu = real(root), gpu
        self.launches = 0
        """Rows of launches, after the last piece."""
        self.left_out = 0
        """Files that hold no job, and none that a reader is sure of, after the last piece."""
        found = batches([str(root)], Path.cwd(), from_hook=False)
        self.paths = sorted({batch.root / name for batch in found for name in (*batch.named, *batch.walked)})

    def size(self) -> int:
        """Steps: a file each, and one for all that hold no Job."""
        return len(self.paths) + 1

    def columns(self) -> None:
        """Each file states its own."""

    def state(self) -> str:
        """A text that another set of files, or a changed one, does not have."""
        text = hashlib.sha256()
        for path in self.paths:
            status = path.stat()
            text.update(f"{path}\n{status.st_size} {status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
        return text.hexdigest()

    def pieces(self, start: int) -> Iterator[tuple[list[object], int]]:
        """Rows from a step on, and the step at which each piece ends."""
        others: set[Path] = set()
        for first in range(0, len(self.paths), AT_ONCE):
            rows = []
            for path in self.paths[first : first + AT_ONCE]:
                row = self._stated(path)
                if row is None:
                    others.add(path)
                else:
                    rows.append(row)
            if first >= start:
                yield rows, min(first + AT_ONCE, len(self.paths))
        if start <= len(self.paths):
            yield list(self._launches(others)), len(self.paths) + 1

    def _stated(self, path: Path) -> object | None:
        """The Job that a file states, or what is wrong with it; None: it holds something else."""
        try:
            job = in_found_file(path, self._name(path))
        except PreflightError as error:
            return Answer({**of_error(str(error)), "id": self._name(path)})
        return None if job is None else {**job, "id": self._name(path)}

    def _launches(self, others: Collection[Path]) -> Iterator[Answer]:
        """The verdicts on what these files describe. Of a search, its worst combination."""
        counts: Counter[str] = Counter()
        for batch in batches([str(self.root)], Path.cwd(), from_hook=False):
            names = tuple(name for name in batch.walked if batch.root / name in others)
            if not names:
                continue
            options = check.CheckOptions(self.gpu)
            project, asked = check.setup(replace(batch, walked=names), options, Path.cwd(), rules=False)
            found = check.analyse(project, replace(asked, tracing=SHIPPED_ONLY))
            for result in found.studies:
                name = self._name(project.root / result.study.paths[0])
                counts[name] += 1
                self.launches += 1
                yield Answer(_row(result, name if counts[name] == 1 else f"{name}#{counts[name]}"))
            for one in found.skipped:
                told = [finding.message for finding in findings((one,), project, ())]
                if told:
                    yield Answer({**of_error("; ".join(told), one.kind), "id": self._name(project.root / one.path)})
                else:
                    self.left_out += 1

    def _name(self, path: Path) -> str:
        name = path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
        return name.encode("utf-8", "replace").decode()


def _row(result: StudyResult, name: str) -> Row:
    """The verdict on a study, by its worst job."""
    if result.unjudged is not None:
        row: Row = {**of_error(result.unjudged.words, result.unjudged.cause.value)}
    else:
        worst = result.space.worst
        row = of_estimates(worst.estimates, worst.job, result.standings.values())
    return {**row, "id": name}
