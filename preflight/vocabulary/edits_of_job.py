"""What a Job would be with some of its fields set."""

from __future__ import annotations

from pydantic import ValidationError

from preflight.vocabulary.job import Job, with_fields


def possible(job: Job, values: dict[str, object]) -> Job | None:
    """A copy of a job with dotted fields set, None where a value does not suit its field."""
    try:
        return with_fields(job, values)
    except ValidationError:
        return None
