"""Calls: recorded, answered by hooks, or followed into the project's functions and classes."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from preflight.python.expressions import class_attribute, evaluate, is_class_method
from preflight.python.methods import call_method, same_object
from preflight.python.objects import (
    Abstract,
    Attribute,
    ClassValue,
    Container,
    Either,
    External,
    Frame,
    FunctionValue,
    Instance,
    Key,
    made_by,
    sequence,
    spread,
    to_expr,
)
from preflight.python.records import CallRecord
from preflight.values import Const, Origin, unknown

if TYPE_CHECKING:
    from preflight.python.evaluator import Evaluator

MAX_RECURSION = 2
"""How often a function may be within itself."""
DATACLASS = ("dataclass", "dataclasses.dataclass", "attr.s", "attr.define", "attrs.define", "pydantic.dataclasses.dataclass",
             "flax.struct.dataclass", "chz.chz")  # fmt: skip


# --- a call expression ------------------------------------------------------------------------------------------------


def evaluate_call(ev: Evaluator, node: ast.Call, frame: Frame) -> Abstract:
    """A call: its callee and arguments, then what it gives."""
    if isinstance(node.func, ast.Name) and node.func.id == "super":
        return _super(frame)
    callee = evaluate(ev, node.func, frame)
    args, kwargs, origins, complete = _arguments(ev, node, frame)
    return call_value(ev, callee, args, kwargs, node, frame, origins, complete)


def _arguments(
    ev: Evaluator, node: ast.Call, frame: Frame
) -> tuple[tuple[Abstract, ...], dict[str, Abstract], dict[str, Origin], bool]:
    args: list[Abstract] = []
    complete = True
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            items = ev.iterate(evaluate(ev, argument.value, frame))
            complete = complete and items is not None
            args += items or []
        else:
            args.append(evaluate(ev, argument, frame))
    kwargs: dict[str, Abstract] = {}
    origins: dict[str, Origin] = {}
    for keyword in node.keywords:
        value = evaluate(ev, keyword.value, frame)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
            origins[keyword.arg] = frame.module.origin(keyword.value)
            continue
        items_: dict[Key, Abstract] = {}
        complete = spread(value, items_) and complete
        kwargs.update({key: item for key, item in items_.items() if isinstance(key, str)})
    return tuple(args), kwargs, origins, complete


def call_value(
    ev: Evaluator,
    callee: Abstract,
    args: tuple[Abstract, ...],
    kwargs: dict[str, Abstract],
    node: ast.Call,
    frame: Frame,
    origins: dict[str, Origin] | None = None,
    complete: bool = True,
    _depth: int = 0,
) -> Abstract:
    """What calling `callee` gives; the call is recorded."""
    if isinstance(callee, Either) and _depth < 6:
        then = call_value(ev, callee.then, args, kwargs, node, frame, origins, complete, _depth + 1)
        otherwise = call_value(ev, callee.otherwise, args, kwargs, node, frame, origins, complete, _depth + 1)
        return ev.join(callee.condition, then, otherwise)
    if isinstance(callee, External) and "." not in callee.name:
        from preflight.python.builtins import call_builtin

        given = call_builtin(ev, callee.name, args, kwargs, node, frame, complete)
        if given is not None:
            return given
    if isinstance(callee, Attribute):
        given = call_method(ev, callee, args, kwargs, node, frame)
        if given is not None:
            return given
    record = _record(ev, callee, args, kwargs, node, frame, origins or {}, complete)
    record.value = _result(ev, callee, record, args, kwargs)
    record.result = to_expr(record.value)
    return record.value


def _record(
    ev: Evaluator,
    callee: Abstract,
    args: tuple[Abstract, ...],
    kwargs: dict[str, Abstract],
    node: ast.Call,
    frame: Frame,
    origins: dict[str, Origin],
    complete: bool,
) -> CallRecord:
    name, receiver, method, holder = _names(callee, node)
    record = CallRecord(
        name=name,
        receiver=receiver,
        method=method,
        args=tuple(to_expr(a) for a in args),
        kwargs={key: to_expr(value) for key, value in kwargs.items()},
        keyword_origins=origins,
        path=frame.module.path,
        node=node,
        origin=frame.module.origin(node),
        function=frame.function,
        conditions=tuple(ev.conditions),
        in_loop=ev.loops > 0,
        in_try=tuple(name for names in ev.handlers for name in names),
        contexts=tuple(ev.contexts),
        reached=ev.reached,
        complete=complete,
        arguments=args,
        keywords=kwargs,
        receiver_object=holder,
        callee=callee,
    )
    same = ev.seen.setdefault(id(node), [])
    for known in same:  # an unrolled loop says the same thing once
        if (
            known.name == name
            and known.args == record.args
            and known.kwargs == record.kwargs
            and known.arguments == args
        ):
            return record
    same.append(record)
    ev.calls.append(record)
    return record


def _names(callee: Abstract, node: ast.Call) -> tuple[str, str | None, str, Abstract | None]:
    """Name, receiver, method and the receiver's object of a call."""
    if isinstance(callee, External):
        return callee.name, None, callee.name.rpartition(".")[2], None
    if isinstance(callee, FunctionValue):
        owner = callee.owner.name + "." if callee.owner and not callee.name.startswith(callee.owner.name) else ""
        return f"{callee.module.name}.{owner}{callee.name}", None, callee.name.rpartition(".")[2], callee.self_value
    if isinstance(callee, ClassValue):
        return f"{callee.module.name}.{callee.name}", None, callee.name, None
    written = dotted(node.func)
    if isinstance(callee, Attribute):
        return written, made_by(callee.receiver), callee.name, callee.receiver
    return written, made_by(callee), "__call__" if isinstance(callee, Instance) else written.rpartition(".")[2], callee


