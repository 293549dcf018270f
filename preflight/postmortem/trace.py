"""Python tracebacks as they pass by, one for each stream, and the phase of a run that their frames tell."""

from __future__ import annotations

import re

from preflight.postmortem.evidence import Frame, Place
from preflight.postmortem.reading import Line
from preflight.records import dataclass

MOST_FRAMES = 200
MOST_STREAMS = 4096

FAR = 100
"""Lines after the last frame: ranks of a log take turns, a traceback does not pause for longer."""

_FRAME = re.compile(r'File "([^"]+)", line (\d{1,9}), in (\S+)')
_IPYTHON = re.compile(r"^\s*(?:File )?(/\S+\.py|<ipython-input-\S+>|Cell \S+)(?::\d+)? in (\w+)\(")
_RAISED = re.compile(
    r"(?:^|[\]:]\s)(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Iteration|Warning|Pruned)\b"
)
_LIBRARY = re.compile(r"(?:site|dist)-packages/|/lib/python3|^<(?:frozen|string)|/torch/|/transformers/|/lightning")


class Traces:
    """The last traceback of each stream; of chained ones the last."""

    def __init__(self) -> None:
        self._frames: dict[str, list[Frame]] = {}
        self._since = FAR
        self._open: set[str] = set()
        self.error: Place | None = None
        """The last line that ended a traceback: what was raised."""

    @property
    def awake(self) -> bool:
        """Whether a traceback may be going on."""
        return self._since < FAR

    def feed(self, line: Line) -> None:
        """Follows a line."""
        text = line.text
        self._since += 1
        if "Traceback (most recent call last)" in text:
            if len(self._frames) < MOST_STREAMS or line.stream in self._frames:
                self._frames[line.stream] = []
                self._since = 0
                self._open.add(line.stream)
        elif ("File " in text or " in " in text) and (found := _FRAME.search(text)):
            frames = self._frames.get(line.stream)
            if frames is not None and len(frames) < MOST_FRAMES:
                frames.append(Frame(found[1], int(found[2]), found[3]))
                self._since = 0
        elif found := _IPYTHON.match(text):
            frames = self._frames.get(line.stream)
            if frames is not None and len(frames) < MOST_FRAMES:
                frames.append(Frame(found[1], 0, found[2]))
        elif line.stream in self._open and (found := _RAISED.search(text)):
            self._open.discard(line.stream)
            self.error = line.at(found.start())

    def frames(self, stream: str) -> tuple[Frame, ...]:
        """The frames above the current line of a stream, the outermost first."""
        return tuple(self._frames.get(stream) or self._frames.get("", []))

    def over(self, stream: str) -> None:
        """The traceback's error was read: what follows is another's."""
        self._frames.pop(stream, None)


_RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("validation", re.compile(
        r":(?!\w*train)(?:\w*validat\w*|_?evaluat\w*|eval(?:_\w+)?|\w*_eval|prediction_step|prediction_loop"
        r"|test_step|sanity_check\w*)$")),
    ("save", re.compile(r"\b(?:save\w*|_save\w*|state_dict|full_state_dict|consolidate\w*)$")),
    ("optimizer", re.compile(r"(?:torch/optim/|bitsandbytes/optim|apex/optimizers|zero/stage\w*\.py).*:\w*step\w*$"
                                  r"|:optimizer_step$|optimizer\.py:step$|torch/optim/.*:_(?:init_group|multi_tensor\w*|single_tensor\w*|foreach\w*|fused\w*)")),
    ("backward", re.compile(r"torch/autograd/.*:backward$|_tensor\.py:backward$|:(?:loss_)?backward$|:_run_backward$")),
    ("generation", re.compile(r":(?:generate|_sample|_beam_search|_greedy_search|greedy_search|beam_search)$")),
    ("load", re.compile(
        r":(?:from_pretrained|_load_\w+|load_state_dict|load_checkpoint|_from_config|caching_allocator_warmup|convert"
        r"|cuda|to|_apply|__init__|_init_weights|init_process_group)$")),
    ("forward", re.compile(r":(?:forward|_call_impl|_wrapped_call_impl|training_step|compute_loss|__call__)$")),
)  # fmt: skip
"""Phases by frames, as `path:function`. The order is the order of asking: validation holds its own forward passes."""


@dataclass(frozen=True)
class Moment:
    """When in the run: a phase as estimates name it (or ""), and the innermost frame of the user's own code."""

    phase: str
    frame: Frame | None
    beneath: Frame | None = None
    """The innermost frame of all."""


def moment(frames: tuple[Frame, ...]) -> Moment:
    """What the frames of a traceback tell."""
    if not frames:
        return Moment("", None)
    names = [f"{frame.path}:{frame.function}" for frame in frames]
    phase = next((phase for phase, rule in _RULES if any(rule.search(name) for name in names)), "")
    if phase == "load" and any(re.search(r":(?:forward|backward|training_step|fit|train)$", name) for name in names):
        phase = "forward"  # batches and modules are moved within a step too
    own = [frame for frame in frames if not library(frame)]
    return Moment(phase, own[-1] if own else None, frames[-1])


def library(frame: Frame) -> bool:
    """Whether a frame is a library's."""
    return _LIBRARY.search(frame.path) is not None
