"""The public API: names for rules, dialects and optimizers, and functions for programs that use preflight.

These names keep their meaning within a major version; docs/reference/api.md explains each. preflight's own rules import
only this module, so a rule of another package can do the same as they.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight.engine.ask import check, estimate, job_of
from preflight.engine.score.tables import score
from preflight.engine.what_if import states as steady_states
from preflight.fixes.what_if import axes_of, changed, divisors, largest, possible, settable, written
from preflight.guard.same_run import hazard as same_run_hazard
from preflight.machines.gpus import that_fit as gpus_that_fit
from preflight.memory.device.batch_statistics import balances as balances_experts
from preflight.memory.device.batch_statistics import compares as compares_samples
from preflight.memory.device.batch_statistics import counts_objects, has_experts
from preflight.memory.device.batch_statistics import normalises as normalises_over_batch
from preflight.memory.device.batch_statistics import parts as model_parts
from preflight.memory.device.positions import Positions, positions_of, targets_of
from preflight.memory.host.checkpoint import weights_of
from preflight.memory.host.estimate import (
    limit_of,
    sample_bytes,
    samples_in_shared_memory,
    solve_in_memory_bytes,
    solve_sample_bytes,
)
from preflight.program.batch_layers import OwnLayers, own_layers
from preflight.slurm.allocation import Allocation
from preflight.slurm.allocation import resolve as resolve_request
from preflight.slurm.controller.job import NODE_CONFIG
from preflight.space.constraints import Constraint, Limits, Violation
from preflight.space.constraints import limits as constraint_limits
from preflight.space.constraints import parse_all as parse_constraints
from preflight.space.constraints import violations as broken_constraints
from preflight.space.jobs import job_maker
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.errors import PreflightError, UsageError
from preflight.vocabulary.estimates import DeviceEstimate, Estimates, HostEstimate, Interval
from preflight.vocabulary.findings import (
    Change,
    Confidence,
    Finding,
    KeptBy,
    Proposal,
    Safety,
    Severity,
    severity_of,
)
from preflight.vocabulary.job import Job
from preflight.vocabulary.optimizer import Copies, Optimizer, Step
from preflight.vocabulary.outcome import Outcome, Report, StudyResult
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import Binding, Call, Fact, Link, Parameter, Problem, Reading, Request, Setting
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
from preflight.vocabulary.standing import Assumption, Doubt, Standing
from preflight.vocabulary.study import Bound, Box, Study
from preflight.vocabulary.study import Source as BoundSource
from preflight.vocabulary.text import Edit, Source
from preflight.vocabulary.tracing import SHIPPED_ONLY, Tracing
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
    assumed,
    at_most,
    batch_text,
    describe,
    doubt_of,
    gib,
    model_name,
    plural,
    sum_of,
    values_text,
)

if TYPE_CHECKING:
    from preflight.memory.device.law.catalogue import CatalogueModel

__all__ = [
    "GIB",
    "MIB",
    "NODE_CONFIG",
    "SHIPPED_ONLY",
    "Allocation",
    "Assumption",
    "Axis",
    "Binding",
    "Bound",
    "BoundSource",
    "Box",
    "BoxVerdict",
    "Call",
    "Case",
    "Change",
    "Choices",
    "Confidence",
    "Const",
    "Constraint",
    "Copies",
    "DeviceEstimate",
    "Doubt",
    "Edit",
    "Estimates",
    "Example",
    "Expr",
    "Fact",
    "Finding",
    "HostEstimate",
    "Interval",
    "Job",
    "KeptBy",
    "Limits",
    "Link",
    "ModelVerdict",
    "Optimizer",
    "Options",
    "Origin",
    "Outcome",
    "OwnLayers",
    "Parameter",
    "Positions",
    "PreflightError",
    "Problem",
    "Project",
    "Proposal",
    "Range",
    "Reading",
    "Report",
    "Request",
    "Rule",
    "SafeBox",
    "Safety",
    "Setting",
    "Severity",
    "Source",
    "Span",
    "Standing",
    "Step",
    "Study",
    "StudyResult",
    "Tracing",
    "Unknown",
    "UnreadableFile",
    "UsageError",
    "Value",
    "Violation",
    "assignment_text",
    "assumed",
    "at_most",
    "axes_of",
    "balances_experts",
    "batch_text",
    "broken_constraints",
    "changed",
    "check",
    "compares_samples",
    "constraint_limits",
    "counts_objects",
    "describe",
    "device_of",
    "divisors",
    "doubt_of",
    "estimate",
    "evaluate",
    "gib",
    "gpu_name",
    "gpus_that_fit",
    "has_experts",
    "host_of",
    "job_maker",
    "job_of",
    "known_model",
    "largest",
    "limit_of",
    "model_name",
    "model_parts",
    "names",
    "normalises_over_batch",
    "origins",
    "own_layers",
    "parse_constraints",
    "plural",
    "positions_of",
    "possible",
    "related_of",
    "resolve_request",
    "same_run_hazard",
    "sample_bytes",
    "samples_in_shared_memory",
    "score",
    "settable",
    "several",
    "severity_of",
    "solve_in_memory_bytes",
    "solve_sample_bytes",
    "steady_states",
    "sum_of",
    "targets_of",
    "values_text",
    "weights_of",
    "with_fields",
    "written",
]  # fmt: skip


def known_model(name: str) -> CatalogueModel | None:
    """A model of the catalogue by its hub id, with its architecture and configuration; None if it is unknown."""
    from preflight.memory.device.law.catalogue import find

    return find(name)
