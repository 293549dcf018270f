"""Scripts of strangers that both a dry run and `preflight estimate` answer: requested bytes of the same length.

    python -m benchmarks.dryrun strangers [--python PATH] [--into FILE] NAME...

The dry run says which length its data had. `estimate` reads the command from a script beside the program, and gets
that length (`--set`), because the data of a dry run may be made up. A figure whose verdict is unknown is a part of the
job, and is not compared.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.dryrun.scripts import HERE, SECONDS, Script, scripts, unpack

COMPARED = HERE / "agreement_of_scripts.jsonl"
GPU = "A100 80GB"
_LAUNCH = "launch_of_dry_run.sh"


def compared(names: tuple[str, ...], python: str, into: Path = COMPARED) -> Iterator[str]:
    """A line for each script, also added to the file."""
    for script in scripts():
        if script.name not in names:
            continue
        with tempfile.TemporaryDirectory(prefix="dryrun-script-") as home:
            why = unpack(script, Path(home))
            line = json.dumps({"name": script.name, **({"error": why} if why else _both(script, Path(home), python))})
        with into.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        yield line


def _both(script: Script, home: Path, python: str) -> dict[str, object]:
    folder = home / script.folder
    words = [python if one == "python" else one for one in shlex.split(script.command)]
    more = ["--gpus", str(script.gpus)] if script.gpus else []
    more += [word for one in script.arrays for word in ("--array", one)]
    dry = _asked(["dry-run", "--time-limit", str(SECONDS), "--gpu", GPU, *more, "--", *words], folder, script)
    if "device" not in dry:
        return {"error": f"no dry run: {dry['error']}".replace(str(home), "")}
    length = dry["job"]["train"]["seq_len"]
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in script.environment.items())
    (folder / _LAUNCH).write_text(f"#!/bin/bash\n{exports}{script.command}\n", encoding="utf-8")
    stated = ["--set", f"train.seq_len={length}"] if length else []
    law = _asked(["estimate", _LAUNCH, "--gpu", GPU, *stated], folder, script)
    device = law.get("device")
    if not device or device["verdict"] == "unknown":
        return {"length": length, "error": f"no estimate: {law.get('error', law.get('unknown'))}"}
    one, other = (found["device"]["requested"]["expected"] for found in (dry, law))
    return {"length": length, "dry": one, "law": other, "difference": round((one - other) / other, 5)}


def _asked(words: list[str], folder: Path, script: Script) -> dict[str, Any]:
    """The JSON of a command of preflight's; its error where there is none."""
    command = [sys.executable, "-m", "preflight", words[0], "--output-format", "json", *words[1:]]
    environment = {**os.environ, **script.environment}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)
    except json.JSONDecodeError:
        lines = done.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else ""}
    return found if isinstance(found, dict) else {"error": done.stdout}