def dotted(node: ast.expr) -> str:
    """The callee as it is written, calls and subscripts left out: "self.model.generate"."""
    parts: list[str] = []
    for _ in range(50):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            parts[-1:] = [f"().{parts[-1]}"] if parts else ["()"]
            node = node.func
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            break
    parts.append(node.id if isinstance(node, ast.Name) else "?")
    return ".".join(reversed(parts)).replace(".()", "()")


def _result(
    ev: Evaluator, callee: Abstract, record: CallRecord, args: tuple[Abstract, ...], kwargs: dict[str, Abstract]
) -> Abstract:
    for name in _hook_names(callee, record):
        hook = ev.hooks.get(name)
        given = hook(record, ev) if hook is not None else None
        if given is not None:
            return given
    same = same_object(callee)
    if same is not None:
        return same
    if isinstance(callee, FunctionValue):
        return invoke(ev, callee, args, kwargs, record)
    if isinstance(callee, ClassValue):
        return instantiate(ev, callee, args, kwargs, record)
    if isinstance(callee, Instance) and callee.cls is not None:
        for name in ("__call__", "forward"):
            method = class_attribute(callee.cls, name)
            if isinstance(method, FunctionValue):
                return invoke(ev, replace(method, self_value=callee), args, kwargs, record)
    # functions given to a library are called by it: torch.multiprocessing.spawn(main), executor.submit(run), ...
    for value in (*args, *kwargs.values()):
        if isinstance(value, FunctionValue) and id(value.node) not in ev.interpreted and record.reached:
            invoke(ev, value, (), {}, record)
    return Instance(record.qualified, record=record, origin=record.origin)


def _hook_names(callee: Abstract, record: CallRecord) -> list[str]:
    """Under which names a hook may answer: its own, and those of the library's classes that a project's class extends."""
    found = [record.qualified]
    if isinstance(callee, ClassValue):
        found += callee.external_bases
    elif isinstance(callee, Attribute) and isinstance(callee.receiver, Instance) and callee.receiver.cls is not None:
        found += [f"{base}.{record.method}" for base in callee.receiver.cls.external_bases]
    return [*found, f"*.{record.method}"]


# --- functions --------------------------------------------------------------------------------------------------------


def parameter_defaults(ev: Evaluator, arguments: ast.arguments, frame: Frame) -> dict[str, Abstract]:
    """Default values, evaluated where the function is defined."""
    positional = [*arguments.posonlyargs, *arguments.args]
    made = {
        parameter.arg: evaluate(ev, default, frame)
        for parameter, default in zip(
            positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True
        )
    }
    for parameter, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword_default is not None:
            made[parameter.arg] = evaluate(ev, keyword_default, frame)
    return made


