"""Methods of strings, lists, dictionaries and configuration objects, on abstract values."""

from __future__ import annotations

import re

from preflight.python.access import update_items
from preflight.python.config_nodes import node_method
from preflight.python.config_objects import add_defaults, config_child, config_default
from preflight.python.evaluator import CallSite
from preflight.python.objects import (
    Abstract,
    Attribute,
    Config,
    Container,
    Instance,
    Key,
    from_value,
    is_expr,
    sequence,
    to_expr,
)
from preflight.python.unknown_names import CONFIG_ITEMS
from preflight.vocabulary.budgets import MADE_ITEMS, VALUE_LENGTH
from preflight.vocabulary.caches import regex
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown, unknown

TEXT = frozenset(("lower", "upper", "strip", "startswith", "endswith", "split", "replace"))
SAME_OBJECT = frozenset(
    ("to", "cuda", "cpu", "train", "eval", "half", "bfloat16", "float", "double", "requires_grad_", "to_empty",
     "share_memory", "xpu", "type", "contiguous", "__enter__", "apply", "build", "unwrap")
)  # fmt: skip
"""Methods of torch.nn.Module (and of tensors) that return the object itself; their calls are recorded all the same."""
AS_DICT = ("to_dict", "to_sanitized_dict")
SETTINGS = ("Arguments", "Config")
"""Ends of the names of classes whose objects are settings: as a mapping they have what they were made with."""


def call_method(site: CallSite, callee: Attribute) -> Abstract | None:
    """The return value of a method of a built-in type; None for an object of a library."""
    receiver = callee.receiver
    if isinstance(receiver, Container):
        given = _sequence_method(site, receiver, callee.name) if receiver.is_sequence else None
        return given if given is not None else _mapping_method(site, receiver, callee.name)
    if isinstance(receiver, Config):
        return _config_method(site, receiver, callee.name)
    if isinstance(receiver, Instance) and callee.name in AS_DICT and receiver.made_by.endswith(SETTINGS):
        made: dict[Key, Abstract] = {}
        if receiver.record is not None and receiver.cls is None:
            made.update(receiver.record.keywords)
        return Container("dict", {**made, **receiver.attributes}, site.origin, {"open": True})
    if is_expr(receiver):
        return _text_method(site, to_expr(receiver), callee.name)
    return None


def _text_method(site: CallSite, receiver: Expr, name: str) -> Abstract | None:
    if isinstance(receiver, Const) and isinstance(receiver.value, Unknown):
        return None
    if name in TEXT and not site.kwargs:
        return site.ev.op(name, (receiver, *(to_expr(arg) for arg in site.args)), site.origin)
    if name == "join" and site.args:
        items = site.ev.iterate(site.args[0])
        values = (
            [site.ev.value_of(to_expr(item)) for item in items]
            if items is not None
            else [Unknown("its items", Cause.not_read)]
        )
        separator = site.ev.value_of(receiver)
        if isinstance(separator, str) and all(isinstance(v, str) for v in values):
            if sum(len(str(v)) for v in values) + len(separator) * len(values) > VALUE_LENGTH:
                return site.unknown(f"the joined text is {VALUE_LENGTH.over}", Cause.budget)
            return Const(separator.join(str(v) for v in values), site.derived)
        return site.unknown("the joined text is not known")
    if name == "format":
        return _format(site, receiver)
    if name == "get" and isinstance(receiver, (Op, Const)) and site.args:
        default = to_expr(site.args[1]) if len(site.args) > 1 else Const(None)
        return site.ev.op("get", (receiver, to_expr(site.args[0]), default), site.origin)
    return site.unknown(f".{name}() is not evaluated statically") if isinstance(receiver, Const) else None


_FIELD = regex(r"\{(\w*)\}")


def _format(site: CallSite, receiver: Expr) -> Abstract:
    template = site.ev.value_of(receiver)
    values = [site.ev.value_of(to_expr(arg)) for arg in site.args]
    named = {key: site.ev.value_of(to_expr(value)) for key, value in site.kwargs.items()}
    if not isinstance(template, str) or any(isinstance(v, Unknown) for v in (*values, *named.values())):
        return site.unknown("formatted text is not evaluated statically")
    rest = iter(values)

    def fill(match: re.Match[str]) -> str:
        key = match.group(1)
        if key.isdecimal():
            return str(values[int(key)]) if int(key) < len(values) else match.group(0)
        return str(named.get(key, match.group(0)) if key else next(rest, match.group(0)))

    return Const(_FIELD.sub(fill, template), site.derived)


