"""Attributes and items of abstract values, read and set; assignment to targets."""

from __future__ import annotations

import ast

from msgspec.structs import replace

from preflight.python.arrays import Array, array_of, derived, view
from preflight.python.config_objects import config_attribute, config_child
from preflight.python.evaluator import Evaluator
from preflight.python.files import PATH, path_parent
from preflight.python.imports import external, module_attribute, module_names, namespace_attribute
from preflight.python.objects import (
    CHANGED,
    Abstract,
    Attribute,
    ClassValue,
    Config,
    Container,
    Either,
    External,
    Frame,
    FunctionValue,
    Instance,
    Key,
    ModuleValue,
    is_expr,
    is_plain_key,
    sequence,
    to_expr,
)
from preflight.python.settings_objects import arguments_of, before
from preflight.python.spread import copy_items
from preflight.python.tables import names_in, table_of
from preflight.python.unknown_names import set_any_item, update_unknown
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Unknown, names, unknown


def attribute(ev: Evaluator, value: Abstract, name: str, node: ast.expr, frame: Frame) -> Abstract:
    """`value.name`."""
    if isinstance(value, External):
        if value.name.startswith("project:"):
            return namespace_attribute(ev, value, name, frame)
        full = f"{value.name}.{name}"
        given = ev.library_values.get(full)
        return given(ev) if given is not None else external(full, frame.module.origin(node))
    if isinstance(value, ModuleValue):
        return module_names(ev, value) if name == "__dict__" else module_attribute(ev, value, name)
    if isinstance(value, Instance):
        return _instance_attribute(ev, value, name, node, frame)
    if isinstance(value, ClassValue):
        found = class_attribute(value, name)
        if isinstance(found, FunctionValue) and is_class_method(found):
            return replace(found, self_value=value)
        return found if found is not None else Attribute(value, name, frame.module.origin(node))
    if isinstance(value, Container) and value.kind == "namespace":
        if name in value.items:
            return value.items[name]
        if name == "__dict__":
            return value
        return Attribute(value, name, frame.module.origin(node))
    if isinstance(value, Config):
        return config_attribute(value, name, node, frame)
    if isinstance(value, Either):
        return ev.on_both_sides(value, lambda side: attribute(ev, side, name, node, frame))
    if isinstance(value, FunctionValue) and name in ("__name__", "__qualname__"):
        return Const(value.name.rpartition(".")[2])
    return Attribute(value, name, frame.module.origin(node))


def _array_attribute(value: Instance, array: Array, name: str) -> Abstract | None:
    if name == "shape":
        return sequence(list(array.shape), "tuple", value.origin)
    if name == "size" and array.library == "pil":
        return sequence([array.shape[1], array.shape[0]], "tuple", value.origin)
    if name in ("width", "height") and array.library == "pil":
        return array.shape[1] if name == "width" else array.shape[0]
    if name == "dtype":
        return External(f"{array.library}.{array.dtype}")
    if name in ("T", "mT"):
        return derived(value, view(array, array.shape[::-1]), value.origin)
    return derived(value, array) if name in ("data", "values") else None


def _instance_attribute(ev: Evaluator, value: Instance, name: str, node: ast.expr, frame: Frame) -> Abstract:
    array = array_of(value)
    found = _array_attribute(value, array, name) if array is not None else None
    if found is not None:
        return found
    if name in value.attributes:
        return value.attributes[name]
    if (table := table_of(value)) is not None and (of_table := table.attribute(name)) is not None:
        return of_table
    if (held := arguments_of(value, name) or _named_layer(value, name)) is not None:
        return held
    if name in ("_modules", "_parameters"):
        mark_changed(value)
    if value.made_by == PATH and name in ("parent", "parents"):
        return path_parent(value)
    if isinstance(config := value.state.get("config"), Config):
        return config_child(config, name)
    if name == "__dict__":
        return Container("dict", value.attributes, attributes_of=value)
    if value.cls is not None:
        if name == "__class__":
            return value.cls
        found = class_attribute(value.cls, name)
        if isinstance(found, FunctionValue):
            return bind(ev, found, value, node, frame)
        if found is not None:
            return found
    known = ev.hooks.get(f"{value.made_by}:{name}") if value.record is not None and value.cls is None else None
    given = known(value.record, ev) if known is not None and value.record is not None else None
    return given if given is not None else Attribute(value, name, frame.module.origin(node))


def _named_layer(value: Instance, name: str) -> Instance | None:
    """`self.transformer.wte` of `self.transformer = nn.ModuleDict(dict(wte=Embedding(...)))`."""
    record = value.record
    if record is None or value.made_by != "torch.nn.ModuleDict":
        return None
    given = record.object("modules", 0)
    found = given.items.get(name) if isinstance(given, Container) and given.kind == "dict" else None
    return found if isinstance(found, Instance) else None


