"""Classes of the project: modules, plain classes and dataclasses."""

from __future__ import annotations

import ast
from typing import Any

from torch import nn

from . import allowed
from .attributes import MISSING, of_class
from .stopped import Stopped
from .values import Bound, Frame, Library, Machine, Object, OwnClass

_LAYERS = allowed.names(allowed.LAYERS)
_UNREAD = ("__getattr__", "__getattribute__", "__setattr__", "__new__", "__init_subclass__", "__del__", "__set_name__",
           "__class_getitem__")  # fmt: skip
"""Methods by which a class changes what Python does with it."""
_OF_MODULES = ("__call__", "__getitem__", "__len__", "__iter__", "__bool__", "__deepcopy__")
"""Those that are not asked of an object that is no module."""


class OwnModule:
    """The part of a module of the project that torch calls: its forward pass is read."""

    _preflight_class: OwnClass

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        cls = type(self)._preflight_class
        method = of_class(cls.scope.reader, cls, "forward", self)
        if method is MISSING:
            return super().forward(*args, **kwargs)  # type: ignore[misc]
        return cls.scope.reader.call(method, [*args], kwargs)


def make_class(reader: Machine, node: ast.ClassDef, frame: Frame) -> OwnClass:
    """The value of a `class` statement; its body is not executed."""
    if node.keywords and not all(
        one.arg == "metaclass" and ast.unparse(one.value).endswith("ABCMeta") for one in node.keywords
    ):
        raise Stopped("a class with a metaclass or keywords is not read", frame.scope.path, node.lineno)
    bases = [one for one in (reader.evaluate(base, frame) for base in node.bases) if not _is_empty(one)]
    for base in bases:
        if not isinstance(base, OwnClass) and _torch_base(base) is None:
            named = base.name if isinstance(base, Library) else "what is not known"
            raise Stopped(f"{node.name} extends {named}", frame.scope.path, node.lineno)
    made = OwnClass(node, frame.scope, bases)
    for decorator in node.decorator_list:
        if ast.unparse(decorator).partition("(")[0] not in ("dataclass", "dataclasses.dataclass"):
            raise Stopped(f"the decorator {ast.unparse(decorator)[:60]} is not known", frame.scope.path, node.lineno)
        made.dataclass = True
    real = next((found for one in made.lineage if (found := _torch_base(one)) is not None), None)
    unread = _UNREAD if real is None else (*_UNREAD, *_OF_MODULES)
    if changed := [name for name in unread if name in made.members]:
        raise Stopped(f"{node.name} defines {changed[0]}", frame.scope.path, made.members[changed[0]].lineno)
    if real is not None:
        made.real = type(node.name, (OwnModule, real), {"_preflight_class": made})
    return made


def _is_empty(base: Any) -> bool:
    return isinstance(base, Library) and (
        base.name.removeprefix("builtins.") in allowed.EMPTY_BASES or base.name.startswith(allowed.TYPING)
    )


def _torch_base(base: Any) -> type[nn.Module] | None:
    """The class of torch that a base is, or stands for."""
    if not isinstance(base, Library):
        return None
    home, _, name = base.name.rpartition(".")
    if home == "torch.nn" and name in _LAYERS:
        found: type[nn.Module] = getattr(nn, name)
        return found
    return nn.Module if name in allowed.LIGHTNING else None


def make_object(reader: Machine, cls: OwnClass, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`Net(width=64)`."""
    reader.budget.module()
    made: Any = Object(cls) if cls.real is None else cls.real.__new__(cls.real)  # type: ignore[call-overload]
    start = of_class(reader, cls, "__init__", made)
    if isinstance(start, Bound):
        reader.call(start, args, kwargs)
    elif isinstance(made, nn.Module):
        base = type(made).__mro__[2]
        base.__init__(made, *args, **kwargs)  # type: ignore[misc]
    elif any(one.dataclass for one in cls.own()):
        _fill(reader, cls, made, args, kwargs)
    elif args or kwargs:
        raise Stopped(f"{cls.name} takes no arguments")
    return made


def _fill(reader: Machine, cls: OwnClass, made: Object, args: list[Any], kwargs: dict[str, Any]) -> None:
    """The fields of a dataclass, in order."""
    fields: dict[str, Any] = {}
    for one in reversed(cls.own()):
        for name, statement in one.members.items():
            if isinstance(statement, ast.AnnAssign) and "ClassVar" not in ast.unparse(statement.annotation):
                fields[name] = statement.value and (one, statement.value)
    if of_class(reader, cls, "__post_init__", made) is not MISSING:
        raise Stopped(f"{cls.name} defines __post_init__")
    given = {**dict(zip(fields, args)), **kwargs}  # noqa: B905 - Python 3.9
    if len(args) > len(fields) or set(given) - set(fields):
        raise Stopped(f"{cls.name} gets arguments that it does not have")
    for name, default in fields.items():
        if name in given:
            made.attributes[name] = given[name]
        elif default:
            owner, value = default
            if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field"):
                made.attributes[name] = _field(reader, value, owner)
            else:
                made.attributes[name] = reader.evaluate(value, Frame(owner.scope))
        else:
            raise Stopped(f"{cls.name} gets no {name}")


def _field(reader: Machine, call: ast.Call, owner: OwnClass) -> Any:
    for keyword in call.keywords:
        if keyword.arg == "default":
            return reader.evaluate(keyword.value, Frame(owner.scope))
        if keyword.arg == "default_factory":
            return reader.call(reader.evaluate(keyword.value, Frame(owner.scope)), [], {})
    raise Stopped("the default of a field is not known")
