"""A run whose time is over: what is not known is never said to be fine, and what is known is said.

No test waits. The clock stands still until the run says that it does a certain thing; then the time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from command_line import PROGRAM, SWEEP, TooLarge, bound, estimate, fake_engine
from msgspec.structs import replace

from preflight.engine.check import CheckOptions, analyse, check, setup
from preflight.engine.files import batches
from preflight.engine.rounds import fixed
from preflight.system import observed
from preflight.vocabulary.budgets import TRACE_SECONDS
from preflight.vocabulary.findings import Finding, Severity
from preflight.vocabulary.outcome import Report
from preflight.vocabulary.progress import Deadline, Progress, TimeOver
from preflight.vocabulary.rule import Case, Rule
from preflight.vocabulary.values import Cause

Write = Callable[[Mapping[str, str]], Path]

SMALL = SWEEP.replace("64", "2")
SEARCH = SWEEP.replace("{value: 64}  #", "{min: 1, max: 400}  #")
TWO_AT_ONCE = (
    "#!/bin/bash\n#SBATCH --gres=gpu:2\npython train.py --batch_size 64 &\npython train.py --batch_size 2 &\nwait\n"
)


@dataclass
class Clock:
    """Stands still until something is said that has `last` in it. `said`: all that was said."""

    last: str = ""
    now: float = 0.0
    said: list[str] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    @contextmanager
    def shown(self, what: str) -> Iterator[None]:
        self.said.append(what)
        if self.last and self.last in what:
            self.now = 100.0
        yield

    def progress(self, seconds: float = 30.0) -> Progress:
        return Progress(self.shown, Deadline.after(seconds, self))


def report(root: Path, clock: Clock, **options: object) -> Report:
    [batch] = batches([str(root)], root, from_hook=False)
    return check(*setup(batch, CheckOptions(gpu="RTX 4090", progress=clock.progress(), **options), root))  # type: ignore[arg-type]


def rules(found: Report) -> list[str]:
    return sorted(finding.rule for finding in found.findings)


@pytest.fixture
def three(project: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three programs, each with a sweep that does not fit."""
    fake_engine(monkeypatch)
    return project(
        {f"{name}/{path}": text for name in "abc" for path, text in (("s.yaml", SWEEP), ("train.py", PROGRAM))}
    )


# --- what must not be said ------------------------------------------------------------------------------------------


def test_nothing_is_said_to_fit_that_was_not_judged(three: Path) -> None:
    found = report(three, Clock("judging study 2"))
    assert [result.unjudged is None for result in found.studies] == [True, False, False]
    for result in found.studies[1:]:
        assert result.unjudged is not None
        assert result.unjudged.cause is Cause.time_limit
        counts, worst = result.space.counts, result.space.worst.estimates
        assert (counts.fits, counts.unsafe, worst.device, worst.host) == (0, 0, None, None)
    assert [finding.study for finding in found.findings if finding.rule == "too-large"] == [0]


def test_half_a_check_proves_no_fix(three: Path) -> None:
    """In the copy with the edit, the finding is gone because its study was not judged."""
    found = report(three, Clock("judging study 1 of 1"))  # the first time that one study is judged is in a proof
    assert [finding.fix for finding in found.findings] == [None] * 4
    assert [finding.unproved for finding in found.findings if finding.rule == "too-large"] == [Cause.time_limit] * 3


