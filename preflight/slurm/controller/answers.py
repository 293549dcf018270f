"""The controller's answers, in its own words (slurm_strerror, src/common/slurm_errno.c)."""

from __future__ import annotations

from preflight.vocabulary.values import Value

NODE_CONFIG = "Requested node configuration is not available"
FEATURE = "Invalid feature specification"
PARTITION = "Invalid partition name specified"
NO_DEFAULT = "No partition specified or system default partition"
NODE_COUNT = "Node count specification invalid"
TIME_LIMIT = "Requested time limit is invalid (missing or exceeds some limit)"
TIME_MIN = "Invalid time-min specification (exceeds job's time or other limits)"
TASK_MEMORY = "Memory required by task is not available"
CPUS = "More processors requested than permitted"
GRES = "Invalid generic resource (gres) specification"
GRES_TYPE = "Invalid GRES specification (with and without type identification)"
GRES_PLUGIN = "Requested GRES option unsupported by configured SelectType plugin"
TRES = "Invalid Trackable RESource (TRES) specification"
ARRAY = "Invalid job array specification"
NODE_NAME = "Invalid node name specified"
NOT_IN_PARTITION = "Requested nodes not in this partition"
RESERVATION = "Requested reservation is invalid"
LICENSE = "Invalid license specification"
DEPENDENCY = "Job dependency problem"
PREFER = "Invalid preferred feature specification"
CLIENT = "sbatch itself"
"""sbatch refuses before it asks the controller; what it prints is in the words."""


class Refused(Exception):
    """A request is refused: the controller's answer, why in words for the user, and the request's fields to blame."""

    def __init__(self, answer: str, words: str, *settings: str) -> None:
        super().__init__(words)
        self.answer, self.words, self.settings = answer, words, settings


def whole(value: Value) -> int | None:
    """A count that is known; None where it is not given or not known."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: Value) -> str | None:
    return value if isinstance(value, str) else None
