"""Mappings that are spread (`**value`) or laid over others: what of them is known."""

from __future__ import annotations

from preflight.python.objects import (
    Abstract,
    Config,
    Container,
    Either,
    Instance,
    Key,
    alternatives,
    from_value,
    is_expr,
)
from preflight.vocabulary.values import Cause, Const, Origin, Unknown, unknown


def may_hold_more(value: Abstract) -> bool:
    """Whether a mapping that is laid over another may have any key: nothing that was read says which it has.

    A library's object, as of a file that was not found. Not a configuration: its keys are settings with names.
    """
    for one in alternatives(value):
        if isinstance(one, Container):
            if one.open and not one.superset and not one.flags.get("settings"):  # those of dict(config) have names
                return True
        elif isinstance(one, Instance):
            if one.cls is None:
                return True
        elif not isinstance(one, Config) and not (isinstance(one, Const) and not isinstance(one.value, Unknown)):
            return True
    return False


def laid_over(origin: Origin | None = None) -> Const:
    """A value that a mapping may replace whose keys are not known."""
    return unknown("a mapping whose keys are not known may set it", origin, Cause.run_time)


def lay_over(items: dict[Key, Abstract], origin: Origin | None = None) -> dict[Key, Abstract]:
    """The items of a mapping, each of which a mapping may replace whose keys are not known."""
    over = laid_over(origin)
    return {key: over if is_expr(value) else value for key, value in items.items()}


def copy_items(value: Abstract, into: dict[Key, Abstract]) -> bool:
    """Copy the items of a mapping (`**value`); False where not all of them are known."""
    if isinstance(value, Container) and not value.is_sequence:
        into.update(value.items)
        return not value.open
    if isinstance(value, Instance) and value.attributes:
        into.update(value.attributes)
        return value.cls is not None
    if isinstance(value, Config):
        into.update(value.known)
        return False
    if isinstance(value, Const) and isinstance(value.value, dict):
        into.update({k: from_value(v, value.origin) for k, v in value.value.items()})
        return True
    if isinstance(value, Either):
        for one in reversed(list(alternatives(value))):  # the first one wins
            copy_items(one, into)
    return False
