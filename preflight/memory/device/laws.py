"""The laws of one job: shipped ones, or traced ones where torch is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from preflight.memory.device import store
from preflight.memory.device.law import Law
from preflight.memory.device.make import CannotMake, Made, make, make_at
from preflight.memory.device.resolve import Resolved
from preflight.memory.device.tape import NotRegular
from preflight.memory.device.tracing import TraceError, has_torch, request_traces
from preflight.values import Unknown


@dataclass
class Tracing:
    """Whether and with what unknown models are traced; set once by the command line from the settings."""

    allowed: bool = False
    interpreter: str | None = None


TRACING = Tracing()


@dataclass(frozen=True)
class Laws:
    """One job's law of a kind of step: the tape, and its readings without and with accumulated gradients."""

    made: Made
    plain: Law
    accumulating: Law
    shipped: bool


@lru_cache(maxsize=64)
def _prepared(key: store.LawKey) -> Laws | None:
    made = store.load(key)
    return None if made is None else Laws(made, Law(made.tape), Law(made.tape, True), True)


_TRACED: dict[str, Laws | Unknown] = {}


def laws_for(resolved: Resolved, kind: str) -> Laws | Unknown:
    """The law of a job's step ("train", "eval", "generate"), or why there is none and how to get it."""
    found = _prepared(store.key_of(resolved, kind))
    if found is not None:
        return found
    setup = "/".join(str(resolved.setup[k]) for k in ("weights", "autocast", "attention"))
    what = f"no law is shipped for {resolved.name} ({kind}, {setup})"
    if not TRACING.allowed:
        return Unknown(f"{what}; tracing is off")
    if not has_torch(TRACING.interpreter):
        return Unknown(f"{what}; with torch it is traced: pip install 'preflight-lint[trace]', or set `interpreter`")
    key = repr((resolved.model, resolved.setup, kind, resolved.lengths.get("i")))
    if key not in _TRACED:
        try:
            made = _trace(resolved, kind)
            _TRACED[key] = Laws(made, Law(made.tape), Law(made.tape, True), False)
        except (TraceError, CannotMake, NotRegular) as error:
            _TRACED[key] = Unknown(f"{what}, and tracing failed: {error}")
    return _TRACED[key]


def _trace(resolved: Resolved, kind: str) -> Made:
    def run(traces: Any) -> list[dict[str, Any]]:
        return request_traces(traces, TRACING.interpreter)[0]

    if resolved.family is not None:
        return make(resolved.family, resolved.task, kind, resolved.setup, resolved.structure, run)
    return make_at(resolved.model, resolved.task, kind, resolved.setup, resolved.lengths, run)


def dimensions(resolved: Resolved, laws: Laws, lengths: Mapping[str, int] | None = None) -> dict[str, int]:
    """Dimensions to evaluate a law at, with other lengths (validation's, say) where given."""
    return {**resolved.all_dims, **(lengths or {})}
