"""The process of a dry run: started in isolation, given up if it does not answer, ended with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct, field

from preflight.dryrun.command import StartedProgram
from preflight.dryrun.environment import for_program
from preflight.vocabulary.errors import PreflightError

INSIDE = Path(__file__).parent / "inside"
READY_SECONDS = 180.0
"""Seconds in which the interpreter has to say that CUDA is faked: importing torch from a slow disk takes a minute."""
LAST_WORDS_SECONDS = 20.0
"""Seconds for the report of a process that was told to stop."""
_SECONDS_TO_END = 5.0
"""Seconds in which everything that the program started is ended one by one, before the rest is."""
REPORT_BYTES = 1 << 29
"""The largest report that is read: some ten million events."""
KEPT_OUTPUT = 1 << 16
_STEP_S = 0.05


class NoAnswer(PreflightError):
    """The dry run has no result; the message says why."""


class Limits(Struct, frozen=True):
    """What a program may use: seconds, bytes of memory, bytes that it writes."""

    seconds: float = 600.0
    memory: int = 16 * 2**30
    disk: int = 4 * 2**30


class Asked(Struct, frozen=True):
    """A dry run. `settings`: more of those of inside/settings.py."""

    program: StartedProgram
    limits: Limits = field(default_factory=Limits)
    isolate: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    on_output: Callable[[bytes], None] | None = None
    """Called with what the program writes."""


class Answer(Struct, frozen=True):
    """What came back. `report`: the last message of the process; None if it ended without one."""

    report: Mapping[str, Any] | None
    ready: Mapping[str, Any] | None
    status: int
    isolated: bool
    why_not: str
    output: str
    seconds: float
    timed_out: bool


def run(asked: Asked) -> Answer:
    """The program, run dry. Nothing of it is left when this returns or raises, in memory or on the disk."""
    base = os.path.realpath(tempfile.mkdtemp(prefix="preflight-dry-"))
    try:
        why_not = "it was not asked for" if not asked.isolate else ""
        if asked.isolate:
            found = _Started(asked, base, True).answer()
            if found is not None:
                return found
            why_not = _Started.refusal
        found = _Started(asked, base, False, why_not).answer()
        if found is None:
            raise NoAnswer(f"the program could not be started: {_Started.refusal}")
        return found
    finally:
        shutil.rmtree(base, ignore_errors=True)


class _Started:
    """One process and what it says."""

    refusal = ""
    """Why the kernel did not isolate the last process."""

    def __init__(self, asked: Asked, base: str, isolate: bool, why_not: str = "") -> None:
        self._asked, self._base, self._isolate, self._why_not = asked, base, isolate, why_not
        self._messages: dict[str, Mapping[str, Any]] = {}
        self._output = bytearray()
        self._began = time.monotonic()
        self._threads: list[threading.Thread] = []
        scratch = os.path.join(base, "isolated" if isolate else "scratch")
        os.makedirs(os.path.join(scratch, "tmp"))
        self._process, self._status = self._start(scratch)

    def _start(self, scratch: str) -> tuple[subprocess.Popen[bytes], int]:
        asked, program = self._asked, self._asked.program
        answers, channel = os.pipe()
        heard, status = os.pipe()
        settings = {
            "target": program.target, "module": program.module, "arguments": list(program.arguments),
            "scratch": scratch, "channel": channel, "isolated": self._isolate,
            "tracer": str(INSIDE.parents[1] / "tracer"), "world_size": program.world_size,
            "local_world_size": program.ranks_per_node, **asked.settings,
        }  # fmt: skip
        request = {
            "command": [program.interpreter, str(INSIDE / "main.py"), self._written("settings.json", settings)],
            "environment": for_program(program.environment, scratch), "directory": os.getcwd(), "scratch": scratch,
            "memory": asked.limits.memory, "disk": asked.limits.disk, "isolate": self._isolate, "status": status,
            "close": [status],
        }  # fmt: skip
        command = [sys.executable, "-I", "-S", str(INSIDE / "jail.py"), self._written("request.json", request)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=(channel, status), start_new_session=True,
        )  # fmt: skip
        os.close(channel)
        os.close(status)
        assert process.stdout is not None
        self._begin(self._hear, os.fdopen(answers, "rb"))
        self._begin(self._watch, process.stdout)
        return process, heard

    def _written(self, name: str, data: Mapping[str, Any]) -> str:
        path = os.path.join(self._base, name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file)
        return path

    def _begin(self, function: Callable[[BinaryIO], None], stream: Any) -> None:
        thread = threading.Thread(target=function, args=(stream,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _hear(self, stream: BinaryIO) -> None:
        with stream:
            while line := stream.readline(REPORT_BYTES):
                try:
                    found = json.loads(line)
                    self._messages[str(found["kind"])] = found
                except (ValueError, KeyError, TypeError, RecursionError):
                    continue

    def _watch(self, stream: BinaryIO) -> None:
        with stream:
            while data := stream.read1(4096):  # type: ignore[attr-defined]
                self._output += data
                if len(self._output) > 2 * KEPT_OUTPUT:
                    del self._output[:-KEPT_OUTPUT]
                if self._asked.on_output is not None:
                    self._asked.on_output(data)

    def answer(self) -> Answer | None:
        """The answer; None if the kernel did not isolate the process, which then was not started."""
        try:
            if not self._is_started():
                return None
            timed_out = self._wait()
        finally:
            self._end()
        report, ready = self._messages.get("end"), self._messages.get("ready")
        output = bytes(self._output).decode("utf-8", "replace")
        seconds = time.monotonic() - self._began
        return Answer(report, ready, self._process.returncode, self._isolate, self._why_not, output, seconds, timed_out)

    def _is_started(self) -> bool:
        """Whether the program was started, by what `jail.py` says."""
        with os.fdopen(self._status, "rb") as heard:
            said = heard.readline(4096).decode("utf-8", "replace").strip()
        if said == "started":
            return True
        type(self).refusal = said.removeprefix("failed ") or "the kernel ended it"
        return False

    def _wait(self) -> bool:
        """Until the program ends, or its time does; whether that was it. Raises NoAnswer without a handshake."""
        ready_by, end = self._began + READY_SECONDS, None
        while self._process.poll() is None:
            now = time.monotonic()
            if end is None and self._messages:
                end = now + self._asked.limits.seconds
            if end is None and now > ready_by:
                raise NoAnswer(
                    f"{self._asked.program.interpreter} did not say in {READY_SECONDS:.0f} s that CUDA is faked"
                )
            if end is not None and now > end:
                self._stop()
                return True
            time.sleep(_STEP_S)
        return False

    def _stop(self) -> None:
        """Ask for a report of what was seen until now."""
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_WORDS_SECONDS)

    def _end(self) -> None:
        """End the process with everything that it started, and hear what it said last."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)
            try:
                self._process.wait(_SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                self._process.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for thread in self._threads:
            thread.join(LAST_WORDS_SECONDS)
