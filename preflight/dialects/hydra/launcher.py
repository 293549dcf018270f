"""Hydra's launcher and sweeper in a composed configuration: the SLURM request, parallel trials, axes of the search."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from preflight.dialects.hydra.compose import Composition
from preflight.dialects.hydra.interpolation import Resolver
from preflight.dialects.hydra.overrides import GivenOverride, parse_override
from preflight.dialects.hydra.schema import LAUNCHERS, REQUEST_FIELDS, SWEEPERS, Joblib, Optuna, Submitit, defaults
from preflight.dialects.hydra.tree import ConfigTable, Item, Leaf, Listing, select
from preflight.documents.schema_errors import check
from preflight.vocabulary.reading import Binding, Problem, Rank, Request
from preflight.vocabulary.values import Cause, Choices, Const, Domain, Origin, Range, Unknown, Value, evaluate, unknown


def launcher(found: Composition) -> str:
    return found.choices.get("hydra/launcher", "basic")


def sweeper(found: Composition) -> str:
    return found.choices.get("hydra/sweeper", "basic")


def _values(found: Composition, resolver: Resolver, key: str) -> tuple[dict[str, Value], dict[str, Origin]]:
    """The settings below `hydra.launcher` or `hydra.sweeper`, and where they are written."""
    table = select(found.root, ("hydra", key))
    values: dict[str, Value] = {}
    places: dict[str, Origin] = {}
    if isinstance(table, ConfigTable):
        for name, item in table.items.items():
            expr = resolver.item(item, ("hydra", key, name))
            values[name] = evaluate(expr)
            if expr.origin is not None:
                places[name] = expr.origin
    return values, places


def schema_problems(found: Composition, resolver: Resolver) -> Iterator[Problem]:
    """Settings of the launcher and the sweeper that their plugins refuse."""
    for key, model in (("launcher", LAUNCHERS.get(launcher(found))), ("sweeper", SWEEPERS.get(sweeper(found)))):
        if model is None:
            continue
        values, places = _values(found, resolver, key)
        known = {name: _thawed(value) for name, value in values.items() if not isinstance(value, Unknown)}
        for error in check(model, known):
            name = str(error.route[0]) if error.route else ""
            if name in places:
                yield Problem("invalid-config", f"hydra.{key}.{error.message}", places[name])


def _thawed(value: Value) -> object:
    if isinstance(value, tuple):
        return [_thawed(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _thawed(item) for key, item in value.items()}
    return value


def request(found: Composition, resolver: Resolver) -> Request | None:
    """The request of the submitit launcher; `additional_parameters` go to sbatch as they are."""
    if launcher(found) != "submitit_slurm":
        return None
    values, places = _values(found, resolver, "launcher")
    more = values.get("additional_parameters")
    extra = {name.replace("-", "_"): value for name, value in more.items()} if isinstance(more, Mapping) else {}
    said: dict[str, Value] = {**defaults(Submitit), **extra, **values}
    gpus, kind = _gpus(said["gpus_per_node"], said["gres"])
    exclusive = extra.get("exclusive")
    renamed = {REQUEST_FIELDS[name]: place for name, place in places.items() if name in REQUEST_FIELDS}
    # a key that the launcher does not have must not take the place of a setting of the same name in Request
    left_out = REQUEST_FIELDS.keys() | (set(REQUEST_FIELDS.values()) - Submitit.model_fields.keys())
    return Request(
        nodes=said["nodes"],
        tasks_per_node=said["tasks_per_node"],
        cpus_per_task=said["cpus_per_task"],
        memory=_memory(values.get("mem_gb")) if values.get("mem_gb") is not None else _size(said.get("mem")),
        memory_per_cpu=_size(said["mem_per_cpu"]),
        memory_per_gpu=_size(said["mem_per_gpu"]),
        gpus_per_node=gpus,
        gpus_per_task=said["gpus_per_task"],
        gpu_type=kind,
        partition=said["partition"],
        constraint=said["constraint"],
        exclusive=not isinstance(exclusive, Unknown) and bool(exclusive),
        time_minutes=said["timeout_min"],
        origins={**renamed, **{name: place for name, place in places.items() if name not in left_out}},
    )


def _memory(value: Value) -> Value:
    """Bytes of `mem_gb`: submitit writes `--mem=<n>GB`, a fraction in MB; SLURM's GB is 2**30."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value if isinstance(value, Unknown) else None
    return int(value) * 2**30 if float(value).is_integer() else int(value * 1024) * 2**20


