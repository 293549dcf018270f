"""Schema of a W&B sweep: `schema.json` of the PyPI package sweeps 0.3.0 as pydantic models, and its checks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from preflight.documents.schema_errors import SchemaError, check, nearest
from preflight.frameworks.wandb_space import kind_of
from preflight.vocabulary.values import Route

Number = float
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Anything = Any  # a parameter's value belongs to the program


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class Metric(Strict):
    name: str
    goal: Literal["minimize", "maximize"] = "minimize"
    target: Number | None = None
    impute: Literal["latest", "best", "worst"] = "worst"
    impute_while_running: Literal["latest", "best", "worst", "false"] = "false"


class Hyperband(Strict):
    type: Literal["hyperband"]
    max_iter: int | None = None
    min_iter: Annotated[int, Field(ge=1)] | None = None
    s: Number | None = None
    eta: Number = 3
    strict: bool = False


class Controller(BaseModel):
    model_config = ConfigDict(defer_build=True)
    type: Literal["local", "cloud"] = "cloud"


class Sweep(Strict):
    """`scheduler` and `settings` are those of W&B Launch (`_launch_scheduler` and `sweep` of wandb/cli/cli.py), whose
    keys depend on the scheduler's job. The client takes a null for a name as not set."""

    apiVersion: str = ""
    kind: Literal["sweep"] = "sweep"
    controller: Controller = Controller.model_construct()
    description: str | None = None
    program: str | None = None
    job: str | None = None
    image_uri: str | None = None
    entity: str | None = None
    project: str | None = None
    method: Literal["bayes", "random", "grid", "custom"] | None = None
    command: list[Anything] = []
    name: str | None = None
    run_cap: Annotated[int, Field(gt=0)] = 1
    metric: Metric | None = None
    metrics: Annotated[list[Metric], Field(min_length=2)] | None = None
    scheduler: dict[str, Anything] | None = None
    settings: dict[str, Anything] | None = None
    early_terminate: Hyperband | None = None
    parameters: dict[str, Anything] = {}


# --- parameters, by distribution -------------------------------------------------------------------------------------


class Constant(Strict):
    value: Anything
    distribution: Literal["constant"] = "constant"


class Categorical(Strict):
    values: Annotated[list[Anything], Field(min_length=1)]
    distribution: Literal["categorical"] = "categorical"


class Weighted(Strict):
    values: Annotated[list[Anything], Field(min_length=1)]
    probabilities: Annotated[list[NotNegative], Field(min_length=1)]
    distribution: Literal["categorical_w_probabilities"] = "categorical_w_probabilities"


class Bounds(Strict):
    min: Number
    max: Number


class IntUniform(Bounds):
    min: int
    max: int
    distribution: Literal["int_uniform"] = "int_uniform"


class Uniform(Bounds):
    distribution: Literal["uniform", "log_uniform", "inv_log_uniform"] = "uniform"


class UniformValues(Bounds):
    min: Positive
    distribution: Literal["log_uniform_values", "inv_log_uniform_values"]


class Quantized(Bounds):
    q: Positive = 1.0
    distribution: Literal["q_uniform", "q_log_uniform"]


class QuantizedValues(Bounds):
    min: Positive
    q: Positive = 1.0
    distribution: Literal["q_log_uniform_values"]


class Normal(Strict):
    mu: Number = 0.0
    sigma: NotNegative = 1.0
    distribution: Literal["normal", "log_normal"]


class QuantizedNormal(Strict):
    mu: Number = 0.0
    sigma: NotNegative = 1.0
    q: Positive = 1.0
    distribution: Literal["q_normal", "q_log_normal"]


class Beta(Strict):
    a: NotNegative = 1.0
    b: NotNegative = 1.0
    distribution: Literal["beta"]


class QuantizedBeta(Strict):
    a: NotNegative = 1.0
    b: NotNegative = 1.0
    q: Positive = 1.0
    distribution: Literal["q_beta"]


class Nested(Strict):
    parameters: Annotated[dict[str, Anything], Field(min_length=1)]


_MODELS: tuple[type[Strict], ...] = (
    Constant, Categorical, Weighted, IntUniform, Uniform, UniformValues, Quantized, QuantizedValues, Normal,
    QuantizedNormal, Beta, QuantizedBeta,
)  # fmt: skip
DISTRIBUTIONS: Mapping[str, type[Strict]] = {
    name: model for model in _MODELS for name in get_args(model.model_fields["distribution"].annotation)
}

_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"


def check_sweep(sweep: Mapping[str, object]) -> Iterator[SchemaError]:
    """Every place where a sweep breaks the schema of W&B."""
    yield from check(Sweep, dict(sweep))
    scheduler = sweep.get("scheduler")
    if sweep.get("method") is None and not isinstance(scheduler, Mapping):
        yield SchemaError((), "'method' is missing")  # with a scheduler, its job decides
    stop = sweep.get("early_terminate")
    if isinstance(stop, Mapping) and "min_iter" not in stop and not {"max_iter", "s"} <= stop.keys():
        yield SchemaError(("early_terminate",), "early_terminate: hyperband needs min_iter, or max_iter and s")
    if sweep.get("method") == "bayes" and not {"metric", "metrics"} & sweep.keys():
        yield SchemaError(("method",), "method: a Bayesian search needs a `metric`")
    parameters = sweep.get("parameters")
    if isinstance(parameters, Mapping):
        if not parameters:
            yield SchemaError(("parameters",), "parameters: a sweep needs at least one parameter")
        yield from _check_parameters(parameters, ("parameters",))
    elif "parameters" not in sweep and not (isinstance(scheduler, Mapping) and "search_space" in scheduler):
        yield SchemaError((), "'parameters' is missing")


def _check_parameters(parameters: Mapping[str, object], route: Route) -> Iterator[SchemaError]:
    for name, body in parameters.items():
        at = (*route, name)
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            yield SchemaError(at, f"{name!r} is not a parameter name: a letter or _, then letters, digits, _ . or -")
        yield from _check_parameter(name, body, at)


def _check_parameter(name: str, body: object, route: Route) -> Iterator[SchemaError]:
    if not isinstance(body, Mapping):
        word = "values" if isinstance(body, (list, tuple)) else "value"
        yield SchemaError(route, f"{name}: W&B needs a mapping here; write `{name}: {{{word}: ...}}`")
        return
    kind = kind_of(body)
    model = Nested if kind == "nested" else DISTRIBUTIONS.get(kind)
    if model is not None:
        yield from check(model, dict(body), route)
        inner = body.get("parameters")
        if kind == "nested" and isinstance(inner, Mapping):
            yield from _check_parameters(inner, (*route, "parameters"))
    elif kind:
        guess = nearest(kind, DISTRIBUTIONS)
        said = f"{name}: {kind!r} is not a distribution of W&B" + (f"; did you mean {guess!r}?" if guess else "")
        yield SchemaError((*route, "distribution"), said)
    else:
        said = f"{name}: it needs `value`, `values`, `min` and `max`, or a `distribution`"
        yield SchemaError(route, said)