def make_function(ev: Evaluator, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> Abstract:
    """The value of a `def`. Decorators that are not known leave the function as it is."""
    decorators = tuple(evaluate(ev, decorator, frame) for decorator in node.decorator_list)
    name = f"{frame.owner.name}.{node.name}" if frame.owner is not None else node.name
    closure = frame.parent if frame.owner is not None and frame.parent is not None else frame
    made = FunctionValue(
        name, node, frame.module, closure, parameter_defaults(ev, node.args, frame), decorators, frame.owner
    )
    for decorator in reversed(decorators):
        if isinstance(decorator, FunctionValue) and id(decorator.node) not in ev.stack:
            wrapped = invoke(ev, decorator, (made,), {})
            if isinstance(wrapped, FunctionValue) and wrapped.node is not node:
                return wrapped
    return made


def invoke(
    ev: Evaluator,
    function: FunctionValue,
    args: tuple[Abstract, ...],
    kwargs: dict[str, Abstract],
    record: CallRecord | None = None,
) -> Abstract:
    """What a function of the project returns for these arguments."""
    for decorator in function.decorators:
        name = made_by(decorator)
        hook = ev.hooks.get(f"@{name}") if name else None
        if hook is not None:
            fake = record or _decoration(function, args, kwargs, ev)
            given = hook(replace(fake, callee=function, receiver_object=decorator), ev)
            if isinstance(given, Container):  # the arguments that the decorator calls it with
                args = tuple(given.items[key] for key in given.items if isinstance(key, int))
                kwargs = {key: value for key, value in given.items.items() if isinstance(key, str)}
    args, kwargs = (*function.bound_args, *args), {**function.bound_kwargs, **kwargs}
    if function.self_value is not None and not _is_static(function):
        args = (_first_argument(function, function.self_value), *args)
    if ev.stack.count(id(function.node)) >= MAX_RECURSION or len(ev.stack) > 40:
        return unknown("it calls itself")
    frame = Frame({}, function.module, function.frame, function.name, [], function.frame.globals_)
    frame.owner, frame.self_value = None, function.self_value or (args[0] if args else None)
    frame.owner_class = function.owner
    bind_parameters(function, args, kwargs, frame)
    return _run_body(ev, function, frame)


def _decoration(
    function: FunctionValue, args: tuple[Abstract, ...], kwargs: dict[str, Abstract], ev: Evaluator
) -> CallRecord:
    """A record of a call that the program's text does not make."""
    node = ast.copy_location(ast.Name(function.name), function.node)
    return CallRecord(
        f"{function.module.name}.{function.name}", None, function.name, tuple(to_expr(a) for a in args),
        {k: to_expr(v) for k, v in kwargs.items()}, {}, function.module.path, node,
        function.module.origin(function.node, editable=False), reached=ev.reached, arguments=args, keywords=kwargs,
    )  # fmt: skip


def _run_body(ev: Evaluator, function: FunctionValue, frame: Frame) -> Abstract:
    from preflight.python.statements import execute

    ev.interpreted.add(id(function.node))
    ev.stack.append(id(function.node))
    ev.marks.append(len(ev.conditions))
    contexts = len(ev.contexts)
    ev.contexts += [d.record for d in function.decorators if isinstance(d, Instance) and d.record is not None]
    try:
        if isinstance(function.node, ast.Lambda):
            return evaluate(ev, function.node.body, frame)
        flow = execute(ev, function.node.body, frame)
    finally:
        ev.stack.pop()
        del ev.conditions[ev.marks.pop() :]
        del ev.contexts[contexts:]
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for s in function.node.body for n in _own(s)):
        return Container("list", {}, None, {"open": True})
    return _returned(ev, frame, flow)


def _own(node: ast.AST) -> list[ast.AST]:
    """A statement's nodes, nested functions left out."""
    found: list[ast.AST] = []
    pending = [node]
    while pending:
        one = pending.pop()
        found.append(one)
        if not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            pending.extend(ast.iter_child_nodes(one))
    return found


def _returned(ev: Evaluator, frame: Frame, flow: str) -> Abstract:
    returns = list(frame.returns)
    if flow == "next":
        returns.append((None, Const(None)))
    if not returns:
        return unknown("it does not return")
    final = next((i for i, (condition, _) in enumerate(returns) if condition is None), len(returns) - 1)
    value = returns[final][1]
    for condition, other in reversed(returns[:final]):
        value = ev.join(condition if condition is not None else unknown("?"), other, value)
    return value


def _first_argument(function: FunctionValue, itself: Abstract) -> Abstract:
    """`self`, or the class for a class method."""
    if is_class_method(function) and isinstance(itself, Instance) and itself.cls is not None:
        return itself.cls
    return itself


