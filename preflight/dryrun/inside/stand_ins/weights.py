"""Weights that are not there: checkpoints, torch.hub and timm. A module keeps the weights that it was made with."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from typing import Any

from ..endings import NotThere
from ..patches import replace, wrap
from ..tape import Tape
from .own_code import may_be_missing

_SETTINGS = re.compile(r"arg|cfg|conf|opts?$|hparam|hyper|setting|vocab|class|dim|size|layer|arch|kind|type", re.I)
"""Names of what a checkpoint says of the model."""
_PROGRESS = re.compile(r"epoch|step|iter|best|loss|acc|score|metric|lr|rate|seed|rng|time|patience|sched", re.I)
"""Names of what a checkpoint says of the run: no number of these decides a size."""
_TENSORS = re.compile(r"state|model|net|module|weight|param|optim|scaler|ema|encoder|decoder|backbone", re.I)
"""Names of parts that hold tensors: the model and the optimizer have their own, so nothing in these decides a size."""


class Unread(dict):  # type: ignore[type-arg]
    """A checkpoint that is not there, or a part of one. `load_state_dict` takes it and changes nothing; a counter in it
    is 0; its shapes, keys and tensors are unknown. `in` and `items` find nothing: programs ask so for what they drop
    or rename. An answer that may decide a size is said."""

    def __init__(self, path: str, tape: Tape, name: str = "") -> None:
        super().__init__()
        self._path, self._tape, self._name = path, tape, name

    def _unknown(self, *_: Any, **__: Any) -> Any:
        raise NotThere(
            f"{self._path} is not there, and the program takes more from it than weights for a model: "
            "put the file there, or give the program the path of one",
            self._path,
            self._name,
        )

    def _part(self, name: Any = None, *_: Any, **__: Any) -> Any:
        return type(self)(self._path, self._tape, name if isinstance(name, str) else self._name)

    def _nothing(self, *_: Any, **__: Any) -> None: ...
    def _made_up(self, name: str = "") -> None:
        """An answer was made up. `name`: what was asked for, where it is not this part itself."""
        what = name or self._name
        words = f"the checkpoint {self._path} is not there: {f'its {what}' if what else 'what it says'} was made up"
        self._tape.assume(words, "model.config")

    def _counted(self) -> None:
        if _SETTINGS.search(self._name) or not _PROGRESS.search(self._name):
            self._made_up()

    def _asked(self) -> None:
        name = self._name or os.path.basename(self._path)
        known = not self._name or _TENSORS.search(name) or _PROGRESS.search(name)
        if _SETTINGS.search(name) or not known:
            self._made_up()

    def _first(self, *_: Any) -> int:
        self._counted()
        return 0

    def _added(self, other: Any) -> Any:
        self._counted()
        return other

    def _empty(self) -> Any:
        self._asked()
        return {}.keys()

    def _pairs(self) -> Any:
        self._asked()
        return {}.items()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._unknown()

    def __float__(self) -> float:
        return float(self._first())

    def __bool__(self) -> bool:
        self._asked()
        return True

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str) and _SETTINGS.search(name):
            self._made_up(name)
        self._asked()
        return False

    def __eq__(self, other: object) -> bool:
        self._asked()
        return self is other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __deepcopy__(self, _: Any) -> Any:
        return self._part()

    __getitem__ = get = pop = copy = setdefault = _part
    __setitem__ = __delitem__ = update = _nothing
    __int__ = __index__ = _first
    __add__ = __radd__ = _added
    keys = values = _empty
    items = _pairs
    __iter__ = __len__ = __lt__ = __gt__ = __le__ = __ge__ = __sub__ = __mul__ = __or__ = popitem = _unknown
    __hash__ = None


def checkpoint(path: Any, tape: Tape, on_gpu: bool) -> Unread | None:
    """What stands for a checkpoint that is not there; None if the program expects that it may be missing. `on_gpu`:
    the program would have its tensors on the GPU."""
    if may_be_missing():
        return None
    name = os.fspath(path)
    tape.assume(f"the checkpoint {name} is not there: the model keeps the weights that it was made with")
    if on_gpu:
        words = f"the checkpoint {name} may be loaded to the GPU (map_location), and what it takes there is not counted"
        tape.assume(words, "train.resumes")
    return Unread(name, tape)


def goes_to_gpu(location: Any) -> bool:
    """Whether tensors that are loaded to a place may lie on the GPU. None: where they were when they were saved."""
    if isinstance(location, dict):
        location = next(iter(location.values()), None)
    return not callable(location) and str(location).partition(":")[0] not in ("cpu", "meta")


def safetensors(module: Any, tape: Tape, saved: Callable[..., None]) -> None:
    """safetensors.torch: files that are not there, and those that the program writes."""

    def load(real: Any, filename: Any, device: Any = "cpu", **kwargs: Any) -> Any:
        missing = None if os.path.exists(filename) else checkpoint(filename, tape, goes_to_gpu(device))
        return real(filename, device, **kwargs) if missing is None else missing

    wrap(module, "load_file", load)
    replace(module, "save_file", lambda *_, **__: saved())


def filled(module: Any, state: Any) -> Any:
    """A state for `load_state_dict` with the module's own tensors in place of those that are not there; None if
    there is nothing to load."""
    if isinstance(state, Unread) or not state:
        return None
    if not any(isinstance(one, Unread) for one in state.values()):
        return state
    own = module.state_dict()
    return {key: own.get(key, one) if isinstance(one, Unread) else one for key, one in state.items()}


def hub(module: Any, tape: Tape) -> None:
    """torch.hub: weights are not downloaded, and a repository's code is not either, but for torchvision's models."""

    def state(url: str, *_: Any, **__: Any) -> Unread:
        tape.assume(f"weights were not downloaded: {url}")
        return Unread(url, tape)

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
