"""The Job's own defaults, as bounds: what a field is where no file says anything about it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from preflight.vocabulary.job import Job, fields
from preflight.vocabulary.study import Bound, Source
from preflight.vocabulary.values import Const, Value


@lru_cache(maxsize=1)
def table_defaults() -> Mapping[str, Bound]:
    """Field -> its default, for every field that has one. Fields without one are unknown until stated."""
    job = Job.model_construct()
    found = {}
    for name in fields():
        value = job.get(name)
        if value is not None:
            found[name] = Bound(name, Const(frozen(value)), default=True, source=Source.preflight)
    return found


def frozen(value: object) -> Value:
    """A JSON value with its lists as tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    if isinstance(value, Mapping):
        return {str(key): frozen(item) for key, item in value.items()}
    return value  # type: ignore[return-value]


def thawed(value: object) -> object:
    """The same with tuples as lists and mappings as dictionaries, as JSON has them."""
    if isinstance(value, (list, tuple)):
        return [thawed(item) for item in value]
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    return value
