"""Configuration objects: a key has the value that the program sets, or is a parameter of the program."""

from __future__ import annotations

import ast

from preflight.python.evaluator import Evaluator
from preflight.python.objects import (
    Abstract,
    Attribute,
    Config,
    Container,
    Either,
    Frame,
    Key,
    is_expr,
    to_expr,
)
from preflight.python.spread import copy_items
from preflight.vocabulary.reading import Parameter
from preflight.vocabulary.values import Ref

CONFIG_METHODS = frozenset(
    ("get", "keys", "values", "items", "pop", "update", "as_dict", "setdefault", "copy", "to_dict", "merge_with")
)
"""Methods of `wandb.config` and DictConfig. No project has a key of these names."""


def config_attribute(value: Config, name: str, node: ast.expr, frame: Frame) -> Abstract:
    """`config.name`: a method, or the value of a key."""
    if name in value.known:
        return value.known[name]
    if name in CONFIG_METHODS or name.startswith("__"):
        return Attribute(value, name, frame.module.origin(node))
    return config_child(value, name)


def config_child(value: Config, key: Key) -> Abstract:
    """The value of a key: the one that the program sets, else a configuration object for the keys below it."""
    if key in value.known:
        return value.known[key]
    child = Config(f"{value.prefix}.{key}" if value.prefix else str(key), value.kind, {}, value.origin)
    value.known[key] = child  # the same object each time: the program may set keys of it
    return child


def config_default(ev: Evaluator, child: Config, default: Abstract) -> Abstract:
    """`config.get(key, default)`: a parameter with that default."""
    if is_expr(default) and child.prefix:
        ev.add_parameter(Parameter(child.prefix, to_expr(default), (), child.kind, origin=to_expr(default).origin))
    return child


def add_defaults(ev: Evaluator, config: Config, value: Abstract, prefix: str = "") -> None:
    """Values that the program gives to a configuration object are the defaults of its parameters."""
    items: dict[Key, Abstract] = {}
    copy_items(value, items)
    for key, item in items.items():
        name = f"{prefix}{key}"
        if isinstance(item, Container) and not item.is_sequence and len(prefix) < 200:
            add_defaults(ev, config, item, f"{name}.")
        elif isinstance(item, Config):
            continue
        elif is_expr(item) or isinstance(item, (Container, Either)):
            expr = to_expr(item)
            if not (isinstance(expr, Ref) and expr.name == name):
                ev.add_parameter(Parameter(name, expr, (), config.kind, origin=expr.origin))
        else:
            ev.journal.write(config.known, key, item)
