"""Attributes: of each kind of object those that a table names, and no others."""

from __future__ import annotations

import ast
from typing import Any

import torch
from torch import nn

from . import allowed
from .scopes import Scope
from .stopped import Stopped
from .values import Bound, Frame, Library, Machine, Native, Object, OwnClass, Super, Unread, Value

_TENSOR, _TENSOR_DATA = allowed.names(allowed.TENSOR), allowed.names(allowed.TENSOR_DATA)
_MODULE = allowed.names(allowed.MODULE)
_METHODS: dict[type, frozenset[str]] = {
    str: allowed.names(allowed.TEXT), list: allowed.names(allowed.LIST), dict: allowed.names(allowed.DICT),
    set: allowed.names(allowed.SET), tuple: allowed.names(allowed.TUPLE),
    torch.Size: frozenset({"numel", "index", "count"}),
}  # fmt: skip
_DATA: dict[type, frozenset[str]] = {
    torch.finfo: frozenset({"min", "max", "eps", "tiny"}), torch.iinfo: frozenset({"min", "max"}),
    torch.dtype: frozenset({"is_floating_point", "itemsize"}),
    slice: frozenset({"start", "stop", "step"}),
}  # fmt: skip
_PLAIN = (bool, int, float, str, tuple, type(None), torch.dtype)
_LOGS = allowed.names(allowed.LOGS)
MISSING = object()


def attribute(reader: Machine, holder: Any, name: str) -> Any:
    """`holder.name`. Raises Stopped for what no table names."""
    if name.startswith("__") and not (name == "__init__" and isinstance(holder, Super)):
        if name == "__name__" and isinstance(holder, OwnClass):
            return holder.name
        if name == "__class__" and _class_of(holder) is not None:
            return _class_of(holder)
        raise Stopped(f".{name} is not read")
    if isinstance(holder, torch.Tensor):
        return _of_tensor(holder, name)
    if isinstance(holder, nn.Module):
        return _of_module(reader, holder, name)
    if isinstance(holder, Value):
        return _of_value(reader, holder, name)
    if isinstance(holder, torch.device) and name in ("type", "index"):
        return "cuda" if name == "type" else 0
    methods = next((names for kind, names in _METHODS.items() if type(holder) is kind), frozenset())
    if name in methods or (isinstance(holder, tuple) and name in _METHODS[tuple]):
        return Native(f"{type(holder).__name__}.{name}", getattr(holder, name), keeps=True)
    data = _DATA.get(type(holder), frozenset())
    if name in data:
        return getattr(holder, name)
    if isinstance(holder, tuple) and name in getattr(type(holder), "_fields", ("values", "indices")):
        found = getattr(holder, name, MISSING)  # the values and indices of `x.max(1)`
        if isinstance(found, torch.Tensor):
            return found
    raise Stopped(f".{name} of an object of {type(holder).__name__} is not read")


def _of_tensor(holder: torch.Tensor, name: str) -> Any:
    if name in _TENSOR:
        return Native(f"tensor.{name}", getattr(holder, name))
    if name in _TENSOR_DATA:
        return getattr(holder, name)
    if name == "device":
        return torch.device("meta")
    if name in ("is_cuda", "is_leaf"):
        return True
    if name in ("cuda", "cpu", "pin_memory"):
        return Native(name, lambda *_, **__: holder)
    known = getattr(holder, "_preflight_values", None)
    if known is not None and name in ("item", "tolist"):
        return Native(name, lambda: known if name == "item" or not isinstance(known, list) else list(known))
    if name in ("item", "tolist", "numpy", "nonzero", "unique", "masked_select"):
        raise Stopped(f".{name}() depends on the numbers in a tensor")
    raise Stopped(f".{name} of a tensor is not read")


def _of_module(reader: Machine, holder: nn.Module, name: str) -> Any:
    own = getattr(type(holder), "_preflight_class", None)
    for parts in (holder._parameters, holder._buffers, holder._modules):
        if name in parts:
            return parts[name]
    if own is not None:
        found = (
            holder.__dict__.get(name, MISSING) if not name.startswith("_") or name in _set_names(holder) else MISSING
        )
        if found is not MISSING:
            if isinstance(found, Unread):
                raise Stopped(found.why)
            return found
        found = of_class(reader, own, name, holder)
        if found is not MISSING:
            return found
        if name == "device" and "Lightning" in str(own.lineage[-1]):
            return torch.device("meta")
        if name in _LOGS:
            return Native(name, lambda *a, **k: _logged(holder, name, k))
    if name == "training":
        return holder.training
    if name == "device":
        return torch.device("meta")
    if name in _MODULE and callable(getattr(type(holder), name, None)):
        return Native(f"module.{name}", getattr(holder, name), keeps=name in ("register_buffer",))
    if name == "apply":
        return Native("module.apply", lambda function: _apply(reader, holder, function), keeps=True)
    value = holder.__dict__.get(name, MISSING)
    if not name.startswith("_") and isinstance(value, _PLAIN):
        return value
    raise Stopped(f".{name} of {type(holder).__name__} is not known")


def _set_names(holder: nn.Module) -> set[str]:
    """The attributes that the project's own code has set."""
    names = holder.__dict__.get("_preflight_set")
    return names if isinstance(names, set) else set()


def _logged(holder: nn.Module, name: str, kwargs: dict[str, Any]) -> None:
    if name == "save_hyperparameters":
        made = Object(None)
        made.attributes.update({k: v for k, v in kwargs.get("_given", {}).items() if not isinstance(v, nn.Module)})
        holder.__dict__["hparams"] = made


