"""Copies of a Job with some of its fields set."""

from __future__ import annotations

from pydantic import ValidationError

from preflight.vocabulary.job import Job, build, fields


def with_values(job: Job, values: dict[str, object]) -> Job:
    """A copy of a job with dotted fields set. Raises pydantic.ValidationError for a value that does not suit."""
    return build({**{name: job.get(name) for name in fields()}, **values})


def possible(job: Job, values: dict[str, object]) -> Job | None:
    """The copy, None where a value does not suit its field."""
    try:
        return with_values(job, values)
    except ValidationError:
        return None
