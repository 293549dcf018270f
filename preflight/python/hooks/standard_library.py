"""The standard library: environment, paths, files of the project, copies, namespaces, mathematics."""

from __future__ import annotations

import ast
import json
import posixpath
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from preflight.python.access import environment_variable
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.files import PATH, join_path, make_path, names_given, path_text, read_yaml
from preflight.python.imports import add_import_folders
from preflight.python.known_kinds import DRAWN, DRAWN_SMALL, DRAWN_WHOLE, SHARED
from preflight.python.objects import (
    Abstract,
    CallRecord,
    Container,
    FunctionValue,
    Instance,
    Key,
    from_value,
    is_expr,
    namespace,
    open_container,
    openness,
    sequence,
)
from preflight.python.settings_objects import holds_settings, made_anew
from preflight.python.spread import copy_items, lay_over
from preflight.python.texts import text_of, value_of_line
from preflight.python.unknown_names import run_unknown
from preflight.vocabulary.values import Cause, Const, Expr, Unknown, unknown

# --- environment ------------------------------------------------------------------------------------------------------


def getenv(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`os.environ.get(name, default)`: the value that the launch sets, else unknown.

    The default counts for variables that only launchers and schedulers set: they are not there without one.
    """
    name = ev.value_of(record.args[0]) if record.args else None
    given = ev.variable(name) if isinstance(name, str) else None
    if given is not None:
        return given
    default = record.object("default", 1)
    of_launcher = isinstance(name, str) and (name in _OF_LAUNCHERS or name.startswith(_OF_SCHEDULERS))
    if default is not None and (of_launcher or not is_expr(default)):
        return default
    return environment_variable(ev, str(name), record.origin)


_OF_LAUNCHERS = frozenset({
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "ROLE_RANK", "MASTER_ADDR",
    "MASTER_PORT",
})  # fmt: skip
"""Variables that torch.distributed.run sets (its documentation, "Environment Variables")."""
_OF_SCHEDULERS = ("SLURM_", "OMPI_", "PMI_", "PBS_", "LSB_", "TORCHELASTIC_")


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
    if names_given(record.arguments[-1] if record.arguments else None) is not None:
        return record.arguments[-1]  # a name within its folder
    if not known or len(known) != len(parts):
        return unknown("the path is not known", record.origin)
    return Const(posixpath.normpath(posixpath.join(*known)), replace(record.origin, editable=False))


def dirname(record: CallRecord, ev: Evaluator) -> Abstract | None:
    text = path_text(ev, record.object("p", 0))
    return unknown("the path is not known") if text is None else Const(posixpath.dirname(text) or ".")


def same_path(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`path.resolve()`, `path.absolute()`: the path itself. Paths stay relative to the project."""
    if record.receiver_object is not None and isinstance(record.receiver_object, Instance):
        return record.receiver_object
    return record.arguments[0] if record.arguments else None


def open_file(record: CallRecord, ev: Evaluator) -> Abstract | None:
    holder = record.receiver_object if record.method == "open" and record.receiver else record.object("file", 0)
    return Instance("open", record=record, state={"path": path_text(ev, holder)})


def executed(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`exec(text)` and `exec(text, names)`: a text that is not known may set any name."""
    text = ev.value_of(record.args[0]) if record.args else Unknown("no text", Cause.not_read)
    only = _names_set(text) if isinstance(text, str) else None  # None: any
    for names in _names_of_exec(record, ev):
        if isinstance(names, Container) and not names.is_sequence:
            run_unknown(ev, names, record.origin, only)
    return Const(None)


def _names_of_exec(record: CallRecord, ev: Evaluator) -> Iterator[Abstract]:
    """The dictionaries whose names it sets. Those that it sets within a function are lost."""
    own = Container("dict", ev.modules[record.path].frame.variables)
    nodes = record.node.args[1:] if isinstance(record.node, ast.Call) else []
    if not nodes and not record.keywords and record.function is None:
        yield own
    for node, value in zip(nodes, record.arguments[1:], strict=False):
        yield own if ast.unparse(node) == "globals()" else value
    yield from record.keywords.values()


def _names_set(text: str) -> frozenset[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return frozenset(node.id for node in stored)


def yaml_load(record: CallRecord, ev: Evaluator) -> Abstract | None:
    source = record.object("stream", 0) or record.object("fp", 0) or record.object("s", 0)
    found = read_yaml(ev, source, "dict", record) if source is not None else None
    return found if found is not None else open_container("dict", record.origin)


# --- copies and namespaces --------------------------------------------------------------------------------------------


def copied(value: Abstract, deep: bool, _depth: int = 0) -> Abstract:
    """A copy of a container or object; `deep`: of its contents, too."""
    if isinstance(value, Container):
        items = {k: copied(v, True, _depth + 1) if deep and _depth < 20 else v for k, v in value.items.items()}
        return Container(value.kind, items, value.origin, dict(value.flags))
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
    if record.more:
        items = lay_over(items, record.origin)
    items.update(record.keywords)
    flags = openness(not (known and record.complete))
    return namespace(Container("namespace", items, record.origin, flags))


def ordered_dict(record: CallRecord, ev: Evaluator) -> Abstract | None:
    items: dict[Key, Abstract] = {}
    parts = [a for a in record.arguments if not isinstance(a, FunctionValue) and not is_expr(a)]
    known = not [part for part in parts if not copy_items(part, items)]
    if record.more:
        items = lay_over(items, record.origin)
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
    """`dataclasses.replace(value, field=...)`."""
    value = record.arguments[0] if record.arguments else None
    if not isinstance(value, Instance):
        return None
    attributes: dict[Key, Abstract] = dict(value.attributes)
    if record.more:
        attributes = lay_over(attributes, record.origin)
    attributes.update(record.keywords)
    if holds_settings(value):
        another = made_anew(value, record, attributes)
        ev.calls += [another.record] if another.record is not None else []
        return another
    return replace(value, attributes=attributes, state=dict(value.state))


# --- mathematics ------------------------------------------------------------------------------------------------------


def operation(name: str, before: tuple[Expr, ...] = (), after: tuple[Expr, ...] = ()) -> Hook:
    """A function that is an operation on its arguments, with constant operands before and after them."""

    def hook(record: CallRecord, ev: Evaluator) -> Abstract | None:
        return ev.op(name, (*before, *record.args, *after), record.origin)

    return hook


def first_argument(record: CallRecord, ev: Evaluator) -> Abstract | None:
    return record.arguments[0] if record.arguments else None


def second_argument(record: CallRecord, ev: Evaluator) -> Abstract | None:
    return record.arguments[1] if len(record.arguments) > 1 else None


def _drawn(words: str) -> Hook:
    """A function of `random` that gives a number."""

    def hook(record: CallRecord, ev: Evaluator) -> Abstract | None:
        return unknown(words, record.origin, Cause.run_time)

    return hook


BITS = 8
"""Of the largest number in SHARED."""


def drawn_whole(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`random.randint` and its like. The limits say whether it is a number of which there is one object."""
    limits = [ev.value_of(one) for one in record.args]
    largest = BITS if record.name.endswith("getrandbits") else SHARED[-1]
    small = limits and not record.kwargs and all(isinstance(one, int) and SHARED[0] <= one <= largest for one in limits)
    return unknown(DRAWN_SMALL if small else DRAWN_WHOLE, record.origin, Cause.run_time)


def product(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`itertools.product` of known iterables, up to 1,024 rows."""
    rows: list[list[Abstract]] = [[]]
    for argument in record.arguments:
        items = ev.iterate(argument)
        if items is None or len(rows) * len(items) > 1024:
            return open_container("list", record.origin)
        rows = [[*row, item] for row in rows for item in items]
    return sequence([sequence(row, "tuple") for row in rows], "list", record.origin)


def json_loads(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`json.loads` of the text of a file (`f.read()`, `path.read_text()`), or of a text that is known."""
    text = text_of(record.object("s", 0))
    found = value_of_line(ev, text, record) if text is not None else None
    if found is not None:
        return found
    of_file = isinstance(record.object("s", 0), Instance)
    return yaml_load(record, ev) if of_file else literal(record, ev)


def literal(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """A text that is known, as `ast.literal_eval` and `json.loads` read it."""
    text = ev.value_of(record.args[0]) if record.args else Unknown("no text", Cause.not_read)
    if not isinstance(text, str) or len(text) > 100_000:
        return unknown("the text is not known", record.origin)
    try:
        found: object = ast.literal_eval(text) if record.method == "literal_eval" else json.loads(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return unknown("the text does not parse", record.origin, Cause.invalid)
    return _plain(found, 0)


def _plain(value: object, depth: int) -> Abstract:
    if isinstance(value, (list, tuple)) and depth < 20:
        return sequence([_plain(item, depth + 1) for item in value])
    if isinstance(value, dict) and depth < 20:
        return Container("dict", {str(k): _plain(v, depth + 1) for k, v in value.items()})
    if isinstance(value, (str, int, float, bool, type(None))):
        return from_value(value)
    return unknown("the literal is not evaluated statically")


_NAMESPACES = ("argparse.Namespace", "types.SimpleNamespace", "easydict.EasyDict", "ml_collections.ConfigDict",
               "ml_collections.config_dict.ConfigDict", "addict.Dict", "munch.Munch", "box.Box", "munch.munchify",
               "transformers.ModelOutput")  # fmt: skip

_FIRST_ARGUMENT = ("os.path.abspath", "os.path.realpath", "os.path.expanduser", "os.fspath", "tqdm.tqdm",
                   "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "rich.progress.track")  # fmt: skip
"""Functions that return their first argument, or one like it. Paths stay relative to the project."""

HOOKS: Mapping[str, Hook] = {
    "os.environ.get": getenv, "os.getenv": getenv, "os.environ.setdefault": getenv, "os.environ.pop": getenv,
    PATH: new_path, "pathlib.PurePath": new_path, f"{PATH}.resolve": same_path, f"{PATH}.absolute": same_path,
    f"{PATH}.expanduser": same_path, f"{PATH}.open": open_file, "open": open_file, f"{PATH}.joinpath": joined_path,
    f"{PATH}.read_text": same_path, f"{PATH}.as_posix": same_path, "open.read": same_path,
    "exec": executed, **{f"sys.path.{name}": add_import_folders for name in ("append", "insert", "extend")},
    "os.path.join": join_texts, "os.path.dirname": dirname,
    **dict.fromkeys(("yaml.safe_load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "json.load"), yaml_load),
    "copy.copy": copy, "copy.deepcopy": copy, "functools.partial": partial,
    **dict.fromkeys(_NAMESPACES, make_namespace),
    "collections.OrderedDict": ordered_dict, "collections.defaultdict": ordered_dict,
    "dataclasses.asdict": as_dict, "dataclasses.replace": replaced, "attr.asdict": as_dict, "attrs.asdict": as_dict,
    "typing.cast": second_argument, "math.ceil": operation("ceil"), "numpy.ceil": operation("ceil"),
    "math.floor": operation("floor"),
    "math.pow": operation("**"), "math.exp2": operation("**", before=(Const(2),)),
    **dict.fromkeys(("math.sqrt", "numpy.sqrt"), operation("**", after=(Const(0.5),))),
    **dict.fromkeys(("random.randint", "random.randrange", "random.getrandbits"), drawn_whole),
    **{f"random.{name}": _drawn(DRAWN) for name in ("random", "uniform", "gauss", "normalvariate", "betavariate")},
    "itertools.product": product, "ast.literal_eval": literal, "json.loads": json_loads,
    **dict.fromkeys(_FIRST_ARGUMENT, first_argument),
}  # fmt: skip
