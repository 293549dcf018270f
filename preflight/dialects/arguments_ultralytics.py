"""Ultralytics' command line: `yolo detect train model=yolov8n.pt data=coco.yaml batch=16 imgsz=640`."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.dialects.arguments_document import Arguments
from preflight.dialects.arguments_found import Found
from preflight.dialects.reading import Word
from preflight.libraries.launchers import text
from preflight.libraries.ultralytics import trained
from preflight.records import dataclass
from preflight.values import Expr, Origin


@dataclass(frozen=True)
class Said:
    """Arguments of the command, as those of a call of the trainer."""

    args: Arguments
    complete: bool = True
    origin: Origin | None = None

    def argument(self, name: str, position: int | None = None) -> Expr | None:
        """An argument by its name; None where it is not given."""
        return self.args.get(name) if name in self.args else None


def ultralytics(args: Arguments) -> Found:
    """The trainer's arguments and its defaults."""
    found = Found()
    bindings, found.facts[:] = trained(Said(args))
    found.bindings += bindings
    return found


def training(words: Sequence[Word]) -> tuple[Word, ...] | None:
    """The settings of a command that trains, in whatever order its words stand; None for one that does something else
    (`mode` is predict where nothing says)."""
    said = {text(word) for word in words}
    if not said & {"train", "mode=train"}:
        return None
    return tuple(word for word in words if word.prefix.endswith("=") and word.prefix != "mode=")
