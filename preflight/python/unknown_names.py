"""Attributes and items that a program sets by a name that is not known: each may be the one that is set.

`for key, value in read(path).items(): setattr(config, key, value)` and `config.update(read(path))` give a configuration
the values of a file. If that file is not known, the values before it are defaults that may not stand.
"""

from __future__ import annotations

from collections.abc import Iterator

from preflight.python.access import set_attribute
from preflight.python.evaluator import Evaluator
from preflight.python.objects import Abstract, Attribute, Container, Instance, Key, alternatives, is_expr
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
    if isinstance(value, Instance):
        return  # a layer is no setting
    if not _has_known_part(name) and not _is_of_configuration(value):
        why = unknown("the program sets attributes whose names are not known", origin)
        for one in _meant(holder):
            _doubt(ev, one, why)


def update_unknown(ev: Evaluator, holder: Container, origin: Origin | None) -> None:
    """`holder.update(values)` of values that are not known."""
    why = unknown("the program updates it with values that are not known", origin)
    for key, value in list(holder.items.items()):
        if is_expr(value):
            ev.journal.write_item(holder, key, ev.join(why, why, value))
        elif isinstance(value, Container) and not value.is_sequence:
            update_unknown(ev, value, origin)


def _is_project_object(value: Abstract) -> bool:
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
        found = [one for _, value in _attributes(holder.receiver) for one in alternatives(value)]
        yield from {id(one): one for one in found if _is_project_object(one)}.values()
    else:
        yield from (one for one in alternatives(holder) if _is_project_object(one))


def _attributes(holder: Abstract) -> list[tuple[Key, Abstract]]:
    """The attributes of an object, and before them those of its class."""
    if isinstance(holder, Container):
        return list(holder.items.items())
    if not isinstance(holder, Instance):
        return []
    classes = holder.cls.lineage() if holder.cls is not None else ()
    own = [pair for one in classes for pair in one.attributes.items() if pair[0] not in holder.attributes]
    return [*own, *holder.attributes.items()]


def _doubt(ev: Evaluator, holder: Abstract, why: Const) -> None:
    for key, value in _attributes(holder):
        if is_expr(value):
            set_attribute(ev, holder, key, ev.join(why, why, value))
