"""What rules are written with: every name that a rule needs, preflight's own rules included.

These names keep their meaning within a major version; docs/api.md says what each is. A rule module imports from here
alone, so that a rule of another package has all that preflight's own have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight.documents.base import DocumentError, Edit, Source
from preflight.documents.json import parse_json
from preflight.engine.project import UnreadableFile
from preflight.engine.steady_states import states as steady_states
from preflight.fixes.what_if import axes_of, changed, largest, possible, settable, written
from preflight.memory.host.checkpoint import weights_of
from preflight.memory.host.estimate import (
    limit_of,
    sample_bytes,
    samples_in_shared_memory,
    solve_in_memory_bytes,
    solve_sample_bytes,
)
from preflight.slurm.allocation import Allocation
from preflight.slurm.allocation import resolve as resolve_request
from preflight.slurm.controller.answers import NODE_CONFIG
from preflight.space.constraints import Constraint, Limits, Violation
from preflight.space.constraints import limits as constraint_limits
from preflight.space.constraints import parse_all as parse_constraints
from preflight.space.constraints import violations as broken_constraints
from preflight.vocabulary.estimates import DeviceEstimate, Estimates, HostEstimate, Interval
from preflight.vocabulary.findings import Change, Confidence, Finding, Proposal, Safety, Severity, severity_of
from preflight.vocabulary.job import Job, with_fields
from preflight.vocabulary.reading import Request
from preflight.vocabulary.rule import (
    Case,
    Example,
    Options,
    Rule,
    device_of,
    gpu_name,
    host_of,
    related_of,
    several,
)
from preflight.vocabulary.study import Bound, Box, Study
from preflight.vocabulary.values import (
    Axis,
    Choices,
    Const,
    Expr,
    Origin,
    Range,
    Span,
    Unknown,
    Value,
    evaluate,
    names,
    origins,
)
from preflight.vocabulary.verdicts import BoxVerdict, ModelVerdict, SafeBox
from preflight.vocabulary.words import (
    GIB,
    MIB,
    assignment_text,
    at_most,
    describe,
    gib,
    model_name,
    plural,
    sum_of,
    values_text,
)

if TYPE_CHECKING:
    from preflight.memory.device.law.catalogue import CatalogueModel

__all__ = [
    "GIB", "MIB", "NODE_CONFIG", "Allocation", "Axis", "Bound", "Box", "BoxVerdict", "Case", "Change", "Choices",
    "Confidence", "Const", "Constraint", "DeviceEstimate", "DocumentError", "Edit", "Estimates", "Example", "Expr",
    "Finding", "HostEstimate", "Interval", "Job", "Limits", "ModelVerdict", "Options", "Origin", "Proposal",
    "Range", "Request", "Rule", "SafeBox", "Safety", "Severity", "Source", "Span", "Study", "Unknown",
    "UnreadableFile", "Value", "Violation", "assignment_text", "at_most", "axes_of", "broken_constraints",
    "changed", "constraint_limits", "describe", "device_of", "evaluate", "gib", "gpu_name", "host_of",
    "known_model", "largest", "limit_of", "model_name", "names", "origins", "parse_constraints", "parse_json",
    "plural", "possible", "related_of", "resolve_request", "sample_bytes", "samples_in_shared_memory", "settable",
    "several", "severity_of", "solve_in_memory_bytes", "solve_sample_bytes", "steady_states", "sum_of",
    "values_text", "weights_of", "with_fields", "written",
]  # fmt: skip


def known_model(name: str) -> CatalogueModel | None:
    """A well-known model by its hub id, with its architecture and configuration; None where it is not known."""
    from preflight.memory.device.law.catalogue import find

    return find(name)
