"""Arguments of transformers' Trainer and of TRL's, by name: the given value, else the library's default."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from preflight.program.arguments import Arguments
from preflight.program.bindings import constant, first_origin, fold
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.values import Const, Expr, Op, Scalar

NO = Const(False)
FP32 = Const("fp32")


@dataclass(frozen=True, slots=True)
class Use:
    """How a Trainer uses its arguments: when its evaluation keeps logits, and whether it always evaluates."""

    evaluates: bool = False
    compute_metrics: Expr = NO
    reduces_logits: bool = False
    """preprocess_logits_for_metrics is given: its result (usually an argmax) is kept, not the logits."""
    peft: bool = False
    base: Expr = FP32
    """Precision when neither bf16 nor fp16 is asked for: the weights' own."""
    task: str | None = None
    """The task of the model, if known: only language models have logits to save."""


ANY = Use()
"""A Trainer of which nothing else is known."""


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """The shipped data on transformers and TRL."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("transformers.json").read_bytes())
    return loaded


_Entries = Mapping[str, "list[tuple[str, str, bool, Scalar]]"]
"""Argument -> [since release, type, may be None, default], ..., as scripts/make_defaults.py writes them."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a library's class: the type of its flag (int, float, bool, str), and its default."""

    kind: str
    default: Scalar


def arguments_at(flavour: str, version: str | None, trl: str | None = None) -> dict[str, Argument]:
    """The arguments that decide memory of transformers' class, and of TRL's for other flavours, in these releases."""
    found = _at(table()["transformers"]["transformers"], version)
    if flavour == "transformers":
        return found
    own = table()["trl"].get(flavour, table()["trl"]["sft"])
    return (_gone(own) if trl is None else {}) | found | _at(own, trl)


def releases(library: str, flavour: str = "transformers") -> tuple[str, ...]:
    """The releases in which a default of the library's class changed."""
    entries: _Entries = table()[library].get(flavour, {})
    return tuple(dict.fromkeys(since for changes in entries.values() for since, *_ in changes))


def model_config_at(trl: str | None = None) -> dict[str, Argument]:
    """The arguments of trl.ModelConfig that decide memory."""
    return _at(table()["trl"]["model"], trl)


def _at(entries: _Entries, version: str | None) -> dict[str, Argument]:
    """Each argument's last entry up to a release, without arguments that were removed by then."""
    found: dict[str, Argument] = {}
    stated = release(version) or NEWEST
    for name, changes in entries.items():
        for since, kind, _, default in changes:
            if (release(since) or NEWEST) <= stated:
                found[name] = Argument(kind, default)
    return {name: argument for name, argument in found.items() if argument.kind}


def _gone(entries: _Entries) -> dict[str, Argument]:
    """Arguments that only older releases have; such a release may be in use if none is stated."""
    return {name: Argument(changes[-2][1], None) for name, changes in entries.items() if not changes[-1][1]}


def library_arguments(
    values: Mapping[str, Expr], flavour: str, version: str | None, trl: str | None = None
) -> Arguments:
    """Arguments that were given, with the defaults of the releases."""
    renamed: dict[str, str] = table()["renamed"]
    defaults = {name: argument.default for name, argument in arguments_at(flavour, version, trl).items()}
    return Arguments({renamed.get(name, name): expr for name, expr in values.items()}, defaults, rank=None)


def truth(expr: Expr) -> Expr:
    """None counts as False."""
    return expr if isinstance(constant(expr), bool) else fold(Op("bool", (expr,)), first_origin(expr))


def shrinks_itself(values: Mapping[str, Expr]) -> Expr | None:
    """`auto_find_batch_size`: the Trainer halves the batch when memory runs out; None if it is not switched on."""
    expr = values.get("auto_find_batch_size")
    return expr if expr is not None and constant(expr) is True else None