def _sequence_method(site: CallSite, receiver: Container, name: str) -> Abstract | None:
    ev = site.ev
    if name in ("append", "add") and site.args:
        if ev.position.loops:
            receiver.flags["open"] = True
            turns = None if receiver.items else ev.position.turns_here
            receiver.repeats = None if isinstance(turns, Const) else turns
            receiver.count = turns if isinstance(turns, Const) else None
        else:
            receiver.count = None
        ev.journal.write_item(receiver, len(receiver.items), site.args[0])
        return Const(None)
    if name in ("extend", "update", "union") and site.args:
        receiver.count = None
        items = ev.iterate(site.args[0])
        if items is None or ev.position.loops:
            receiver.flags["open"] = True
        if items is not None and len(items) + len(receiver.items) > MADE_ITEMS:
            receiver.flags["open"], items = True, None
        for item in items or []:
            ev.journal.write_item(receiver, len(receiver.items), item)
        return receiver
    if name == "copy":
        return sequence(list(receiver.items.values()), receiver.kind, receiver.origin, receiver.open)
    if name in ("insert", "pop", "remove", "sort", "reverse", "clear", "discard"):
        last = receiver.items.get(len(receiver.items) - 1)
        receiver.flags["open"] = True
        receiver.count = receiver.count if name in ("sort", "reverse") else None
        return last if name == "pop" and last is not None else Const(None)
    if name in ("index", "count"):
        return site.unknown("a position in a list is not evaluated statically")
    return None


def _key(site: CallSite) -> Key | Unknown:
    key = site.ev.value_of(to_expr(site.args[0])) if site.args else Unknown("no key", Cause.not_read)
    return (
        key if isinstance(key, (str, int, float, bool, type(None), Unknown)) else Unknown("not a key", Cause.not_read)
    )


def _mapping_method(site: CallSite, receiver: Container, name: str) -> Abstract | None:
    if name in ("get", "pop", "setdefault"):
        return _mapping_get(site, receiver, name)
    if name in ("items", "keys", "values"):
        keys: list[Abstract] = [from_value(str(k) if isinstance(k, tuple) else k) for k in receiver.items]
        values = list(receiver.items.values())
        rows: list[Abstract] = {
            "items": [sequence(list(pair), "tuple") for pair in zip(keys, values, strict=True)],
            "keys": keys,
            "values": values,
        }[name]  # type: ignore[assignment]
        return sequence(rows, "list", receiver.origin, receiver.open)
    if name == "update":
        keywords = Container("dict", dict(site.kwargs.items()))
        update_items(site.ev, receiver, (*site.args[:1], keywords), site.origin, site.more)
        return Const(None)
    if name in ("copy", "deepcopy", "to_dict", "as_dict", "_asdict"):
        return Container(receiver.kind, dict(receiver.items), receiver.origin, dict(receiver.flags))
    return node_method(site, receiver, name) if receiver.kind == "namespace" else None


def _mapping_get(site: CallSite, receiver: Container, name: str) -> Abstract:
    key = _key(site)
    default: Abstract = site.args[1] if len(site.args) > 1 else Const(None)
    if isinstance(key, Unknown):
        if site.args and is_expr(default):
            return site.ev.op("get", (to_expr(receiver), to_expr(site.args[0]), to_expr(default)), site.origin)
        return site.unknown("the key is not known")
    if key in receiver.items:
        found = receiver.items[key]
        if name == "pop":
            site.ev.journal.remove(receiver.items, key)
        return found
    if receiver.open:
        return site.ev.join(unknown("whether it has the key is not known"), unknown("the item is not known"), default)
    if name == "setdefault":
        site.ev.journal.write(receiver.items, key, default)
    return default


def _config_method(site: CallSite, receiver: Config, name: str) -> Abstract | None:
    if name in ("get", "pop", "setdefault") and site.args:
        key = _key(site)
        if not isinstance(key, (str, int)):
            return site.unknown("the key is not known")
        child = config_child(receiver, key)
        if isinstance(child, Config) and len(site.args) > 1:
            return config_default(site.ev, child, site.args[1])
        return child
    if name in ("update", "merge_with") and site.args:
        add_defaults(site.ev, receiver, site.args[0])
        return Const(None)
    if name in ("copy", "as_dict", "to_dict"):
        return receiver
    if name == "items":
        return Instance(CONFIG_ITEMS, origin=site.origin)
    if name in ("keys", "values"):
        return site.open_container()
    return None


def same_object(callee: Abstract) -> Abstract | None:
    """The receiver, for methods that return it: `model.to(device)`."""
    if (
        isinstance(callee, Attribute)
        and callee.name in SAME_OBJECT
        and isinstance(callee.receiver, (Instance, Attribute))
    ):
        return callee.receiver
    return None
