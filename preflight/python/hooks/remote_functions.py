"""Functions that a library runs elsewhere: ray, Ray Tune, submitit, Modal. They are followed with what they are given.

Sources: Ray 2.40 (remote functions, actors, `tune.Tuner`, `tune.run`, `TorchTrainer`), submitit 1.5 (README and
`core/core.py`: `Executor.submit`, `map_array`), Modal 0.70 (`App.function`, `Function.remote`, `local_entrypoint`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from preflight.python.evaluator import Evaluator, Hook
from preflight.python.hooks.click import entry_function
from preflight.python.objects import (
    Abstract,
    CallRecord,
    ClassValue,
    Container,
    FunctionValue,
    Instance,
    ModuleValue,
    is_expr,
    made_by,
    to_expr,
)
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.reading import Parameter
from preflight.vocabulary.values import Axis, Choices, Domain, Expr, Range, Ref, Unbounded, evaluate, unknown

REMOTE = ("ray.remote", "modal.App.function", "modal.Stub.function", "modal.method")
"""Decorators whose functions are called through `.remote(...)`."""
TUNED: CacheKind[dict[str, Axis]] = CacheKind("the search space of Ray Tune")
_SPACE = "config"


def remote(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`train.remote(batch_size=8)`, `Actor.remote()`: the function or class with these arguments."""
    function = record.receiver_object
    if isinstance(function, (FunctionValue, ClassValue)) and any(_runs_elsewhere(one) for one in function.decorators):
        return ev.call(function, record.arguments, dict(record.keywords))
    if isinstance(function, FunctionValue) and function.owner is not None:  # a method of an actor
        return ev.call(function, record.arguments, dict(record.keywords))
    return None


