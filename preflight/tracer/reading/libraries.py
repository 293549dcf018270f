"""Calls of libraries: those that the tables of `allowed` name."""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
from collections import OrderedDict
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

from .. import building, cuda, models
from . import allowed
from .limits import checked, iterate, pieces
from .stopped import LAYERS, PIECES, Stopped
from .values import Bound, Context, Function, Library, Machine, Object, OwnClass, Partial, Unread, Value

_HOMES: dict[str, tuple[Any, frozenset[str]]] = {
    "torch.nn": (nn, allowed.names(allowed.LAYERS)),
    "torch.nn.functional": (F, allowed.names(allowed.FUNCTIONAL)),
    "torch": (torch, allowed.names(allowed.TORCH)),
    "math": (math, allowed.names(allowed.MATH)),
    "numpy": (math, allowed.names(allowed.MATH)),
    "torch.linalg": (torch.linalg, allowed.names("norm vector_norm matrix_norm")),
    "torch.fft": (
        torch.fft,
        allowed.names("fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2"),
    ),
    "torch.special": (torch.special, allowed.names("expit softmax log_softmax erf")),
}
_NUMBERS = ("pi", "inf", "e", "nan")
CONSTANTS: dict[str, Any] = {
    **{f"torch.{name}": getattr(torch, name) for name in allowed.names(allowed.DTYPES)},
    **{f"{home}.{name}": getattr(math, name) for home in ("math", "numpy", "torch") for name in _NUMBERS},
    "torch.contiguous_format": torch.contiguous_format, "torch.channels_last": torch.channels_last,
    "torch.preserve_format": torch.preserve_format,
}  # fmt: skip
_SPLITS = {"split": True, "unbind": True, "chunk": False}
_DEEP = ("RNN", "LSTM", "GRU", "Transformer", "TransformerEncoder", "TransformerDecoder")
"""Classes of torch.nn that make as many layers as a number says."""
_FREE = ("device", "pin_memory", "non_blocking")


def is_listed(name: str) -> bool:
    """Whether a table names it."""
    home, _, last = name.rpartition(".")
    return home in _HOMES and last in _HOMES[home][1]


def named(reader: Machine, name: str) -> Any:
    """A name of a library: a constant, or what may be called."""
    if any(part.startswith("__") for part in name.split(".")):
        raise Stopped(f"{name} is not read")
    return CONSTANTS.get(name) if name in CONSTANTS else Library(name, reader)


def real(reader: Machine, value: Any, depth: int = 0) -> Any:
    """A value as a library gets it: a name of a library becomes what it names."""
    if isinstance(value, Library):
        return _named_object(value.name)
    if isinstance(value, Unread):
        raise Stopped(value.why)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple) and depth < 8:
        return type(value)(real(reader, one, depth + 1) for one in value)
    if isinstance(value, OrderedDict) and depth < 8:
        return OrderedDict((key, real(reader, one, depth + 1)) for key, one in value.items())
    if isinstance(value, dict) and depth < 8:
        return {key: real(reader, one, depth + 1) for key, one in value.items()}
    if isinstance(value, Value) and not isinstance(value, (Function, Bound, Partial, OwnClass)):
        raise Stopped("a library gets an object of the project")
    return value


def _named_object(name: str) -> Any:
    home, _, last = name.rpartition(".")
    if is_listed(name) and home != "numpy":
        return getattr(_HOMES[home][0], last)
    if name in ("builtins.int", "builtins.float", "builtins.bool"):
        return {"int": int, "float": float, "bool": bool}[last]
    raise Stopped(f"{name} is not in the list of what is read")


