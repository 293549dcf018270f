"""The tape of one model, as a function of its batch and lengths: for models of no family, and for image models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from preflight.memory.device.fit.make import CannotMake, fold, verify
from preflight.memory.device.fit.polynomial import PolynomialReader, points
from preflight.memory.device.law.made import CHECK_LAYERS, FREE, PROBE_LAYERS, MadeLaw, Runner, TraceRequest, depth_key
from preflight.memory.device.law.setup import Setup


def make_at(
    model: Mapping[str, Any],
    kind: str,
    setup: Setup,
    lengths: Mapping[str, int],
    run: Runner,
    free: Sequence[str] = FREE,
) -> MadeLaw:
    """The tape of one model as a function of its batch, lengths and depth `L` (where its config counts equal layers).

    Sizes are polynomials of the lengths, fitted exactly and checked at a point of their own, and at another depth.
    Where layers turn out to differ, the model is traced at its full depth instead; where an import target makes
    something in its first step alone, that step is left out. `free`: those of `lengths` that it is a function of; the
    others stay as they are. Raises CannotMake, or what `run` raises.
    """
    depth = depth_key(model)
    tries = [(depth, False), (None, False)] if depth is not None else [(None, False)]
    if "target" in model:  # a model of transformers makes nothing for the first time in its second step; others may
        tries.append((None, True))
    *some, (last_depth, last_warm) = tries
    for layers, warm in some:
        try:
            return _make(model, kind, setup, lengths, run, free, layers, warm)
        except CannotMake:
            continue
    return _make(model, kind, setup, lengths, run, free, last_depth, last_warm)


def _make(
    model: Mapping[str, Any],
    kind: str,
    setup: Setup,
    lengths: Mapping[str, int],
    run: Runner,
    variables: Sequence[str],
    depth: str | None,
    warm: bool,
) -> MadeLaw:
    """`warm`: every trace is of a second step; else the check alone is, and only for targets."""
    free = [name for name in variables if name in lengths]
    at = points(free)
    fixed = {k: v for k, v in lengths.items() if k not in free}
    requests = []
    for number, point in enumerate(at):
        check, config = number == len(at) - 1, None
        if depth is not None:
            deep = CHECK_LAYERS if check else PROBE_LAYERS
            whole = model["config"]
            each = {k: v[:deep] for k, v in whole.items() if isinstance(v, list) and len(v) == whole[depth]}
            config = {**whole, **each, depth: deep}
        warm_up = "target" in model and (warm or check)
        requests.append(TraceRequest(model, setup, kind, warm_up).at({**fixed, **point}, config))
    *fitted, last = run(requests)
    made = fold({"*": "L"} if depth is not None else {}, PolynomialReader(free, at[:-1]), fitted)
    verify(made, last, {**at[-1], "L": CHECK_LAYERS})
    return made
