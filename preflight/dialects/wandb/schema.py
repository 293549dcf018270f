"""The shape of a W&B sweep: `schema.json` of the PyPI package sweeps 0.3.0, as pydantic models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from preflight.documents.schema_errors import SchemaError, check, nearest
from preflight.frameworks.wandb_space import BETA, BOUNDED, UNBOUNDED, kind_of
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


class Scheduler(Strict):
    engine: Literal["optuna", "ax", "wandb"]
    source: str | None = None
    optimizer: str | None = None
    search_space: str | None = None


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
    apiVersion: str = ""
    kind: Literal["sweep"] = "sweep"
    controller: Controller = Controller.model_construct()
    description: str = ""
    program: str = ""
    job: str = ""
    image_uri: str = ""
    entity: str = ""
    project: str = ""
    method: Literal["bayes", "random", "grid", "custom"]
    command: list[Anything] = []
    name: str = ""
    run_cap: Annotated[int, Field(gt=0)] = 1
    metric: Metric | None = None
    metrics: Annotated[list[Metric], Field(min_length=2)] | None = None
    scheduler: Scheduler | None = None
    early_terminate: Hyperband | None = None
    parameters: dict[str, Anything] = {}


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


class Nested(Strict):
    parameters: Annotated[dict[str, Anything], Field(min_length=1)]


class IntUniform(Strict):
    min: int
    max: int
    distribution: str = ""


class Uniform(Strict):
    min: Number
    max: Number
    distribution: str = ""


class UniformValues(Uniform):
    min: Positive


class Quantized(Uniform):
    q: Positive = 1.0


class QuantizedValues(UniformValues):
    q: Positive = 1.0


class Normal(Strict):
    distribution: str
    mu: Number = 0.0
    sigma: NotNegative = 1.0


class QuantizedNormal(Normal):
    q: Positive = 1.0


class Beta(Strict):
    distribution: str
    a: NotNegative = 1.0
    b: NotNegative = 1.0


class QuantizedBeta(Beta):
    q: Positive = 1.0


KINDS: Mapping[str, type[BaseModel]] = {
    "constant": Constant, "categorical": Categorical, "categorical_w_probabilities": Weighted, "nested": Nested,
    "int_uniform": IntUniform, "uniform": Uniform, "log_uniform": Uniform, "inv_log_uniform": Uniform,
    "log_uniform_values": UniformValues, "inv_log_uniform_values": UniformValues, "q_uniform": Quantized,
    "q_log_uniform": Quantized, "q_log_uniform_values": QuantizedValues, "normal": Normal, "log_normal": Normal,
    "q_normal": QuantizedNormal, "q_log_normal": QuantizedNormal, "beta": Beta, "q_beta": QuantizedBeta,
}  # fmt: skip

_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"


def check_sweep(sweep: Mapping[str, object]) -> Iterator[SchemaError]:
    """Every place where a sweep does not have W&B's shape."""
    yield from check(Sweep, dict(sweep))
    stop = sweep.get("early_terminate")
    if isinstance(stop, Mapping) and "min_iter" not in stop and not {"max_iter", "s"} <= stop.keys():
        yield SchemaError(("early_terminate",), "early_terminate: hyperband needs min_iter, or max_iter and s")
    if sweep.get("method") == "bayes" and not {"metric", "metrics"} & sweep.keys():
        yield SchemaError(("method",), "method: a Bayesian search needs a `metric`")
    parameters = sweep.get("parameters")
    if isinstance(parameters, Mapping):
        if not parameters:
            yield SchemaError(("parameters",), "parameters: a sweep needs at least one")
        yield from _check_parameters(parameters, ("parameters",))
    elif "parameters" not in sweep:
        scheduler = sweep.get("scheduler")
        if not (isinstance(scheduler, Mapping) and "search_space" in scheduler):
            yield SchemaError((), "'parameters' is missing")


def _check_parameters(parameters: Mapping[str, object], route: Route) -> Iterator[SchemaError]:
    for name, body in parameters.items():
        at = (*route, name)
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            yield SchemaError(at, f"{name!r} is not a parameter name: letters, digits, _ . - after a letter or _")
        yield from _check_parameter(name, body, at)


def _check_parameter(name: str, body: object, route: Route) -> Iterator[SchemaError]:
    if not isinstance(body, Mapping):
        word = "values" if isinstance(body, (list, tuple)) else "value"
        yield SchemaError(route, f"{name}: W&B wants a mapping here; write `{name}: {{{word}: ...}}`")
        return
    kind = kind_of(body)
    model = KINDS.get(kind)
    if model is None:
        known = sorted(BOUNDED | UNBOUNDED | BETA)
        if kind:
            guess = nearest(kind, known)
            said = f"{name}: {kind!r} is no distribution" + (f"; did you mean {guess!r}?" if guess else "")
            yield SchemaError((*route, "distribution"), said)
        else:
            yield SchemaError(route, f"{name}: neither `value`, `values`, `min` and `max`, nor a `distribution`")
        return
    yield from check(model, dict(body), route)
    if kind == "nested" and isinstance(body["parameters"], Mapping):
        yield from _check_parameters(body["parameters"], (*route, "parameters"))
