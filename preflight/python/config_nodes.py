"""Trees of settings with methods that lay others over them: yacs' `CfgNode`, and those of libraries made from it.

The values before are defaults: a file, a list of keys and values, or another tree replaces some of them. What is not
known may replace any (yacs 0.1.8, `CfgNode.merge_from_file`, `merge_from_list`, `merge_from_other_cfg`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from msgspec.structs import replace

from preflight.python.evaluator import CallSite, Evaluator, Hook
from preflight.python.files import read_yaml
from preflight.python.objects import MAX_NESTED, Abstract, CallRecord, Container, Key, namespace
from preflight.python.unknown_names import update_unknown
from preflight.vocabulary.values import Const

_SILENT = frozenset({"freeze", "defrost", "set_new_allowed", "register_deprecated_key", "register_renamed_key"})
"""Methods that change no value."""
_BY_FILE, _BY_LIST, _BY_TREE = ("merge_from_file", "load_config"), ("merge_from_list",), ("merge_from_other_cfg",)


def node(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`CfgNode()`, `CfgNode({...})`."""
    given = record.object("init_dict", 0)
    return namespace(given) if isinstance(given, Container) else Container("namespace", {}, record.origin)


def node_method(site: CallSite, receiver: Container, name: str) -> Abstract | None:
    """The return value of a method of a tree, whose values it may replace; None for a name that no tree has."""
    if name == "clone":
        return copied(receiver)
    if name in _SILENT:
        return Const(None)
    if name in (*_BY_FILE, *_BY_LIST, *_BY_TREE):
        given = site.args[0] if site.args else next(iter(site.kwargs.values()), None)
        if given is None or not _merged(site, receiver, name, given):
            update_unknown(site.ev, receiver, site.origin)
        return Const(None)
    return None


def copied(tree: Container, _depth: int = 0) -> Container:
    """A copy that shares no tree with the first."""
    items = {
        key: copied(value, _depth + 1) if _is_tree(value) and _depth < MAX_NESTED else value  # type: ignore[arg-type]
        for key, value in tree.items.items()
    }
    return Container(tree.kind, items, tree.origin, dict(tree.flags))


def _merged(site: CallSite, receiver: Container, name: str, given: Abstract) -> bool:
    """Lays what is given over the tree; False where some of it is not known."""
    if name in _BY_LIST:
        return _listed(site, receiver, given)
    found = read_yaml(site.ev, given, "namespace") if name in _BY_FILE else given
    if not isinstance(found, Container) or found.is_sequence or found.open:
        return False
    _lay(site.ev, receiver, found, 0)
    return True


def _lay(ev: Evaluator, tree: Container, over: Container, depth: int) -> None:
    for key, value in over.items.items():
        old = tree.items.get(key)
        if isinstance(old, Container) and isinstance(value, Container) and _is_tree(old) and depth < MAX_NESTED:
            _lay(ev, old, value, depth + 1)
        else:
            ev.journal.write_item(tree, key, value)


def _listed(site: CallSite, tree: Container, given: Abstract) -> bool:
    """`["TRAIN.BATCH_SIZE", 8, ...]`."""
    items = site.ev.iterate(given)
    if items is None or len(items) % 2:
        return False
    whole = True
    for name, value in zip(items[::2], items[1::2], strict=True):
        holder, key = _place(tree, site.ev.value_of(name) if isinstance(name, Const) else None)
        if holder is None:
            whole = False
        else:
            site.ev.journal.write_item(holder, key, _literal(value))
    return whole


def _literal(value: Abstract) -> Abstract:
    """A word of a command line as the Python value that it spells."""
    if not isinstance(value, Const) or not isinstance(value.value, str):
        return value
    try:
        found = ast.literal_eval(value.value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
    return replace(value, value=found) if isinstance(found, (bool, int, float, str)) else value


def _place(tree: Container, name: object) -> tuple[Container | None, Key]:
    """The tree that has the key of a dotted name, and that key."""
    if not isinstance(name, str):
        return None, ""
    *above, key = name.split(".")
    for part in above:
        inner = tree.items.get(part)
        if not isinstance(inner, Container):
            return None, key
        tree = inner
    return tree, key


def _is_tree(value: Abstract) -> bool:
    return isinstance(value, Container) and not value.is_sequence


HOOKS: Mapping[str, Hook] = {
    f"{module}.CfgNode": node
    for module in ("yacs.config", "fvcore.common.config", "detectron2.config", "fvcore.common")
}
