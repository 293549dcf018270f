"""`preflight run`: starts a command as it is, records its memory, and says after a death which limit was hit."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from preflight.commands.options import STATED, parse_set, set_option
from preflight.reports import streams
from preflight.vocabulary.errors import PreflightError, ReaderGone, UsageError

if TYPE_CHECKING:
    from preflight.engine.launched import Launched
    from preflight.postmortem.diagnosis import Diagnosis
    from preflight.store.records import KeptRun
    from preflight.vocabulary.estimates import DeviceEstimate, HostEstimate
    from preflight.vocabulary.progress import Progress
    from preflight.vocabulary.watched import WatchedHost, WatchedRank, WatchedRun
    from preflight.watch.checkpoints import Checkpoint
    from preflight.watch.retry import Remedy

SIGNATURE = "preflight run: "
READING_SECONDS = 20.0
"""Seconds for reading the job before the command starts; without a job it starts all the same."""


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": False},
    options_metavar="[OPTIONS] --",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND")
@click.option("--retry", type=click.IntRange(0, 10), default=0, show_default=True, metavar="N",
              help="After memory ran out, start again with a smaller batch or fewer workers.")  # fmt: skip
@click.option("--mode", type=click.Choice(["off", "record", "warn", "enforce"]), default="warn", show_default=True,
              help="warn: say early what will not fit. enforce: end the command where that is certain.")  # fmt: skip
@click.option("--lost-minutes", type=click.FloatRange(min=0), default=30.0, show_default=True, metavar="MINUTES",
              help="Do not start again if more would be lost, from its newest whole checkpoint on.")  # fmt: skip
@click.option("--gpu", type=STATED, metavar="NAME", help="The GPU, for the law, as in a100-80gb.")
@set_option
@click.option("--no-store", is_flag=True, help="Do not keep the records of this run.")
@click.option("--record", "places", type=STATED, multiple=True, metavar="PLACE",
              help="Write the record there as well, as preflight runs --export does.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Say only why the command died.")
def command(
    words: tuple[str, ...],
    retry: int,
    mode: str,
    lost_minutes: float,
    gpu: str | None,
    assignments: tuple[str, ...],
    no_store: bool,
    places: tuple[str, ...],
    quiet: bool,
) -> int:
    """Run a training command and record its memory: on the GPU by phase, and on the host.

    The program is not changed. Its output, its exit status and signals are its own. The records stay on this machine
    (preflight runs shows them), and preflight check knows from then on what the job needs.

    Put the command after --, as in: preflight run -- torchrun train.py
    """
    from preflight.watch.process import end_like

    if not words:
        raise UsageError("name the command after --, as in preflight run -- python train.py")
    asked = _Asked(mode, lost_minutes, gpu, assignments, not no_store, places, quiet)
    given, tries = words, 0
    while True:
        run, known = asked.once(given)
        again = asked.again(run, known, given) if tries < retry else None
        if again is None:
            return end_like(run.status)
        given, tries = again, tries + 1


class _Clock:
    """The time for reading and for estimates. It begins anew each time: a command runs for hours in between."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() - self._begun

    def progress(self) -> Progress:
        """The deadline from now on."""
        from preflight.vocabulary.progress import Deadline, Progress

        self._begun = time.monotonic()
        return Progress(deadline=Deadline(READING_SECONDS, READING_SECONDS, self))