def on_meta(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a function that makes a tensor: on the device, which meta stands for."""
    kwargs.pop("pin_memory", None)
    kwargs.pop("generator", None)
    if kwargs.get("device") is not None:
        kwargs["device"] = torch.device("meta")
    return kwargs


def call(reader: Machine, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result of a library's function or class. Raises Stopped for what no table names."""
    special = _SPECIAL.get(name)
    if special is not None:
        return special(reader, *args, **kwargs)
    made = context(name, args, kwargs)
    if made is not None:
        return made
    if name.startswith(allowed.NO_VALUES):
        return args[0] if name.startswith("torch.nn.init.") and args else None
    if name.startswith("torchvision.models."):
        return _torchvision(name, args, kwargs)
    home, _, last = name.rpartition(".")
    if not is_listed(name):
        raise Stopped(f"{name} is not in the list of what is read")
    args[:] = [real(reader, one) for one in args]
    kwargs = {key: real(reader, one) for key, one in kwargs.items()}
    if home in ("math", "numpy"):
        return _arithmetic(last, args, kwargs)
    function = getattr(_HOMES[home][0], last)
    if home == "torch.nn":
        _refuse_deep(last, args, kwargs)
        reader.budget.module()
        kwargs.pop("device", None)
        return function(*args, **kwargs)
    if last == "one_hot" and len(args) < 2 and "num_classes" not in kwargs:
        raise Stopped("one_hot() without a number of classes depends on the numbers in a tensor")
    if last in ("repeat_interleave",) and any(isinstance(one, torch.Tensor) for one in args[1:]):
        raise Stopped("repeat_interleave() depends on the numbers in a tensor")
    if last == "where" and len(args) + len(kwargs) == 1:
        raise Stopped("where() of one argument depends on the numbers in a tensor")
    if last in _SPLITS and args and isinstance(args[0], torch.Tensor):
        at = 1 if last == "unbind" else 2
        dim = kwargs.get("dim", args[at] if len(args) > at else 0)
        many = (
            1
            if last == "unbind"
            else args[1]
            if len(args) > 1
            else kwargs.get("split_size_or_sections", kwargs.get("chunks"))
        )
        pieces(args[0], many, dim, _SPLITS[last])
    if last in ("tensor", "as_tensor") and args and not isinstance(args[0], torch.Tensor):
        _refuse_large(args[0], reader)
    return function(*args, **on_meta(kwargs))


def _refuse_large(value: Any, reader: Machine) -> None:
    if isinstance(value, (list, tuple)):
        for one in iterate(value, reader.budget):
            _refuse_large(one, reader)


def _arithmetic(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    flat = [one for arg in args for one in (arg if isinstance(arg, (list, tuple)) else [arg])]
    if kwargs or not all(isinstance(one, (int, float)) for one in flat):
        raise Stopped(f"{name}() of what is no number")
    if name == "prod" and not math.prod(max(1, abs(int(one)).bit_length()) for one in flat) < 10**6:
        raise Stopped("a product is too large")
    return checked(getattr(math, name)(*args))


def _refuse_deep(name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    if name not in _DEEP:
        return
    at = {"Transformer": (2, 3), "TransformerEncoder": (1,), "TransformerDecoder": (1,)}.get(name, (2,))
    many = [args[one] for one in at if len(args) > one]
    many += [value for key, value in kwargs.items() if key.startswith("num_") and key.endswith("layers")]
    if any(isinstance(one, int) and one > LAYERS for one in many):
        raise Stopped(f"torch.nn.{name} of more than {LAYERS} layers")


# --- what needs more than a row of a table ----------------------------------------------------------------------------


def _parameter(reader: Machine, data: Any = None, requires_grad: bool = True) -> Any:
    if not isinstance(data, torch.Tensor):
        raise Stopped("the data of a parameter are not known")
    return nn.Parameter(data, requires_grad=bool(requires_grad))


def _old_tensor(dtype: torch.dtype) -> Any:
    def made(reader: Machine, *args: Any) -> Any:
        if args and all(isinstance(one, int) for one in args):
            return torch.empty(*args, dtype=dtype)
        if len(args) == 1 and isinstance(args[0], (list, tuple)):
            _refuse_large(args[0], reader)
            return torch.tensor(args[0], dtype=dtype)
        raise Stopped("what a tensor is made of is not known")

    return made


def _spaced(reader: Machine, start: Any, end: Any, steps: Any = 100, **kwargs: Any) -> torch.Tensor:
    """torch.linspace, whose numbers are known: they are rates of layers that are dropped."""
    if not all(isinstance(one, (int, float)) for one in (start, end, steps)):
        raise Stopped("the ends of linspace() are not known")
    made = torch.linspace(start, end, steps, **on_meta(kwargs))
    if 0 < steps <= PIECES:
        step = (end - start) / max(steps - 1, 1)
        made._preflight_values = [start + step * at for at in range(steps)]
    return made


def _copied(reader: Machine, value: Any) -> Any:
    if isinstance(value, nn.Module):
        for _ in value.modules():
            reader.budget.module()
        return copy.deepcopy(value)
    if isinstance(value, (bool, int, float, str)):
        return value
    raise Stopped("what is copied is not known")


def _partial(reader: Machine, inner: Any, *args: Any, **kwargs: Any) -> Partial:
    return Partial(reader, inner, list(args), kwargs)


def _ordered(reader: Machine, *args: Any, **kwargs: Any) -> Any:
    pairs = args[0] if args else []
    items = (
        pairs.items()
        if isinstance(pairs, dict)
        else [tuple(iterate(one, reader.budget)) for one in iterate(pairs, reader.budget)]
    )
    return OrderedDict([*items, *kwargs.items()])


def _checkpoint(reader: Machine, function: Any, *args: Any, **kwargs: Any) -> Any:
    """torch.utils.checkpoint.checkpoint, whose recomputation emulates CUDA too."""
    reentrant = kwargs.pop("use_reentrant", None)
    kwargs.pop("preserve_rng_state", None)
    if not isinstance(function, (Function, Bound, Partial, nn.Module)):
        raise Stopped("what is checkpointed is not known")
    if reentrant is not False:
        raise Stopped("checkpoint() is called without use_reentrant=False")
    if reader.again is None:
        return reader.call(function, list(args), kwargs)
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, context_fn=reader.again, **kwargs)


def _einops(name: str) -> Any:
    def made(reader: Machine, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        function = getattr(_einops_module(), name)
        if isinstance(tensor, (list, tuple)):
            tensor = list(tensor)
        elif not isinstance(tensor, torch.Tensor):
            raise Stopped("einops gets no tensor")
        if not all(isinstance(one, str) and len(one) < 400 for one in args):
            raise Stopped("a pattern of einops is not known")
        if not all(isinstance(one, int) for one in kwargs.values()):
            raise Stopped("a size of einops is not known")
        return function(tensor, *args, **kwargs)

    return made


def _einops_layer(name: str) -> Any:
    def made(reader: Machine, pattern: Any, **kwargs: Any) -> Any:
        layer = getattr(_einops_module().layers.torch, name)
        if not isinstance(pattern, str) or len(pattern) > 400:
            raise Stopped("a pattern of einops is not known")
        reader.budget.module()
        return layer(pattern, **kwargs)

    return made


def _einops_module() -> Any:
    try:
        importlib.import_module("einops.layers.torch")
        return importlib.import_module("einops")
    except ImportError:
        raise Stopped("einops is not installed where models are traced") from None


def _torchvision(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A model of torchvision without its weights."""
    last = name.rpartition(".")[2]
    if (
        name.count(".") > 3
        or not last[:1].islower()
        or any(not isinstance(one, (bool, type(None), str, Library)) for one in args)
    ):
        raise Stopped(f"{name} is not in the list of what is read")
    given = {
        key: value
        for key, value in kwargs.items()
        if key not in ("pretrained", "weights", "progress", "weights_backbone")
    }
    if not all(isinstance(one, (bool, int, float, str, type(None))) for one in given.values()):
        raise Stopped(f"an argument of {name} is not known")
    return models.build_target({"target": f"torchvision:{last}", "kwargs": given})


def _timm(reader: Machine, model_name: Any, pretrained: Any = False, **kwargs: Any) -> Any:
    """A model of timm without its weights."""
    if (
        not isinstance(model_name, str)
        or model_name.startswith(("hf", "local"))
        or "/" in model_name
        or ":" in model_name
    ):
        raise Stopped("the name of a model of timm is not known")
    allowed_ = {
        "num_classes",
        "in_chans",
        "img_size",
        "global_pool",
        "drop_rate",
        "drop_path_rate",
        "features_only",
        "out_indices",
    }
    if set(kwargs) - allowed_ or not all(
        isinstance(one, (bool, int, float, str, tuple, list, type(None))) for one in kwargs.values()
    ):
        raise Stopped("an argument of timm.create_model is not known")
    try:
        return building.make_timm(model_name, None, kwargs)
    except ImportError:
        raise Stopped("timm is not installed where models are traced") from None


def _weight_norm(reader: Machine, module: Any, *args: Any, **kwargs: Any) -> Any:
    raise Stopped("a parametrised weight is not read")


def _namespace(reader: Machine, **kwargs: Any) -> Object:
    made = Object(None)
    made.attributes.update(kwargs)
    return made


_SPECIAL: dict[str, Any] = {
    "torch.nn.Parameter": _parameter, "torch.nn.parameter.Parameter": _parameter,
    "torch.FloatTensor": _old_tensor(torch.float32), "torch.LongTensor": _old_tensor(torch.int64),
    "torch.Tensor": _old_tensor(torch.float32),
    "torch.linspace": _spaced,
    "torch.nn.Transformer.generate_square_subsequent_mask": lambda reader, size, **more: (
        nn.Transformer.generate_square_subsequent_mask(size, device=torch.device("meta"))
    ),
    "torch.device": lambda reader, *args, **kwargs: torch.device("meta"),
    "torch.cuda.is_available": lambda reader: True,
    "torch.finfo": lambda reader, dtype=torch.float32: torch.finfo(dtype),
    "torch.iinfo": lambda reader, dtype=torch.int64: torch.iinfo(dtype),
    "torch.get_default_dtype": lambda reader: torch.float32,
    "torch.is_grad_enabled": lambda reader: torch.is_grad_enabled(),
    "torch.Size": lambda reader, sizes: torch.Size(list(iterate(sizes, reader.budget))),
    "copy.deepcopy": _copied, "copy.copy": _copied, "functools.partial": _partial,
    "collections.OrderedDict": _ordered, "types.SimpleNamespace": _namespace, "argparse.Namespace": _namespace,
    "torch.utils.checkpoint.checkpoint": _checkpoint,
    "einops.rearrange": _einops("rearrange"), "einops.repeat": _einops("repeat"), "einops.reduce": _einops("reduce"),
    "einops.layers.torch.Rearrange": _einops_layer("Rearrange"), "einops.layers.torch.Reduce": _einops_layer("Reduce"),
    "timm.create_model": _timm, "timm.models.create_model": _timm,
}  # fmt: skip


# --- what a `with` may enter ------------------------------------------------------------------------------------------

CONTEXTS: dict[str, Any] = {
    "torch.no_grad": torch.no_grad, "torch.inference_mode": torch.no_grad, "torch.enable_grad": torch.enable_grad,
    "torch.profiler.record_function": contextlib.nullcontext, "contextlib.nullcontext": contextlib.nullcontext,
}  # fmt: skip
AUTOCASTS = ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast_mode.autocast")


def context(name: str, args: list[Any], kwargs: dict[str, Any]) -> Context | None:
    """The context that a library's function makes; None for any other function."""
    if name in AUTOCASTS:
        named = args[1:] if args and isinstance(args[0], str) else args
        enabled = kwargs.get("enabled", next((one for one in named if isinstance(one, bool)), True))
        if enabled is False:
            return Context(cuda.without_autocast)
        dtype = kwargs.get("dtype", next((one for one in args if isinstance(one, torch.dtype)), None))
        return Context(lambda: cuda.autocast_in_step(dtype))
    if name in CONTEXTS:
        return Context(CONTEXTS[name])
    return None
