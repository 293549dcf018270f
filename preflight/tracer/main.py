"""Serves requests: reads one line of JSON from standard input, writes one line of JSON to standard output, and goes on
until the input ends.

Request: {"traces": [{"model", "setup", "point", "kind"}, ...]}. Reply: {"versions": {...}, "traces": [reply or
{"error": text}], "seconds": CPU time since the last reply}. See `steps.trace`.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request; an error in one trace is that trace's answer."""
    from . import TRACER_VERSION, steps

    replies = []
    for item in request["traces"]:
        try:
            replies.append(steps.trace(item))
        except Exception as error:  # what a model's own code raises cannot be listed; it is reported, not hidden
            replies.append({"error": _words(error)})
    return {"versions": {**_versions(), "tracer": TRACER_VERSION}, "traces": replies}


def _words(error: Exception) -> str:
    """The error in words for the user: without the name of its class where the words say it all."""
    from .building import CannotBuild

    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{error.name} is not installed in this interpreter"
    return str(error) if isinstance(error, CannotBuild) else f"{type(error).__name__}: {error}"


def _versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "transformers", "peft", "timm", "diffusers", "torchvision"):
        module = sys.modules.get(name)
        if module is not None:
            found[name] = str(module.__version__).partition("+")[0]
    return found


def main() -> int:
    """Serve standard input. Only replies go to standard output; output of libraries goes to standard error."""
    warnings.simplefilter("ignore")
    stdout, sys.stdout = sys.stdout, sys.stderr
    used = 0.0
    for line in sys.stdin:
        reply = serve(json.loads(line))
        reply["seconds"], used = time.process_time() - used, time.process_time()
        json.dump(reply, stdout)
        stdout.write("\n")
        stdout.flush()
    return 0
