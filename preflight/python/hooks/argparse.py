"""argparse: each argument is a parameter; `parse_args()` returns a namespace of references to them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.python.access import set_attribute
from preflight.python.evaluator import Evaluator, Hook, LibraryValue
from preflight.python.objects import (
    Abstract,
    CallRecord,
    Container,
    External,
    FunctionValue,
    Instance,
    Key,
    alternatives,
    has_unknown,
    made_by,
    sequence,
    to_expr,
)
from preflight.python.spread import copy_items, laid_over, may_hold_more
from preflight.python.unknown_names import attributes
from preflight.vocabulary.argv import bind_words
from preflight.vocabulary.reading import Parameter, Word, word
from preflight.vocabulary.values import Cause, Const, Expr, Ref, Unknown, Value, names, unknown

PARSER = "argparse.ArgumentParser"
_ALIASES = ("configargparse.ArgumentParser", "configargparse.ArgParser", "jsonargparse.ArgumentParser",
            "transformers.HfArgumentParser", "simple_parsing.ArgumentParser")  # fmt: skip
"""Parsers with the same `add_argument` as argparse's."""


class ParserState(Struct):
    """Arguments of one parser, in order of definition; subparsers share their parent's `children`."""

    parameters: dict[str, Parameter] = field(default_factory=dict)
    children: list[ParserState] = field(default_factory=list)
    groups: dict[str, LibraryValue] = field(default_factory=dict)
    """How to make the objects that take several arguments, by name (dataclasses of simple_parsing)."""

    def everything(self, _depth: int = 0) -> dict[str, Parameter]:
        """Its own arguments and those of its subparsers."""
        found = dict(self.parameters)
        for child in self.children if _depth < 5 else ():
            found.update({name: p for name, p in child.everything(_depth + 1).items() if name not in found})
        return found


def state_of(value: Abstract | None) -> ParserState | None:
    """The arguments of a parser object (or of a group of one)."""
    for one in alternatives(value) if value is not None else ():
        if isinstance(one, Instance):
            found = one.state.setdefault("parser", ParserState())
            return found if isinstance(found, ParserState) else None
    return None


def parser(record: CallRecord, ev: Evaluator) -> Abstract | None:
    made = Instance(PARSER, record=record, origin=record.origin)
    state = state_of(made)
    parents = record.keywords.get("parents")
    for parent in (ev.iterate(parents) or []) if parents is not None else []:
        inherited = state_of(parent)
        if state is not None and inherited is not None:
            state.parameters.update(inherited.everything())
    return made


def add_argument(record: CallRecord, ev: Evaluator) -> Abstract | None:
    state = state_of(record.receiver_object)
    flags = [value for arg in record.args if isinstance(value := ev.value_of(arg), str)]
    if state is None or not flags:
        return None
    made = _parameter(record, ev, flags)
    known = state.parameters.get(made.name)
    if known is not None and "default" not in record.kwargs:  # two flags of one dest: the first has the default
        made = replace(known, flags=(*known.flags, *made.flags))
    state.parameters[made.name] = made
    return Container("namespace", {"dest": Const(made.name)})


def _parameter(record: CallRecord, ev: Evaluator, flags: list[str]) -> Parameter:
    options = tuple(flag for flag in flags if flag.startswith("-"))
    dest = ev.argument_value(record, "dest")
    if not isinstance(dest, str):
        long = next((flag for flag in flags if flag.startswith("--")), flags[0])
        dest = long.lstrip("-").replace("-", "_") if options else flags[0]
    kind, default = _action(record, ev)
    given = ev.argument_value(record, "required") is True
    if given or not (options or ev.argument_value(record, "nargs") in ("?", "*")):
        default = never_left_out(options[0] if options else dest, record)
    if kind == "bool" and made_by(record.keywords.get("action", Const(None))) == "argparse.BooleanOptionalAction":
        options += tuple(f"--no-{flag[2:]}" for flag in options if flag.startswith("--"))
    choices = record.keywords.get("choices")
    items = ev.iterate(choices) if choices is not None else None
    values: tuple[Value, ...] = tuple(
        v for item in items or [] if not isinstance(v := ev.value_of(to_expr(item)), Unknown)
    )
    return Parameter(dest, default, options, "argparse", kind, values, record.origin)


