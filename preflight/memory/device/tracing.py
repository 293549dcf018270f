"""Starting the tracer: a subprocess of any interpreter with torch, with a time limit, JSON in and out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TIME_LIMIT_S = 120.0
_HOME = Path(__file__).resolve().parents[2] / "tracer"
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


def request_traces(traces: Sequence[Mapping[str, Any]], interpreter: str | None = None,
                   time_limit_s: float = TIME_LIMIT_S) -> tuple[list[dict[str, Any]], dict[str, str]]:  # fmt: skip
    """Replies to `traces` (see preflight.tracer.steps.trace) and the versions that made them.

    Raises TraceError when the interpreter lacks torch, runs out of time, or one of the traces fails.
    """
    command = [interpreter or sys.executable, "-c", _BOOT.format(home=str(_HOME))]
    try:
        done = subprocess.run(command, input=json.dumps({"traces": list(traces)}), capture_output=True, text=True,
                              timeout=time_limit_s, check=False)  # fmt: skip
    except FileNotFoundError as error:
        raise TraceError(f"there is no interpreter {command[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise TraceError(f"the trace took more than {time_limit_s:.0f} s") from error
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        if "No module named 'torch'" in last[0]:
            raise TraceError("tracing needs torch: pip install 'preflight-lint[trace]', or set `interpreter`")
        raise TraceError(f"the tracer stopped: {last[0]}")
    reply = json.loads(done.stdout)
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
