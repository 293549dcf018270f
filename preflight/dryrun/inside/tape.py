"""The tape: when every storage of the faked device is born and when it dies, with the phase, module and line.

Events are those of preflight's tracer: (bytes, place) for a birth, (-1 - index of the birth, place) for a death.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from . import places

MOST_ASSUMPTIONS = 40
LARGE = 1 << 20
"""Bytes from which the shape of a storage is kept."""
Place = tuple[str, str, str, str]
"""(phase, module, line of a library, line of the user's file)."""


class Tape:
    """Births and deaths of the device's storages, and what is known of the program beside them."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.at: list[int] = []
        self.places: list[Place] = []
        self._numbers: dict[Place, int] = {}
        self.live = self.peak = 0
        """Bytes on the first GPU."""
        self.alive: dict[int, tuple[Any, int]] = {}
        """Storages that are there: their number of birth, by address."""
        self._emptied: dict[int, tuple[Any, str, int]] = {}
        """Storages that were made empty, what they were, and their GPU."""
        self.devices: dict[int, int] = {}
        """The GPUs of storages on others than the first, by their births."""
        self.current = 0
        """The GPU that is the current one."""
        self.kinds: dict[int, str] = {}
        """What a storage is (weights, gradients, optimizer, workspace), by its birth."""
        self.shapes: dict[int, str] = {}
        """The shapes of large storages, by their births."""
        self.assumptions: list[tuple[str, str]] = []
        """(what was assumed, the Job field that it decides or "")."""
        self.marks: list[tuple[int, str]] = []
        """Moments of the run: (number of events before it, its name)."""
        self.data_made_up = False
        """Whether a stand-in gave the program its data."""
        self.modules: list[Any] = []
        self.names: dict[int, str] = {}
        self.optimizing = self.saving = 0
        self.started = False
        """Whether a model has run."""
        self.recording = True
        self._evaluates = False
        """Whether the last model that ran without gradients was in evaluation mode."""
        self._lock = threading.RLock()

    def assume(self, text: str, field: str = "") -> None:
        """Note what was assumed. Of very many the rest are left out, but never the first of a field."""
        few = len(self.assumptions) < MOST_ASSUMPTIONS
        if (text, field) not in self.assumptions and (few or field not in {one for _, one in self.assumptions}):
            self.assumptions.append((text, field))

    def mark(self, text: str) -> None:
        self.marks.append((len(self.sizes), text))

    def phase(self) -> str:
        """The phase in which the program is, without backward, which autograd's nodes tell."""
        if self.optimizing:
            return "optimizer"
        if self.saving:
            return "save"
        if not self.started and not self.modules:
            return "load"
        if torch.is_grad_enabled():
            return "forward"
        if self.modules:
            self._evaluates = not self.modules[0].training
        return "validation" if self._evaluates else "forward"

    def place(self) -> int:
        """The number of the place where the program is."""
        node = torch._C._current_autograd_node()
        if node is not None:
            origin = node.metadata.get("dry")
            if origin is None:
                variable = getattr(node, "variable", None)
                found = ("backward", getattr(variable, "_dry_module", ""), "", "")
            else:
                found = ("backward", *self.places[origin][1:])
        else:
            library, user = places.here(3)
            module = self.names.get(id(self.modules[-1]), "") if self.modules else ""
            found = (self.phase(), module, library, user)
        return self._number(found)

    def _number(self, place: Place) -> int:
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = len(self.places)
            self.places.append(place)
        return number

    def birth(self, tensor: Any, kind: str = "") -> None:
        """A tensor of the device: its storage is born, unless it is known."""
        storage = tensor.untyped_storage()
        if storage._cdata in self.alive or storage._cdata in self._emptied or not self.recording:
            return
        number, size = self._born(storage, kind, tensor.device.index or 0), storage.nbytes()
        if size >= LARGE and tensor.numel() * tensor.element_size() == size:
            self.shapes[number] = " x ".join(map(str, (*tensor.shape, tensor.element_size())))

    def _born(self, storage: Any, kind: str, device: int) -> int:
        with self._lock:
            size, number, key = storage.nbytes(), len(self.sizes), storage._cdata
            self.alive[key] = (weakref.ref(storage, self._end_of(key, number, size)), number)
            self.sizes.append(size)
            self.at.append(self.place())
            if kind:
                self.kinds[number] = kind
            if device:
                self.devices[number] = device
            else:
                self.live += size
                self.peak = max(self.peak, self.live)
            return number

    def resized(self, storage: Any) -> None:
        """A storage that is there was given another size, as sharded models do with their weights: an end and a birth.
        One without bytes waits for its next."""
        key = storage._cdata
        known = self.alive.get(key)
        if not self.recording or (known is None and key not in self._emptied):
            return
        _, kind, device = self._emptied.pop(key, (None, "", 0))
        if known is not None:
            kind, device = self.kinds.get(known[1], ""), self.devices.get(known[1], 0)
            self._end_of(key, known[1], self.sizes[known[1]])(None)
        if storage.nbytes():
            self._born(storage, kind, device)
        else:
            self._emptied[key] = (weakref.ref(storage, lambda _: self._emptied.pop(key, None)), kind, device)

    def _end_of(self, key: int, number: int, size: int) -> Callable[[Any], None]:
        def died(_: Any) -> None:
            with self._lock:
                if self.alive.pop(key, None) is not None:
                    self.sizes.append(-1 - number)
                    self.at.append(self.at[-1])
                    self.live -= 0 if number in self.devices else size

        return died

    def number(self, tensor: Any) -> int | None:
        """The birth of a tensor's storage; None if it is not on the tape."""
        known = self.alive.get(tensor.untyped_storage()._cdata)
        return None if known is None else known[1]

    def kind(self, tensor: Any, kind: str) -> None:
        """Say what a tensor's storage is. A sharded one is a tensor around that of this rank."""
        tensor = getattr(tensor, "_local_tensor", tensor)
        if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
            number = self.number(tensor)
            if number is not None:
                self.kinds[number] = kind

    def is_kind(self, tensor: Any, kind: str) -> bool:
        number = self.number(tensor)
        return number is not None and self.kinds.get(number) == kind

    def clear(self) -> None:
        """Forget everything, after the self-test."""
        self.__init__()  # type: ignore[misc]

    def report(self) -> dict[str, Any]:
        """The tape as plain data. A signal may have come between an event and its place."""
        return {
            "sizes": self.sizes[: len(self.at)],
            "at": self.at,
            "places": self.places,
            "kinds": {str(number): kind for number, kind in self.kinds.items() if number < len(self.at)},
            "devices": {str(number): device for number, device in self.devices.items() if number < len(self.at)},
            "shapes": {str(number): shape for number, shape in self.shapes.items()},
            "assumptions": self.assumptions,
            "marks": self.marks,
            "peak": self.peak,
        }