def _is_static(function: FunctionValue) -> bool:
    return any(isinstance(d, External) and d.name == "staticmethod" for d in function.decorators)


def bind_parameters(
    function: FunctionValue, args: tuple[Abstract, ...], kwargs: dict[str, Abstract], frame: Frame
) -> None:
    """Parameters -> arguments, defaults, or unknown."""
    arguments = function.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    left = dict(kwargs)
    for index, parameter in enumerate([*positional, *arguments.kwonlyargs]):
        name = parameter.arg
        if index < len(args) and index < len(positional):
            frame.variables[name] = args[index]
            left.pop(name, None)
        elif name in left:
            frame.variables[name] = left.pop(name)
        elif name in function.defaults:
            frame.variables[name] = function.defaults[name]
        else:
            origin = function.module.origin(parameter, editable=False)
            frame.variables[name] = unknown(f"the argument {name} of {function.name}() is not known", origin)
    if arguments.vararg is not None:
        frame.variables[arguments.vararg.arg] = sequence(list(args[len(positional) :]), "tuple")
    if arguments.kwarg is not None:
        frame.variables[arguments.kwarg.arg] = Container("dict", {key: value for key, value in left.items()})


# --- classes ----------------------------------------------------------------------------------------------------------


def make_class(ev: Evaluator, node: ast.ClassDef, frame: Frame) -> Abstract:
    """The value of a `class` statement; its body is interpreted."""
    from preflight.python.statements import execute

    bases = tuple(evaluate(ev, base, frame) for base in node.bases)
    decorators = tuple(evaluate(ev, decorator, frame) for decorator in node.decorator_list)
    made = ClassValue(node.name, node, frame.module, {}, bases, decorators)
    inner = Frame(made.attributes, frame.module, frame, frame.function, [], frame.globals_)
    inner.owner = made
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            made.annotations[statement.target.id] = ast.unparse(statement.annotation)
            made.annotation_origins[statement.target.id] = frame.module.origin(statement)
    execute(ev, node.body, inner)
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
    """The default of a dataclass field, `field(default=..., default_factory=...)` opened; None: it has none."""
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
            return call_value(ev, factory, (), {}, _as_call(record.node), owner_frame(owner))
        first = record.node.args[0] if isinstance(record.node, ast.Call) and record.node.args else None
        required = first is None or (isinstance(first, ast.Constant) and first.value is Ellipsis)
        return None if required else record.arguments[0]
    return value


def _as_call(node: ast.expr) -> ast.Call:
    return node if isinstance(node, ast.Call) else ast.copy_location(ast.Call(node, [], []), node)


def owner_frame(owner: ClassValue) -> Frame:
    return Frame({}, owner.module, None, owner.name)


def instantiate(
    ev: Evaluator,
    cls: ClassValue,
    args: tuple[Abstract, ...],
    kwargs: dict[str, Abstract],
    record: CallRecord | None,
) -> Abstract:
    """An object of a class of the project, its `__init__` interpreted."""
    made = Instance(f"{cls.module.name}.{cls.name}", cls, {}, record, record.origin if record else None)
    ev.instances.setdefault(id(cls.node), []).append(made)
    init = class_attribute(cls, "__init__")
    if isinstance(init, FunctionValue):
        invoke(ev, replace(init, self_value=made), args, kwargs)
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
            made.attributes[name] = value if value is not None else unknown(f"{cls.name}.{name} is not given")
        post = class_attribute(cls, "__post_init__")
        if isinstance(post, FunctionValue):
            invoke(ev, replace(post, self_value=made), (), {})
        return made
    for key, value in kwargs.items():  # the base class is a library's: what it is given is what is known of it
        made.attributes.setdefault(key, value)
    return made


def _super(frame: Frame) -> Abstract:
    scope: Frame | None = frame
    while scope is not None and scope.owner_class is None:
        scope = scope.parent
    if scope is None or scope.owner_class is None or scope.self_value is None:
        return unknown("super() outside a class")
    bases = [base for base in scope.owner_class.bases if isinstance(base, ClassValue)]
    if bases:
        attributes = scope.self_value.attributes if isinstance(scope.self_value, Instance) else {}
        return Instance(
            f"{bases[0].module.name}.{bases[0].name}", bases[0], attributes, state={"self": scope.self_value}
        )
    names = [base.name for base in scope.owner_class.bases if isinstance(base, External)]
    return Instance(names[0] if names else "object", None, {}, state={"self": scope.self_value})
