"""Arguments of transformers' Trainer and of TRL's by name: what was given, else the library's default."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from preflight.frameworks.arguments import Arguments
from preflight.program.bindings import constant, defaults_at, first_origin, fold
from preflight.vocabulary.values import Const, Expr, Op

NO = Const(False)
FP32 = Const("fp32")


@dataclass(frozen=True, slots=True)
class Use:
    """How a Trainer uses its arguments: what makes its evaluation keep logits, and whether it evaluates anyway."""

    evaluates: bool = False
    compute_metrics: Expr = NO
    reduces_logits: bool = False
    """preprocess_logits_for_metrics is given: what is kept is its result (usually an argmax), not the logits."""
    peft: bool = False
    base: Expr = FP32
    """Precision when neither bf16 nor fp16 is asked for: the weights' own."""
    task: str | None = None
    """What the model is trained for, where that is known: only language models have logits to save."""


ANY = Use()
"""A Trainer of which nothing else is known."""


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """The shipped data on transformers and TRL."""
    loaded: dict[str, Any] = json.loads(files("preflight.frameworks").joinpath("transformers.json").read_text("utf-8"))
    return loaded


def library_arguments(
    values: Mapping[str, Expr], flavour: str, version: str | None, trl: str | None = None
) -> Arguments:
    """Arguments of transformers' Trainer, and of TRL's for other flavours, with the defaults of their versions."""
    renamed: dict[str, str] = table()["renamed"]
    defaults = dict(defaults_at(table()["transformers"], version))
    if flavour != "transformers":
        defaults.update(defaults_at(table()["trl"], trl))
    scalars = {name: value if isinstance(value, (bool, int, float, str)) else None for name, value in defaults.items()}
    return Arguments({renamed.get(name, name): expr for name, expr in values.items()}, scalars)


def truth(expr: Expr) -> Expr:
    """None counts as False."""
    return expr if isinstance(constant(expr), bool) else fold(Op("bool", (expr,)), first_origin(expr))


def shrinks_itself(values: Mapping[str, Expr]) -> Expr | None:
    """`auto_find_batch_size`: the Trainer halves the batch when memory runs out; None where it is not asked to."""
    expr = values.get("auto_find_batch_size")
    return expr if expr is not None and constant(expr) is True else None
