"""The tracer: a subprocess of any interpreter with torch, kept for further traces, JSON in and out, within a time."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIME_LIMIT_S = 120.0
_HOME = Path(__file__).resolve().parents[3] / "tracer"
# The tracer is loaded by path under a name of its own, so that nothing of preflight is importable there and no module
# of it can shadow one of the user's.
_BOOT = """
import importlib.util, sys
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


class _Process:
    """A tracer at work: started once for an interpreter, since importing torch takes longer than most traces do."""

    def __init__(self, interpreter: str) -> None:
        self.complaints = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        command = [interpreter, "-c", _BOOT.format(home=str(_HOME))]
        try:
            # The partitioner of compiled graphs breaks ties by hash: every process should break them alike.
            alike = {**os.environ, "PYTHONHASHSEED": "0"}
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=self.complaints, env=alike)  # fmt: skip
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
        found: dict[str, Any] | None = json.loads(line) if line else None
        return found

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


_PROCESSES: dict[str, _Process] = {}


def request_traces(traces: Sequence[Mapping[str, Any]], interpreter: str | None = None,
                   time_limit_s: float = TIME_LIMIT_S) -> tuple[list[dict[str, Any]], dict[str, str]]:  # fmt: skip
    """Replies to `traces` (see preflight.tracer.steps.trace) and the versions that made them.

    Raises TraceError when the interpreter lacks torch, runs out of time, or one of the traces fails.
    """
    name = interpreter or sys.executable
    tracer = _PROCESSES.get(name) or _PROCESSES.setdefault(name, _Process(name))
    try:
        reply = tracer.ask({"traces": list(traces)}, time_limit_s)
        if reply is None:
            words = tracer.last_words()
            if "No module named 'torch'" in words:
                raise TraceError("tracing needs torch: pip install 'preflight-lint[trace]', or set `interpreter`")
            raise TraceError(f"the tracer stopped: {words}")
    except TraceError:
        del _PROCESSES[name]
        tracer.stop()
        raise
    for trace in reply["traces"]:
        if "error" in trace:
            raise TraceError(trace["error"])
    return reply["traces"], reply["versions"]


def has_torch(interpreter: str | None = None) -> bool:
    """Whether torch can be imported there, without importing it."""
    if interpreter is None:
        from importlib.util import find_spec

        return find_spec("torch") is not None
    probe = "import importlib.util as u; raise SystemExit(u.find_spec('torch') is None)"
    try:
        return subprocess.run([interpreter, "-c", probe], check=False, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@dataclass
class Tracing:
    """Whether and with what unknown models are traced; set once by the command line from the settings."""

    allowed: bool = True
    interpreter: str | None = None
    trusted: bool = False
    """Whether import targets of the user's own may be imported (`--trust`)."""
    shown: Callable[[str], AbstractContextManager[object]] = nullcontext
    """Entered with the model's name for as long as it is traced: a terminal says what it waits for."""


TRACING = Tracing()
