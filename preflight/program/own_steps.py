"""A module of the project's own and the loop that trains it -> what the tracer reads (`vocabulary/own_code.py`).

Only what is sure is described: one model, made by a class of the project with arguments that are known, in one loop
with one backward pass over one loader whose samples are known. Whatever changes the model from outside, and whatever
of this is not known, leaves it at the count of its parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from preflight.program.bindings import bind, constant, first_origin, is_constant, when
from preflight.program.call_site import is_module, loops_around
from preflight.program.loops import backwards
from preflight.program.trained import reachable
from preflight.python.access import class_attribute
from preflight.python.arrays import array_of
from preflight.python.module import Module, load_module, resolve_import
from preflight.python.objects import (
    CHANGED,
    Abstract,
    CallRecord,
    ClassValue,
    Container,
    Either,
    External,
    FunctionValue,
    Instance,
    alternatives,
    has_unknown,
    is_expr,
    to_expr,
)
from preflight.python.steps import sample_of
from preflight.vocabulary.own_code import OwnCode, keep
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Const, Expr, Unknown

Template = dict[str, Any]
"""JSON that describes a value (`preflight/tracer/own.py`)."""
MOST_FILES = 60
MOST_CHARACTERS = 1_000_000
_DEEPEST = 8
_MADE_BY_TORCH = "torch.nn."
_LIBRARIES = ("torch.", "functools.partial", "collections.OrderedDict", "math.")
"""Libraries of whose calls the tracer's tables decide which it makes."""
_DEVICES = ("torch.device", "torch.accelerator.current_accelerator")
_ALLOWED_METHODS = frozenset(
    {"__call__", "forward", "to", "cuda", "cpu", "train", "eval", "parameters", "named_parameters", "buffers"}
    | {"modules", "named_modules", "children", "named_children", "apply", "state_dict", "load_state_dict"}
    | {"zero_grad", "requires_grad_", "share_memory", "save_hyperparameters", "log", "log_dict"}
)
"""Methods of a module that change nothing about it but the values of its weights."""


class NotDescribed(Exception):
    """The step is not described; the words say why."""


class _Description(Struct):
    """What was found so far. `given`: values that depend on settings, by the key that a template names them with."""

    project: Project
    model: Instance
    whole: Abstract
    """What is trained: the model, or the choice among models that it is one of."""
    given: dict[str, Expr] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def of(self, value: Abstract | None, key: str, depth: int = 0) -> Template:
        """The template of a value; `unread` for what is not known."""
        if value is self.model or value is self.whole:
            return {"model": True}
        if depth > _DEEPEST or value is None:
            return {"unread": f"{key} is not known"}
        if _is_device(value):
            return {"new": {"of": {"library": "torch.device"}, "args": [{"const": "cuda"}], "kwargs": {}}}
        if isinstance(value, (ClassValue, FunctionValue)):
            return _of_file(value, key)
        if isinstance(value, External):
            return {"library": value.name} if "." in value.name else {"unread": f"{key} is not known"}
        if isinstance(value, Container) and not value.open and value.repeats is None:
            return self._several(value, key, depth)
        if isinstance(value, Instance) and value.record is not None:
            return self.made(value, key, depth)
        if is_expr(value):
            return self._number(to_expr(value), key)
        return {"unread": f"{key} is not known"}

    def _number(self, expr: Expr, key: str) -> Template:
        found = constant(expr)
        if is_constant(expr):
            return {"unread": f"{key} is not known"} if _is_unknown(found) else {"const": _json(found)}
        if self.given.setdefault(key, expr) != expr:
            raise NotDescribed(f"{key} has several values")
        return {"given": key}

    def _several(self, value: Container, key: str, depth: int) -> Template:
        items = {k: self.of(one, f"{key}_{k}", depth + 1) for k, one in value.items.items()}
        if value.is_sequence:
            return {"tuple" if value.kind == "tuple" else "list": list(items.values())}
        if not all(isinstance(k, (str, int)) for k in items):
            return {"unread": f"{key} is not known"}
        return {"dict": [[k, one] for k, one in items.items()]}

    def made(self, value: Instance, key: str, depth: int) -> Template:
        """An object that the program makes of a class of its own or of a layer or loss of torch."""
        record = value.record
        assert record is not None
        if value.cls is not None:
            of = _of_file(value.cls, key)
        elif value.made_by.startswith(_LIBRARIES) and record.receiver is None:
            of = {"library": value.made_by}
        else:
            return {"unread": f"what {value.made_by}() makes is not known"}
        if not record.complete or record.more or value.state.get(CHANGED):
            return {"unread": f"the arguments of {value.made_by} are not known"}
        prefix = "" if depth == 0 and value is self.model else f"{key}_"
        named = _parameter_names(value)
        args = [
            self.of(one, f"{prefix}{named[at] if at < len(named) else at}", depth + 1)
            for at, one in enumerate(record.arguments)
        ]
        kwargs = {name: self.of(one, f"{prefix}{name}", depth + 1) for name, one in record.keywords.items()}
        return {"new": {"of": of, "args": args, "kwargs": kwargs}}