def _apply(reader: Machine, holder: nn.Module, function: Any) -> nn.Module:
    """`module.apply(function)`, from the inside to the outside."""
    for one in holder.children():
        _apply(reader, one, function)
    reader.budget.step()
    reader.call(function, [holder], {})
    return holder


def _of_value(reader: Machine, holder: Value, name: str) -> Any:
    if isinstance(holder, Library):
        return reader.named(f"{holder.name}.{name}")
    if isinstance(holder, Scope):
        try:
            return holder.look_up(name)
        except KeyError:
            raise Stopped(f"{holder.path} has no {name}") from None
    if isinstance(holder, Object):
        if name in holder.attributes:
            return holder.attributes[name]
        found = of_class(reader, holder.cls, name, holder) if holder.cls is not None else MISSING
    elif isinstance(holder, OwnClass):
        found = of_class(reader, holder, name, None)
    elif isinstance(holder, Super):
        found = _of_parent(reader, holder, name)
    else:
        found = MISSING
    if found is MISSING:
        raise Stopped(f".{name} is not known")
    return found


def of_class(reader: Machine, cls: OwnClass, name: str, holder: Any, after: OwnClass | None = None) -> Any:
    """What a class of the project has under a name, for an object (None: for the class itself); MISSING without one.
    `after`: of the classes behind this one."""
    lineage = cls.lineage if after is None else cls.lineage[cls.lineage.index(after) + 1 :]
    for one in lineage:
        if not isinstance(one, OwnClass):
            if one.name.startswith("torch.nn.") and one.name != "torch.nn.Module" and _overrides(one.name, name):
                return MISSING
            continue
        statement = one.members.get(name)
        if statement is None:
            continue
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return _method(reader, one, statement, holder, cls)
        if name not in one.values:
            frame = Frame(one.scope, None, one)
            for other in one.members:
                if other != name and isinstance(one.values.get(other), (int, float, str, bool)):
                    frame.variables[other] = one.values[other]
            if isinstance(statement, ast.ClassDef):
                one.values[name] = reader.defined(statement, frame)
            elif getattr(statement, "value", None) is None:
                continue
            else:
                one.values[name] = reader.evaluate(statement.value, frame)  # type: ignore[attr-defined]
        return one.values[name]
    return MISSING


def _overrides(library: str, name: str) -> bool:
    real = getattr(nn, library.rpartition(".")[2], None)
    return real is not None and name in vars(real)


def _method(reader: Machine, owner: OwnClass, node: Any, holder: Any, cls: OwnClass) -> Any:
    if isinstance(node, ast.AsyncFunctionDef):
        raise Stopped("an async function is not read", owner.scope.path, node.lineno)
    frame = Frame(owner.scope, None, owner)
    made = reader.defined(node, frame)
    made.owner, made.parent = owner, None
    decorators = {ast.unparse(one) for one in node.decorator_list}
    if "property" in decorators:
        return reader.call(made, [holder], {}) if holder is not None else made
    if "staticmethod" in decorators:
        return made
    if "classmethod" in decorators:
        return Bound(made, cls)
    return made if holder is None else Bound(made, holder)


def _of_parent(reader: Machine, holder: Super, name: str) -> Any:
    inner = holder.holder
    cls = _class_of(inner)
    if cls is None:
        raise Stopped("what super() stands for is not known")
    found = of_class(reader, cls, name, inner, holder.owner)
    if found is not MISSING:
        return found
    if isinstance(inner, nn.Module):
        base = type(inner).__mro__[2]  # the class of torch behind `OwnModule`
        if name == "__init__":
            return Native("module.__init__", lambda *a, **k: base.__init__(inner, *a, **k))  # type: ignore[misc]
        if name in _MODULE and callable(getattr(base, name, None)):
            method = getattr(base, name)
            return Native(f"module.{name}", lambda *a, **k: method(inner, *a, **k))
        if name in _LOGS:
            return Native(name, lambda *a, **k: None)
    elif name == "__init__":
        return Native("object.__init__", lambda: None)
    return MISSING


def _class_of(value: Any) -> OwnClass | None:
    if isinstance(value, Object):
        return value.cls
    return getattr(type(value), "_preflight_class", None) if isinstance(value, nn.Module) else None


def set_attribute(reader: Machine, holder: Any, name: str, value: Any) -> None:
    """`holder.name = value`."""
    if name.startswith("__"):
        raise Stopped(f".{name} is not set")
    if isinstance(value, Unread):
        raise Stopped(value.why)
    if isinstance(holder, Object):
        holder.attributes[name] = value
        return
    if isinstance(holder, torch.Tensor):
        if name != "requires_grad" or not isinstance(value, bool):
            raise Stopped(f".{name} of a tensor is not set")
        holder.requires_grad_(value)
        return
    if not isinstance(holder, nn.Module):
        raise Stopped(f".{name} is set on an object that is not known")
    own = getattr(type(holder), "_preflight_class", None)
    if own is None:
        replaced = holder._modules if name in holder._modules else holder._parameters
        if name not in replaced or not isinstance(value, (nn.Module, nn.Parameter, type(None))):
            raise Stopped(f".{name} of a layer of torch is set")
    elif name in _FIXED or (hasattr(nn.Module, name) and name != "dump_patches"):
        raise Stopped(f".{name} of a module is set")
    else:
        holder.__dict__.setdefault("_preflight_set", set()).add(name)
        members = [one.members.get(name) for one in own.own()]
        if any(isinstance(one, ast.FunctionDef) for one in members):
            raise Stopped(f"the method .{name} is replaced")
    setattr(holder, name, value)


_FIXED = ("forward", "training", "_parameters", "_buffers", "_modules", "_preflight_set")