def options(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`train.options(num_gpus=1)`: the same function."""
    function = record.receiver_object
    return function if isinstance(function, (FunctionValue, ClassValue)) else None


def _runs_elsewhere(decorator: Abstract) -> bool:
    return made_by(decorator) in REMOTE


# --- submitit ---------------------------------------------------------------------------------------------------------


def submit(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`executor.submit(main, config)`: the function, or the object that is called, with the other arguments."""
    if not record.arguments or not _is_callable(record.arguments[0]):
        return None
    ev.call(record.arguments[0], record.arguments[1:], dict(record.keywords))
    return Instance(record.qualified, record=record, origin=record.origin)


def map_array(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`executor.map_array(main, sizes, seeds)`: the function with one item of each list, which item is not known."""
    if not record.arguments or not _is_callable(record.arguments[0]):
        return None
    ev.call(record.arguments[0], [_item(one, record, ev) for one in record.arguments[1:]])
    return Instance(record.qualified, record=record, origin=record.origin)


def _item(values: Abstract, record: CallRecord, ev: Evaluator) -> Abstract:
    items = ev.iterate(values)
    if items is not None and items and all(is_expr(one) and one == items[0] for one in items):
        return items[0]
    if items is not None and len(items) == 1:
        return items[0]
    return unknown("each job of the array has another value", record.origin)


def _is_callable(value: Abstract) -> bool:
    return isinstance(value, FunctionValue) or (isinstance(value, Instance) and value.cls is not None)


# --- Ray Tune and Ray Train -------------------------------------------------------------------------------------------


def with_resources(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`tune.with_resources(train, {"gpu": 0.5})`: the same function."""
    return record.object("trainable", 0)


def with_parameters(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`tune.with_parameters(train, data=data)`: the function with these arguments."""
    function = record.object("trainable", 0)
    if not isinstance(function, FunctionValue):
        return function
    given = {key: value for key, value in record.keywords.items() if key != "trainable"}
    return replace(function, bound_kwargs={**function.bound_kwargs, **given})


def tuner(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`tune.Tuner(train, param_space=space)`, `tune.run(train, config=space)`: the function with the space's values."""
    first = "trainable" if record.method == "Tuner" else "run_or_experiment"
    space = record.object("param_space", 1) if record.method == "Tuner" else record.object("config")
    function = record.object(first, 0)
    if not isinstance(function, FunctionValue):
        return None
    axes = ev.remembered.get(TUNED, dict)
    chosen = _chosen(space, _SPACE, axes) if space is not None else unknown("it has no search space", record.origin)
    for axis in axes.values():
        values = axis.domain.values if isinstance(axis.domain, Choices) else ()
        ev.add_parameter(Parameter(axis.name, Ref(axis.name, axis.origin), (), "wandb", None, values, axis.origin))
    ev.call(function, (chosen,))
    return Instance(record.qualified, record=record, origin=record.origin)


def worker_loop(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`TorchTrainer(train_loop_per_worker=main, train_loop_config={...})`."""
    function = record.object("train_loop_per_worker", 0)
    if not isinstance(function, FunctionValue):
        return None
    config = record.object("train_loop_config")
    ev.call(function, () if config is None or not function.node.args.args else (config,))
    return Instance(record.qualified, record=record, origin=record.origin)


def _chosen(value: Abstract, name: str, axes: dict[str, Axis], _depth: int = 0) -> Abstract:
    """A space with a name in the place of each sampled value."""
    if isinstance(value, Container) and not value.is_sequence and _depth < 10:
        items = {key: _chosen(item, f"{name}.{key}", axes, _depth + 1) for key, item in value.items.items()}
        return replace(value, items=items)
    if isinstance(value, Instance) and value.record is not None and value.made_by.startswith("ray.tune."):
        domain = _domain(value.record)
        if domain is not None:
            axes[name] = Axis(name, domain, value.record.origin)
            return Ref(name, value.record.origin)
        return unknown("Ray Tune samples it", value.record.origin)
    return value


_INTEGERS = {"randint": False, "qrandint": False, "lograndint": True, "qlograndint": True}
_NUMBERS = {"uniform": False, "quniform": False, "loguniform": True, "qloguniform": True}


def _domain(record: CallRecord) -> Domain | None:
    """The values that a call of Ray Tune's samples from; None where they are not known."""
    name = record.method
    if name in ("choice", "grid_search"):
        listed = record.object("categories", 0) or record.object("values", 0)
        if not isinstance(listed, Container) or listed.open:
            return None
        exprs = [to_expr(one) for one in listed.items.values()]
        return Choices(tuple(evaluate(one) for one in exprs), tuple(one.origin for one in exprs))
    if name in ("randn", "qrandn"):
        return Unbounded("normal")
    low, high = _number(record.argument("lower", 0)), _number(record.argument("upper", 1))
    if low is None or high is None or name not in (*_INTEGERS, *_NUMBERS):
        return None
    whole = name in _INTEGERS
    step = _number(record.argument("q", 2)) if name.startswith("q") else None
    # the upper bound of randint and lograndint is left out
    return Range(low, high - 1 if whole and step is None else high, step, whole, {**_INTEGERS, **_NUMBERS}[name])


def _number(expr: Expr | None) -> float | None:
    value = evaluate(expr) if expr is not None else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


# --- Modal ------------------------------------------------------------------------------------------------------------


def entry_points(module: ModuleValue, interpreted: Collection[int]) -> Iterator[FunctionValue]:
    """The functions that `modal run` starts: the local entry points; where there are none, each function of the app."""
    functions = [one for one in module.frame.variables.values() if isinstance(one, FunctionValue)]
    local = [one for one in functions if _decorated(one, "local_entrypoint")]
    yield from local or (one for one in functions if _decorated(one, "function") and id(one.node) not in interpreted)


def _decorated(function: FunctionValue, method: str) -> bool:
    made = [made_by(one) or "" for one in function.decorators]
    return any(one.startswith("modal.") and one.rpartition(".")[2] == method for one in made)


def run_entry_points(module: ModuleValue, ev: Evaluator) -> None:
    """Calls what `modal run` starts; the parameters of the function are those of the command line."""
    for function in list(entry_points(module, ev.interpreted)):
        entry_function(ev, function)


_EXECUTORS = ("submitit.AutoExecutor", "submitit.SlurmExecutor", "submitit.LocalExecutor", "submitit.DebugExecutor")
_TUNE = ("ray.tune", "ray.tune.tuner", "ray.tune.tune")
_TRAINERS = ("ray.train.torch.TorchTrainer", "ray.train.lightning.LightningTrainer", "ray.train.huggingface.Trainer")

HOOKS: Mapping[str, Hook] = {
    **dict.fromkeys(("*.remote", "*.spawn", "*.local"), remote),
    "*.options": options,
    **{f"{executor}.submit": submit for executor in _EXECUTORS},
    **{f"{executor}.map_array": map_array for executor in _EXECUTORS},
    **{f"{home}.{name}": tuner for home in _TUNE for name in ("Tuner", "run")},
    "ray.tune.with_resources": with_resources,
    "ray.tune.with_parameters": with_parameters,
    **dict.fromkeys(_TRAINERS, worker_loop),
    "ray.train.torch.prepare_model": lambda record, ev: record.object("model", 0),
    "ray.train.torch.prepare_data_loader": lambda record, ev: record.object("data_loader", 0),
}
