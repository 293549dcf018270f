"""Weights that are not there: checkpoints, torch.hub and timm. A module keeps the weights that it was made with."""

from __future__ import annotations

import ast
import importlib
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .. import places
from ..endings import NotThere
from ..patches import replace, wrap
from ..tape import Tape


class Unread(dict):  # type: ignore[type-arg]
    """A checkpoint that is not there, or a part of one. `load_state_dict` takes it and changes nothing; a counter in it
    is 0; its shapes, keys and tensors are unknown. `in` and `items` find nothing: programs ask so for what they drop
    or rename."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def _unknown(self, *_: Any, **__: Any) -> Any:
        raise NotThere(
            f"{self._path} is not there, and the program takes more from it than weights for a model: "
            "put the file there, or give the program the path of one"
        )

    def _part(self, *_: Any, **__: Any) -> Any:
        return type(self)(self._path)

    def _nothing(self, *_: Any, **__: Any) -> None: ...
    def _first(self, *_: Any) -> int:
        return 0

    def _added(self, other: Any) -> Any:
        return other

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._unknown()

    def __float__(self) -> float:
        return 0.0

    def __bool__(self) -> bool:
        return True

    def __deepcopy__(self, _: Any) -> Any:
        return self._part()

    __getitem__ = get = pop = copy = _part
    __setitem__ = __delitem__ = update = _nothing
    __int__ = __index__ = _first
    __add__ = __radd__ = _added
    __iter__ = __len__ = __lt__ = __gt__ = __le__ = __ge__ = __sub__ = __mul__ = _unknown


def checkpoint(path: Any, tape: Tape) -> Unread | None:
    """What stands for a checkpoint that is not there; None if the program expects that it may be missing."""
    if may_be_missing():
        return None
    tape.assume(f"the checkpoint {os.fspath(path)} is not there: the model keeps the weights that it was made with")
    return Unread(os.fspath(path))


def may_be_missing() -> bool:
    """Whether the program handles an error of what it is doing."""
    return any(_catches(frame) for frame in _users_frames())


def asked_by_program() -> bool:
    """Whether the line at work is the program's own, and no library's but pathlib's."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if places.is_users(name):
            return True
        if not name.startswith(places.HERE) and os.path.basename(name) != "pathlib.py":
            return False
        frame = frame.f_back
    return False


def safetensors(module: Any, tape: Tape, saved: Callable[..., None]) -> None:
    """safetensors.torch: files that are not there, and those that the program writes."""

    def load(real: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        missing = None if os.path.exists(filename) else checkpoint(filename, tape)
        return real(filename, *args, **kwargs) if missing is None else missing

    wrap(module, "load_file", load)
    replace(module, "save_file", lambda *_, **__: saved())


def filled(module: Any, state: Any) -> Any:
    """A state for `load_state_dict` with the module's own tensors in place of those that are not there; None if
    there is nothing to load."""
    if not state or isinstance(state, Unread):
        return None
    if not any(isinstance(one, Unread) for one in state.values()):
        return state
    own = module.state_dict()
    return {key: own.get(key, one) if isinstance(one, Unread) else one for key, one in state.items()}


def _users_frames() -> Iterator[Any]:
    frame: Any = sys._getframe(2)
    while frame is not None:
        if places.is_users(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _catches(frame: Any) -> bool:
    """Whether the line that is at work stands in a `try` that handles an error."""
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except SyntaxError:
        return True
    tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers]
    return any(node.body[0].lineno <= frame.f_lineno <= (node.body[-1].end_lineno or 0) for node in tries)


def hub(module: Any, tape: Tape) -> None:
    """torch.hub: weights are not downloaded, and a repository's code is not either, but for torchvision's models."""

    def state(url: str, *_: Any, **__: Any) -> Unread:
        tape.assume(f"weights were not downloaded: {url}")
        return Unread(url)

    def load(real: Callable[..., Any], repository: Any, model: str, *args: Any, **kwargs: Any) -> Any:
        if os.path.isdir(str(repository)):
            return real(repository, model, *args, **kwargs)
        for name in ("source", "trust_repo", "force_reload", "verbose", "skip_validation"):
            kwargs.pop(name, None)
        if str(repository).partition(":")[0] == "pytorch/vision":  # torchvision's own hubconf.py
            tape.assume(f"torch.hub's {repository} is the torchvision that is installed")
            return getattr(importlib.import_module("torchvision.models"), model)(*args, **kwargs)
        raise NotThere(f"the code of {repository} would be downloaded by torch.hub: clone it, and give its folder")

    replace(module, "load_state_dict_from_url", state)
    wrap(module, "load", load)


def timm(module: Any, tape: Tape) -> None:
    """timm's `pretrained=True`, after the model was made: with its own classes and channels."""

    def kept(model: Any, *_: Any, **__: Any) -> None:
        tape.assume(f"the weights of timm's {type(model).__name__} were not downloaded")

    for name in ("load_pretrained", "load_custom_pretrained"):
        if hasattr(module, name):
            replace(module, name, kept)