def bind(ev: Evaluator, function: FunctionValue, itself: Abstract, node: ast.expr, frame: Frame) -> Abstract:
    """A function of a class, looked up on an object: a method, or the value of a property."""
    kinds = {d.name for d in function.decorators if isinstance(d, External)}
    if "staticmethod" in kinds:
        return function
    bound = replace(function, self_value=itself)
    if kinds & {"property", "functools.cached_property", "cached_property", "torch.jit.unused"}:
        return ev.call(bound, ())
    return bound


def class_attribute(cls: ClassValue, name: str) -> Abstract | None:
    """An attribute of a class, or of its bases in the project."""
    for one in cls.lineage():
        if name in one.attributes:
            return one.attributes[name]
    return None


def is_class_method(function: FunctionValue) -> bool:
    return any(isinstance(d, External) and d.name == "classmethod" for d in function.decorators)


def item(ev: Evaluator, value: Abstract, index: Abstract, node: ast.expr, frame: Frame) -> Abstract:
    """`value[index]`."""
    origin = frame.module.origin(node)
    if isinstance(value, External):
        if value.name == "os.environ":
            return _environment(ev, to_expr(index))
        if value.name == "sys.argv":
            return _argument(ev, to_expr(index), origin)
        plain = value.name[:1].isupper() or value.name.startswith("typing")
        return value if plain else Attribute(value, "[]", origin, index)
    if isinstance(value, Either):
        return ev.on_both_sides(value, lambda side: item(ev, side, index, node, frame))
    if isinstance(value, ClassValue):
        return value
    expr = to_expr(index)
    plain = (
        isinstance(value, Container)
        and not isinstance(expr, Const)
        and not any(map(_has_attributes, value.items.values()))
    )
    if plain and is_constant(whole := to_expr(value)):
        return ev.op("get", (whole, expr), origin)  # constants: the reference is resolved later
    key = ev.value_of(expr)
    if isinstance(value, Config):
        return config_child(value, key) if isinstance(key, (str, int)) else unknown("the key is not known", origin)
    if isinstance(value, Container):
        return container_item(ev, value, key, expr, node, frame)
    if isinstance(value, Instance):
        if value.cls is not None and isinstance(method := class_attribute(value.cls, "__getitem__"), FunctionValue):
            return ev.call(bind(ev, method, value, node, frame), (index,))
        if isinstance(key, str) and key in value.attributes:
            return value.attributes[key]
        table = table_of(value)
        part = table.select(names_in(index, ev) or ("",)) if table is not None else None
        return part if part is not None else Attribute(value, "[]", origin)
    if isinstance(value, Attribute) and (comes_from_loader(value) or _is_part(value)):
        return Attribute(value, "[]", origin)
    return (
        ev.op("get", (to_expr(value), expr), origin)
        if is_expr(value)
        else unknown("the item of the object is not known", origin)
    )


def _has_attributes(value: Abstract) -> bool:
    """Whether it is an object of settings, `ml_collections.ConfigDict()`: an expression has no attributes."""
    return isinstance(value, Container) and value.kind == "namespace"


def comes_from_loader(value: Abstract | None) -> bool:
    """Whether it is a part of what a loop over a library's object gives: of a batch."""
    while isinstance(value, Attribute):
        value = value.receiver
    return isinstance(value, Instance) and value.cls is None and ".item" in value.made_by


def _is_part(value: Attribute) -> bool:
    """Whether it is a part of an object of a library's class: of a model."""
    holder: Abstract = value
    while isinstance(holder, Attribute):
        holder = holder.receiver
    return isinstance(holder, Instance) and holder.cls is None and holder.record is not None


def container_item(ev: Evaluator, value: Container, key: object, expr: Expr, node: ast.expr, frame: Frame) -> Abstract:
    """An item of a list or dict whose index may depend on parameters."""
    origin = frame.module.origin(node)
    if isinstance(key, Unknown):
        if not all(is_expr(one) and not _has_attributes(one) for one in value.items.values()):
            ev.chosen_by |= set(names(expr))
        first = next(iter(value.items.values()), None)
        if value.is_sequence and first is not None and not is_expr(first):
            if 0 not in value.items:  # only some of its items were seen
                return unknown("which item of the list it is is not known", origin)
            return _one_of(ev, value, expr)
        return ev.op("get", (to_expr(value), expr), origin)
    if isinstance(key, int) and not isinstance(key, bool) and value.is_sequence and key < 0 and not value.open:
        key += len(value.items)
    if not is_plain_key(key) or key not in value.items:
        return unknown(f"no item {key!r} of it is known", origin, Cause.not_set)
    return value.items[key]