def _is_device(value: Abstract) -> bool:
    """Whether it is a device, whichever: of a step on the GPU, it is that."""
    several = list(alternatives(value))
    return bool(several) and all(isinstance(one, Instance) and one.made_by in _DEVICES for one in several)


def _parameter_names(value: Instance) -> list[str]:
    start = value.cls.attributes.get("__init__") if value.cls is not None else None
    if not isinstance(start, FunctionValue) or isinstance(start.node, ast.Lambda):
        return []
    return [one.arg for one in start.node.args.args[1:]]


def _of_file(value: ClassValue | FunctionValue, key: str) -> Template:
    """A class or function at the top of a file."""
    tree = value.module.tree
    if value.node not in tree.body or isinstance(value.node, ast.Lambda):
        return {"unread": f"{key} is not defined at the top of a file"}
    if isinstance(value, FunctionValue) and (value.bound_args or value.bound_kwargs or value.self_value is not None):
        return {"unread": f"{key} is not known"}
    return {"own": [value.module.path, value.node.name]}


def _is_unknown(value: object) -> bool:
    return isinstance(value, Unknown) or (isinstance(value, tuple) and any(map(_is_unknown, value)))


def _json(value: object) -> object:
    return [_json(one) for one in value] if isinstance(value, tuple) else value


# --- the step ---------------------------------------------------------------------------------------------------------


def step_bindings(
    records: Sequence[CallRecord], models: Sequence[Abstract], counted: Sequence[Binding], project: Project
) -> list[Binding]:
    """The model and its step as a target that is read, in the place of a name that is not known; else `counted`."""
    try:
        found = list(_described(records, models, project))
    except NotDescribed:
        return list(counted)
    return [*found, *(one for one in counted if one.field != "model.name")]


def _described(records: Sequence[CallRecord], models: Sequence[Abstract], project: Project) -> Iterator[Binding]:
    if len(models) != 1:
        raise NotDescribed("several models are trained")
    given: dict[str, Expr] = {}
    target = _target(records, models[0], models[0], given, project)
    origin = first_origin(target)
    yield bind("model.target", target, Rank.read, origin)
    yield bind("task", Const("other", origin), Rank.default)
    if backwards(records):  # the names of the loop hold what the step gave them until the next round
        yield bind("train.outputs_kept", Const("loop", origin), Rank.literal)
    for key, expr in given.items():
        yield bind(f"model.kwargs.{key}", expr, Rank.read)


