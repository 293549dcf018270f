"""From a command to the result of its dry run: the arrows of this room in their order."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from preflight.dryrun import facts, process, report_of_process
from preflight.dryrun.command import StartedProgram, started_by
from preflight.dryrun.facts import DryRunEstimate
from preflight.dryrun.process import Answer, Asked, NoAnswer
from preflight.dryrun.report_of_process import Holders, RunReport
from preflight.memory.device.law import catalogue
from preflight.memory.device.workloads import pipelines
from preflight.vocabulary.machine import Gpu

_ON_CPU = (
    "the program trains on the CPU, and takes no memory of a GPU: if it has an option for the GPU (as --cuda or "
    "--device cuda), give it"
)
MOST_TRIES = 8
"""Times that a program is started again with shapes that its errors told."""
_MADE_UP = ("made up", "made-up", "stand for it")
_NO_STEP = {
    "ended": "the program ended without an optimizer step on the GPU",
    "exited": "the program ended without an optimizer step on the GPU",
    "finished": "the program made no optimizer step on the GPU",
}


class DryRunResult(Struct, frozen=True):
    """A dry run that has an answer."""

    words: tuple[str, ...]
    program: StartedProgram
    answer: Answer
    report: RunReport
    found: DryRunEstimate
    holders: Holders
    gpu: Gpu | None


def dry_run(words: Sequence[str], asked: Asked | None, gpu: Gpu | None, gpus: int | None = None) -> DryRunResult:
    """Run a command dry. Raises UsageError or NoAnswer, each with one line for the user."""
    program = started_by(words, gpus)
    asked = replace(asked, program=program) if asked is not None else Asked(program)
    answer = _answer(asked, gpu)
    report = _checked(answer, program)
    directory = os.getcwd()
    found = facts.estimated(report, program, gpu, directory)
    holders = report_of_process.holders(report, directory)
    return DryRunResult(tuple(words), program, answer, report, found, holders, gpu)


def report_of(asked: Asked, gpu: Gpu | None, settings: Mapping[str, Any]) -> RunReport:
    """The report of another run of the same program. Raises NoAnswer."""
    return _checked(_answer(replace(asked, settings={**asked.settings, **settings}), gpu), asked.program)


def _answer(asked: Asked, gpu: Gpu | None) -> Answer:
    """The answer with the most steps. The program is started again while its errors tell shapes of arrays that are not
    there."""
    settings = {**_shown(gpu), "models": known_models(), **asked.settings}
    end = time.monotonic() + asked.limits.seconds
    seen: list[object] = []
    best: Answer | None = None
    while True:
        answer = process.run(replace(asked, settings=settings))
        best = answer if best is None or _steps(answer) >= _steps(best) else best
        learnt = (answer.report or {}).get("learnt")
        if not isinstance(learnt, dict) or learnt in seen or len(seen) == MOST_TRIES or time.monotonic() > end:
            return best
        seen.append(learnt)
        settings = {**settings, "tried": learnt}


def _steps(answer: Answer) -> int:
    found = (answer.report or {}).get("steps")
    return max((one for one in found if isinstance(one, int)), default=0) if isinstance(found, list) else 0


def _shown(gpu: Gpu | None) -> dict[str, Any]:
    """What the program is told about its GPU."""
    if gpu is None:
        return {}
    return {"gpu_name": gpu.name, "gpu_memory": gpu.capacity, "capability": list(gpu.compute_capability)}


def known_models() -> dict[str, Any]:
    """The catalogue of models for the process, by every spelling of a name."""
    found: dict[str, Any] = {}
    for name in catalogue.names():
        model = catalogue.find(name)
        if model is None or model.target is not None:
            continue
        row = {"architecture": model.architecture, "config": dict(model.config)}
        rows = {"": row, **{f"/{part}": one for part, one in pipelines.parts(name, row).items()}}
        for spelling in (name, *model.aliases, name.rpartition("/")[2]):
            for part, one in rows.items():
                found.setdefault(f"{spelling}{part}".lower(), one)
    for name, vae in pipelines.data()["vae_names"].items():
        found.setdefault(name.lower(), {"architecture": "AutoencoderKL", "config": pipelines.data()["vaes"][vae]})
    return found


def _checked(answer: Answer, program: StartedProgram) -> RunReport:
    """The report, if it has an optimizer step. Raises NoAnswer with the reason where it does not."""
    if answer.report is None:
        raise NoAnswer(_without_report(answer, program))
    if answer.report.get("end") == "refused":
        raise NoAnswer(str(answer.report.get("reason", "")))
    report = report_of_process.read(answer.report)
    if report.whole_steps and report.events:
        return report
    if report.whole_steps:
        raise NoAnswer(_ON_CPU)
    at = f" at {report.place}" if report.place else ""
    if report.end == "stopped":
        raise NoAnswer(f"{report.reason} before the first optimizer step{at}; --time-limit SECONDS allows more")
    if report.end == "failed":
        said = _last_words(answer) if report.reason.startswith("the program ended with") else ""
        raise NoAnswer(f"the program failed before its first optimizer step: {report.reason}{said}{at}{_hint(report)}")
    called = f": {report.reason}{at}" if report.end == "exited" else ""
    nothing = " (nothing was put on the GPU)" if not report.events else ""
    raise NoAnswer(f"{_NO_STEP.get(report.end, report.reason)}{called}{nothing}{_hint(report)}")


def _hint(report: RunReport) -> str:
    """What a dry run refused or made up, if that may be why the program failed."""
    made = [text for text, _ in report.assumptions if any(one in text for one in _MADE_UP)]
    stands = f"; its data may be why: {'; '.join(made[:2])}" if made else ""
    refused = [one for one in report.refused if one not in report.reason]
    option = " (--allow-program NAME allows it)" if any("starting the program" in one for one in refused) else ""
    return stands + (f"; a dry run does not allow: {', '.join(refused[:3])}{option}" if refused else "")


def _last_words(answer: Answer) -> str:
    """The last line that the program wrote: argparse's error, for one."""
    lines = [line.strip() for line in answer.output.splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""


def _without_report(answer: Answer, program: StartedProgram) -> str:
    """Why a process ended without a report."""
    last = _last_words(answer)
    if answer.ready is None:
        return f"{program.interpreter} ended before the program began{last}"
    if answer.timed_out:
        return "the time limit was reached, and the program did not answer"
    signal = f" by signal {answer.status - 128}" if answer.status > 128 else f" with status {answer.status}"
    return f"the program ended{signal} and left no report (out of memory, or a crash in a library){last}"
