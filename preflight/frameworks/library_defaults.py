"""Arguments of transformers' Trainer and of TRL's by name: what was given, else the library's default."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from preflight.program.bindings import bind, constant, defaults_at, first_origin, fold, is_constant
from preflight.vocabulary.reading import Binding, Rank
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


class Arguments:
    """Arguments by name: what was given, else the library's default for the version.

    A mapping that is given (`fsdp_config`) may have its keys as names of their own, `fsdp_config.version`.
    """

    def __init__(self, values: Mapping[str, Expr], flavour: str, version: str | None, trl: str | None = None) -> None:
        renamed: dict[str, str] = table()["renamed"]
        self.given = {renamed.get(name, name): expr for name, expr in values.items()}
        self.defaults = dict(defaults_at(table()["transformers"], version))
        if flavour != "transformers":
            self.defaults.update(defaults_at(table()["trl"], trl))

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def __getitem__(self, name: str) -> Expr:
        default = self.defaults.get(name)
        return self.given.get(name) or Const(default if isinstance(default, (bool, int, float, str)) else None)

    def bind(self, field: str, name: str, expr: Expr | None = None) -> Binding:
        """The field takes the argument's value (or `expr`, made of it); a default has a default's rank."""
        value = self[name] if expr is None else expr
        used = name in self.given or not is_constant(value)
        return bind(field, value, None if used else Rank.default, first_origin(self[name]))

    def inner(self, name: str) -> dict[str, Expr]:
        """The keys of an argument that is a mapping, each with its own place where it has one."""
        whole = self.given.get(name)
        value = constant(whole) if whole is not None else None
        keys = value if isinstance(value, Mapping) else {}
        found: dict[str, Expr] = {str(key): Const(one, first_origin(whole)) for key, one in keys.items()}
        prefix = f"{name}."
        return found | {key.removeprefix(prefix): e for key, e in self.given.items() if key.startswith(prefix)}


def truth(expr: Expr) -> Expr:
    """None counts as False."""
    return expr if isinstance(constant(expr), bool) else fold(Op("bool", (expr,)), first_origin(expr))


def shrinks_itself(values: Mapping[str, Expr]) -> Expr | None:
    """`auto_find_batch_size`: the Trainer halves the batch when memory runs out; None where it is not asked to."""
    expr = values.get("auto_find_batch_size")
    return expr if expr is not None and constant(expr) is True else None
