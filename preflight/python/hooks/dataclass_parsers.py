"""Parsers that make the command line of dataclasses: HfArgumentParser, tyro, simple_parsing, draccus, pyrallis, Tap."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from msgspec.structs import replace

from preflight.python.access import class_attribute
from preflight.python.classes import dataclass_fields, field_default
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.files import path_text, read_yaml
from preflight.python.hooks.argparse import state_of
from preflight.python.hooks.click import entry_function
from preflight.python.objects import (
    Abstract,
    CallRecord,
    ClassValue,
    Config,
    Container,
    External,
    FunctionValue,
    Instance,
    from_value,
    sequence,
    to_expr,
)
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.reading import Parameter, ParameterKind
from preflight.vocabulary.values import Cause, Const, Expr, Ref, Unknown, unknown

HF = "transformers.HfArgumentParser"
OWN_METHODS = ("parse", "parse_args_and_config", "parse_yaml_and_args", "parse_config")
"""Names that classes which extend it give to a method that reads a file and the command line."""


def parameter_object(
    ev: Evaluator, cls: Abstract, prefix: str, kind: ParameterKind = "dataclass", _depth: int = 0
) -> Abstract:
    """An object of a dataclass whose fields are parameters of the command line.

    An object of a library's class is a configuration object.
    """
    if not isinstance(cls, ClassValue):
        return Config(prefix, kind)
    made = Instance(f"{cls.module.name}.{cls.name}", cls, {})
    ev.instances.setdefault(id(cls.node), []).append(made)
    for name, owner in dataclass_fields(cls).items():
        full = f"{prefix}.{name}" if prefix else name
        made.attributes[name] = _field(ev, owner, name, full, kind, _depth)
    if any(base.endswith(("Arguments", "Config")) for base in cls.external_bases):
        made.state["config"] = Config(prefix, kind)  # fields of the library's class
    return made


def _field(ev: Evaluator, owner: ClassValue, name: str, full: str, kind: ParameterKind, depth: int) -> Abstract:
    default = field_default(ev, owner, name)
    annotation = owner.annotations.get(name, "")
    nested = default.cls if isinstance(default, Instance) else None
    if nested is None and default is None:
        found = ev.modules[owner.module.path].frame.variables.get(annotation.strip("\"'"))
        nested = found if isinstance(found, ClassValue) else None
    if nested is not None and depth < 6:
        made = parameter_object(ev, nested, full, kind, depth + 1)
        if isinstance(default, Instance) and isinstance(made, Instance):
            _own_defaults(ev, made, default)
        return made
    expr = to_expr(default) if default is not None else unknown(f"{full} has no default", cause=Cause.not_set)
    flags = tuple(dict.fromkeys((f"--{full}", f"--{full.replace('_', '-')}")))
    origin = owner.annotation_origins.get(name)
    ev.add_parameter(Parameter(full, expr, flags, kind, _type(annotation), (), origin))
    return Ref(full)


def _own_defaults(ev: Evaluator, made: Instance, default: Instance) -> None:
    """`train: Train = Train(lr=1)`: the arguments given there are the defaults."""
    for name, value in made.attributes.items():
        given = default.attributes.get(name)
        if isinstance(value, Ref) and given is not None and value.name in ev.parameters:
            ev.parameters[value.name] = replace(ev.parameters[value.name], default=to_expr(given))


def _type(annotation: str) -> str | None:
    text = annotation.strip("\"'").replace("Optional[", "").replace("None", "").strip("[]| ")
    if text.startswith(("list", "List", "Sequence", "tuple", "Tuple")):
        return "list"
    return text if text in ("int", "float", "str", "bool") else "str" if text.startswith("Literal") else None


def hf_parser(record: CallRecord, ev: Evaluator) -> Abstract | None:
    return Instance(HF, record=record, origin=record.origin)


def hf_parse(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`parse_args_into_dataclasses()`: one object per class."""
    holder = record.receiver_object
    made = holder.record if isinstance(holder, Instance) else None
    types = made.object("dataclass_types", 0) if made is not None else None
    if types is None:
        return None
    classes = ev.iterate(types) if isinstance(types, Container) else [types]
    state = state_of(holder)
    for parameter in state.parameters.values() if state is not None else ():
        ev.add_parameter(parameter)
    objects = []
    for cls in classes or []:
        objects.append(parameter_object(ev, cls, ""))
        _note(ev, cls, record, objects[-1])
    if ev.argument_value(record, "return_remaining_strings", 1) is True:
        objects.append(sequence([], "list", None, True))
    return sequence(objects, "tuple", record.origin)


