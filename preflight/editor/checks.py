"""Checks of open files with their unsaved texts, by the one engine. Estimates are kept from one check to the next."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from preflight.engine.check import CheckOptions, CheckSetup, check, outcome_of, setup
from preflight.engine.files import Batch, batch_of
from preflight.engine.rounds import fixed
from preflight.vocabulary.budgets import ProofTime
from preflight.vocabulary.outcome import Outcome, Report
from preflight.vocabulary.progress import Deadline, Progress
from preflight.vocabulary.project import BOM, MARKED, Project

NO_OPTIONS = CheckOptions()


class Checked(Struct, frozen=True):
    """What a check of some texts says. `proved`: whether its fixes were proved, so that it has any."""

    outcome: Outcome
    setups: tuple[CheckSetup, ...]
    proved: bool

    def fixed_texts(self) -> dict[Path, str]:
        """The files that the safe fixes change, with their new texts."""
        found: dict[Path, str] = {}
        for report, asked in zip(self.outcome.reports, self.setups, strict=True):
            texts = fixed(report.project, replace(asked, proofs=ProofTime()), False, lambda report: report).texts
            found |= {report.project.root / path: text for path, text in texts.items()}
        return found


class Checker:
    """Checks one set of texts after another, never two at a time. `superseded` says that nobody wants the check that
    runs: it then ends soon, with a result that must not be used."""

    def __init__(self, cwd: Path, superseded: Callable[[], bool], options: CheckOptions = NO_OPTIONS) -> None:
        self.cwd = cwd
        self.doing = ""
        """What the check that runs is about: "judging study 2 of 5 (train.sh)"."""
        deadline = Deadline(math.inf, 1.0, lambda: math.inf if superseded() else -math.inf)
        progress = Progress(self._shown, deadline)
        self._options = replace(options, progress=progress)
        self._kept: dict[Path, CheckSetup] = {}

    @contextmanager
    def _shown(self, text: str) -> Iterator[None]:
        before, self.doing = self.doing, text
        try:
            yield
        finally:
            self.doing = before

    def forget(self) -> None:
        """Drops what is kept: a file changed that laws or machines may be read from."""
        self._kept.clear()

    def check(self, texts: Mapping[Path, str], prove: bool) -> Checked:
        """The report of these files, as if they had these texts. Raises PreflightError, as where settings are wrong."""
        reports: list[Report] = []
        setups: list[CheckSetup] = []
        for batch, overlay in self._batches(texts):
            project, asked = setup(batch, self._options, self.cwd)
            kept = self._kept.get(batch.root)
            same = kept is not None and kept.said == asked.said and kept.trust == asked.trust
            if kept is not None and same and kept.tracing == asked.tracing:
                asked = replace(asked, estimators=kept.estimators)
            self._kept[batch.root] = asked
            project.overlay.update(overlay)
            reports.append(check(project, asked, prove))
            setups.append(asked)
        return Checked(outcome_of(reports, self.cwd), tuple(setups), prove)

    def _batches(self, texts: Mapping[Path, str]) -> list[tuple[Batch, dict[str, str]]]:
        """The files by project. A file that the settings exclude is not checked, but others read its text."""
        found: dict[Path, tuple[Batch, dict[str, str]]] = {}
        for path, text in texts.items():
            batch = batch_of(path, self.cwd)
            known, overlay = found.get(batch.root, (replace(batch, named=()), {}))
            project = Project(batch.root, batch.settings)
            name = batch.named[0] if batch.named else project.relative(path.parent / path.name)
            if name is not None:
                overlay[name] = text.removeprefix(BOM) if name.endswith(MARKED) else text
            # Walked files are those of no known kind, without an error: an editor opens every kind of text.
            found[batch.root] = (replace(known, walked=(*known.walked, *batch.named)), overlay)
        return list(found.values())
