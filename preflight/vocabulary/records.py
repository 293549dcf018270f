"""`dataclass` as the standard library's, made in half the time: every start pays for two hundred such classes.

The library writes five methods of each class as text and compiles them (until Python 3.13, where one pass does). Here
only `__init__` is compiled; comparison, hash, text and the refusal to assign are shared functions over the class's
fields. What is not the plain case (order, keyword-only or computed fields, methods of one's own, inheritance) goes to
the library as it is.
"""

from __future__ import annotations

from dataclasses import field, fields, replace
from typing import TYPE_CHECKING

__all__ = ["dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    import sys
    from operator import attrgetter
    from reprlib import recursive_repr

    _OWN = {"__init__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__setstate__"}

    def dataclass(cls=None, /, *, frozen=False, slots=False, **options):
        """The library's decorator; `frozen` and `slots` are what is made faster."""

        def made(cls):
            if sys.version_info >= (3, 13) or options or not _plain(cls):
                return dataclasses.dataclass(cls, frozen=frozen, slots=slots, **options)
            own_text = "__repr__" in cls.__dict__
            cls = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
            found = dataclasses.fields(cls)
            cls.__init__ = _init(cls, found, frozen)
            cls.__eq__, cls.__hash__ = _eq, _hash if frozen else None
            if not own_text:
                cls.__repr__ = _repr
            if frozen:
                cls.__setattr__, cls.__delattr__ = _refuse, _refuse
                cls.__getstate__, cls.__setstate__ = _getstate, _setstate
            return cls

        return made if cls is None else made(cls)

    def _plain(cls):
        """Whether nothing about a class is out of the ordinary."""
        values = [value for value in cls.__dict__.values() if isinstance(value, dataclasses.Field)]
        odd = any(value.kw_only is True or not value.init or value.hash is not None for value in values)
        return cls.__bases__ == (object,) and not odd and not _OWN & cls.__dict__.keys()

    def _init(cls, found, frozen):
        """The one method that is compiled: it is called most, and by position."""
        names = {"_set": object.__setattr__, "_none": _none}
        parameters, lines = ["self"], []
        for index, one in enumerate(found):
            value = one.name
            if one.default_factory is not dataclasses.MISSING:
                names[f"_make{index}"] = one.default_factory
                parameters.append(f"{one.name}=_none")
                value = f"_make{index}() if {one.name} is _none else {one.name}"
            elif one.default is not dataclasses.MISSING:
                names[f"_default{index}"] = one.default
                parameters.append(f"{one.name}=_default{index}")
            else:
                parameters.append(one.name)
            lines.append(f" _set(self, {one.name!r}, {value})" if frozen else f" self.{one.name} = {value}")
        if hasattr(cls, "__post_init__"):
            lines.append(" self.__post_init__()")
        space = {}
        exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"]), names, space)
        made = space["__init__"]
        made.__qualname__ = f"{cls.__qualname__}.__init__"
        made.__annotations__ = {one.name: one.type for one in found}
        return made

    _none = object()
    _getters = {}

    def _values(self):
        """The fields that are compared, as a tuple (one alone as it is)."""
        getter = _getters.get(self.__class__)
        if getter is None:
            names = [one.name for one in dataclasses.fields(self) if one.compare]
            getter = _getters[self.__class__] = attrgetter(*names) if names else (lambda _: ())
        return getter(self)

    def _eq(self, other):
        return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented

    def _hash(self):
        return hash(_values(self))

    @recursive_repr()
    def _repr(self):
        shown = [f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr]
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    def _refuse(self, name, *_):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _getstate(self):
        return [getattr(self, one.name) for one in dataclasses.fields(self)]

    def _setstate(self, state):
        for one, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, one.name, value)
