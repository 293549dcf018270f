"""Python's built-in functions, on abstract values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from preflight.python.access import attribute, class_attribute, mark_changed, remove_attribute, set_attribute
from preflight.python.arrays import array_of, known
from preflight.python.config_objects import config_default
from preflight.python.evaluator import CallSite
from preflight.python.files import number_of_files
from preflight.python.known_kinds import LENGTH, of_file_names
from preflight.python.objects import (
    COUNTS,
    Abstract,
    Attribute,
    ClassValue,
    Config,
    Container,
    External,
    FunctionValue,
    Instance,
    Key,
    ModuleValue,
    alternatives,
    is_children,
    is_expr,
    openness,
    sequence,
    to_expr,
)
from preflight.python.spread import copy_items
from preflight.python.unknown_names import any_attribute, attributes, set_any
from preflight.vocabulary.values import Cause, Const, Op, Ref, names, unknown

SILENT = frozenset(
    ("print", "issubclass", "callable", "id", "hash", "repr", "input", "format", "eval",
     "compile", "__import__", "locals", "dir", "help", "memoryview", "bytes", "bytearray", "slice",
     "chr", "ord", "hex", "bin", "oct", "ascii", "object", "breakpoint", "complex")
)  # fmt: skip
"""Built-ins that are not evaluated, and whose calls are not recorded."""
OPERATORS = frozenset(("int", "float", "str", "bool", "abs", "round"))
REDUCTIONS = frozenset(("min", "max", "sum", "any", "all", "len"))


def call_builtin(site: CallSite, name: str) -> Abstract | None:
    """The return value of a built-in; None for another name, and for a built-in that has a hook ("open")."""
    if not site.complete:
        if name == "setattr" and len(site.args) == 1:  # setattr(config, *pair)
            set_any(site.ev, site.args[0], site.unknown("the name"), site.unknown("the value"), site.origin)
            return Const(None)
        return site.unknown("its arguments are not all known") if name in OPERATORS | REDUCTIONS else None
    if name in OPERATORS:
        return _operator(site, name)
    if name in REDUCTIONS:
        return _reduction(site, name)
    function = _FUNCTIONS.get(name)
    if function is not None:
        return function(site)
    if name in SILENT:
        return site.unknown(f"{name}() is not evaluated statically")
    return None


def _operator(site: CallSite, name: str) -> Abstract:
    if not site.args:
        empty: dict[str, int | float | str] = {"int": 0, "float": 0.0, "str": "", "bool": False}
        return Const(empty.get(name, 0), site.origin)
    value = site.args[0]
    if name == "bool" and not is_expr(value):
        known = site.ev.truth(value)
        return site.unknown("whether the object is true is not known") if known is None else Const(known, site.origin)
    if name == "str" and isinstance(value, Instance) and value.made_by == "pathlib.Path":
        path = value.state.get("path")
        return Const(path, site.origin) if isinstance(path, str) else site.unknown("the path is not known")
    if isinstance(value, Const) and isinstance(value.value, (int, float)) and type(value.value).__name__ == name:
        return value
    return site.ev.op(name, tuple(to_expr(arg) for arg in site.args), site.origin)


def _reduction(site: CallSite, name: str) -> Abstract:
    value = site.args[0] if site.args else unknown("it is called without an argument")
    if name in ("min", "max") and len(site.args) > 1:
        return site.ev.op(name, tuple(to_expr(arg) for arg in site.args), site.origin)
    if name == "len":
        if isinstance(value, Container):
            if value.open:
                return value.count or site.unknown("not all of its items are known")
            return Const(len(value.items), site.derived)
        number = site.ev.number_of_arguments if isinstance(value, External) and value.name == "sys.argv" else None
        if number is not None:
            return Const(number, site.derived)
        if (array := array_of(value)) is not None and array.shape:
            return array.shape[0]
        if isinstance(value, Instance) and isinstance(method := _length(value), FunctionValue):
            return site.ev.call(replace(method, self_value=value), ())
        if (files := number_of_files(site.ev, value)) is not None:
            return Const(files, site.derived)
        stated = value.state.get("length") if isinstance(value, Instance) else None
        if isinstance(stated, (Const, Ref, Op)) and known(stated):
            return stated
        if isinstance(value, (Instance, Attribute)):
            return site.unknown(LENGTH, Cause.run_time)
    if "key" in site.kwargs:
        return site.unknown(f"{name}() with a key is not evaluated statically")
    items = site.ev.iterate(value) if not is_expr(value) else None
    operand = to_expr(value if items is None else sequence(items, "tuple"))
    return site.ev.op(name, (operand,), site.origin)


def _length(value: Instance) -> Abstract | None:
    return class_attribute(value.cls, "__len__") if value.cls is not None else None


# --- iterables --------------------------------------------------------------------------------------------------------


def _range(site: CallSite) -> Abstract:
    bounds = [site.ev.value_of(to_expr(arg)) for arg in site.args]
    numbers = [b for b in bounds if isinstance(b, int)]
    if len(numbers) != len(bounds) or not numbers or (len(numbers) > 2 and numbers[2] == 0):
        state: dict[str, object] = {"length": to_expr(site.args[0])} if len(bounds) == 1 else {}
        return Instance("range", origin=site.origin, state=state)
    whole = range(*numbers[:3])
    if len(whole) > 512:
        return Instance("range", origin=site.origin, state={"length": Const(len(whole), site.derived)})
    return sequence([Const(i, site.derived) for i in whole], "list", site.origin)


def _copied(kind: str) -> Callable[[CallSite], Abstract]:
    def copy(site: CallSite) -> Abstract:
        if not site.args:
            return Container(kind, {}, site.origin)
        items = site.ev.iterate(site.args[0])
        if items is None:
            return _opaque(site, kind)
        if kind == "set":
            items = _distinct(items)
        return sequence(items, kind, site.origin)

    return copy


def _opaque(site: CallSite, kind: str) -> Abstract:
    value = site.args[0]
    if of_file_names(value) or is_children(value):
        return value
    if is_expr(value):
        return value if not isinstance(to_expr(value), Const) else site.unknown("its items are not known")
    return site.open_container(kind)


def _distinct(items: list[Abstract]) -> list[Abstract]:
    seen: list[object] = []
    kept: list[Abstract] = []
    for item in items:
        if isinstance(item, Const):
            if item.value in seen:
                continue
            seen.append(item.value)
        kept.append(item)
    return kept


def _sorted(site: CallSite) -> Abstract:
    items = site.items(0)
    if items is None and site.args and of_file_names(site.args[0]):
        return site.args[0]
    if items is None or site.kwargs.get("key") is not None:
        return site.unknown("this sorted() is not evaluated statically")
    constants = [item for item in items if isinstance(item, Const)]
    reverse = bool(site.ev.truth(site.kwargs["reverse"])) if "reverse" in site.kwargs else False
    try:
        ordered = sorted(constants, key=lambda c: c.value, reverse=reverse)  # type: ignore[arg-type,return-value]
    except TypeError:
        return site.unknown("this sorted() is not evaluated statically")
    if len(ordered) != len(items):
        return site.unknown("this sorted() is not evaluated statically")
    return sequence(list(ordered), "list", site.origin)


def _enumerate(site: CallSite) -> Abstract:
    items = site.items(0)
    start = site.constant(1) if len(site.args) > 1 else 0
    if items is None or not isinstance(start, int):
        item = Attribute(site.args[0], "[]") if site.args else unknown("the item is not known")
        return _endless(sequence([unknown(COUNTS, site.origin, Cause.run_time), item], "tuple"))
    return sequence([sequence([Const(start + i), item], "tuple") for i, item in enumerate(items)])


def _zip(site: CallSite) -> Abstract:
    columns = [site.ev.iterate(arg) for arg in site.args]
    known = [column for column in columns if column is not None]
    if len(known) != len(columns):
        return _endless(sequence([Attribute(arg, "[]") for arg in site.args], "tuple"))
    return sequence([sequence(list(row), "tuple") for row in zip(*known, strict=False)])


def _endless(item: Abstract) -> Container:
    """A list of an unknown number of items, of which this is one."""
    return sequence([item], open_=True)


def _few_items(site: CallSite) -> list[Abstract] | None:
    """The items that map() or filter() calls its function with; None where they are not known, or too many."""
    items = site.items(1) if len(site.args) == 2 else None
    return None if items is None or len(items) > 256 else items


def _map(site: CallSite) -> Abstract:
    items = _few_items(site)
    if items is None:
        return site.open_container()
    return sequence([site.call(site.args[0], item) for item in items])


def _filter(site: CallSite) -> Abstract:
    items = _few_items(site)
    if items is None:
        return site.open_container()
    kept: list[Abstract] = []
    for item in items:
        test = item if isinstance(site.args[0], Const) else site.call(site.args[0], item)
        known = site.ev.truth(test)
        if known is None:
            return site.open_container()
        kept += [item] if known else []
    return sequence(kept)


def _reversed(site: CallSite) -> Abstract:
    items = site.items(0)
    return site.open_container() if items is None else sequence(items[::-1])


def _next(site: CallSite) -> Abstract:
    if not site.args:
        return unknown("next() is called without an argument", cause=Cause.invalid)
    if isinstance(site.args[0], Container) and site.args[0].items and site.args[0].is_sequence:
        return site.args[0].items[0]
    return Attribute(site.args[0], "[]", site.origin)


def _dict(site: CallSite) -> Abstract:
    items: dict[Key, Abstract] = {}
    known = True
    if site.args and isinstance(site.args[0], Config) and not site.kwargs:
        return site.args[0]
    if site.args:
        known = copy_items(site.args[0], items)
        if not known and isinstance(site.args[0], Container):
            for pair in site.ev.iterate(site.args[0]) or []:
                parts = site.ev.iterate(pair) or []
                key = site.ev.value_of(to_expr(parts[0])) if len(parts) == 2 else None
                if isinstance(key, (str, int)):
                    items[key] = parts[1]
    items.update(site.kwargs)
    settings: dict[Key, bool] = {"settings": True} if site.args and isinstance(site.args[0], Config) else {}
    return Container("dict", items, site.origin, {**openness(not known and not items), **settings})


# --- objects ----------------------------------------------------------------------------------------------------------


def _getattr(site: CallSite) -> Abstract:
    name = site.constant(1)
    if not isinstance(name, str) and len(site.args) > 1 and isinstance(site.args[0], ModuleValue):
        site.ev.chosen_by |= set(names(to_expr(site.args[1])))
        name = site.ev.value_of(to_expr(site.args[1]))
    if not isinstance(name, str):
        found = any_attribute(site.args[0], site.origin) if site.args else None
        return found or site.unknown("the name of the attribute is not known")
    found = attribute(site.ev, site.args[0], name, site.node, site.frame)
    if len(site.args) < 3 or not isinstance(found, (Attribute, Config)):
        return found
    if isinstance(found, Config):
        return config_default(site.ev, found, site.args[2])
    holder = found.receiver
    if isinstance(holder, (Container, Instance)) and (isinstance(holder, Container) or holder.cls is not None):
        return site.args[2]  # all its attributes are known
    return site.ev.join(unknown("whether the object has the attribute is not known"), found, site.args[2])


def _hasattr(site: CallSite) -> Abstract:
    name = site.constant(1)
    holder = site.args[0] if site.args else unknown("nothing")
    if isinstance(name, str) and isinstance(holder, Container) and not holder.open:
        return Const(name in holder.items)
    if isinstance(name, str) and isinstance(holder, (Instance, ClassValue)) and name in dict(attributes(holder)):
        return Const(True)
    if isinstance(name, str) and isinstance(holder, ClassValue) and _is_plain(holder):
        return Const(False)
    return site.unknown("whether the object has the attribute is not known")


def _is_plain(cls: ClassValue) -> bool:
    """Whether all that a class has is written in it and in its bases, which are classes of the project."""
    return all(isinstance(base, ClassValue) for one in cls.lineage() for base in one.bases)


def _isinstance(site: CallSite) -> Abstract:
    """Of a list, a tuple or a dict that the program makes, and of a class: `isinstance(config, (tuple, list))`."""
    holder, kinds = site.args if len(site.args) == 2 else (None, None)
    several = kinds.items.values() if isinstance(kinds, Container) and kinds.kind == "tuple" else (kinds,)
    types = [one.name for one in several if isinstance(one, External) and one.name in _COLLECTIONS]
    if len(types) == len(several):
        if isinstance(holder, Container) and holder.kind in _COLLECTIONS:
            return Const(holder.kind in types)
        if isinstance(holder, ClassValue):
            return Const(False)
    return site.unknown("isinstance() is not evaluated statically")


_COLLECTIONS = frozenset({"list", "tuple", "dict"})


def _setattr(site: CallSite) -> Abstract:
    if len(site.args) == 3:
        name = site.ev.value_of(to_expr(site.args[1]))
        if isinstance(name, str):
            set_attribute(site.ev, site.args[0], name, site.args[2])
        else:
            set_any(site.ev, site.args[0], to_expr(site.args[1]), site.args[2], site.origin)
    return Const(None)


def _delattr(site: CallSite) -> Abstract:
    if len(site.args) == 2:
        name = site.ev.value_of(to_expr(site.args[1]))
        if isinstance(name, str):
            remove_attribute(site.ev, site.args[0], name)
        else:
            mark_changed(site.args[0])
    return Const(None)


def _globals(site: CallSite) -> Abstract:
    return Container("dict", dict(site.frame.globals_))


def _vars(site: CallSite) -> Abstract:
    for value in alternatives(site.args[0]) if site.args else ():
        if isinstance(value, Container) and value.kind == "namespace":
            return Container("dict", value.items, value.origin, value.flags)
        if isinstance(value, Instance):
            return Container("dict", value.attributes, value.origin, attributes_of=value)
        if isinstance(value, Config):
            return value
    return site.open_container("dict")


def _type(site: CallSite) -> Abstract:
    if site.args and isinstance(site.args[0], Instance):
        found = site.args[0]
        return found.cls if found.cls is not None else External(found.made_by)
    return site.unknown("the type is not known")


def _pow(site: CallSite) -> Abstract:
    return site.ev.op("**", tuple(to_expr(arg) for arg in site.args[:2]), site.origin)


def _divmod(site: CallSite) -> Abstract:
    operands = tuple(to_expr(arg) for arg in site.args[:2])
    return sequence([site.ev.op("//", operands, site.origin), site.ev.op("%", operands, site.origin)], "tuple")


def _first(site: CallSite) -> Abstract:
    return site.args[0] if site.args else unknown("nothing")


_FUNCTIONS: Mapping[str, Callable[[CallSite], Abstract]] = {
    "range": _range, "list": _copied("list"), "tuple": _copied("tuple"), "set": _copied("set"),
    "frozenset": _copied("set"), "sorted": _sorted, "enumerate": _enumerate, "zip": _zip, "map": _map,
    "filter": _filter, "reversed": _reversed, "next": _next, "iter": _first, "dict": _dict, "getattr": _getattr,
    "hasattr": _hasattr, "isinstance": _isinstance, "setattr": _setattr, "delattr": _delattr, "vars": _vars,
    "globals": _globals, "type": _type, "pow": _pow, "divmod": _divmod,
}  # fmt: skip
