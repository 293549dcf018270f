"""`preflight sbatch`: checks the job, then becomes sbatch. When preflight itself fails, the job is submitted.

The process that becomes sbatch runs only this module and what it imports.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import syslog
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from msgspec import Struct

from preflight.reports import streams
from preflight.slurm.sbatch import handover
from preflight.slurm.sbatch.arguments import MODES, SbatchCommandLine, parse, plugin_options, usage
from preflight.slurm.sbatch.child import Plain, Unfinished, in_child
from preflight.slurm.sbatch.question import Question, unchecked
from preflight.slurm.sbatch.real import find_real, printed, tried
from preflight.vocabulary.errors import PreflightError, UsageError

MODE = "PREFLIGHT_SBATCH"

WRAPPED = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{}\n"
"""The script that sbatch makes from a wrapped command (src/sbatch/sbatch.c: _script_wrap)."""

_MAY_TRAIN = re.compile(
    rb"gpu|gres|python|\.py\b|torchrun|accelerate|deepspeed|wandb|axolotl|llamafactory|\buv run\b|cuda"
    rb"|\b(?:swift|litgpt|tune|trl|yolo)\b"
    rb"|^[^#\n]*\b(?:ba)?sh\b|^\s*(?:source|\.)\s",
    re.IGNORECASE | re.MULTILINE,
)
"""A job that trains, or a script that may start one, contains one of these. Most jobs of a cluster do not, and are not
made to wait: there is nothing to estimate in them, and sbatch checks their requests itself."""


class Invocation(Struct, frozen=True):
    """One call of `preflight sbatch`: the command line, the real sbatch, the mode."""

    line: SbatchCommandLine
    sbatch: str
    mode: str


def main(words: Sequence[str]) -> int:
    """Becomes sbatch when the job is handed over; else returns the exit status. Raises UsageError for wrong options."""
    line = parse(words)
    if line.own.show is not None:
        return _show(line.own.show, line)
    sbatch = _sbatch(line)
    call = Invocation(line, sbatch, "on")
    started = time.monotonic()
    try:
        call = Invocation(_with_plugins(line, words, sbatch), sbatch, _mode(line))
        answer = _answer(call)
    except KeyboardInterrupt:
        return 130
    except Unfinished as failure:
        answer = {"unchecked": str(failure)}
    except Exception as error:
        answer = {"unchecked": f"internal error: {type(error).__name__}: {error}"}
    with contextlib.suppress(Exception):
        _say(answer, err=not line.own.only)
    stop = answer.get("stop") is True and call.mode != "warn"
    with contextlib.suppress(Exception):
        _log(call, answer, stop, time.monotonic() - started)
    if stop:
        return 1
    if call.line.own.only:
        return 0
    return _hand_over(call, answer)


def _sbatch(line: SbatchCommandLine) -> str:
    """The real sbatch; it is not needed when nothing is submitted. Raises UsageError."""
    try:
        return find_real(line.own.sbatch, os.environ)
    except UsageError:
        if line.own.only:
            return "sbatch"
        raise


def _mode(line: SbatchCommandLine) -> str:
    """The mode: of our option, else of the environment, else the site's default."""
    stated = line.own.mode or os.environ.get(MODE, "")
    if stated and stated not in MODES:
        streams.complain(f"preflight: {MODE}={stated} is not one of {', '.join(MODES)}; the mode is warn")
        return "warn"
    return stated or line.own.default


def _with_plugins(line: SbatchCommandLine, words: Sequence[str], sbatch: str) -> SbatchCommandLine:
    """The command line read again with the options that the site's plugins add, where it has options unknown to us."""
    if not line.strange or line.answers:
        return line
    import subprocess

    from preflight.system.processes import ask_program

    try:
        told = ask_program([os.path.abspath(sbatch), "--help"], 5)
    except (OSError, subprocess.TimeoutExpired):
        return line
    known = plugin_options(told.stdout)
    return parse(words, {name: known[name] for name in line.strange if name in known})


def _answer(call: Invocation) -> Plain:
    """The answer of the check; empty when there is nothing to check."""
    line = call.line
    if call.mode == "off" or line.answers or tried():
        return {}
    if line.strange:
        return {"unchecked": f"sbatch does not list the option {line.strange[0]}"}
    script = _script(line)
    if script is None or not (_thorough(call) or _may_train(line, script)):
        return {}
    scontrol = os.path.join(os.path.dirname(call.sbatch), "scontrol")
    question = Question(line, call.mode, script, _path(line), scontrol if os.path.isfile(scontrol) else "scontrol")
    return in_child(lambda: _checked(question), line.own.seconds)


