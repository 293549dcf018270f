"""How well values are known.

`Standing` is the kind of knowledge, `Held` the same of one field with its reason, and `Assumption` a value that is not
known well and that a verdict depends on. docs/explanation/certainty.md explains to users what may follow from each.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from msgspec import Struct

from preflight.vocabulary.values import Cause, Unknown, Value

AS_SAVED = Unknown("the weights are loaded in the type that they were saved in", Cause.out_of_project)
"""`dtype="auto"`, which is the default of transformers 5 (its migration guide)."""


StandingName = Literal["read", "by-name", "default", "assumed", "dry-run", "measured", "unknown"]
"""The values of Standing, for documents with a schema."""


class Standing(Enum):
    """How the value of a Job field is known. It decides which verdicts are allowed."""

    read = "read"
    """From files, the request or the user's own settings, with its origin."""
    by_name = "by-name"
    """From a setting whose name suggests the field."""
    default = "default"
    """Of a library, or of the Job, where nothing that was not read can change it."""
    assumed = "assumed"
    """A default, or a file of the checked tree, that something unread may replace."""
    dry_run = "dry-run"
    """Seen when the user's own command ran with CUDA faked."""
    measured = "measured"
    """Seen in a real run."""
    unknown = "unknown"

    @property
    def holds(self) -> bool:
        """Whether "fits" may stand on a value that is known in this way."""
        return self not in (Standing.by_name, Standing.assumed, Standing.unknown)


class Held(Struct, frozen=True):
    """How the value of a field is known. `why` it is not known better, for the user.

    `others`: the only other values that it may have; empty: it may have any. `unsaid`: no file states the value, and
    what was not read may replace it with one that takes less as well. `similar`: the value says a model that the
    program's own class is only like.
    """

    standing: Standing
    why: str = ""
    others: tuple[Value, ...] = ()
    unsaid: bool = False
    similar: bool = False


class Doubt(Enum):
    """Why a need that is too much is doubted, as it completes "the need of 40 GiB ..."."""

    implausible = "is not plausible"
    """No GPU has as much, and with a small value it would fit."""
    similar_model = "is that of a similar model"
    """The program's own class only resembles the family that was estimated."""
    longest_samples = "is that of the longest samples"
    """Samples are cut at a length, and nobody read how long they are."""


class Assumption(Struct, frozen=True):
    """A Job field whose value is not known well, with the value that the estimate has and the reason.

    `why` is for the user and completes "train.batch_size = 8: ...". `doubt`: what the field makes of a need that is too
    much.
    """

    field: str
    value: object
    standing: Standing
    why: str
    doubt: Doubt | None = None
