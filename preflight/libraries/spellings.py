"""How libraries spell optimizers, precisions and dtypes, as data; and putting an expression into the Job's spelling.

The tables list what the libraries accept: `transformers.training_args.OptimizerNames`, Lightning's and Fabric's
`precision`, Accelerate's `mixed_precision`, dtype names, classes of torch.optim, bitsandbytes and torchao.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import TypedDict

from preflight.values import Const, Expr, Op, Scalar, Unknown, evaluate, names


class _Tables(TypedDict):
    in_backward: list[str]
    optimizers: dict[str, list[str | None]]
    precisions: dict[str, str]
    dtypes: dict[str, str]


_DATA: _Tables = json.loads(files("preflight.libraries").joinpath("spellings.json").read_text("utf-8"))


OPTIMIZERS: Mapping[str, str] = {name: entry[0] or "other" for name, entry in _DATA["optimizers"].items()}
"""Lower-case spelling -> the Job's name of the optimizer."""
IMPLEMENTATIONS: Mapping[str, str] = {
    name: impl for name, entry in _DATA["optimizers"].items() if (impl := entry[1]) is not None
}
"""Lower-case spelling -> foreach, fused or for-loop, where the spelling decides it."""
IN_BACKWARD: frozenset[str] = frozenset(_DATA["in_backward"])
"""Spellings of optimizers that use each gradient as soon as it is there (transformers, trainer_optimizer.py)."""
PRECISIONS: Mapping[str, str] = _DATA["precisions"]
"""What is asked of autocast (a bare "bf16" is mixed precision here)."""
DTYPES: Mapping[str, str] = _DATA["dtypes"]
"""What a tensor is stored in."""


def spelled(expr: Expr, spellings: Mapping[str, Scalar], default: Scalar = None) -> Expr:
    """`expr` in the Job's spelling; unknown where the table lacks it and there is no default.

    A constant is looked up at once and keeps its origin; anything else becomes a look-up that `study` evaluates.
    """
    if not any(True for _ in names(expr)):
        value = evaluate(expr)
        if isinstance(value, Unknown):
            return expr
        found = spellings.get(_text(value), default)
        reason = f"{value!r} is not a spelling that preflight knows"
        return Const(Unknown(reason) if found is None else found, expr.origin)
    key = Op("lower", (Op("str", (expr,)),))
    operands: tuple[Expr, ...] = (Const(dict(spellings)), key)
    return Op("get", operands if default is None else (*operands, Const(default)), expr.origin)


def _text(value: object) -> str:
    return str(value).lower()
