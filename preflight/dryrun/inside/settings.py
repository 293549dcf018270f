"""What preflight asks of a dry run, and the channel on which the process answers."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass
class Settings:
    """The request, as it comes from preflight."""

    target: str = ""
    """Path of a program, or the dotted name of a module."""
    module: bool = False
    arguments: list[str] = field(default_factory=list)
    scratch: str = ""
    """The directory for everything that the program writes."""
    channel: int = -1
    """The file descriptor for answers."""
    isolated: bool = False
    """Whether the kernel keeps the process from writing outside scratch and from the network."""
    steps: int = 2
    after: float = 10.0
    """Seconds of CPU time in which the program may go on after these steps, to reach validation and saving."""
    gpu_name: str = "NVIDIA A100-SXM4-80GB"
    gpu_memory: int = 80 * 2**30
    capability: list[int] = field(default_factory=lambda: [8, 0])
    world_size: int = 1
    local_world_size: int = 1
    programs: list[str] = field(default_factory=list)
    """Names of programs that the program may start."""
    tracer: str = ""
    """The folder of preflight's tracer, which knows the workspaces of kernels."""
    models: dict[str, Any] = field(default_factory=dict)
    """preflight's catalogue of models."""
    batches: list[int] = field(default_factory=list)
    """[the batch size of loaders, the one in its place]; empty: the program's own."""
    lengths: list[int] = field(default_factory=list)
    """The same of the length of sequences."""
    arrays: list[list[Any]] = field(default_factory=list)
    """Arrays on disk that may not be there: [path, name in the file, shape, type]."""
    tried: dict[str, Any] = field(default_factory=dict)
    """Shapes of arrays that nothing states, as an earlier run of the same program has learnt them."""
    searched: dict[str, Any] = field(default_factory=dict)
    """The corner of a search space that is run: values that the program asks of its search itself."""
    largest: bool = True
    """Whether numbers of the search that are not in `searched` are at their largest; else at their smallest."""


def read(path: str) -> Settings:
    """The settings in a file that preflight wrote."""
    with open(path, encoding="utf-8") as file:
        known = json.load(file)
    names = {one.name for one in fields(Settings)}
    return Settings(**{name: value for name, value in known.items() if name in names})


class Channel:
    """Answers to preflight, one JSON document a line. Only the process that opened it may answer."""

    def __init__(self, number: int) -> None:
        self._number, self._owner, self._ended = number, os.getpid(), False
        self._lock = threading.Lock()

    def send(self, kind: str, **values: Any) -> None:
        """One answer. A channel that the program has closed is given up."""
        if os.getpid() != self._owner or self._ended:
            return
        text = json.dumps({"kind": kind, **values}, default=str).encode("utf-8", "backslashreplace") + b"\n"
        with self._lock:
            try:
                while text:
                    text = text[os.write(self._number, text) :]
            except OSError:
                self._ended = True

    def end(self, **values: Any) -> None:
        """The last answer; those after it are not sent."""
        self.send("end", **values)
        self._ended = True

    @property
    def owned(self) -> bool:
        """Whether this is the process that was started, and not a fork of it."""
        return os.getpid() == self._owner