def _target(
    records: Sequence[CallRecord], model: Abstract, whole: Abstract, given: dict[str, Expr], project: Project
) -> Expr:
    """The target of a model; of a choice that settings decide the choice of targets."""
    if isinstance(model, Either):
        if has_unknown(model.condition):
            raise NotDescribed("which model is trained is not known")
        sides = [_target(records, one, whole, given, project) for one in (model.then, model.otherwise)]
        return when(model.condition, *sides)
    if not isinstance(model, Instance) or model.record is None or not is_module(model.cls) or model.cls is None:
        raise NotDescribed("what is trained is no class of the project")
    passes = {one.node: one for one in backwards(records) if one.reached}
    described = _Description(project, model, whole, given)
    made = described.made(model, "model", 0)
    if _has_unread(made):
        raise NotDescribed("the arguments of the model are not known")
    _refuse_changes(records, model, project)
    if passes:
        if len(passes) != 1:
            raise NotDescribed("there are several backward passes")
        backward = next(iter(passes.values()))
        loops = loops_around(backward, project)
        if not loops or not isinstance(loops[0], ast.For):
            raise NotDescribed("the backward pass is in no loop over a loader")
        step = _step(loops[0], backward, described)
    else:
        step = _training_step(records, model.cls, described)
    sources, imports = _texts((model.cls.module.path, step["path"]), project)
    wanted = {"sources": sources, "imports": imports, "model": made, "step": step}
    line = model.cls.node.lineno
    origin = model.cls.module.origin(model.cls.node, editable=False)
    return Const(keep(OwnCode(model.cls.module.path, line, model.cls.name, wanted)), origin)


def _has_unread(template: object) -> bool:
    if isinstance(template, list):
        return any(map(_has_unread, template))
    return isinstance(template, dict) and ("unread" in template or any(map(_has_unread, template.values())))