MOST_ALTERNATIVES = 4
"""Objects of a list that are told apart. In a longer one (layers of a network) any represents the chosen one."""


def _one_of(ev: Evaluator, value: Container, index: Expr) -> Abstract:
    """An object of a list whose index is not known."""
    items = list(value.items.values())
    made = all(isinstance(one, Instance) and one.cls is None for one in items)
    if len(items) > MOST_ALTERNATIVES or not made:
        return items[0]
    found = items[-1]
    for position in range(len(items) - 2, -1, -1):
        found = Either(ev.op("==", (index, Const(position))), items[position], found)
    return found


def is_constant(expr: Expr) -> bool:
    """Whether it has no names and no unknown parts."""
    if isinstance(expr, Op):
        return all(is_constant(operand) for operand in expr.operands)
    return isinstance(expr, Const) and not isinstance(expr.value, Unknown)


def _environment(ev: Evaluator, key: Expr) -> Abstract:
    if isinstance(key, Const) and isinstance(key.value, str):
        return environment_variable(ev, key.value, key.origin)
    return unknown("the name of the environment variable is not known", cause=Cause.run_time)


def _argument(ev: Evaluator, index: Expr, origin: Origin | None) -> Expr:
    """`sys.argv[1]`: a word of the command line that starts the program."""
    at = ev.value_of(index)
    given = ev.argument(at) if isinstance(at, int) else None
    return given if given is not None else unknown("the words of the command line are not known", origin, Cause.not_set)


def environment_variable(ev: Evaluator, name: str, origin: Origin | None) -> Expr:
    """The value that the launch gives a variable, else unknown."""
    given = ev.variable(name)
    if given is not None:
        return given
    return unknown(f"environment variable {name} is not known", origin, Cause.run_time)


def set_attribute(ev: Evaluator, holder: Abstract, name: Key, value: Abstract) -> None:
    """`holder.name = value`."""
    if isinstance(holder, Instance):
        default = class_attribute(holder.cls, name) if holder.cls is not None and isinstance(name, str) else None
        if _is_set_by_code(ev, holder, default, value):
            return
        if name not in holder.attributes and default is not None and is_expr(default):
            holder.attributes[name] = default  # the value where this assignment does not happen
        elif name not in holder.attributes and ev.journal.branches and (old := before(holder, name)) is not None:
            holder.attributes[name] = old
        ev.journal.write(holder.attributes, name, value)
    elif isinstance(holder, Container) and holder.kind == "namespace":
        ev.journal.write(holder.items, name, value)
    elif isinstance(holder, Config):
        config_child(holder, name)  # the value where this assignment does not happen
        ev.journal.write(holder.known, name, value)
    elif isinstance(holder, ClassValue):
        ev.journal.write(holder.attributes, name, value)
    elif isinstance(holder, ModuleValue):
        ev.journal.write(holder.frame.variables, name, value)
    elif isinstance(holder, Either):
        ev.for_either(holder, lambda side: set_attribute(ev, side, name, value))
    else:
        note_part(holder, name, value)
        mark_changed(holder)


PARTS = "parts"
"""The key of an object's state for what the program puts in the place of parts of a library's object, by their path."""


def note_part(holder: Abstract, name: Key, value: Abstract | None) -> None:
    """Keeps what the program puts in the place of a part of a library's object, by its path; None: it is deleted."""
    path = [str(name)]
    while isinstance(holder, Attribute):
        path.insert(0, holder.name)
        holder = holder.receiver
    parts = holder.state.setdefault(PARTS, {}) if isinstance(holder, Instance) and len(path) > 1 else None
    if isinstance(parts, dict):
        parts[".".join(path)] = value


def _is_set_by_code(ev: Evaluator, holder: Instance, default: Abstract | None, value: Abstract) -> bool:
    """Whether code of the class does what an assignment means: the setter of a property, a descriptor, `__setattr__`.

    torch.nn.Module registers a layer under the name that it is assigned to, before it looks for a property. What other
    code does with an object may replace any part.
    """
    is_object = isinstance(value, Instance)
    setter = default.setter if isinstance(default, FunctionValue) else None
    is_descriptor = isinstance(default, Instance) and (
        default.made_by.rpartition(".")[2] == "property"
        or (default.cls is not None and class_attribute(default.cls, "__set__") is not None)
    )
    if is_object and holder.cls is not None and class_attribute(holder.cls, "__setattr__") is not None:
        mark_changed(holder)
    if (setter is None and not is_descriptor) or (_is_layer(value) and _is_module(holder)):
        return False
    if setter is not None:
        ev.call(replace(setter, self_value=holder), (value,))
    if is_object and not any(one is value for one in holder.attributes.values()):
        mark_changed(holder)
    return True


