"""The standard library and its kin: environment, paths, files of the project, copies, namespaces, mathematics."""

from __future__ import annotations

import ast
import json
import posixpath
from collections.abc import Mapping
from dataclasses import replace

from preflight.python.evaluator import Evaluator, Hook
from preflight.python.files import PATH, join_path, make_path, path_text, read_yaml
from preflight.python.objects import (
    Abstract,
    CallRecord,
    Container,
    FunctionValue,
    Instance,
    Key,
    copy_items,
    from_value,
    is_expr,
    namespace,
    openness,
    sequence,
)
from preflight.vocabulary.values import Cause, Const, Unknown, unknown

# --- environment ------------------------------------------------------------------------------------------------------


def getenv(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`os.environ.get(name, default)`: what the launch sets, else the default, else unknown."""
    name = ev.value_of(record.args[0]) if record.args else None
    if isinstance(name, str) and name in ev.environment:
        return ev.environment[name]
    default = record.object("default", 1)
    return (
        default
        if default is not None
        else unknown(f"environment variable {name} is not known", record.origin, Cause.run_time)
    )


# --- paths and files --------------------------------------------------------------------------------------------------


def new_path(record: CallRecord, ev: Evaluator) -> Abstract | None:
    parts = [path_text(ev, argument) for argument in record.arguments] or ["."]
    known = [part for part in parts if part is not None]
    return make_path(posixpath.join(*known) if len(known) == len(parts) else None, record)


def joined_path(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`path.joinpath(name, ...)`."""
    found = record.receiver_object
    for part in record.arguments:
        found = join_path(ev, found, part) if isinstance(found, Instance) else None
    return found


def join_texts(record: CallRecord, ev: Evaluator) -> Abstract | None:
    parts = [path_text(ev, argument) for argument in record.arguments]
    known = [part for part in parts if part is not None]
    if not known or len(known) != len(parts):
        return unknown("a path that is not known", record.origin)
    return Const(posixpath.normpath(posixpath.join(*known)), replace(record.origin, editable=False))


def dirname(record: CallRecord, ev: Evaluator) -> Abstract | None:
    text = path_text(ev, record.object("p", 0))
    return unknown("a path that is not known") if text is None else Const(posixpath.dirname(text) or ".")


def same_path(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """resolve(), absolute(), os.path.abspath(p): paths stay relative to the project here."""
    if record.receiver_object is not None and isinstance(record.receiver_object, Instance):
        return record.receiver_object
    return record.arguments[0] if record.arguments else None


def open_file(record: CallRecord, ev: Evaluator) -> Abstract | None:
    holder = record.receiver_object if record.method == "open" and record.receiver else record.object("file", 0)
    return Instance("open", record=record, state={"path": path_text(ev, holder)})


def yaml_load(record: CallRecord, ev: Evaluator) -> Abstract | None:
    source = record.object("stream", 0) or record.object("fp", 0)
    found = read_yaml(ev, source, "dict", record) if source is not None else None
    return found if found is not None else Container("dict", {}, record.origin, {"open": True})


# --- copies and namespaces --------------------------------------------------------------------------------------------


def copied(value: Abstract, deep: bool, _depth: int = 0) -> Abstract:
    """A copy of a container or object."""
    if isinstance(value, Container):
        items = {k: copied(v, True, _depth + 1) if deep and _depth < 20 else v for k, v in value.items.items()}
        return Container(value.kind, items, value.origin, dict(value.flags), value.type_name)
    if isinstance(value, Instance):
        return replace(value, attributes=dict(value.attributes), state=dict(value.state))
    return value


def copy(record: CallRecord, ev: Evaluator) -> Abstract | None:
    return copied(record.arguments[0], record.method == "deepcopy") if record.arguments else None


def partial(record: CallRecord, ev: Evaluator) -> Abstract | None:
    function = record.arguments[0] if record.arguments else None
    if not isinstance(function, FunctionValue):
        return None
    args = (*function.bound_args, *record.arguments[1:])
    return replace(function, bound_args=args, bound_kwargs={**function.bound_kwargs, **record.keywords})


def make_namespace(record: CallRecord, ev: Evaluator) -> Abstract | None:
    items: dict[Key, Abstract] = {}
    known = not [argument for argument in record.arguments if not copy_items(argument, items)]  # all are spread
    items.update(record.keywords)
    flags = openness(not (known and record.complete))
    return namespace(Container("namespace", items, record.origin, flags, record.name))


def ordered_dict(record: CallRecord, ev: Evaluator) -> Abstract | None:
    items: dict[Key, Abstract] = {}
    parts = [a for a in record.arguments if not isinstance(a, FunctionValue) and not is_expr(a)]
    known = not [part for part in parts if not copy_items(part, items)]
    items.update(record.keywords)
    return Container("dict", items, record.origin, openness(not known or "default" in record.method))


def as_dict(record: CallRecord, ev: Evaluator) -> Abstract | None:
    value = record.arguments[0] if record.arguments else None
    if not isinstance(value, Instance):
        return value
    items = {k: as_plain(v) for k, v in value.attributes.items()}
    return Container("dict", items, record.origin)


def as_plain(value: Abstract, _depth: int = 0) -> Abstract:
    if isinstance(value, Instance) and value.cls is not None and _depth < 10:
        return Container("dict", {k: as_plain(v, _depth + 1) for k, v in value.attributes.items()}, value.origin)
    return value


def replaced(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """dataclasses.replace(value, field=...)."""
    value = record.arguments[0] if record.arguments else None
    if not isinstance(value, Instance):
        return None
    attributes: dict[Key, Abstract] = dict(value.attributes)
    attributes.update(record.keywords)
    return replace(value, attributes=attributes, state=dict(value.state))


# --- mathematics ------------------------------------------------------------------------------------------------------


def operation(name: str) -> Hook:
    def hook(record: CallRecord, ev: Evaluator) -> Abstract | None:
        return ev.op(name, record.args, record.origin)

    return hook


def power_of_two(record: CallRecord, ev: Evaluator) -> Abstract | None:
    return ev.op("**", (Const(2), *record.args[:1]), record.origin)


def square_root(record: CallRecord, ev: Evaluator) -> Abstract | None:
    return ev.op("**", (*record.args[:1], Const(0.5)), record.origin)


def first(record: CallRecord, ev: Evaluator) -> Abstract | None:
    return record.arguments[0] if record.arguments else None


def second(record: CallRecord, ev: Evaluator) -> Abstract | None:
    return record.arguments[1] if len(record.arguments) > 1 else None


def product(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """itertools.product of known iterables, as far as a program would list them by hand."""
    rows: list[list[Abstract]] = [[]]
    for argument in record.arguments:
        items = ev.iterate(argument)
        if items is None or len(rows) * len(items) > 1024:
            return Container("list", {}, record.origin, {"open": True})
        rows = [[*row, item] for row in rows for item in items]
    return sequence([sequence(row, "tuple") for row in rows], "list", record.origin)


def literal(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """ast.literal_eval, json.loads of a text that is known: literals, nothing else."""
    text = ev.value_of(record.args[0]) if record.args else Unknown("no text", Cause.not_read)
    if not isinstance(text, str) or len(text) > 100_000:
        return unknown("a text that is not known", record.origin)
    try:
        found: object = ast.literal_eval(text) if record.method == "literal_eval" else json.loads(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return unknown("a text that does not parse", record.origin, Cause.invalid)
    return _plain(found, 0)


def _plain(value: object, depth: int) -> Abstract:
    if isinstance(value, (list, tuple)) and depth < 20:
        return sequence([_plain(item, depth + 1) for item in value])
    if isinstance(value, dict) and depth < 20:
        return Container("dict", {str(k): _plain(v, depth + 1) for k, v in value.items()})
    return from_value(value) if isinstance(value, (str, int, float, bool, type(None))) else unknown("a literal")


_NAMESPACES = ("argparse.Namespace", "types.SimpleNamespace", "easydict.EasyDict", "ml_collections.ConfigDict",
               "ml_collections.config_dict.ConfigDict", "addict.Dict", "munch.Munch", "box.Box", "munch.munchify",
               "transformers.utils.generic.ModelOutput")  # fmt: skip

HOOKS: Mapping[str, Hook] = {
    "os.environ.get": getenv, "os.getenv": getenv, "os.environ.setdefault": getenv, "os.environ.pop": getenv,
    PATH: new_path, "pathlib.PurePath": new_path, f"{PATH}.resolve": same_path, f"{PATH}.absolute": same_path,
    f"{PATH}.expanduser": same_path, f"{PATH}.open": open_file, "open": open_file, f"{PATH}.joinpath": joined_path,
    f"{PATH}.read_text": same_path, f"{PATH}.as_posix": same_path, "open.read": same_path,
    "os.path.join": join_texts, "os.path.dirname": dirname, "os.path.abspath": first, "os.path.realpath": first,
    "os.path.expanduser": first, "os.fspath": first,
    **dict.fromkeys(("yaml.safe_load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "json.load"), yaml_load),
    "copy.copy": copy, "copy.deepcopy": copy, "functools.partial": partial,
    **dict.fromkeys(_NAMESPACES, make_namespace),
    "collections.OrderedDict": ordered_dict, "collections.defaultdict": ordered_dict,
    "dataclasses.asdict": as_dict, "dataclasses.replace": replaced, "attr.asdict": as_dict, "attrs.asdict": as_dict,
    "typing.cast": second, "math.ceil": operation("ceil"), "math.floor": operation("floor"),
    "numpy.ceil": operation("ceil"),
    "math.pow": operation("**"), "math.sqrt": square_root, "numpy.sqrt": square_root, "math.exp2": power_of_two,
    "itertools.product": product, "ast.literal_eval": literal, "json.loads": literal,
    "tqdm.tqdm": first, "tqdm.auto.tqdm": first, "tqdm.notebook.tqdm": first,
    "rich.progress.track": first
}  # fmt: skip