_UNITS = {"": 2**20, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""sbatch: a bare number is MiB (src/common/proc_args.c, str_to_mbytes)."""


def _size(value: Value) -> Value:
    if isinstance(value, bool) or value is None or isinstance(value, Unknown):
        return value if isinstance(value, Unknown) else None
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", str(value).strip().upper())
    if found is None:
        return Unknown(f"{value!r} is not a size that sbatch takes", Cause.invalid)
    return int(found[1]) * _UNITS[found[2]]


def _gpus(count: Value, gres: Value) -> tuple[Value, Value]:
    """GPUs per node and their type: `gpus_per_node: 4`, `gpus_per_node: "a100:4"`, `gres: gpu:a100:4`."""
    text = count if count is not None else gres
    if text is None or isinstance(text, (int, float, Unknown)):
        return (text if not isinstance(text, float) else int(text)), None
    parts = str(text).split(",")[0].split(":")
    if count is None:
        if parts[0] != "gpu":
            return None, None
        parts = parts[1:]
    if parts and parts[-1].isdecimal():
        return int(parts[-1]), parts[-2] if len(parts) > 1 else None
    return 1, parts[0] if parts else None


def trials(found: Composition, resolver: Resolver) -> Binding | None:
    """How many runs of a sweep share the machine. The basic launcher starts one run after the other. joblib's launcher
    starts `n_jobs` runs (-1: one per CPU) of those that the sweeper hands over at once (Optuna's: its own `n_jobs`)."""
    if launcher(found) != "joblib":
        return None
    values, places = _values(found, resolver, "launcher")
    most, origin = {**defaults(Joblib), **values}["n_jobs"], places.get("n_jobs")
    at_once: Value = None
    if sweeper(found) == "optuna":
        values, places = _values(found, resolver, "sweeper")
        at_once, origin = {**defaults(Optuna), **values}["n_jobs"], places.get("n_jobs", origin)
    count: Value = None
    if isinstance(most, int):
        count = min(at_once, most) if isinstance(at_once, int) and most > 0 else at_once if most <= 0 else most
    if isinstance(count, int):
        expr = Const(count, origin)
    else:
        expr = unknown("joblib starts one run per CPU", origin, Cause.run_time)
    return Binding("parallel.trials_per_gpu", expr, Rank.read, origin)


def sweeper_params(found: Composition, problems: list[Problem]) -> Iterator[GivenOverride]:
    """`hydra.sweeper.params`: key -> the text of an override's value.

    A plugin's sweeper describes values by a table (Nevergrad's {init, step, log}, Ax's {type, bounds}): the key is
    swept, and over which values is unknown.
    """
    described = sweeper(found) not in SWEEPERS
    for path in (("hydra", "sweeper", "params"), ("hydra", "sweeper", "ax_config", "params")):
        table = select(found.root, path)
        if not isinstance(table, ConfigTable):
            continue
        for key, item in table.items.items():
            if described and not isinstance(item, Leaf):
                why = f"the sweeper {sweeper(found)} takes its values from a description that is not read"
                yield GivenOverride(key, item.origin, None, unknown(why, item.origin), item.origin)
        for key, leaf in _flat(table, tables=not described):
            value = _text(leaf)
            given = None if value is None else parse_override(f"{key}={value}", leaf.origin, leaf.origin, problems)
            if given is not None:
                yield given


def _flat(table: ConfigTable, prefix: str = "", tables: bool = True) -> Iterator[tuple[str, Leaf]]:
    """Entries of `params`, nested tables flattened to dotted keys."""
    for key, item in table.items.items():
        if isinstance(item, ConfigTable) and tables:
            yield from _flat(item, f"{prefix}{key}.")
        elif isinstance(item, Leaf):
            yield f"{prefix}{key}", item


def _text(leaf: Leaf) -> str | None:
    value = leaf.value
    if value is None:
        return "null"
    return str(value) if isinstance(value, (bool, int, float, str)) else None


def search_space(found: Composition) -> Iterator[tuple[str, Domain, Origin | None]]:
    """Axes of Optuna's deprecated `hydra.sweeper.search_space`: {type, low, high, step, log} or {type, choices}."""
    table = select(found.root, ("hydra", "sweeper", "search_space"))
    if not isinstance(table, ConfigTable):
        return
    for key, body in table.items.items():
        if isinstance(body, ConfigTable):
            domain = _optuna_domain(body)
            if domain is not None:
                yield key, domain, body.origin


def _optuna_domain(body: ConfigTable) -> Domain | None:
    def number(name: str) -> float | None:
        item: Item | None = body.items.get(name)
        value = item.value if isinstance(item, Leaf) else None
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def place(name: str) -> Origin | None:
        item = body.items.get(name)
        return item.origin if item is not None else None

    choices = body.items.get("choices")
    if isinstance(choices, Listing):
        items = [item for item in choices.items if isinstance(item, Leaf)]
        return Choices(tuple(item.value for item in items), tuple(item.origin for item in items))
    kind, low, high, step = body.items.get("type"), number("low"), number("high"), number("step")
    if low is None or high is None:
        return None
    whole = isinstance(kind, Leaf) and kind.value == "int"
    log = body.items.get("log")
    step = step if step is not None else 1 if whole else None
    if step is not None and step > 0:
        high = low + math.floor((high - low) / step + 1e-9) * step
    logarithmic = isinstance(log, Leaf) and log.value is True
    return Range(low, high, step, whole, logarithmic, place("low"), place("high"))
