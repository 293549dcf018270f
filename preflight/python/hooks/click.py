"""click, typer, fire, absl and LightningCLI: parameters of an entry function or of constructors, and global flags."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from preflight.python.access import class_attribute
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.hooks.argparse import never_left_out, type_name
from preflight.python.objects import (
    Abstract,
    CallRecord,
    ClassValue,
    Container,
    FunctionValue,
    Instance,
    Key,
    to_expr,
)
from preflight.vocabulary.reading import Parameter, ParameterKind, convert
from preflight.vocabulary.values import Const, Expr, Ref, Value

OPTIONS = ("click.option", "click.argument", "rich_click.option", "rich_click.argument")


def command(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`main()` of a click command: its options are parameters."""
    function = record.callee
    if not isinstance(function, FunctionValue) or record.arguments or record.keywords:
        return None
    items: dict[Key, Abstract] = {}
    for decorator in function.decorators:
        if isinstance(decorator, Instance) and decorator.made_by in OPTIONS and decorator.record is not None:
            made = _option(decorator.record, ev)
            if made is not None:
                ev.add_parameter(made)
                items[made.name] = Ref(made.name)
    return Container("dict", items)


def _option(record: CallRecord, ev: Evaluator) -> Parameter | None:
    names = [text for arg in record.args if isinstance(text := ev.value_of(arg), str)]
    if not names:
        return None
    flags = tuple(flag for name in names if name.startswith("-") for flag in name.split("/"))
    explicit = [name for name in names if not name.startswith("-")]
    long = next((flag for flag in flags if flag.startswith("--")), names[0])
    name = explicit[0] if explicit else long.lstrip("-").replace("-", "_").lower()
    default = record.kwargs.get("default", Const(None))
    kind = type_name(record.keywords.get("type"))
    values: tuple[Value, ...] = ()
    if ev.argument_value(record, "is_flag") is True:
        kind, default = "flag", record.kwargs.get("default", Const(False))
    elif any("/" in one for one in names):
        kind = "bool"
    elif isinstance(chosen := record.keywords.get("type"), Instance) and chosen.made_by.endswith("Choice"):
        offered = chosen.record.object("choices", 0) if chosen.record else None
        values = tuple(ev.value_of(to_expr(item)) for item in (ev.iterate(offered) or [])) if offered else ()
    if kind is None and isinstance(default, Const) and isinstance(default.value, (bool, int, float)):
        kind = type(default.value).__name__  # click takes the default's type
    required = ev.argument_value(record, "required")
    if required is True or (not flags and not {"default", "required", "nargs"} & {*record.kwargs}):
        default = never_left_out(flags[0] if flags else names[0], record)
    return Parameter(name, default, flags, "click", kind or "str", values, record.origin)


# --- signatures: typer, fire ------------------------------------------------------------------------------------------


def entry_function(
    ev: Evaluator, function: FunctionValue, kind: ParameterKind = "click", others: Mapping[str, Abstract] | None = None
) -> Abstract:
    """Call a function whose parameters are those of the command line. `others`: what its `**options` get."""
    arguments = function.node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    own = [one for one in every if function.self_value is None or one.arg != "self"]
    return ev.call(function, (), {**(others or {}), **_references(ev, function, own, kind)})


def _named_in_words(ev: Evaluator) -> dict[str, Abstract]:
    """`fire.Fire(main)` of `def main(**options)`: the options are those of the command line, by their names. `--a 1`,
    `--a=1` and a switch `--a`; fire reads the texts as Python's literals."""
    found: dict[str, Abstract] = {}
    words = ev.arguments.words
    for at, word in enumerate(words):
        text = word.value if isinstance(word, Const) else None
        if not isinstance(text, str) or not text.startswith("--"):
            continue
        name, equals, rest = text[2:].partition("=")
        following = words[at + 1] if at + 1 < len(words) else None
        if equals:
            value: Expr = convert(Const(rest, word.origin), None, keyed=True)
        elif following is None or _is_option(following):
            value = Const(True, word.origin)
        else:
            value = convert(following, None, keyed=True)
        found[name.replace("-", "_")] = value
    return found


def _is_option(word: Expr) -> bool:
    return isinstance(word, Const) and isinstance(word.value, str) and word.value.startswith("--")


def _references(
    ev: Evaluator, function: FunctionValue, arguments: Sequence[ast.arg], kind: ParameterKind
) -> dict[str, Abstract]:
    """Parameters of the command line for arguments of a function, each as its value."""
    made = [_signature(ev, function, argument, kind) for argument in arguments]
    for parameter in made:
        ev.add_parameter(parameter)
    return {parameter.name: Ref(parameter.name) for parameter in made}


