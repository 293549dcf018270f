"""Python's builtins, of the reading's own values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from . import allowed
from .attributes import attribute, set_attribute
from .limits import checked, iterate, raised
from .stopped import ITEMS, Stopped
from .values import Frame, Function, Library, Machine, Object, OwnClass, Unread, Value, truth

_BUILTINS = allowed.names(allowed.BUILTINS)
_TYPES: dict[str, type] = {
    "int": int, "float": float, "str": str, "bool": bool, "list": list, "tuple": tuple, "dict": dict, "set": set,
    "slice": slice, "range": range, "frozenset": frozenset,
}  # fmt: skip
_LIBRARY_TYPES: dict[str, Any] = {
    "torch.Tensor": torch.Tensor, "torch.nn.Parameter": nn.Parameter, "torch.Size": torch.Size,
    "torch.FloatTensor": torch.Tensor, "collections.abc.Iterable": (list, tuple, dict, set, str, torch.Tensor, range),
    "collections.abc.Sequence": (list, tuple, str, range), "typing.Iterable": (list, tuple, dict, set, str, range),
    "typing.Sequence": (list, tuple, str, range), "collections.abc.Mapping": dict, "numbers.Number": (int, float),
    "torch.nn.modules.batchnorm._BatchNorm": (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
}  # fmt: skip


def builtin(name: str, frame: Frame) -> Any:
    """A builtin by its name."""
    if name == "__name__":
        return "__preflight__"
    if name not in _BUILTINS:
        raise Stopped(f"{name} is not known")
    return Library(f"builtins.{name}", frame.scope.reader)


def call(reader: Machine, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result of a builtin. Raises Stopped where it is not known."""
    own = _OWN.get(name)
    if own is not None:
        return own(reader, *args, **kwargs)
    if name.endswith(("Error", "Exception")):
        return Object(None)
    raise Stopped(f"{name}() is not read")


def _items(reader: Machine, value: Any) -> list[Any]:
    if isinstance(value, range) and len(value) > ITEMS:
        raise Stopped(f"a value has more than {ITEMS:,} items")
    found = list(iterate(value, reader.budget))
    checked(found)
    return found


def _plain(*values: Any) -> None:
    for one in values:
        if isinstance(one, torch.Tensor):
            raise Stopped("a number depends on those in a tensor")
        if isinstance(one, Value) or not isinstance(one, (bool, int, float, str, type(None))):
            raise Stopped("a number is not known")


def _number(kind: Any) -> Any:
    def made(reader: Machine, *values: Any) -> Any:
        _plain(*values)
        return checked(kind(*values))

    return made


def _abs(reader: Machine, value: Any) -> Any:
    return abs(value) if isinstance(value, torch.Tensor) else _number(abs)(reader, value)


def _collected(kind: Any) -> Any:
    def made(reader: Machine, *values: Any, **named: Any) -> Any:
        if kind is dict:
            first = values[0] if values else {}
            pairs = (
                first.items()
                if isinstance(first, dict)
                else [tuple(iterate(one, reader.budget)) for one in _items(reader, first)]
            )
            return checked({**dict(pairs), **named})
        return kind(_items(reader, values[0])) if values else kind()

    return made


def _length(reader: Machine, value: Any) -> int:
    if isinstance(
        value, (list, tuple, dict, set, str, range, nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList)
    ):
        return len(value)
    if isinstance(value, torch.Tensor) and value.dim():
        return int(value.shape[0])
    raise Stopped("a length is not known")


def _sum(reader: Machine, values: Any, start: Any = 0) -> Any:
    for one in iterate(values, reader.budget):
        if isinstance(one, Value):
            raise Stopped("a sum is not known")
        start = start + one
    return checked(start)


def _most(kind: Any) -> Any:
    def made(reader: Machine, *values: Any, **named: Any) -> Any:
        items = _items(reader, values[0]) if len(values) == 1 else list(values)
        if named:
            raise Stopped("the largest by a function of the project is not read")
        for one in items:
            if not isinstance(one, (tuple, list)):
                _plain(one)
        return kind(items)

    return made


def _sorted(reader: Machine, values: Any, key: Any = None, reverse: bool = False) -> list[Any]:
    items = _items(reader, values)
    keys = [one if key is None else reader.call(key, [one], {}) for one in items]
    for one in keys:
        if not isinstance(one, (tuple, list)):
            _plain(one)
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))
    return [items[at] for at in order]


def _enumerate(reader: Machine, values: Any, start: int = 0) -> Iterator[Any]:
    return enumerate(iterate(values, reader.budget), start)


def _zip(reader: Machine, *values: Any, strict: bool = False) -> Iterator[Any]:
    return zip(*(iterate(one, reader.budget) for one in values))  # noqa: B905 - Python 3.9


def _map(reader: Machine, function: Any, *values: Any) -> Iterator[Any]:
    rows = zip(*(iterate(one, reader.budget) for one in values))  # noqa: B905 - Python 3.9
    return (reader.call(function, list(row), {}) for row in rows)


def _filter(reader: Machine, function: Any, values: Any) -> Iterator[Any]:
    return (
        one
        for one in iterate(values, reader.budget)
        if truth(one if function is None else reader.call(function, [one], {}))
    )


