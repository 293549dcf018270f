"""Classes of the project, and their objects; the `__init__` of a dataclass is made of its fields."""

from __future__ import annotations

import ast

from msgspec.structs import replace

from preflight.python.access import class_attribute, mark_changed
from preflight.python.evaluator import CallSite, Evaluator
from preflight.python.functions import invoke
from preflight.python.objects import (
    BASE,
    Abstract,
    CallRecord,
    ClassValue,
    External,
    Frame,
    FunctionValue,
    Instance,
    is_expr,
    made_by,
)
from preflight.python.spread import laid_over
from preflight.vocabulary.values import Cause, Const, Unknown, unknown

DATACLASS = ("dataclass", "dataclasses.dataclass", "attr.s", "attr.define", "attrs.define",
             "pydantic.dataclasses.dataclass", "flax.struct.dataclass", "chz.chz")  # fmt: skip


def make_class(ev: Evaluator, node: ast.ClassDef, frame: Frame) -> Abstract:
    """The value of a `class` statement; its body is interpreted."""
    bases = tuple(ev.evaluate(base, frame) for base in node.bases)
    decorators = tuple(ev.evaluate(decorator, frame) for decorator in node.decorator_list)
    made = ClassValue(node.name, node, frame.module, {}, bases, decorators)
    inner = Frame(made.attributes, frame.module, frame, frame.function, [], frame.globals_)
    inner.owner = made
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            made.annotations[statement.target.id] = ast.unparse(statement.annotation)
            made.annotation_origins[statement.target.id] = frame.module.origin(statement)
    ev.execute(node.body, inner)
    return made


def is_dataclass(cls: ClassValue) -> bool:
    """Whether `__init__` is made from the annotations."""
    for one in cls.lineage():
        if any(made_by(d) in DATACLASS for d in one.decorators):
            return True
    bases = set(cls.external_bases)
    return bool(
        bases & {"pydantic.BaseModel", "typing.NamedTuple", "NamedTuple", "BaseModel", "pydantic_settings.BaseSettings"}
    ) or any(base.endswith(("TrainingArguments", "SFTConfig", "DPOConfig")) for base in bases)


def dataclass_fields(cls: ClassValue) -> dict[str, ClassValue]:
    """Field names in order -> the class that defines them."""
    found: dict[str, ClassValue] = {}
    for one in reversed(list(cls.lineage())):
        for name, annotation in one.annotations.items():
            if "ClassVar" not in annotation:
                found[name] = one
    return found


def field_default(ev: Evaluator, owner: ClassValue, name: str) -> Abstract | None:
    """The default of a dataclass field, also from `field(default=..., default_factory=...)`; None without a default."""
    value = owner.attributes.get(name)
    if (
        isinstance(value, Instance)
        and value.made_by.endswith(("field", "Field", "arg", "ib"))
        and value.record is not None
    ):
        record = value.record
        if "default" in record.keywords:
            return record.keywords["default"]
        factory = record.keywords.get("default_factory") or record.keywords.get("factory")
        if factory is not None:
            frame = Frame({}, owner.module, None, owner.name)
            return ev.call_at(CallSite(ev, (), {}, _as_call(record.node), frame), factory)
        first = record.node.args[0] if isinstance(record.node, ast.Call) and record.node.args else None
        required = first is None or (isinstance(first, ast.Constant) and first.value is Ellipsis)
        return None if required else record.arguments[0]
    return value


def _as_call(node: ast.expr) -> ast.Call:
    return node if isinstance(node, ast.Call) else ast.copy_location(ast.Call(node, [], []), node)


def instantiate(
    ev: Evaluator,
    cls: ClassValue,
    args: tuple[Abstract, ...],
    kwargs: dict[str, Abstract],
    record: CallRecord | None,
    more: bool = False,
) -> Abstract:
    """An object of a class of the project, its `__init__` interpreted. `more`: as in `invoke`."""
    made = Instance(f"{cls.module.name}.{cls.name}", cls, {}, record, record.origin if record else None)
    ev.instances.setdefault(id(cls.node), []).append(made)
    init = class_attribute(cls, "__init__")
    if isinstance(init, FunctionValue):
        made.state["arguments"] = (args, kwargs)
        done = invoke(ev, replace(init, self_value=made), args, kwargs, more=more)
        if isinstance(done, Const) and isinstance(done.value, Unknown) and done.value.cause is Cause.budget:
            mark_changed(made)
        return made
    if is_dataclass(cls):
        fields = dataclass_fields(cls)
        for index, (name, owner) in enumerate(fields.items()):
            if name in kwargs:
                value: Abstract | None = kwargs[name]
            elif index < len(args):
                value = args[index]
            else:
                value = field_default(ev, owner, name)
                if more and value is not None and is_expr(value):
                    value = laid_over(made.origin)
            made.attributes[name] = (
                value if value is not None else unknown(f"{cls.name}.{name} is not given", cause=Cause.not_set)
            )
        post = class_attribute(cls, "__post_init__")
        if isinstance(post, FunctionValue):
            invoke(ev, replace(post, self_value=made), (), {})
        return made
    for key, value in kwargs.items():  # the base class is a library's: no more is known of the object
        made.attributes.setdefault(key, value)
    made.state[BASE] = record
    for base in cls.external_bases if record is not None else ():
        hook = ev.hooks.get(f"{base}.__init__")
        if hook is not None and record is not None:
            hook(replace(record, receiver_object=made), ev)
    return made


def itself(value: Abstract) -> Abstract:
    """The object that `super()` stands for; any other value as it is."""
    found = value.state.get("self") if isinstance(value, Instance) else None
    return itself(found) if isinstance(found, Instance) else value


def super_object(frame: Frame) -> Abstract:
    scope: Frame | None = frame
    while scope is not None and scope.owner_class is None:
        scope = scope.parent
    if scope is None or scope.owner_class is None or scope.self_value is None:
        return unknown("super() is called outside a class", cause=Cause.invalid)
    bases = [base for base in scope.owner_class.bases if isinstance(base, ClassValue)]
    if bases:
        attributes = scope.self_value.attributes if isinstance(scope.self_value, Instance) else {}
        return Instance(
            f"{bases[0].module.name}.{bases[0].name}", bases[0], attributes, state={"self": scope.self_value}
        )
    names = [base.name for base in scope.owner_class.bases if isinstance(base, External)]
    return Instance(names[0] if names else "object", None, {}, state={"self": scope.self_value})