def never_left_out(said: str, record: CallRecord) -> Const:
    """The default of an argument without which the program ends: what no command line gives is not known."""
    return unknown(f"{said} must be given, and no command line that was read gives it", record.origin, Cause.not_set)


def _action(record: CallRecord, ev: Evaluator) -> tuple[str | None, Expr]:
    """Type and default of an argument."""
    action, default = record.keywords.get("action"), record.kwargs.get("default", Const(None))
    name = made_by(action) if isinstance(action, External) else ev.value_of(to_expr(action)) if action else None
    if name == "store_true":
        return "flag", record.kwargs.get("default", Const(False))
    if name == "store_false":
        return "no-flag", record.kwargs.get("default", Const(True))
    if name in ("store_const", "append_const", "count", "append", "extend"):
        kind = "int" if name == "count" else "list" if name in ("append", "extend") else None
        return kind, default
    if isinstance(name, str) and name.endswith("BooleanOptionalAction"):
        return "bool", default
    if "nargs" in record.kwargs and ev.argument_value(record, "nargs") != "?":
        return "list", default
    if "type" not in record.keywords:
        return "str", default  # argparse leaves it a string
    kind = type_name(record.keywords["type"])
    return kind, _converted(default, kind)


def _converted(default: Expr, kind: str | None) -> Expr:
    """A default that is text, as `type=` makes it: argparse parses it as if it stood on the command line."""
    text = default.value if isinstance(default, Const) else None
    if not isinstance(text, str) or kind == "str":
        return default
    if kind in ("int", "float"):
        try:
            return Const(int(text) if kind == "int" else float(text), default.origin)
        except ValueError:
            return unknown(f"{kind}({text!r}) fails", default.origin, Cause.invalid)
    return unknown(f"the program makes another value of {text!r}", default.origin)


def type_name(value: Abstract | None) -> str | None:
    """The value of `type=`, as the field `type` of Parameter has it."""
    if isinstance(value, External):
        return value.name if value.name in ("int", "float", "str", "bool") else None
    if isinstance(value, FunctionValue):
        name = value.name.lower()
        return "bool" if "bool" in name else "int" if "int" in name else "float" if "float" in name else None
    return None


def set_defaults(record: CallRecord, ev: Evaluator) -> Abstract | None:
    state = state_of(record.receiver_object) or ParserState()
    for name, known in state.parameters.items() if record.more else ():
        state.parameters[name] = replace(known, default=laid_over(record.origin))
    for name, value in record.kwargs.items():
        added = Parameter(name, value, (), "argparse", origin=record.origin)
        state.parameters[name] = replace(state.parameters.get(name, added), default=value)
    return Const(None)


