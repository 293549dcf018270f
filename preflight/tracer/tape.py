"""The tape: when every storage is born and when it dies, in order, with the module and phase it happened in."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_

from .convolutions import batch_norm, workspace
from .kernels import kernel_scratch

Event = tuple[int, str]
"""(nbytes, tag) for a birth, (-1 - index of the birth, tag) for a death. The tag is "phase:module"."""


class Tape(TorchDispatchMode):
    """Writes down births and deaths of the storages that operations make while it is on.

    `answers` decides data-dependent questions: what `bool(mask.all())` is. Storages registered with `known` beforehand
    (parameters, buffers) are left out of the tape. `convolutions`: workspaces of convolutions are on it.
    """

    def __init__(self, bool_answer: bool, convolutions: bool = False) -> None:
        super().__init__()
        self.convolutions = convolutions
        self.workspace = workspace
        """The workspace of a convolution."""
        self.workspaces: list[int] = []
        """Births of workspaces."""
        self.events: list[Event] = []
        self.phase = "forward"
        self.modules: list[str] = [""]
        self.bool_answer = bool_answer
        self.recording = False
        self._live: dict[int, weakref.ref[Any]] = {}
        self.birth_of: dict[int, int] = {}
        self.accumulations: list[tuple[int, int]] = []
        self.held: list[int] = []
        """Births of storages that live as long as the loss."""
        self.loss_apart = False
        self.narrow: list[int] = []
        """Births of what the model returned in 16 bits."""

    def known(self, tensor: torch.Tensor) -> None:
        """Leave a storage that exists already out of the tape."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._live:
            self._live[key] = weakref.ref(storage, lambda _, key=key: self._live.pop(key, None))  # type: ignore[misc]

    def tag(self) -> str:
        """Phase and module that are at work now."""
        if self.phase == "backward" and len(self.modules) == 1:
            node = torch._C._current_autograd_node()
            return f"backward:{_module_of(node)}"
        return f"{self.phase}:{self.modules[-1]}"

    def _record(self, value: Any) -> None:
        if not isinstance(value, torch.Tensor):
            return
        storage = value.untyped_storage()
        key = storage._cdata
        if key in self._live:
            return
        birth = len(self.events)

        def died(_: Any, key: int = key, birth: int = birth) -> None:
            self._live.pop(key, None)
            self.birth_of.pop(key, None)
            if self.recording:
                self.events.append((-1 - birth, self.tag()))

        if not self.recording:
            self.known(value)
            return
        self._live[key] = weakref.ref(storage, died)
        self.birth_of[key] = birth
        self.events.append((storage.nbytes(), self.tag()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            return self.bool_answer if args[0].dtype is torch.bool else 1
        if func is torch.ops.aten.equal.default:
            return True
        if func is torch.ops.aten.nonzero.default:  # every element counts: the most that a loss can select
            out = torch.empty((args[0].numel(), args[0].dim()), dtype=torch.int64, device="meta")
        else:
            scratch = kernel_scratch(func, args)
            tree_map_(self._record, scratch)
            out = batch_norm(func, args, kwargs)
            if out is None:
                grouped = func is torch.ops.aten._grouped_mm.default
                out = _grouped(func, args, kwargs) if grouped else func(*args, **kwargs)
            tree_map_(self._record, out)
            del scratch
            if self.convolutions and self.recording:
                self._work(self.workspace(func, args))
            return out
        tree_map_(self._record, out)
        return out

    def _work(self, space: torch.Tensor | None) -> None:
        """A workspace is born after the outputs of its kernel, and dies at once."""
        if space is not None:
            self._record(space)
            self.workspaces.append(self.birth_of[space.untyped_storage()._cdata])


def _grouped(func: Any, args: Any, kwargs: Any) -> Any:
    """A grouped matrix product in any dtype: CUDA takes fp32 and fp16 too (GroupedBlas.cpp), the meta kernel bf16."""
    if args[0].dtype is torch.bfloat16:
        return func(*args, **kwargs)
    first, second, *rest = args
    return func(first.bfloat16(), second.bfloat16(), *rest, **kwargs).to(first.dtype)


def _module_of(node: Any) -> str:
    if node is None:
        return ""
    found = node.metadata.get("preflight")
    if found is None and type(node).__name__ == "AccumulateGrad":
        found = getattr(node.variable, "_preflight_module", None)
    return found or ""


class Observer:
    """Marks autograd nodes with the module whose forward made them, so that backward can be told apart by module."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape

    def __call__(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._mark(value.grad_fn)
        elif isinstance(value, (tuple, list)):
            for item in value:
                if isinstance(item, torch.Tensor):
                    self._mark(item.grad_fn)

    def _mark(self, node: Any) -> None:
        here = self.tape.modules[-1]
        stack = [node]
        while stack:
            node = stack.pop()
            if node is None or "preflight" in node.metadata or type(node).__name__ == "AccumulateGrad":
                continue
            node.metadata["preflight"] = here
            stack += [after for after, _ in node.next_functions]


def watch_modules(model: torch.nn.Module, tape: Tape) -> Callable[[], None]:
    """Keep `tape.modules` up to date while the model's modules run; returns a function that removes the hooks."""
    handles = []
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            parameter._preflight_module = name
        if not name:
            continue

        def enter(_m: Any, _a: Any, name: str = name) -> None:
            tape.modules.append(name)

        def leave(_m: Any, _a: Any, _o: Any) -> None:
            tape.modules.pop()

        handles.append(module.register_forward_pre_hook(enter))
        handles.append(module.register_forward_hook(leave))

    def remove() -> None:
        for handle in handles:
            handle.remove()

    return remove