class _Asked:
    """The options, and what is done with each start of the command."""

    def __init__(
        self, mode: str, lost_minutes: float, gpu: str | None, assignments: tuple[str, ...], keeps: bool,
        places: tuple[str, ...], quiet: bool,
    ) -> None:  # fmt: skip
        from preflight.store.exchange import carrier_of

        self._mode, self._lost, self._gpu, self._keeps, self._quiet = mode, lost_minutes, gpu, keeps, quiet
        self._places = tuple(carrier_of(place) for place in places)
        self._set = parse_set(assignments)
        self._environment: dict[str, str] = {}
        self._clock = _Clock()
        self._cause: Diagnosis | None = None
        self._checkpoints: list[Checkpoint] = []

    def _say(self, line: str) -> None:
        with contextlib.suppress(ReaderGone):  # nobody reads it: the command is what counts
            streams.complain(SIGNATURE + line)

    def once(self, words: tuple[str, ...]) -> tuple[WatchedRun, Launched | None]:
        """One start of the command, to its end."""
        from preflight.store.carriers import line_of
        from preflight.vocabulary.watched import WatchedRun
        from preflight.watch.process import MODE, Start, unhurried, watch
        from preflight.watch.text import summary

        known = self._read(words)
        law, several = _law(known), known is not None and known.searches
        if not self._quiet:
            judged = f"; the law says {_need(law)}{' for the worst of the search' * several}" if law is not None else ""
            self._say(f"records the memory of {shlex.join(words)[:200]} and changes nothing in it{judged}")
        watches = self._mode in ("warn", "enforce")
        look = _Forecaster(None if several else known, self._mode, self._say, self._clock).look if watches else None
        about = ""
        if self._mode != "off":
            if self._keeps:
                keep_left_behind(self._say)
            [*_, record] = _records(WatchedRun(-signal.SIGKILL, 0.0), known, None)
            about = line_of(record)
        with unhurried() as mask:
            run = watch(Start(words, {MODE: self._mode, **self._environment}, look, about, self._say, mask))
            if not self._quiet:
                for line in summary(run, None if several else law):
                    self._say(line)
            self._cause = _explained(run)
            self._died(run)
            self._clock.progress()
            records = list(_records(run, known, law)) if self._mode != "off" else []
            if records:
                self._keep(records)
        self._send(records)
        return run, known

    def _read(self, words: tuple[str, ...]) -> Launched | None:
        """What the command is known to train. A command that cannot be read runs all the same."""
        from preflight.engine.check import CheckOptions
        from preflight.engine.launched import launched

        if self._mode == "off":
            return None
        try:
            return launched(
                words, Path.cwd(), CheckOptions(self._gpu, None, self._set, progress=self._clock.progress())
            )
        except UsageError:
            raise
        except PreflightError as error:
            self._say(f"the job was not read: {error}")
        except Exception as error:  # reading is an aid here: the command starts whatever it finds
            self._say(f"the job was not read: {type(error).__name__}")
        return None

    def _died(self, run: WatchedRun) -> None:
        """Why, if memory was the reason."""
        if run.status == 0:
            return
        how = f"signal {-run.status}" if run.status < 0 else f"status {run.status}"
        if self._cause is None:
            if not self._quiet:
                self._say(f"the command ended with {how}; nothing says that memory was the reason")
            return
        cause = self._cause
        when = f" in {cause.when.phase}" if cause.when.phase else ""
        self._say(f"died{when} ({how}): {cause.title}")
        for note in (*cause.notes[:2], *cause.help[:2]):
            self._say(f"  {note}")

    def again(self, run: WatchedRun, known: Launched | None, words: tuple[str, ...]) -> tuple[str, ...] | None:
        """The command for another start, with one setting lower; None: it is not started again."""
        from preflight.engine.launched import Override, lowered
        from preflight.watch.retry import remedy

        if run.end not in ("oom", "killed") or self._cause is None or run.asked_to_end:
            return None
        self._known_checkpoints(run)
        if known is not None and known.searches and self._cause.limit.startswith("gpu"):
            one = "guard.optuna(objective) prunes such trials, and the study goes on"
            how = one if known.study.study.facts.get("search") else "its trials have to be started one by one"
            self._say(f"not started again: the values come from its own search; {how}")
            return None
        found = remedy(self._cause.limit, self._cause.when.phase, known.job if known is not None else None)
        if isinstance(found, str):
            self._say(f"not started again: {found}")
            return None
        title = " ".join(f"{name}={value}" for name, value in found.environment.items())
        if not found.environment:
            known = self._read(words)  # the deadline of the first is over
            changed = lowered(known, found.setting, found.value) if known is not None else "its job is not known"
            if not isinstance(changed, Override):
                self._say(f"not started again: {changed}")
                return None
            words, title = changed.words, changed.title
        return self._from_checkpoint(run, words, title, found)

    def _known_checkpoints(self, run: WatchedRun) -> None:
        """Adds those of this start; one that it wrote again is as it is now."""
        from preflight.watch.checkpoints import checkpoints

        known = {one.path: one for one in (*self._checkpoints, *reversed(checkpoints(run.ranks)))}
        self._checkpoints = sorted((one for one in known.values() if Path(one.path).exists()), key=lambda one: -one.at)

    def _from_checkpoint(
        self, run: WatchedRun, words: tuple[str, ...], title: str, found: Remedy
    ) -> tuple[str, ...] | None:
        """The command that goes on where the run had come to, if that is known."""
        from preflight.engine.launched import resumed
        from preflight.watch.retry import going_on

        known = self._read(words)
        going = going_on(
            words, self._checkpoints, known is not None and known.job.train.resumes not in (None, "no"),
            found.setting == "train.batch_size", next((one.transformers for one in run.ranks if one.transformers), ""),
            lambda path: resumed(known, path) if known is not None else None,
        )  # fmt: skip
        if going.command is None:
            self._say(f"not started again: {going.text}")
            return None
        saved = going.checkpoint.at if going.checkpoint is not None else 0.0
        lost = min(run.seconds, max(0.0, time.time() - saved)) / 60
        if lost > self._lost:
            self._say(f"not started again {going.text}: {lost:.0f} minutes would be lost (--lost-minutes)")
            return None
        self._environment.update(found.environment)
        self._say(f"starting again {going.text}, {title}: {shlex.join(going.command)[:400]}")
        return going.command

    def _keep(self, records: Sequence[KeptRun]) -> None:
        """The records in the store. It cannot end the run otherwise."""
        from preflight.store.database import StoreError, place
        from preflight.store.runs import add

        try:
            if self._keeps:
                add(*records)
        except (StoreError, OSError) as error:
            wanted = place() is not None
            if wanted or not self._quiet:
                self._say(f"the records are not kept: {error}{_kept_elsewhere(records) if wanted else ''}")

    def _send(self, records: Sequence[KeptRun]) -> None:
        """The records in the places that are named."""
        for carrier in self._places if records else ():
            try:
                carrier.put(records)
            except PreflightError as error:
                self._say(str(error))


