"""The combination of a search that failed (Optuna's trials, W&B agents' runs, Hydra's multirun jobs), and progress."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from preflight.postmortem.evidence import Evidence, LoggedProgress, LogPlace, Trial
from preflight.postmortem.reading import SHOWN, LogLine, Parser

LONGEST = 1 << 14
"""Characters of a parameter dictionary that are read."""

_OPTUNA = re.compile(r"Trial (\d+) failed with parameters: (\{.*?\}) because of the following error: (.*)")
_WANDB = re.compile(r"Agent [Ss]tarting [Rr]un(?:: (\S+))? with config:")
_WANDB_VALUE = re.compile(r"^\s*(?:wandb:|.* - INFO -)?\s+([\w.\-/]+): (.*\S)\s*$")
_HYDRA = re.compile(r"\[HYDRA\]\s+#(\d+)\s*:\s*(.*)")

_PHASES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "validation",
        re.compile(
            r"^\W*(?:Validati(?:on|ng)|Sanity Checking|\*+ Running Evaluation|Evaluati(?:ng|on)|Testing)\b"
            r"|\bValidation DataLoader\b|Class\s+Images\s+Instances"
        ),
    ),
    ("save", re.compile(r"Saving (?:model )?checkpoint|Saving model|save_checkpoint")),
    ("load", re.compile(r"Loading checkpoint shards|loading weights file|Loading model")),
    (
        "",
        re.compile(
            r"\bEpoch[ :=]*\[?\d+|\b\d+/\d+ \[\d+:\d\d|'epoch': [\d.]+|\bstep[ :=]+\d+\b|\biter(?:ation)?[ :=]+\d+\b"
            r"|^\s*\d+/\d+\s+[\d.]+G\b",
            re.IGNORECASE,
        ),
    ),
)
"""Lines that show progress: of Lightning, Trainer, Ultralytics, tqdm, hand-written loops."""


class Trials(Parser):
    """Reads one log."""

    def __init__(self) -> None:
        self._place: LogPlace | None = None
        self._name = ""
        self._values: dict[str, object] = {}

    @property
    def awake(self) -> bool:
        return self._place is not None

    def feed(self, line: LogLine) -> Iterator[Evidence]:
        """The evidence of a line. The parameters of a W&B run are on the next lines."""
        text = line.text
        if self._place is not None:
            found = _WANDB_VALUE.match(text)
            if found is not None and len(self._values) < 512:
                self._values[found[1]] = _value(found[2])
                return
            yield from self.end()
        if "failed with parameters" in text and "} because of" in text and (found := _OPTUNA.search(text)):
            values = _value(found[2])
            if isinstance(values, dict):
                named = {str(name): value for name, value in values.items()}
                yield Trial(line.place, "optuna", found[1], named, found[3][:SHOWN] or "?")
        elif "tarting" in text and (found := _WANDB.search(text)):
            self._place, self._name, self._values = line.place, found[1] or "", {}
        elif "[HYDRA]" in text and (found := _HYDRA.search(text)):
            pairs = (word.partition("=") for word in found[2].split())
            yield Trial(line.place, "hydra", found[1], {n.lstrip("+"): _value(v) for n, eq, v in pairs if eq})

    def end(self) -> Iterator[Evidence]:
        """The run whose parameters were being read."""
        if self._place is not None and (self._values or self._name):
            yield Trial(self._place, "wandb", self._name, self._values)
        self._place, self._values = None, {}


def _value(text: str) -> object:
    """The value of a Python literal; the text itself if it is not one."""
    try:
        return ast.literal_eval(text) if len(text) <= LONGEST else text
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


def progress(line: LogLine) -> LoggedProgress | None:
    """The progress that a line shows; None: it shows none. Only the last line of each phase is kept."""
    for phase, words in _PHASES:
        if words.search(line.text):
            return LoggedProgress(line.place, phase)
    return None
