"""The JSON of `check` and `estimate`, key by key: a contract. Within a version keys are only ever added.

docs/reference/output.md and the JSON schemas beside it are made from these classes and their texts. Bytes are integers.
Lines and columns count from 1, columns in code points, ends are exclusive. Paths are relative to the project's root,
with `/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from typing_extensions import NotRequired, TypedDict

from preflight.vocabulary.estimates import Verdict
from preflight.vocabulary.standing import StandingName

Plain = dict[str, object]
VERSION: Final = 2
"""Of both documents."""


class IntervalJson(TypedDict):
    """Bytes, as an interval."""

    low: int
    """The low end."""
    expected: int
    """The most probable value."""
    high: int
    """The high end."""


class LargestAllocationJson(TypedDict):
    """The largest block that the job allocates at once."""

    bytes: int
    """Its size."""
    where: str
    """What it is, as "the logits in the forward pass"."""
    product: str
    """The numbers whose product it is."""


class AssumptionJson(TypedDict):
    """A value that a verdict depends on and that is not known well.

    With `fits-if` the job fits if they hold. With another verdict it would exceed if they hold.
    """

    field: str
    """A field of the [Job](job.md)."""
    value: object
    """Its value in the estimate."""
    standing: str
    """How the value is known: see `standings`."""
    why: str
    """Why it is not known better."""


class DeviceJson(TypedDict):
    """The memory of the GPU that needs most."""

    requested: IntervalJson
    """The sum of the live tensors. Never compare [tiers](../glossary.md#tiers) with each other."""
    allocated: IntervalJson
    """The blocks of these tensors."""
    reserved: IntervalJson
    """The memory of the caching allocator."""
    process: IntervalJson
    """The figure of `nvidia-smi` for the process."""
    phase: str
    """The phase of the peak: `forward`, `backward`, `optimizer`, `validation` and others."""
    where: str
    """The moment of the peak in words."""
    breakdown: Mapping[str, int]
    """The parts; they add up to `process.expected`."""
    phases: Mapping[str, int]
    """The peak of each phase."""
    largest_allocation: LargestAllocationJson | None
    """The largest single block."""
    capacity: int | None
    """The memory of the GPU; `null` if no GPU is known."""
    verdict: Verdict
    """The need against the capacity."""
    assumptions: list[AssumptionJson]
    """What the verdict depends on."""
    lower_bound: bool
    """Whether the job needs at least this."""
    largest_batch_size: int | None
    """The largest batch that fits; `null` if it is unknown."""


class HostJson(TypedDict):
    """The memory of the node that needs most."""

    per_node: IntervalJson
    """The need of one node."""
    breakdown: Mapping[str, int]
    """The parts; they add up to `per_node.expected`."""
    limit: int | None
    """The limit of the request or of the machine; `null` if none is known."""
    limited_by: str
    """What sets the limit."""
    verdict: Verdict
    """The need against the limit."""
    assumptions: list[AssumptionJson]
    """What the verdict depends on."""


class EstimatesJson(TypedDict):
    """Both sides of an estimate."""

    device: DeviceJson | None
    """`null` if it is unknown."""
    host: HostJson | None
    """`null` if it is unknown."""


class UnknownCauseJson(TypedDict):
    """Why a side or a field is unknown."""

    cause: Literal[
        "not-set",
        "decided-at-run-time",
        "not-read",
        "out-of-project",
        "file-not-found",
        "invalid-value",
        "budget",
        "model-not-known",
        "no-law",
        "cannot-trace",
        "not-modelled",
        "not-possible",
        "time-limit",
    ]
    """The kind of reason."""
    fields: list[str]
    """The Job fields that would have to be stated."""
    words: str
    """The reason in words; they complete "unknown: ..."."""


class CertaintyJson(TypedDict):
    """How well an estimate is known."""

    verdict: Verdict
    """The worse of device and host."""
    assumptions: list[AssumptionJson]
    """What the verdict depends on."""
    standings: Mapping[str, StandingName]
    """How each Job field is known ([what the words mean](../explanation/certainty.md))."""
    unknown: list[str]
    """The fields that are missing."""
    unknown_causes: list[UnknownCauseJson]
    """Why they are."""


class StartJson(TypedDict):
    """Where a value is written."""

    path: str
    """The file."""
    line: int
    """Its line."""
    column: int
    """Its column."""


class PlaceJson(TypedDict):
    """A range of a file; all five are `null` for a finding without a place."""

    path: str | None
    """The file."""
    line: int | None
    """The first line."""
    column: int | None
    """The first column."""
    end_line: int | None
    """The last line."""
    end_column: int | None
    """The column behind the last character."""


class RelatedJson(StartJson):
    """Another place that a finding speaks of."""

    message: str
    """What is there."""


class EditJson(PlaceJson):
    """A replacement in a file as it stands."""

    text: str
    """The text that takes the place of the range."""


class FixJson(TypedDict):
    """A fix that `--fix` or `--unsafe-fixes` writes."""

    title: str
    """What it does."""
    safety: Literal["safe", "unsafe"]
    """Whether the run stays the same."""
    edits: list[EditJson]
    """The replacements."""


class FindingJson(PlaceJson):
    """Something that is wrong, or that a person should know."""

    rule: str
    """The name of the rule."""
    severity: Literal["error", "warning", "info"]
    """How bad it is."""
    confidence: Literal["high", "medium", "low"]
    """How sure it is."""
    message: str
    """What is wrong."""
    url: str | None
    """The page of the rule."""
    settings: list[str]
    """The Job fields that cause it."""
    related: list[RelatedJson]
    """Other places."""
    estimate: EstimatesJson | None
    """The estimate of the worst combination of its study."""
    fix: FixJson | None
    """The fix, if there is one."""


class CountsJson(TypedDict):
    """The combinations of a study by verdict."""

    fits: int
    """Those that fit."""
    fits_if: int
    """Those that fit if the assumptions hold."""
    at_risk: int
    """Those whose high end is above the limit."""
    exceeds: int
    """Those that do not fit."""
    unknown: int
    """Those whose need is unknown."""


class StudyJson(EstimatesJson, CertaintyJson):
    """A study: a file or several that start one job or a search. The estimate is that of its worst combination."""

    paths: list[str]
    """Its files."""
    dialects: list[str]
    """The kinds of these files."""
    judged: bool
    """Whether there was time to judge it."""
    combinations: int | None
    """How many the search has; `null` without a bound."""
    unsafe: int
    """Those that exceed or are at risk."""
    counts: CountsJson
    """All by verdict."""
    worst: Plain
    """The [Job](job.md) of the worst combination."""
    origins: Mapping[str, StartJson]
    """Where each Job field is written."""


class StatisticJson(TypedDict):
    """The findings of one rule."""

    rule: str
    """The name of the rule."""
    count: int
    """All of them."""
    errors: int
    """The errors."""
    warnings: int
    """The warnings."""
    infos: int
    """The remarks."""
    safe_fixes: int
    """Those with a safe fix."""
    unsafe_fixes: int
    """Those with an unsafe fix."""


class SummaryJson(TypedDict):
    """The whole run in numbers."""

    errors: int
    """The errors."""
    warnings: int
    """The warnings."""
    infos: int
    """The remarks."""
    fixed: int
    """The fixes that were written."""
    files: int
    """The files that were checked."""
    incomplete: bool
    """Whether the time limit was over before everything was checked."""


class CheckJson(TypedDict):
    """`preflight check --output-format json`."""

    version: Literal[2]
    """The version of this contract."""
    findings: list[FindingJson]
    """All findings, sorted by place."""
    studies: list[StudyJson]
    """All studies."""
    statistics: list[StatisticJson]
    """The rules with findings, the most frequent first."""
    summary: SummaryJson
    """The numbers."""


class ExplanationJson(TypedDict):
    """A setting that would explain a measurement."""

    field: str
    """The Job field."""
    value: object
    """The value that would explain it."""
    expected: int
    """The estimate with that value."""
    part: str
    """The part that changes most."""
    change: int
    """By how many bytes it changes."""


class MeasuredJson(TypedDict):
    """A measurement beside the estimate (`--measured`)."""

    bytes: int
    """What was measured."""
    difference: int
    """Measured less expected."""
    agrees: bool
    """Whether it is within the interval."""
    explanations: list[ExplanationJson]
    """The closest first."""


class BranchJson(TypedDict):
    """A branch of a search."""

    fixed: dict[str, object]
    """The parameters that choose it, with their values."""
    parameters: list[str]
    """The others that memory depends on."""


class EstimateJson(EstimatesJson, CertaintyJson):
    """`preflight estimate --output-format json`."""

    version: Literal[2]
    """The version of this contract."""
    job: Plain
    """The [Job](job.md)."""
    notes: NotRequired[list[str]]
    """Why `device` is `null`, that it is a lower bound, or what it leaves out."""
    measured: NotRequired[MeasuredJson]
    """Only with `--measured`."""
    search: NotRequired[list[BranchJson]]
    """Only of a search: its branches, for `--at`."""
