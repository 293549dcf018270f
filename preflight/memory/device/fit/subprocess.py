"""The tracer process: any interpreter with torch, kept alive for further traces; JSON in and out, with a time limit."""

from __future__ import annotations

import atexit
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from preflight.system import observed, processes
from preflight.vocabulary.budgets import TRACE_MEMORY, TRACE_SECONDS, TraceTime
from preflight.vocabulary.tracing import Tracing

LIBRARIES = ("torch", "transformers", "peft", "timm", "torchvision", "diffusers")
"""The libraries of the traced models."""

_ASK_LIMIT_S = 30
_ASK = """
import json, sys
from importlib import metadata, util
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
print(json.dumps({"torch": util.find_spec("torch") is not None,
                  "versions": [sys.version, {name: version(name) for name in sys.argv[1:]}]}))
"""
_HOME = Path(__file__).resolve().parents[3] / "tracer"
# The tracer is loaded by path under a name of its own, so that nothing of preflight is importable there and no module
# of it can shadow one of the user's.
_BOOT = """
import importlib.util, sys
try:
    import resource  # no module of Windows
    resource.setrlimit(resource.RLIMIT_DATA, ({memory}, resource.getrlimit(resource.RLIMIT_DATA)[1]))
except (ImportError, ValueError, OSError):
    pass  # a lower limit of the user's own stays
spec = importlib.util.spec_from_file_location("preflight_tracer", {home!r} + "/__init__.py",
                                              submodule_search_locations=[{home!r}])
package = importlib.util.module_from_spec(spec)
sys.modules["preflight_tracer"] = package
spec.loader.exec_module(package)
from preflight_tracer.main import main
raise SystemExit(main())
"""


class TraceError(Exception):
    """A trace could not be made; the message says why, in words for the user."""


class OverBudget(Exception):
    """A law was not traced: the traces of this check have used their time. The next check may go on."""


def refuse_over_budget(tracing: Tracing) -> None:
    """Raises OverBudget where no law may be traced any more. The result of such a check is not kept."""
    if tracing.time is not None and tracing.time.over():
        over = tracing.time.limit.over
        observed.not_final(over)
        raise OverBudget(over)


class _Process:
    """A tracer at work: started once for an interpreter, since importing torch takes longer than most traces do."""

    def __init__(self, interpreter: str | None) -> None:
        self.complaints = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        boot = _BOOT.format(home=str(_HOME), memory=int(TRACE_MEMORY))
        try:
            # The partitioner of compiled graphs breaks ties by hash: every process should break them alike.
            self.process = processes.start_python(interpreter, boot, self.complaints, seed=0)
        except OSError as error:
            raise TraceError(f"there is no interpreter {interpreter}") from error
        atexit.register(self.stop)

    def ask(self, request: Mapping[str, Any], time_limit_s: float) -> dict[str, Any] | None:
        """The reply; None where the process ended instead. Raises TraceError when it takes too long."""
        timer = threading.Timer(time_limit_s, self.process.kill)
        timer.start()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = b""
        late = not timer.is_alive()
        timer.cancel()
        if late:
            raise TraceError(f"the trace took more than {time_limit_s:.0f} s")
        return _reply(line) if line else None

    def last_words(self) -> str:
        self.process.wait()
        self.complaints.seek(0)
        lines = self.complaints.read()[-4096:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self.process.returncode}"

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.complaints.close()
        atexit.unregister(self.stop)


def _reply(line: bytes) -> dict[str, Any]:
    """The tracer's answer. Raises TraceError for any other output: the interpreter may be another program."""
    try:
        found = json.loads(line)
        if (
            isinstance(found["traces"], list)
            and isinstance(found["versions"], dict)
            and isinstance(found["seconds"], float)
        ):
            return dict(found)
    except (ValueError, KeyError, TypeError):
        pass
    raise TraceError("the interpreter's answer does not come from the tracer")


_PROCESSES: dict[str | None, _Process] = {}


def request_traces(
    traces: Sequence[Mapping[str, Any]],
    interpreter: str | None = None,
    time_limit_s: float = TRACE_SECONDS,
    spent: TraceTime | None = None,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Replies to `traces` (see preflight.tracer.steps.trace) and the versions that made them. What they took is added
    to `spent`: CPU time, and time by the clock where the process was ended.

    Raises TraceError when the interpreter lacks torch, runs out of time, or one of the traces fails.
    """
    start = time.monotonic()
    tracer = _PROCESSES.get(interpreter) or _PROCESSES.setdefault(interpreter, _Process(interpreter))
    try:
        reply = tracer.ask({"traces": list(traces)}, time_limit_s)
        if reply is None:
            words = tracer.last_words()
            if "No module named 'torch'" in words:
                raise TraceError("tracing needs torch: pip install 'preflight-lint[trace]', or set `interpreter`")
            raise TraceError(_over_memory(words) or f"the tracer stopped: {words}")
    except TraceError:
        if spent is not None:
            spent.used += time.monotonic() - start
        del _PROCESSES[interpreter]
        tracer.stop()
        raise
    if spent is not None:
        spent.used += reply["seconds"]
    for trace in reply["traces"]:
        if "error" in trace:
            raise TraceError(_over_memory(trace["error"]) or trace["error"])
    return reply["traces"], reply["versions"]


def _over_memory(words: str) -> str:
    """What is said of a trace that ended for want of memory, by the words of Python, C++ and torch; "" for others."""
    ends = ("MemoryError", "bad_alloc", "can't allocate memory", "Cannot allocate memory")
    return f"the trace is {TRACE_MEMORY.over}" if any(end in words for end in ends) else ""


def can_trace(tracing: Tracing) -> bool:
    """Whether unknown models are traced here."""
    return tracing.allowed and has_torch(tracing.interpreter)


def has_torch(interpreter: str | None = None) -> bool:
    """Whether torch can be imported there, without importing it."""
    return installed(interpreter).torch


class Installed(Struct, frozen=True):
    """The versions that an interpreter reports."""

    torch: bool
    versions: str
    """Its own version and those of LIBRARIES, as text; "" where it does not say."""


@lru_cache(maxsize=4)
def installed(interpreter: str | None) -> Installed:
    """Asked in a separate process, even for this Python: the import path of this process may have been changed."""
    try:
        found = json.loads(processes.ask_python(interpreter, _ASK, LIBRARIES, _ASK_LIMIT_S))
        return Installed(found["torch"] is True, json.dumps(found["versions"]))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return Installed(False, "")