def group(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """A group: its arguments are its parser's."""
    return record.receiver_object


def subparsers(record: CallRecord, ev: Evaluator) -> Abstract | None:
    made = Instance("argparse._SubParsersAction", record=record, state={"parent": state_of(record.receiver_object)})
    dest = ev.argument_value(record, "dest")
    state = state_of(record.receiver_object)
    if state is not None and isinstance(dest, str):
        default = unknown("which command is run is not known", cause=Cause.not_set)
        state.parameters[dest] = Parameter(dest, default, (), "argparse")
    return made


def add_parser(record: CallRecord, ev: Evaluator) -> Abstract | None:
    made = parser(record, ev)
    holder = record.receiver_object
    parent = holder.state.get("parent") if isinstance(holder, Instance) else None
    child = state_of(made)
    if isinstance(parent, ParserState) and child is not None:
        parent.children.append(child)
    return made


def parse_args(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """The namespace. With words in the program's text (`parse_args([])`) the command line sets nothing."""
    state = state_of(record.receiver_object)
    if state is None:
        return None
    words = record.object("args", 0)
    items: dict[Key, Abstract] = {}
    before = record.object("namespace", 1)
    stated = state.everything()
    found = {name: _beginning(one, before) for name, one in stated.items()}
    if isinstance(words, Container) and not words.open:
        given = bind_words(tuple(found.values()), plain_words(words))
        items.update({name: given.get(name, parameter.default) for name, parameter in found.items()})
    else:
        for name, parameter in found.items():
            ev.add_parameter(parameter)
            again = ev.parameters[name].default != parameter.default  # parsed before, with another default
            replaced = has_unknown(parameter.default) or parameter is not stated[name]
            items[name] = laid_over(record.origin) if again and replaced else Ref(name)
    items.update({dest: make(ev) for dest, make in state.groups.items()})
    kept: dict[Key, Abstract] = {}
    if isinstance(before, Container):
        copy_items(before, kept)
    for key, value in items.items():
        if before is not None:
            set_attribute(ev, before, key, value)
    return Container("namespace", {**kept, **items}, record.origin)


def _beginning(parameter: Parameter, namespace: Abstract | None) -> Parameter:
    """The parameter as `parse_args(namespace=...)` begins: what the namespace has is not set to the default."""
    if namespace is None or (isinstance(namespace, Const) and namespace.value is None):
        return parameter
    own: dict[Key, Abstract] = {}
    if isinstance(namespace, Instance) and namespace.cls is not None:
        own = dict(attributes(namespace))
    else:
        copy_items(namespace, own)
    given = own.get(parameter.name)
    if given is None:
        return replace(parameter, default=laid_over(parameter.origin)) if may_hold_more(namespace) else parameter
    value = to_expr(given)
    if isinstance(value, Ref) and value.name == parameter.name:
        return parameter
    if parameter.name in names(value):
        value = unknown("the program changes it and parses the command line again", parameter.origin)
    return replace(parameter, default=value)


def plain_words(words: Container) -> list[Word]:
    """The items of a list in the program's text, as words of a command line."""
    made: list[Word] = []
    for item in words.items.values():
        expr = to_expr(item)
        if isinstance(expr, Const) and isinstance(expr.value, str):
            made.append(word(expr.value, expr.origin))
        else:
            made.append(Word("", expr))
    return made


def parse_known(record: CallRecord, ev: Evaluator) -> Abstract | None:
    return sequence([parse_args(record, ev) or Const(None), sequence([], "list", None, True)], "tuple")


def deepspeed_arguments(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`parser = deepspeed.add_config_arguments(parser)` adds the flags of DeepSpeed (deepspeed/__init__.py, 0.19)."""
    holder = record.object("parser", 0)
    state = state_of(holder)
    if state is not None:
        switch = Parameter("deepspeed", Const(False), ("--deepspeed",), "argparse", "flag", (), record.origin)
        file = Parameter("deepspeed_config", Const(None), ("--deepspeed_config",), "argparse", "str", (), record.origin)
        state.parameters |= {one.name: one for one in (switch, file)}
    return holder


HOOKS: Mapping[str, Hook] = (
    {
        "deepspeed.add_config_arguments": deepspeed_arguments,
    }
    | {
        f"{parser_name}{suffix}": hook
        for parser_name in (PARSER, *_ALIASES)
        for suffix, hook in {
            "": parser,
            ".add_argument": add_argument,
            ".add": add_argument,
            ".set_defaults": set_defaults,
            ".add_argument_group": group,
            ".add_mutually_exclusive_group": group,
            ".add_subparsers": subparsers,
            ".parse_args": parse_args,
            ".parse_known_args": parse_known,
            ".parse_intermixed_args": parse_args,
        }.items()
        if not (parser_name == "transformers.HfArgumentParser" and not suffix)
    }
    | {"argparse._SubParsersAction.add_parser": add_parser}
)