def test_a_comment_is_not_called_unused_where_its_finding_had_no_time(
    project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(monkeypatch)
    root = project(
        {"s.yaml": SWEEP.replace("# as in the paper", "# preflight: ignore[too-large] known"), "train.py": PROGRAM}
    )
    assert rules(report(root, Clock())) == []
    assert rules(report(root, Clock("judging study 1"))) == ["time-limit"]


def test_a_launch_is_not_judged_without_those_beside_it(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule would think that the launch has the node for itself."""
    seen: list[int] = []

    class Beside(Rule):
        """It looks."""

        name = "beside"
        summary = "x"

        def check(self, case: Case) -> Iterator[Finding]:
            seen.append(len(case.beside))
            yield from ()

    fake_engine(monkeypatch, Beside)
    root = project({"job.sh": TWO_AT_ONCE, "train.py": PROGRAM})
    assert report(root, Clock()).incomplete == ""
    assert seen == [1, 1]
    seen.clear()
    found = report(root, Clock("judging study 2"))
    assert (seen, found.incomplete) == ([], "2 of 2 studies were not judged within 30 s (--time-limit)")


def test_the_result_is_not_kept(three: Path) -> None:
    for clock, flaws in ((Clock(), []), (Clock("judging study 3"), ["not finished within 30 s (--time-limit)"])):
        record = observed.start()
        try:
            report(three, clock)
        finally:
            observed.stop()
        assert list(record.flaws) == flaws


# --- what must be said ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "said", "found"),
    [
        ("", "", ["too-large"] * 3),
        ("reading 1 ", "6 of 6 files were not read", []),
        ("reading 6 ", "3 of 6 files were not read", []),
        ("judging study 1 of 3", "3 of 3 studies were not judged", []),
        ("judging study 2 of 3", "2 of 3 studies were not judged, 1 fix was not proved", ["too-large"]),
        ("judging study 3 of 3", "1 of 3 studies was not judged, 2 fixes were not proved", ["too-large"] * 2),
        ("proving fix 1", "3 fixes were not proved", ["too-large"] * 3),
        ("proving fix 3", "1 fix was not proved", ["too-large"] * 3),
    ],
)  # fmt: skip
def test_what_there_was_no_time_for(last: str, said: str, found: list[str], three: Path) -> None:
    result = report(three, Clock(last))
    assert result.incomplete == (f"{said} within 30 s (--time-limit)" if said else "")
    assert rules(result) == sorted([*found, *(["time-limit"] if said else [])])
    assert [f.severity for f in result.findings if f.rule == "time-limit"] == [Severity.warning] * bool(said)
    assert result.unrecognised == ()


def test_a_time_that_is_over_inside_a_file(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine(monkeypatch)
    long = PROGRAM + "".join(f"x{at} = {at} + 1\n" for at in range(200))
    root = project({"a/s.yaml": SWEEP, "a/train.py": PROGRAM, "b/s.yaml": SWEEP, "b/train.py": long})
    found = report(root, Clock("files (b/s.yaml)"))
    assert found.incomplete == "3 of 4 files were not read within 30 s (--time-limit)"  # the one under way, too
    assert report(root, Clock()).incomplete == ""


def test_a_time_that_is_over_at_the_start(three: Path) -> None:
    clock = Clock(now=100.0)
    [batch] = batches([str(three)], three, from_hook=False)
    progress = Progress(clock.shown, Deadline(30, 99.0, clock))
    found = check(*setup(batch, CheckOptions(progress=progress), three))
    assert found.incomplete == "6 of 6 files were not read within 30 s (--time-limit)"
    assert clock.said == []


def test_fixes_that_were_proved_in_time_are_offered(three: Path) -> None:
    found = report(three, Clock("proving fix 2"))
    own = [finding for finding in found.findings if finding.rule == "too-large"]
    assert [finding.fix is not None for finding in own] == [True, False, False]
    assert own[1].notes == ("a fix is possible, but was not proved within 30 s (--time-limit)",)


def test_fixes_that_were_proved_in_time_are_written(three: Path) -> None:
    clock = Clock("proving fix 2")
    [batch] = batches([str(three)], three, from_hook=False)
    opened, asked = setup(batch, CheckOptions(gpu="RTX 4090", progress=clock.progress()), three)
    result = fixed(opened, asked, False, lambda found: found)
    assert (list(result.texts), result.count) == (["a/s.yaml"], 1)
    assert result.after.incomplete


def test_a_count_ends_in_the_middle_of_a_search(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    from preflight.memory import device

    fake_engine(monkeypatch)
    root = project({"s.yaml": SEARCH, "train.py": PROGRAM})
    clock, asked = Clock(), []

    def counted(*arguments: object) -> object:
        asked.append(arguments)
        if len(asked) == 5:
            clock.now = 100.0
        return bound(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(device, "bound", counted)
    found = report(root, clock)
    assert (len(asked), rules(found)) == (5, ["time-limit"])


def test_a_rule_is_ended_in_what_it_tries(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The study of a rule that did not come to its end counts as not judged."""
    clock = Clock()

    class Tries(TooLarge):
        def check(self, case: Case) -> Iterator[Finding]:
            yield from super().check(case)
            if case.index == 1:
                clock.now = 100.0
                case.estimate(case.job.model_copy(update={"task": "other"}))

    fake_engine(monkeypatch, Tries)
    found = report(three, clock)
    assert [result.unjudged is None for result in found.studies] == [True, False, False]
    assert rules(found) == ["time-limit", "too-large"]


def test_a_rule_about_all_studies_that_does_not_come_to_its_end(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Rule):
        """It is late."""

        name = "late"
        summary = "x"

        def check_run(self, cases: object) -> Iterator[Finding]:
            raise TimeOver("late")

    fake_engine(monkeypatch, Late)
    assert report(three, Clock()).incomplete == "1 rule about all studies was not asked within 30 s (--time-limit)"


def test_the_severity_is_the_projects(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine(monkeypatch)
    settings = '[rules.time-limit]\nseverity = "error"\n'
    root = project({"preflight.toml": settings, "s.yaml": SMALL, "train.py": PROGRAM})
    assert [finding.severity for finding in report(root, Clock("judging")).findings] == [Severity.error]


def test_it_is_said_whatever_is_selected(three: Path) -> None:
    assert rules(report(three, Clock("judging study 1"), select=("too-large",))) == ["time-limit"]


def test_what_is_said_while_a_check_works(three: Path) -> None:
    clock = Clock()
    report(three, clock)
    files = [f"{name}/{path}" for name in "abc" for path in ("s.yaml", "train.py")]
    steps = [f"reading {number} of 6 files ({path})" for number, path in enumerate(files, 1)]
    steps += [f"judging study {number} of 3 ({name}/s.yaml)" for number, name in enumerate("abc", 1)]
    for number, name in enumerate("abc", 1):
        steps += [f"proving fix {number} of 3 (too-large in {name}/s.yaml)", f"judging study 1 of 1 ({name}/s.yaml)"]
    assert clock.said == steps


# --- a trace --------------------------------------------------------------------------------------------------------


def test_a_trace_gets_the_time_that_is_left_and_its_end_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    from preflight.memory.device import laws_of_job, traced_laws
    from preflight.memory.device.fit.subprocess import TraceError
    from preflight.memory.device.resolve import resolve
    from preflight.vocabulary.caches import BoundedCache
    from preflight.vocabulary.job import build
    from preflight.vocabulary.tracing import TRACE
    from preflight.vocabulary.values import Unknown

    clock, given = Clock(), []

    def killed(traces: object, interpreter: str | None, seconds: float, spent: object) -> object:
        given.append(seconds)
        clock.now += seconds
        raise TraceError("the trace took too long")

    monkeypatch.setattr(traced_laws, "request_traces", killed)
    monkeypatch.setattr(traced_laws, "TRACED", BoundedCache(4))
    monkeypatch.setattr(traced_laws, "can_trace", lambda tracing: True)
    job = {"model.target": "timm:resnet18", "task": "image-classification", "train.image_size": 61}
    resolved = resolve(build({**job, "train.batch_size": 3}))
    assert not isinstance(resolved, Unknown)
    with pytest.raises(TimeOver):
        laws_of_job.laws_for(resolved, "train", replace(TRACE, progress=clock.progress()))
    assert (given, clock.said, len(traced_laws.TRACED)) == ([30.0], ["tracing timm:resnet18"], 0)
    with pytest.raises(TimeOver):  # before a process is asked
        laws_of_job.laws_for(resolved, "train", replace(TRACE, progress=Progress(deadline=Deadline(30, -1, clock))))
    assert given == [30.0]
    found = laws_of_job.laws_for(resolved, "train", replace(TRACE, progress=clock.progress(600)))
    assert isinstance(found, Unknown)
    assert found.cause is Cause.cannot_trace
    assert given == [30.0, TRACE_SECONDS]


def test_studies_are_found_without_a_limit(three: Path) -> None:
    [batch] = batches([str(three)], three, from_hook=False)
    found = analyse(*setup(batch, CheckOptions(), three))
    assert not found.incomplete
    assert estimate(found.studies[0].space.worst.job)