ARGUMENT_FILE: CacheKind[Mapping[str, Expr]] = CacheKind("the arguments of the file that a program parses")
UNREAD_FILE: CacheKind[Const] = CacheKind("why the file of arguments that a program parses is not known")
FILE_AND_FLAGS: CacheKind[bool] = CacheKind("whether a parser of the project's own takes that file and flags")


def hf_parse_file(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`parse_json_file(sys.argv[1])`, `parse_yaml_file("args.yaml")`: the file sets the fields, and no flag does."""
    named = record.arguments[0] if record.arguments else next(iter(record.keywords.values()), None)
    found = read_yaml(ev, named, "dict", record) if named is not None else None
    before = dict(ev.parameters)
    if isinstance(found, Container) and not found.open:
        given = {str(key): to_expr(value) for key, value in found.items.items()}
        ev.remembered.put(ARGUMENT_FILE, given)
        for key, expr in given.items():
            known = before.get(key)
            if known is None or _is_unknown(known.default):
                ev.parameters[key] = Parameter(key, expr, (), "dataclass", None, (), expr.origin)
        return hf_parse(record, ev)
    made = hf_parse(record, ev)
    doubt = _why_unread(ev, named, record)
    ev.remembered.put(UNREAD_FILE, doubt)
    for key, one in ev.parameters.items():
        if key not in before:
            ev.parameters[key] = replace(one, default=doubt)
    return made


def trl_parse(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`TrlParser(...).parse_args_and_config()`: the file behind `--config` has the defaults of all flags."""
    words = [word.value if isinstance(word, Const) else None for word in ev.arguments.words]
    if "--config" not in words[:-1]:
        return hf_parse(record, ev)
    _remember(ev, ev.arguments.words[words.index("--config") + 1], record)
    return hf_parse(record, ev)


def own_parse(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """A project's class that extends HfArgumentParser, with a method of its own that reads a file of arguments: the
    first word of the command line names the file, and the flags behind it win, as the alignment handbook does it."""
    holder = record.receiver_object
    cls = holder.record.callee if isinstance(holder, Instance) and holder.record is not None else None
    if not isinstance(cls, ClassValue) or not _reads_a_file(cls, record.method):
        return None
    named = next(iter(ev.arguments.words), None)
    text = named.value if isinstance(named, Const) else None
    if named is None or (isinstance(text, str) and text.startswith("-")):
        return hf_parse(record, ev)
    _remember(ev, named, record)
    ev.remembered.put(FILE_AND_FLAGS, True)
    return hf_parse(record, ev)


def _reads_a_file(cls: ClassValue, method: str) -> bool:
    """Whether a class has a method of its own of this name, and one of its methods reads a file of arguments."""
    return isinstance(class_attribute(cls, method), FunctionValue) and any(
        isinstance(node, ast.Attribute) and node.attr in ("parse_yaml_file", "parse_json_file")
        for node in ast.walk(cls.node)
    )


def _remember(ev: Evaluator, named: Abstract, record: CallRecord) -> None:
    """Keeps the file that has the defaults of all flags, or why it is not known."""
    found = read_yaml(ev, named, "dict", record)
    if isinstance(found, Container) and not found.open:
        ev.remembered.put(ARGUMENT_FILE, {str(key): to_expr(value) for key, value in found.items.items()})
    else:
        ev.remembered.put(UNREAD_FILE, _why_unread(ev, named, record))


def _is_unknown(expr: Expr) -> bool:
    return isinstance(expr, Const) and isinstance(expr.value, Unknown)


def _why_unread(ev: Evaluator, named: Abstract | None, record: CallRecord) -> Const:
    path = path_text(ev, named)
    if path is None:
        return unknown("it stands in a file of arguments that is not known", record.origin, Cause.not_set)
    return unknown(f"it stands in {path}, which is not in the project", record.origin, Cause.file_not_found)


def _note(ev: Evaluator, cls: Abstract, record: CallRecord, parsed: Abstract) -> None:
    """Record that the parser makes an arguments object of the library, with arguments of the command line."""
    names = [cls.name] if isinstance(cls, External) else list(cls.external_bases) if isinstance(cls, ClassValue) else []
    for name in names:
        overridden = {}
        if isinstance(cls, ClassValue):
            overridden = {key: Ref(key) for key in ev.parameters if any(key in c.annotations for c in cls.lineage())}
        made = replace(record, name=name, receiver=None, method=name.rpartition(".")[2], receiver_object=None)
        keywords = {**overridden, **_mappings_of_file(ev)}
        made = replace(made, args=(), arguments=(), kwargs=overridden, keywords=keywords, complete=False, value=parsed)
        ev.calls.append(made)


def _mappings_of_file(ev: Evaluator) -> dict[str, Abstract]:
    """`fsdp_config:` and its like in the file of arguments: no flag sets one of their keys."""
    given = ev.remembered.known(ARGUMENT_FILE) or {}
    return {
        name: from_value(expr.value, expr.origin)
        for name, expr in given.items()
        if isinstance(expr, Const) and isinstance(expr.value, Mapping)
    }


def cli(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`tyro.cli(Config)`, `simple_parsing.parse(Config)`, `pyrallis.parse(config_class=Config)` and the like."""
    target = record.object("config_class", 0) or record.object("f", 0)
    if isinstance(target, FunctionValue):
        return entry_function(ev, target, "dataclass")
    default = record.keywords.get("default")
    if isinstance(target, ClassValue):
        made = parameter_object(ev, target, "")
        if isinstance(default, Instance) and isinstance(made, Instance):
            _own_defaults(ev, made, default)
        return made
    return None


def wrap(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`@pyrallis.wrap()`, `@draccus.wrap()`, `@chz.entrypoint`: the function's first parameter is the configuration."""
    function = record.callee
    if not isinstance(function, FunctionValue) or record.arguments or not function.node.args.args:
        return None
    annotation = function.node.args.args[0].annotation
    name = ast.unparse(annotation) if annotation is not None else ""
    cls = function.frame.globals_.get(name)
    return sequence([parameter_object(ev, cls, "")], "tuple") if isinstance(cls, ClassValue) else None


def add_arguments(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """simple_parsing: `parser.add_arguments(Options, dest="options")`."""
    state = state_of(record.receiver_object)
    cls, name = record.object("dataclass", 0), ev.argument_value(record, "dest", 1)
    if state is not None and cls is not None and isinstance(name, str):
        state.groups[name] = lambda evaluator: parameter_object(evaluator, cls, "")
    return Const(None)


def tap_parse(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`Arguments().parse_args()` of a class that extends `tap.Tap`: its annotated names are flags of the command line.

    A bool is a switch, which turns its default round; with `explicit_bool=True` it takes a value (typed-argument-parser
    1.10, README, "Boolean"). Its `process_args` runs behind the parser.
    """
    holder = record.receiver_object
    if not isinstance(holder, Instance) or holder.cls is None:
        return None
    made = parameter_object(ev, holder.cls, "")
    explicit = holder.record is not None and ev.argument_value(holder.record, "explicit_bool") is True
    for name in dataclass_fields(holder.cls):
        known = ev.parameters.get(name)
        if known is not None and known.type == "bool" and not explicit:
            on = isinstance(known.default, Const) and known.default.value is True
            ev.parameters[name] = replace(known, type="no-flag" if on else "flag")
    after = class_attribute(holder.cls, "process_args")
    if isinstance(after, FunctionValue) and isinstance(made, Instance):
        ev.call(replace(after, self_value=made), ())
    return made


HOOKS: Mapping[str, Hook] = {
    HF: hf_parser,
    f"{HF}.parse_args_into_dataclasses": hf_parse,
    f"{HF}.parse_yaml_file": hf_parse_file, f"{HF}.parse_json_file": hf_parse_file,
    **{f"{HF}.{name}": own_parse for name in OWN_METHODS},
    f"{HF}.parse_dict": hf_parse, "trl.TrlParser": lambda r, e: Instance("trl.TrlParser", record=r, origin=r.origin),
    "trl.TrlParser.parse_args_and_config": trl_parse, "trl.TrlParser.parse_args_into_dataclasses": hf_parse,
    "tyro.cli": cli, "simple_parsing.parse": cli, "pyrallis.parse": cli, "draccus.parse": cli, "chz.entrypoint": cli,
    "jsonargparse.CLI": cli, "jsonargparse.auto_cli": cli, "@pyrallis.wrap": wrap, "@draccus.wrap": wrap,
    "argparse.ArgumentParser.add_arguments": add_arguments,
    **dict.fromkeys(("tap.Tap.parse_args", "tap.TypedArgumentParser.parse_args"), tap_parse), "tap.tapify": cli,
}  # fmt: skip
