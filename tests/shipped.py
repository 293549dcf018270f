"""The device side as it is where nothing may be traced: with the laws that ship with the package alone."""

from __future__ import annotations

from functools import partial

from preflight.memory.device import estimate as _estimate
from preflight.memory.device.estimate import bound as _bound
from preflight.memory.device.estimate import timeline as _timeline
from preflight.memory.device.laws_of_job import laws_for as _laws_for
from preflight.memory.device.prepare import prepare as _prepare
from preflight.memory.device.resolve import resolve as _resolve
from preflight.vocabulary.tracing import SHIPPED_ONLY

estimate = partial(_estimate, tracing=SHIPPED_ONLY)
bound = partial(_bound, tracing=SHIPPED_ONLY)
timeline = partial(_timeline, tracing=SHIPPED_ONLY)
prepare = partial(_prepare, tracing=SHIPPED_ONLY)
resolve = partial(_resolve, tracing=SHIPPED_ONLY)
laws_for = partial(_laws_for, tracing=SHIPPED_ONLY)
