"""Laws of models that none ships for: from an earlier trace of the same request, or traced now.

Laws that ship are enough for most jobs, so this module and what it imports are loaded where one is missing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from preflight.memory.device.fit import cache
from preflight.memory.device.fit.few_traces import make_of
from preflight.memory.device.fit.make import CannotMake
from preflight.memory.device.fit.subprocess import OverBudget, TraceError, can_trace, refuse_over_budget, request_traces
from preflight.memory.device.law.law import Laws
from preflight.memory.device.law.made import MadeLaw
from preflight.memory.device.law.store import LawKey
from preflight.memory.device.law.tape import NotRegular
from preflight.memory.device.law.workload import Resolved
from preflight.vocabulary.budgets import TRACE_SECONDS
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.tracing import Tracing
from preflight.vocabulary.values import Cause, Unknown

__all__ = ["TRACED", "can_trace", "law_of"]

TRACED: BoundedCache[Laws | Unknown] = BoundedCache(256)
"""Laws that were traced in this process, by interpreter and request."""


def law_of(key: LawKey, resolved: Resolved, kind: str, tracing: Tracing, what: str) -> Laws | Unknown:
    """The law of a step. `what`: the law that is missing, in words, for the reason why it cannot be made."""
    if resolved.family is not None:  # one law for all models of a family
        name = f"{key.family} {key.text}"
    else:
        name = repr((resolved.workload.wire(), resolved.setup.wire(), kind, resolved.fixed))

    def traced_law() -> Laws | Unknown:
        try:
            made, versions = _kept_or_traced(name, key, resolved, kind, tracing)
        except (TraceError, CannotMake, NotRegular) as error:
            return Unknown(f"{what}, and tracing failed: {error}", Cause.cannot_trace)
        return Laws.of(made.laid_out(bool(resolved.setup.channels_last)), False, versions)

    try:
        return TRACED.get(None, (tracing.interpreter, name), traced_law)
    except OverBudget as error:
        words = f"{what}, and tracing it is {error}: another check goes on, since laws that were traced are kept"
        return Unknown(words, Cause.budget)


def _kept_or_traced(
    asked: str, key: LawKey, resolved: Resolved, kind: str, tracing: Tracing
) -> tuple[MadeLaw, Mapping[str, str]]:
    """The law, from an earlier trace of the same request if there is one, and the versions of the traced libraries."""
    if resolved.workload.foreign is not None:
        return _trace(resolved, kind, tracing)  # code of the user's changes without a version
    found = cache.read(asked, key, tracing.interpreter)
    if found is None:
        found = _trace(resolved, kind, tracing)
        cache.write(asked, key, tracing.interpreter, *found)
    return found


def _trace(resolved: Resolved, kind: str, tracing: Tracing) -> tuple[MadeLaw, dict[str, str]]:
    """The law, and the versions of the traced libraries. Raises OverBudget."""
    refuse_over_budget(tracing)
    versions: dict[str, str] = {}
    start = time.process_time()

    def run(traces: Any) -> list[dict[str, Any]]:
        progress = tracing.progress
        try:
            with progress.shown(f"tracing {resolved.name}"):
                replies, found = request_traces(
                    traces, tracing.interpreter, progress.seconds(TRACE_SECONDS), tracing.time
                )
        except TraceError:
            progress.check()  # a trace that was ended at the limit says nothing about the model
            raise
        versions.update(found)
        return replies

    try:
        return make_of(resolved, kind, run), versions
    finally:
        if tracing.time is not None:
            tracing.time.used += time.process_time() - start