def _checked(question: Question) -> Plain:
    """The check by the engine of `preflight check`. Only the child process imports it."""
    gc.set_threshold(250_000, 20, 20)  # as in preflight.__main__: nearly all that a check makes lives to its end
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if not question.in_shell:
        return unchecked()
    from preflight.slurm.sbatch.asking import answer

    return answer(question)


def _thorough(call: Invocation) -> bool:
    """Whether the user asks for more than to stop a job that will be killed."""
    return call.mode == "strict" or call.line.own.fix or call.line.own.verbose


def _may_train(line: SbatchCommandLine, script: bytes) -> bool:
    asks = any(name.startswith(("SBATCH_GPU", "SBATCH_GRES")) for name in os.environ)
    return asks or _MAY_TRAIN.search(b"\n".join([script, *map(os.fsencode, line.options)])) is not None


def _script(line: SbatchCommandLine) -> bytes | None:
    """The text that sbatch will submit; None when sbatch itself will report that there is none."""
    if line.wrap is not None:
        return None if line.script_at is not None else os.fsencode(WRAPPED.format(line.wrap))
    if line.script_at is None:
        return handover.read_again(0)
    path = _path(line)
    opened = handover.OPENED.fullmatch(path or "")
    try:
        if opened is not None:
            return handover.read_again(int(opened[1] or 0))
        if path is None or not os.path.isfile(path):
            return None  # a named pipe can be read once only
        with open(path, "rb") as file:
            return file.read(handover.MAX_READ)
    except OSError:
        return None


def _path(line: SbatchCommandLine) -> str | None:
    """The script's file: in the current directory, else in PATH (search_path in src/common/proc_args.c)."""
    name = line.script
    if name is None or name.startswith((".", "/")):
        return name
    for folder in ["", *filter(None, os.environ.get("PATH", "").split(os.pathsep))]:
        path = os.path.join(folder, name)
        if os.path.exists(path) and not os.path.isdir(path):
            return path
    return name


def _say(answer: Plain, err: bool) -> None:
    """Prints the answer for people. When a job is submitted, standard output belongs to sbatch."""
    text, unchecked = answer.get("text"), answer.get("unchecked")
    if isinstance(text, str) and text:
        streams.show(text, err=err)
    if unchecked:
        streams.complain(f"preflight: this job was not checked: {unchecked}")
    elif answer.get("unjudged"):
        streams.complain(f"preflight: this job's memory was not judged: {answer['unjudged']}")
    elif answer.get("assumed"):
        streams.complain(f"preflight: this job fits if {answer['assumed']}")


def _log(call: Invocation, answer: Plain, stop: bool, seconds: float) -> None:
    """Writes one line of JSON: user, time, outcome, rules, duration. Nothing of the script."""
    target = call.line.own.log
    if target is None or not answer:
        return
    import json

    rules = answer.get("rules") or []
    unsure = "unchecked" if answer.get("unchecked") else "unjudged" if answer.get("unjudged") else "clean"
    outcome = "stopped" if stop else "found" if rules and unsure != "unchecked" else unsure
    if answer.get("fixed") is not None and not stop:
        outcome = "fixed"
    entry: Mapping[str, object] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "uid": os.getuid(),
        "outcome": outcome,
        "mode": call.mode,
        "rules": rules,
        "reason": answer.get("unchecked") or "",
        "seconds": round(seconds, 3),
    }
    text = json.dumps(entry)
    if target == "syslog":
        syslog.openlog("preflight-sbatch", 0, syslog.LOG_USER)
        syslog.syslog(syslog.LOG_INFO, text)
        return
    handle = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    with os.fdopen(handle, "w") as file:
        file.write(text + "\n")


def _hand_over(call: Invocation, answer: Plain) -> int:
    """Becomes sbatch; with a changed script, runs sbatch and returns its exit status."""
    line, fixed = call.line, answer.get("fixed")
    try:
        if isinstance(fixed, str) and line.script_at is not None:
            return handover.run_changed(call.sbatch, line.words, line.script_at, fixed.encode())
        if isinstance(fixed, str):
            handover.replace_input(fixed.encode())
        handover.become(call.sbatch, line.words)
    except OSError as error:
        raise UsageError(f"{call.sbatch} cannot be started: {error.strerror or error}") from error
    raise AssertionError("not reached")


def _show(what: str, line: SbatchCommandLine) -> int:
    if what == "help":
        streams.show(usage())
        return 0
    streams.show(printed(what, line.own.sbatch))
    return 0


def guarded(words: Sequence[str]) -> NoReturn:
    """`main` as a program, for the wrapper: an error is one line and exit status 2."""
    try:
        status = main(words)
    except PreflightError as error:
        streams.complain(f"preflight: error: {error}")
        status = 2
    except KeyboardInterrupt:
        status = 130
    os._exit(status)