def _kept_elsewhere(records: Sequence[KeptRun]) -> str:
    """Where they are, if the store cannot have them."""
    from preflight.store.exchange import File

    try:
        path = Path(tempfile.gettempdir()) / f"preflight-{records[-1].id[:12]}.jsonl"
        File(path).put(records)
    except (PreflightError, OSError):
        return ""
    return f"; preflight runs --import {path} brings them in"


def keep_left_behind(say: Callable[[str], None]) -> None:
    """Keeps the records of runs whose `preflight run` was killed with them."""
    from preflight.store.database import StoreError, place
    from preflight.store.records import NotARun, kept_run, of_plain
    from preflight.store.runs import add
    from preflight.vocabulary.watched import WatchedRun
    from preflight.watch.process import ABOUT, left_behind
    from preflight.watch.records import ranks_of

    for folder in left_behind() if place() is not None else ():
        try:
            known = of_plain(json.loads((folder / ABOUT).read_text()))
            found = kept_run(WatchedRun(-signal.SIGKILL, 0.0, ranks_of(folder)), None, None)
            add(replace(found, id=known.id, started=known.started, job=known.job, data=known.data))
            say(f"a run that was killed with its preflight run is kept: {known.id[:8]}")
        except (PreflightError, StoreError, NotARun, OSError, ValueError) as error:
            say(f"the records in {folder} are not kept: {error}")
            continue
        shutil.rmtree(folder, ignore_errors=True)


