"""One measured process: imports what it is told, then loads data, a checkpoint or saves one. `run.py` starts it.

    python child.py POINT.json FOLDER

Imports are at the top, as programs have them: a spawned worker imports them again.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

POINT: dict[str, Any] = json.loads(os.environ["HOST_POINT"])
FOLDER = Path(os.environ["HOST_FOLDER"])

for _name in POINT.get("imports", ["torch"]):
    _module, _, _attributes = _name.partition(":")
    _found = importlib.import_module(_module)
    for _attribute in filter(None, _attributes.split(",")):
        getattr(_found, _attribute)


def say(phase: str, **facts: object) -> None:
    """Names what comes next, for the meter."""
    with open(os.environ["HOST_PHASES"], "a") as told:
        told.write(f"{phase} {json.dumps(facts)}\n" if facts else f"{phase}\n")


def meet(name: str) -> None:
    """Waits until every rank is here."""
    ranks = POINT.get("ranks", 1)
    if ranks > 1:
        (FOLDER / f"{name}-{os.environ['HOST_RANK']}").touch()
        while len(list(FOLDER.glob(f"{name}-*"))) < ranks:
            time.sleep(0.01)


def main() -> None:
    say("imported")
    time.sleep(0.05)
    what = POINT["what"]
    if what == "base":
        _base()
    elif what == "loader":
        import loading

        loading.run(POINT, FOLDER, say, meet)
    else:
        import weights

        weights.run(POINT, FOLDER, say, meet)
    say("end")


def _base() -> None:
    if "torch" in sys.modules:
        import torch

        say("tensor")
        kept = torch.ones(1000) @ torch.ones(1000)
        del kept
    time.sleep(0.1)


if __name__ == "__main__":
    main()
