"""Python tracebacks, followed line by line, one for each stream of a log."""

from __future__ import annotations

import re

from preflight.postmortem.evidence import LogPlace, TracebackFrame
from preflight.postmortem.reading import LogLine
from preflight.vocabulary.budgets import LOG_STREAMS, TRACEBACK_FRAMES

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
        self._frames: dict[str, list[TracebackFrame]] = {}
        self._since = FAR
        self._open: set[str] = set()
        self.error: LogPlace | None = None
        """The last line of a traceback: the exception."""

    @property
    def awake(self) -> bool:
        """Whether a traceback may be going on."""
        return self._since < FAR

    def feed(self, line: LogLine) -> None:
        """Follows a line."""
        text = line.text
        self._since += 1
        if "Traceback (most recent call last)" in text:
            if len(self._frames) < LOG_STREAMS or line.stream in self._frames:
                self._frames[line.stream] = []
                self._since = 0
                self._open.add(line.stream)
        elif ("File " in text or " in " in text) and (found := _FRAME.search(text)):
            frames = self._frames.get(line.stream)
            if frames is not None and len(frames) < TRACEBACK_FRAMES:
                frames.append(TracebackFrame(found[1], int(found[2]), found[3]))
                self._since = 0
        elif found := _IPYTHON.match(text):
            frames = self._frames.get(line.stream)
            if frames is not None and len(frames) < TRACEBACK_FRAMES:
                frames.append(TracebackFrame(found[1], 0, found[2]))
        elif line.stream in self._open and (found := _RAISED.search(text)):
            self._open.discard(line.stream)
            self.error = line.at(found.start())

    def frames(self, stream: str) -> tuple[TracebackFrame, ...]:
        """The frames above the current line of a stream, the outermost first."""
        return tuple(self._frames.get(stream) or self._frames.get("", []))

    def over(self, stream: str) -> None:
        """The traceback's error was read: the next lines belong to another one."""
        self._frames.pop(stream, None)


def library(frame: TracebackFrame) -> bool:
    """Whether a frame is a library's."""
    return _LIBRARY.search(frame.path) is not None