def _signature(ev: Evaluator, function: FunctionValue, parameter: ast.arg, kind: ParameterKind) -> Parameter:
    given = function.defaults.get(parameter.arg)
    default: Expr = Const(None)
    flags: tuple[str, ...] = (f"--{parameter.arg}", f"--{parameter.arg.replace('_', '-')}")
    if isinstance(given, Instance) and given.record is not None and given.made_by.startswith("typer."):
        default = given.record.argument("default", 0) or default
        named = tuple(text for arg in given.record.args[1:] if isinstance(text := ev.value_of(arg), str))
        flags = named or flags
    elif given is not None:
        default = to_expr(given)
    annotation = ast.unparse(parameter.annotation) if parameter.annotation is not None else ""
    type_ = next((t for t in ("bool", "int", "float", "str") if t in annotation), None)
    if type_ is None and isinstance(default, Const) and isinstance(default.value, (bool, int, float)):
        type_ = type(default.value).__name__
    return Parameter(
        parameter.arg, default, tuple(dict.fromkeys(flags)), kind, type_, (), function.module.origin(parameter)
    )


def lightning_cli(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`LightningCLI(Model, Data)`: it makes both, and gives every argument of their constructors a flag."""
    for name, index, prefix in (("model_class", 0, "model"), ("datamodule_class", 1, "data")):
        cls = record.object(name, index)
        init = class_attribute(cls, "__init__") if isinstance(cls, ClassValue) else None
        given: dict[str, Abstract] = {}
        if isinstance(init, FunctionValue):
            own = init.node.args
            for argument in [*own.posonlyargs, *own.args, *own.kwonlyargs][1:]:
                made = _signature(ev, init, argument, "dataclass")
                full = f"{prefix}.{argument.arg}"
                ev.add_parameter(replace(made, name=full, flags=(f"--{full}", f"--{prefix}.init_args.{argument.arg}")))
                given[argument.arg] = Ref(full)
        if isinstance(cls, ClassValue):
            ev.call(cls, (), given)
    return None


def run_entry(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`typer.run(main)`, `fire.Fire(main)`."""
    target = record.object("component", 0)
    if isinstance(target, FunctionValue):
        takes_any = record.name == "fire.Fire" and target.node.args.kwarg is not None
        return entry_function(ev, target, others=_named_in_words(ev) if takes_any else None)
    if isinstance(target, ClassValue):
        init = class_attribute(target, "__init__")
        if isinstance(init, FunctionValue):
            return ev.call(target, (), _references(ev, init, init.node.args.args[1:], "click"))
        return ev.call(target, ())
    return None


def typer_app(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`app()`: every command registered with it."""
    app = record.receiver_object
    for module in list(ev.modules.values()):
        for value in list(module.frame.variables.values()):
            if isinstance(value, FunctionValue) and any(_belongs(d, app) for d in value.decorators):
                entry_function(ev, value)
    return Const(None)


def _belongs(decorator: Abstract, app: Abstract | None) -> bool:
    return isinstance(decorator, Instance) and decorator.record is not None and decorator.record.receiver_object is app


# --- absl -------------------------------------------------------------------------------------------------------------

_ABSL = {
    "integer": "int", "float": "float", "string": "str", "bool": "bool", "boolean": "bool", "enum": "str",
    "list": "list",
}  # fmt: skip


def define_flag(record: CallRecord, ev: Evaluator) -> Abstract | None:
    name = ev.value_of(record.args[0]) if record.args else None
    if not isinstance(name, str):
        return None
    kind = _ABSL.get(record.method.removeprefix("DEFINE_"), "str")
    default = record.argument("default", 1) or Const(None)
    ev.add_parameter(Parameter(name, default, (f"--{name}", f"-{name}"), "argparse", kind, (), record.origin))
    return Container("namespace", {"value": Ref(name)})


def absl_run(record: CallRecord, ev: Evaluator) -> Abstract | None:
    main = record.object("main", 0)
    return ev.call(main, ()) if isinstance(main, FunctionValue) else None


_LIGHTNING_CLI = ("lightning.pytorch.cli", "pytorch_lightning.cli", "pytorch_lightning.utilities.cli")

HOOKS: Mapping[str, Hook] = {
    "@click.command": command, "@click.group": command, "@rich_click.command": command, "@click.Group.command": command,
    "typer.run": run_entry, "fire.Fire": run_entry, "defopt.run": run_entry, "typer.Typer.__call__": typer_app,
    "absl.app.run": absl_run, **{f"absl.flags.DEFINE_{kind}": define_flag for kind in _ABSL},
    **{f"{module}.LightningCLI{end}": lightning_cli for module in _LIGHTNING_CLI for end in ("", ".__init__")},
}  # fmt: skip