def _step(loop: ast.For, backward: CallRecord, described: _Description) -> Template:
    stored = {one.id for one in ast.walk(loop) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    body = [node for statement in loop.body for node in ast.walk(statement)]
    read = {one.id for one in body if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    scope = backward.scope
    batch = _item(loop.iter, scope, described)
    if batch is None:
        raise NotDescribed("what the loop gets is not known")
    seen = sorted(name for name in read - stored - _own(backward, described) if name in scope)
    names = {name: described.of(scope.get(name), name, 1) for name in seen}
    if not any("model" in one for one in names.values()):
        raise NotDescribed("the loop does not name the model")
    return {
        "path": backward.path,
        "line": loop.lineno,
        "column": loop.col_offset,
        "batch": batch,
        "names": names,
    }


def _training_step(records: Sequence[CallRecord], cls: ClassValue, described: _Description) -> Template:
    """`Trainer().fit(model, loader)` of Lightning calls `training_step` of the model."""
    fits = [one for one in records if one.method == "fit" and one.object("model", 0) is described.whole and one.reached]
    method = class_attribute(cls, _LIGHTNING_STEP)
    lightning = any(base.endswith("LightningModule") for base in cls.external_bases)
    if len(fits) != 1 or not lightning or not isinstance(method, FunctionValue) or isinstance(method.node, ast.Lambda):
        raise NotDescribed("there is no backward pass")
    batch = _batch_of(fits[0].object("train_dataloaders", 1), described)
    if batch is None:
        raise NotDescribed("what the trainer gets is not known")
    line = method.node.lineno
    return {"path": method.module.path, "line": line, "method": _LIGHTNING_STEP, "batch": batch, "names": {}}


_LIGHTNING_STEP = "training_step"


def _own(backward: CallRecord, described: _Description) -> set[str]:
    """Names at the top of the file, which the tracer looks up itself: functions, classes and imports."""
    module = load_module(backward.path, described.project)
    body = module.tree.body if module is not None else []
    found: set[str] = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {one.asname or one.name.partition(".")[0] for one in node.names}
    return found


def _item(node: ast.expr, scope: Mapping[Any, Abstract], described: _Description) -> Template | None:
    """What a loop over `loader`, `enumerate(loader)` or `tqdm(loader)` gets in each round."""
    if isinstance(node, ast.Name):
        return _batch_of(scope.get(node.id), described)
    if not isinstance(node, ast.Call) or not node.args:
        return None
    inner = _item(node.args[0], scope, described)
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if inner is not None and name == "enumerate":
        return {"tuple": [{"unread": "the number of the round is not known"}, inner]}
    return inner if name in ("tqdm", "trange", "track", "progress_bar", "iter") else None


def _batch_of(loader: Abstract | None, described: _Description) -> Template | None:
    """A batch of a loader, by one sample of it."""
    if not isinstance(loader, Instance) or loader.record is None or not loader.made_by.endswith("DataLoader"):
        return None
    record = loader.record
    if record.object("collate_fn", 6) is not None or record.more or record.spread:
        return None  # `**kwargs` that is one of two dictionaries has their keys, and no others
    sample = sample_of(loader)
    return None if sample is None else _collated(sample, described, "batch")


def _collated(sample: Abstract, described: _Description, key: str, depth: int = 0) -> Template | None:
    """A sample as the default collate function puts it into a batch."""
    array = array_of(sample)
    if array is not None:
        shape: list[Any] = ["b"]
        for at, size in enumerate(array.shape):
            found = constant(size)
            if isinstance(found, int):
                shape.append(found)
            elif not _is_unknown(found) or is_constant(size):
                return None
            else:
                described.given[f"{key}_{at}"] = size
                shape.append(f"{key}_{at}")
        return {"tensor": {"shape": shape, "dtype": array.dtype}}
    if isinstance(sample, Container) and not sample.open and depth < _DEEPEST:
        items = {k: _collated(one, described, f"{key}_{k}", depth + 1) for k, one in sample.items.items()}
        if any(one is None for one in items.values()):
            return None
        if sample.is_sequence:
            return {"list": list(items.values())}
        return {"dict": [[k, one] for k, one in items.items()]}
    if is_expr(sample):
        found = constant(to_expr(sample))
        return {"unread": "a text"} if isinstance(found, str) else {"tensor": {"shape": ["b"], "dtype": "int64"}}
    return None


def _refuse_changes(records: Sequence[CallRecord], model: Instance, project: Project) -> None:
    """Raises NotDescribed where the program changes the model after it is made."""
    parts = [
        one for one in reachable(model, calls=False) if is_module(one.cls) or one.made_by.startswith(_MADE_BY_TORCH)
    ]
    held = {str(name) for one in parts for name in one.attributes}
    for record in records:
        if record.receiver_object is model and record.method not in _ALLOWED_METHODS:
            cls = model.cls
            if cls is None or not isinstance(cls.attributes.get(record.method), FunctionValue):
                raise NotDescribed(f"the program calls {record.method} of the model")
    for path in dict.fromkeys(record.path for record in records):
        module = load_module(path, project)
        for node in module.nodes if module is not None else ():
            if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load) or node.attr not in held:
                continue
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                raise NotDescribed(f"the program changes .{node.attr}")


def _texts(paths: Sequence[str], project: Project) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The texts of files and of all project files that they import, and which import statement means which."""
    texts: dict[str, str] = {}
    imports: dict[str, dict[str, str]] = {}
    left = list(dict.fromkeys(paths))
    while left:
        path = left.pop()
        module = load_module(path, project)
        if path in texts or module is None:
            continue
        texts[path] = module.source.text
        imports[path] = dict(_imported(module, project))
        left += [one for one in imports[path].values() if one not in texts]
        if len(texts) > MOST_FILES or sum(map(len, texts.values())) > MOST_CHARACTERS:
            raise NotDescribed("the model is spread over too many files")
    return texts, imports


def _imported(module: Module, project: Project) -> Iterator[tuple[str, str]]:
    for node in module.nodes:
        wanted: list[tuple[str, int]] = []
        if isinstance(node, ast.Import):
            wanted = [(one.name, 0) for one in node.names]
            wanted += [(head, 0) for one in node.names if (head := one.name.partition(".")[0]) != one.name]
        elif isinstance(node, ast.ImportFrom):
            home = node.module or ""
            wanted = [(home, node.level)]
            wanted += [(f"{home}.{one.name}" if home else one.name, node.level) for one in node.names]
        for name, level in wanted:
            path = resolve_import(name, level, module, project)
            if path is not None:
                yield f"{level}:{name}", path