def _records(run: WatchedRun, known: Launched | None, law: DeviceEstimate | None) -> Iterator[KeptRun]:
    """What is kept. Of a search that ended well nobody knows which jobs ran, but for trials that the guard has told.
    One that died says that the job that needs the most does not fit either."""
    from preflight.engine.ask import job_of
    from preflight.store.records import kept_run, of_trial

    for trial in (trial for rank in run.ranks[:1] for trial in rank.trials):
        case = known.case if known is not None else None
        try:
            job = job_of(trial.job)
            found = case.estimate(job).device if case is not None else None
        except Exception:  # a job that the program made up, or no time for its law
            continue
        yield of_trial(run, trial, job, found)
    data = known.data if known is not None else ""
    if known is None or (known.searches and run.end != "oom"):
        yield kept_run(run, None, None, data)
    else:
        yield kept_run(run, known.job, law, data)


class _Forecaster:
    """Looks at the records while the command runs, and says each thing once."""

    def __init__(self, known: Launched | None, mode: str, say: Callable[[str], None], clock: _Clock) -> None:
        self._known, self._mode, self._say, self._clock = known, mode, say, clock
        self._on = True
        self._said: set[str] = set()
        self._needs: dict[int, HostEstimate | None] = {}
        """Bytes of a sample -> what the host needs with it."""

    def look(self, folder: Path, host: WatchedHost) -> int | None:
        """A signal for the command, where it is told to end what cannot go on. An error here ends the looking alone."""
        try:
            return self._signal(folder, host) if self._on else None
        except Exception as error:
            self._on = False
            self._say(f"what is to come is not judged any more: {type(error).__name__}: {error}")
            return None

    def _signal(self, folder: Path, host: WatchedHost) -> int | None:
        from preflight.watch.forecast import host_forecasts
        from preflight.watch.records import ranks_of

        ranks = ranks_of(folder)
        ends = False
        for kind, text, certain in (
            *self._of_gpu(ranks),
            *((one.kind, one.text, one.certain) for one in host_forecasts(host, ranks, self._need_of_host)),
        ):
            if kind not in self._said:
                self._said.add(kind)
                stops = certain and self._mode == "enforce"
                ends = ends or stops
                self._say(f"{text}{': ending the command' if stops else ''}")
        return signal.SIGTERM if ends else None

    def _of_gpu(self, ranks: tuple[WatchedRank, ...]) -> Iterator[tuple[str, str, bool]]:
        from preflight.vocabulary.words import gib
        from preflight.watch.forecast import forecast
        from preflight.watch.text import highest

        law = _law(self._known)
        if law is None or "gpu" in self._said or any(one.gpus > 1 for one in ranks):  # the law is of one GPU
            return
        capacity = next((one.machine.gpu_memory for one in ranks if one.machine.gpu_memory), None)
        share = min((one.share for one in ranks if one.share), default=None)
        found = forecast(law, highest(ranks), max((one.steps for one in ranks), default=0), capacity, share)
        if found is not None:
            takes = f"training takes {found.residual:.2f} of what the law says"
            need = f"{found.phase} is expected to need {gib(found.expected)} of {gib(found.capacity)}"
            yield "gpu", f"{need} ({takes})", found.certain

    def _need_of_host(self, sample: int) -> HostEstimate | None:
        from preflight.vocabulary.edits_of_job import with_fields

        case = self._known.case if self._known is not None else None
        if case is None or "law" in self._said or case.job.data.sample_bytes is not None:
            return None
        if sample not in self._needs:
            self._clock.progress()
            self._needs[sample] = case.estimate(with_fields(case.job, {"data.sample_bytes": sample})).host
        return self._needs[sample]


def _law(known: Launched | None) -> DeviceEstimate | None:
    return known.study.space.worst.estimates.device if known is not None else None


def _need(law: DeviceEstimate) -> str:
    from preflight.vocabulary.words import gib

    room = f" of {gib(law.capacity)}" if law.capacity is not None else ""
    return f"{'at least ' if law.lower_bound else ''}{gib(law.process.expected)}{room} on the GPU"


def _explained(run: WatchedRun) -> Diagnosis | None:
    from preflight.postmortem.watched import explained
    from preflight.watch.host import CGROUPS, control_group

    group = control_group()
    inside = group is not None and group.folder.is_relative_to(CGROUPS)
    return explained(run, str(group.folder.relative_to(CGROUPS)) if inside and group is not None else "")
