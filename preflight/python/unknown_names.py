"""Attributes and items that a program sets by a name that is not known: each may be the one that is set.

`for key, value in read(path).items(): setattr(config, key, value)` and `config.update(read(path))` give a configuration
the values of a file. If that file is not known, the values before it are defaults that may not stand.
"""

from __future__ import annotations

from collections.abc import Iterator

from preflight.python.evaluator import Evaluator
from preflight.python.objects import (
    CHANGED,
    MAX_NESTED,
    Abstract,
    Attribute,
    ClassValue,
    Container,
    Instance,
    Key,
    ModuleValue,
    alternatives,
    is_expr,
)
from preflight.python.settings_objects import holds_settings
from preflight.vocabulary.values import Const, Expr, Op, Origin, unknown

ANY = "[any attribute]"
"""The name of the attribute that `getattr(value, name)` has found under a name that is not known."""
CONFIG_ITEMS = "configuration.items"
"""What makes the pairs of a configuration object. Each value is the parameter of that name, so nothing is replaced when
`for key, value in wandb.config.items(): setattr(args, key, value)` gives the flags what a sweep sets."""


def any_attribute(holder: Abstract, origin: Origin | None) -> Abstract | None:
    """`getattr(holder, name)` of a name that is not known; None if the holder's attributes are not known either."""
    return Attribute(holder, ANY, origin) if _is_project_object(holder) else None


def set_any(ev: Evaluator, holder: Abstract, name: Expr, value: Abstract, origin: Origin | None) -> None:
    """`setattr(holder, name, value)` of a name that is not known."""
    if not is_expr(value) and isinstance(holder, Instance):
        holder.state[CHANGED] = True  # a part of it takes the place of another, or is one more
    if _may_be_any(name, value):
        why = unknown("the program sets attributes whose names are not known", origin)
        for one in _meant(holder):
            _doubt(ev, one, why)
            if isinstance(one, Instance) and holds_settings(one):
                one.state[CHANGED] = True  # those that were not given, too


def set_by_method(ev: Evaluator, holder: Abstract | None, method: str, origin: Origin) -> None:
    """`args.set_training(batch_size=4)`: a method of the library sets attributes of the object."""
    if isinstance(holder, Instance) and holds_settings(holder) and method.startswith("set_"):
        _doubt(ev, holder, unknown(f"{method}() sets it", origin))
        holder.state[CHANGED] = True


def set_any_item(ev: Evaluator, holder: Container, name: Expr, value: Abstract) -> None:
    """`holder[name] = value` of a name that is not known."""
    if _may_be_any(name, value) and not holder.is_sequence:
        _doubt_items(ev, holder, unknown("the program sets items whose names are not known", name.origin))


def update_unknown(ev: Evaluator, holder: Container, origin: Origin | None) -> None:
    """`holder.update(values)` of values that are not known."""
    _doubt_items(ev, holder, unknown("the program updates it with values that are not known", origin), nested=True)


def run_unknown(ev: Evaluator, names: Container, origin: Origin | None, only: frozenset[str] | None) -> None:
    """`exec(text, names)`; `only`: the text is known, and sets these."""
    if only is None:
        _doubt_items(ev, names, unknown("the program runs a text that is not known", origin), nested=True)
    for name in only or ():
        if name in names.items:
            ev.journal.write_item(names, name, unknown("the program sets it in a text that it runs", origin))


def _may_be_any(name: Expr, value: Abstract) -> bool:
    """Whether what is set may be any setting. A layer is none, nor is the parameter of that name."""
    return not isinstance(value, Instance) and not _has_known_part(name) and not _is_of_configuration(value)


def _doubt_items(ev: Evaluator, holder: Container, why: Const, nested: bool = False, _depth: int = 0) -> None:
    if holder.attributes_of is not None and holder.attributes_of.cls is not None:
        _doubt(ev, holder.attributes_of, why)
        return
    for key, value in list(holder.items.items()):
        if str(key).startswith("__"):
            continue  # of a module: it is no setting
        if is_expr(value):
            ev.journal.write_item(holder, key, ev.join(why, why, value))
        elif nested and isinstance(value, Container) and not value.is_sequence and _depth < MAX_NESTED:
            _doubt_items(ev, value, why, nested, _depth + 1)


def _is_project_object(value: Abstract) -> bool:
    """Whether its attributes are known."""
    return (isinstance(value, Instance) and value.cls is not None) or (
        isinstance(value, Container) and value.kind == "namespace"
    )


def _has_known_part(name: Expr) -> bool:
    """`f"layer{i}"`: not any name."""
    return isinstance(name, Op) and any(isinstance(one, Const) and isinstance(one.value, str) for one in name.operands)


def _is_of_configuration(value: Abstract) -> bool:
    holder = value.receiver if isinstance(value, Attribute) else None
    return isinstance(holder, Instance) and holder.made_by.startswith(CONFIG_ITEMS)


def _meant(holder: Abstract) -> Iterator[Abstract]:
    """The objects that a holder may be: with an unknown name, each object among the attributes."""
    if isinstance(holder, Attribute) and holder.name == ANY:
        found = [one for _, value in attributes(holder.receiver) for one in alternatives(value)]
        yield from {id(one): one for one in found if _is_project_object(one)}.values()
    else:
        yield from alternatives(holder)


def attributes(holder: Abstract) -> list[tuple[Key, Abstract]]:
    """The attributes of an object, and before them those of its class."""
    if isinstance(holder, Container):
        return list(holder.items.items())
    if isinstance(holder, ModuleValue):
        return [pair for pair in holder.frame.variables.items() if not str(pair[0]).startswith("__")]
    own = holder.attributes if isinstance(holder, (Instance, ClassValue)) else {}
    cls = holder.cls if isinstance(holder, Instance) else holder
    found: dict[Key, Abstract] = dict(own)
    for one in cls.lineage() if isinstance(cls, ClassValue) else ():
        found = {**one.attributes, **found}
    return list(found.items())


def _doubt(ev: Evaluator, holder: Abstract, why: Const) -> None:
    if isinstance(holder, ModuleValue):
        ev.execute_module(holder)
    scope = _scope(holder)
    for key, value in attributes(holder) if scope is not None else ():
        if scope is not None and is_expr(value):
            scope.setdefault(key, value)  # of the class: the value if nothing is set
            ev.journal.write(scope, key, ev.join(why, why, value))


def _scope(holder: Abstract) -> dict[Key, Abstract] | None:
    """Where an object keeps its attributes; None if it is not the project's."""
    if isinstance(holder, Container) and holder.kind == "namespace":
        return holder.items
    if isinstance(holder, ModuleValue):
        return holder.frame.variables
    if isinstance(holder, ClassValue):
        return holder.attributes
    if isinstance(holder, Instance) and (holder.cls is not None or holds_settings(holder)):
        return holder.attributes
    return None