def _is_module(holder: Instance) -> bool:
    return holder.cls is not None and any(base.endswith("Module") for base in holder.cls.external_bases)


def _is_layer(value: Abstract) -> bool:
    """Whether a value is a layer or a parameter of torch, or an object of a class of layers."""
    if not isinstance(value, Instance):
        return False
    if value.cls is not None:
        return _is_module(value)
    home, _, name = value.made_by.rpartition(".")
    return home.startswith("torch.nn") and home != "torch.nn.functional" and name[:1].isupper()


def mark_changed(holder: Abstract) -> None:
    """Notes at the object that `holder` is an unknown part of that the program changes something in it."""
    while isinstance(holder, Attribute):
        holder = holder.receiver
    if isinstance(holder, Instance):
        holder.state[CHANGED] = True


def remove_attribute(ev: Evaluator, holder: Abstract, name: Key) -> None:
    """`del holder.name`."""
    if isinstance(holder, Either):
        ev.for_either(holder, lambda side: remove_attribute(ev, side, name))
    elif isinstance(holder, Instance) and name in holder.attributes and not ev.position.loops:
        ev.journal.remove(holder.attributes, name)
    else:
        note_part(holder, name, None)
        mark_changed(holder)


def set_item(ev: Evaluator, holder: Abstract, name: Expr, value: Abstract) -> None:
    """`holder[name] = value`."""
    key = ev.value_of(name)
    if isinstance(holder, Either):
        ev.for_either(holder, lambda side: set_item(ev, side, name, value))
    elif isinstance(holder, External) and holder.name == "os.environ":
        if isinstance(key, str) and is_expr(value):
            ev.set_variables.setdefault(key, to_expr(value))
    elif isinstance(holder, Container):
        if isinstance(key, (str, int, float, bool, type(None))):
            ev.journal.write_item(holder, key, value)
        else:
            holder.flags["open"] = True
            if isinstance(key, Unknown):
                set_any_item(ev, holder, name, value)
    elif isinstance(key, str):
        set_attribute(ev, holder, key, value)
    else:
        mark_changed(holder)


def update_items(
    ev: Evaluator, holder: Container, given: tuple[Abstract, ...], origin: Origin | None, more: bool = False
) -> None:
    """`holder.update(*given)`, `holder |= given`. `more`: with keywords that are not known."""
    merged: dict[Key, Abstract] = {}
    known = not [one for one in given if not copy_items(one, merged)]  # all are copied
    for key, value in merged.items():
        ev.journal.write_item(holder, key, value)
    if not known or more:
        update_unknown(ev, holder, origin)
        holder.flags["open"] = True


# --- targets of assignments -------------------------------------------------------------------------------------------


def assign(ev: Evaluator, target: ast.expr, value: Abstract, frame: Frame) -> None:
    """`target = value`."""
    if isinstance(target, ast.Name):
        ev.journal.write(frame.redirected.get(target.id, frame.variables), target.id, value)
    elif isinstance(target, ast.Attribute):
        set_attribute(ev, ev.evaluate(target.value, frame), target.attr, value)
    elif isinstance(target, ast.Subscript):
        holder = ev.evaluate(target.value, frame)
        if not isinstance(target.slice, ast.Slice):
            set_item(ev, holder, ev.expression(target.slice, frame), value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        _unpack(ev, target, value, frame)
    elif isinstance(target, ast.Starred):
        assign(ev, target.value, value, frame)


def _unpack(ev: Evaluator, target: ast.Tuple | ast.List, value: Abstract, frame: Frame) -> None:
    items = ev.iterate(value)
    starred = next((i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)), None)
    if items is not None and starred is not None and len(items) >= len(target.elts) - 1:
        after = len(target.elts) - starred - 1
        middle = items[starred : len(items) - after]
        items = [*items[:starred], sequence(middle), *items[len(items) - after :]]
    for index, element in enumerate(target.elts):
        if items is not None and index < len(items):
            assign(ev, element, items[index], frame)
        elif isinstance(value, (Instance, Attribute, External)):
            assign(ev, element, Attribute(value, f"[{index}]", frame.module.origin(element)), frame)
        elif is_expr(value):
            assign(ev, element, ev.op("get", (to_expr(value), Const(index))), frame)
        else:
            assign(
                ev,
                element,
                unknown("the result of unpacking is not known", frame.module.origin(element), Cause.run_time),
                frame,
            )