def _reversed(reader: Machine, value: Any) -> list[Any]:
    return _items(reader, value)[::-1]


def _quantified(kind: Any) -> Any:
    def made(reader: Machine, values: Any) -> bool:
        return bool(kind(truth(one) for one in iterate(values, reader.budget)))

    return made


def _is(reader: Machine, value: Any, kinds: Any) -> bool:
    """isinstance."""
    if isinstance(value, Unread):
        raise Stopped(value.why)
    found = False
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if isinstance(kind, OwnClass):
            own = getattr(type(value), "_preflight_class", None) or getattr(value, "cls", None)
            found = found or (own is not None and kind in own.lineage)
        elif isinstance(kind, Library):
            found = found or isinstance(value, _type_of(kind.name))
        else:
            raise Stopped("a type is not known")
    return found


def _type_of(name: str) -> Any:
    plain = _TYPES.get(name.removeprefix("builtins.")) if name.startswith("builtins.") else None
    if plain is not None:
        return plain
    if name in _LIBRARY_TYPES:
        return _LIBRARY_TYPES[name]
    home, _, last = name.rpartition(".")
    if home == "torch.nn" and last in allowed.names(allowed.LAYERS):
        return getattr(nn, last)
    raise Stopped(f"{name} is no type that is known")


def _type(reader: Machine, value: Any) -> Any:
    own = getattr(type(value), "_preflight_class", None) or getattr(value, "cls", None)
    if own is not None:
        return own
    for name, kind in _TYPES.items():
        if type(value) is kind:
            return Library(f"builtins.{name}", reader)
    if isinstance(value, nn.Module) and type(value).__name__ in allowed.names(allowed.LAYERS):
        return Library(f"torch.nn.{type(value).__name__}", reader)
    raise Stopped("a type is not known")


def _has(reader: Machine, holder: Any, name: Any) -> bool:
    """hasattr: of objects whose attributes are all known."""
    if not isinstance(name, str) or name.startswith("__"):
        raise Stopped("an attribute's name is not known")
    own = getattr(type(holder), "_preflight_class", None)
    if isinstance(holder, nn.Module):
        if own is None and not hasattr(holder, name):
            return False
        if own is not None and not hasattr(holder, name) and not any(name in one.members for one in own.own()):
            return False
    elif (
        isinstance(holder, Object)
        and name not in holder.attributes
        and (holder.cls is None or not any(name in one.members for one in holder.cls.own()))
    ):
        return False
    attribute(reader, holder, name)
    return True


def _get(reader: Machine, holder: Any, name: Any, *default: Any) -> Any:
    """getattr: the same tables as `holder.name`."""
    if not isinstance(name, str):
        raise Stopped("an attribute's name is not known")
    if (
        default
        and not isinstance(holder, (Library, torch.Tensor))
        and not isinstance(holder, OwnClass)
        and not _has_or_unknown(reader, holder, name)
    ):
        return default[0]
    return attribute(reader, holder, name)


def _has_or_unknown(reader: Machine, holder: Any, name: str) -> bool:
    return _has(reader, holder, name) if isinstance(holder, (nn.Module, Object)) else True


def _set(reader: Machine, holder: Any, name: Any, value: Any) -> None:
    if not isinstance(name, str) or not isinstance(holder, (nn.Module, Object)):
        raise Stopped("an attribute's name is not known")
    set_attribute(reader, holder, name, value)


def _range(reader: Machine, *values: Any) -> range:
    _plain(*values)
    return range(*values)


def _pow(reader: Machine, left: Any, right: Any) -> Any:
    return left**right if isinstance(left, torch.Tensor) else checked(raised(left, right))


def _round(reader: Machine, value: Any, digits: Any = None) -> Any:
    _plain(value, digits)
    return round(value, digits) if digits is not None else round(value)


def _text(reader: Machine, value: Any = "") -> str:
    if isinstance(value, torch.device):
        return "cuda"
    _plain(value)
    return str(value)


def _slice(reader: Machine, *values: Any) -> slice:
    return slice(*values)


def _callable(reader: Machine, value: Any) -> bool:
    return isinstance(value, (Function, OwnClass, nn.Module, Library))


_OWN: dict[str, Any] = {
    "int": _number(int), "float": _number(float), "bool": lambda reader, value=False: truth(value), "str": _text,
    "abs": _abs, "list": _collected(list), "tuple": _collected(tuple), "set": _collected(set),
    "frozenset": _collected(frozenset), "dict": _collected(dict), "len": _length, "sum": _sum, "max": _most(max),
    "min": _most(min), "sorted": _sorted, "enumerate": _enumerate, "zip": _zip, "map": _map, "filter": _filter,
    "reversed": _reversed, "any": _quantified(any), "all": _quantified(all), "isinstance": _is, "type": _type,
    "hasattr": _has, "getattr": _get, "setattr": _set, "range": _range, "pow": _pow, "round": _round, "slice": _slice,
    "divmod": _number(divmod), "callable": _callable,
    "print": lambda reader, *values, **named: None, "object": lambda reader: Object(None),
}  # fmt: skip
