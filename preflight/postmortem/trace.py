"""Python tracebacks as they pass by, one for each stream, and the phase of a run that their frames tell."""

from __future__ import annotations

import re
from dataclasses import dataclass

from preflight.postmortem.evidence import Frame, Place
from preflight.postmortem.reading import Line

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


_RULES: tuple[tuple[str, int, re.Pattern[str]], ...] = (
    (
        "validation",
        2,
        re.compile(
            r":(?!\w*train|cross_)(?:\w*validat\w*|_?evaluat\w*|eval(?:_\w+)?|\w*_eval|prediction_step|prediction_loop"
            r"|test_step|_?run_sanity_check|sanity_check\w*)$"
        ),
    ),
    ("save", 2, re.compile(r":(?:save\w*|_save\w*|state_dict|full_state_dict|consolidate\w*)$")),
    (
        "optimizer",
        2,
        re.compile(
            r"(?:torch/optim/|bitsandbytes/optim|apex/optimizers|zero/stage\w*\.py).*:\w*step\w*$|:optimizer_step$"
            r"|torch/optim/.*:_(?:init_group|multi_tensor\w*|single_tensor\w*|foreach\w*|fused\w*)$"
        ),
    ),
    ("backward", 2, re.compile(r"torch/autograd/.*:backward$|:(?:loss_)?backward$|:_(?:engine_)?run_backward$")),
    ("generation", 2, re.compile(r":(?:generate|_sample|_beam_search|_greedy_search|greedy_search|beam_search)$")),
    ("forward", 1, re.compile(r":(?:forward|_call_impl|_wrapped_call_impl|training_step|compute_loss|__call__)$")),
    (
        "load",
        0,
        re.compile(
            r":(?:from_pretrained|_load_\w+|load_state_dict|load_checkpoint|_from_config|caching_allocator_warmup|__init__"
            r"|_init_weights|init_process_group)$|(?:nn/modules/module|modeling_utils)\.py:(?:to|cuda|half|float|_apply)$"
        ),
    ),
)
"""Phases by frames, as `path:function`, with what may follow what: a phase holds those of the same weight or less that
lie within it (validation its own forward passes), and gives way to weightier ones."""

_TRAINING = re.compile(r":(?:closure|training_step|fit|train|train_one_epoch|train_epoch|_inner_training_loop)$")
"""Frames within which a step begins anew: Lightning runs it as the optimizer's closure, a cross-validation trains."""


@dataclass(frozen=True)
class Moment:
    """When in the run: a phase as estimates name it (or ""), and the innermost frame of the user's own code."""

    phase: str
    frame: Frame | None
    beneath: Frame | None = None
    """The innermost frame of all."""


def moment(frames: tuple[Frame, ...]) -> Moment:
    """What the frames of a traceback tell, from the outermost inwards."""
    if not frames:
        return Moment("", None)
    phase, weight = "", -1
    for frame in frames:
        name = f"{frame.path}:{frame.function}"
        if _TRAINING.search(name):
            phase, weight = "", -1
        for candidate, strength, rule in _RULES:
            if strength > weight and rule.search(name):
                phase, weight = candidate, strength
                break
    own = [frame for frame in frames if not library(frame)]
    return Moment(phase, own[-1] if own else None, frames[-1])


def library(frame: Frame) -> bool:
    """Whether a frame is a library's."""
    return _LIBRARY.search(frame.path) is not None
