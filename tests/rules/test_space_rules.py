"""Rules about search spaces, searches and settings that contradict each other."""

from __future__ import annotations

import pytest
from cases import GIB, Device, case, origin
from cases import findings as all_findings
from msgspec.structs import replace

from preflight.vocabulary.findings import Finding, Safety, Severity
from preflight.vocabulary.rule import Case
from preflight.vocabulary.values import Axis, Choices, Const, Range, Ref
from preflight.vocabulary.verdicts import Counts, ModelVerdict, SafeBox
from preflight_rules.batch_size_mismatch import BatchSizeMismatch
from preflight_rules.constraint_violated import ConstraintViolated
from preflight_rules.fits_only_if import FitsOnlyIf
from preflight_rules.invalid_config import InvalidConfig
from preflight_rules.length_exceeds_positions import LengthExceedsPositions
from preflight_rules.number_read_as_string import NumberReadAsString
from preflight_rules.oom_not_handled import OomNotHandled
from preflight_rules.space_all_unsafe import SpaceAllUnsafe
from preflight_rules.space_partly_unsafe import SpacePartlyUnsafe

SIZES = Axis("bs", Choices((4, 8, 32), (origin(1), origin(2), origin(3))), origin(1), ("train.batch_size",))
LENGTHS = Axis("len", Range(128, 1024, 128, high_origin=origin(5)), origin(4), ("train.seq_len",))
WRITTEN = {"train.batch_size": Ref("bs"), "train.seq_len": Ref("len"), "train.grad_accum": 1}
SAFE = SafeBox({"bs": (4, 8), "len": (128, 1024)}, 16, {"bs": (32,)})


def space(counts: Counts, safe: SafeBox | None = SAFE, device: Device | None = None, **more: object) -> Case:
    return case(
        WRITTEN,
        device=device or Device(),
        axes=(SIZES, LENGTHS),
        worst={"bs": 32, "len": 1024},
        counts=counts,
        safe=safe,
        **more,  # type: ignore[arg-type]
    )


RULES = (
    SpacePartlyUnsafe,
    SpaceAllUnsafe,
    NumberReadAsString,
    ConstraintViolated,
    OomNotHandled,
    InvalidConfig,
    LengthExceedsPositions,
    BatchSizeMismatch,
    FitsOnlyIf,
)


def findings(case: Case) -> list[Finding]:
    return all_findings(case, *RULES)


@pytest.mark.parametrize(
    "quiet",
    [
        case({"train.batch_size": 4, "train.seq_len": 128}, device=Device()),
        case(WRITTEN, device=Device(), axes=(SIZES, LENGTHS), worst={"bs": 8, "len": 1024}, counts=Counts(fits=24)),
        space(Counts(unknown=24), device=Device(capacity=None)),
        case({"train.batch_size": 4, "train.seq_len": 512, "model.config": {"n_positions": 1024}}),
        case({"train.batch_size": 4}, constants={"train_batch_size": Const(64, origin(9))}),
    ],
    ids=["single", "all fits", "all unknown", "short enough", "a usual name for the micro-batch"],
)
def test_silent(quiet: Case) -> None:
    assert findings(quiet) == []


def test_partly_unsafe_counts_names_and_keeps() -> None:
    [finding] = findings(space(Counts(fits=16, at_risk=2, exceeds=6)))
    assert finding.rule == "space-partly-unsafe"
    assert finding.severity is Severity.error
    assert "8 of 24 combinations do not fit (6 exceed, 2 at risk)" in finding.message
    assert "bs=32, len=1024" in finding.message
    assert "34 GiB of 16 GiB" in finding.message
    assert finding.origin == origin(3)
    assert any("16 combinations are safe: bs in 4, 8" in note for note in finding.notes)
    [keep] = [p for p in finding.proposals if any(change.keep for change in p.changes)]
    assert keep.safety is Safety.unsafe
    assert [(change.field, change.keep) for change in keep.changes] == [("bs", (4, 8))]


def test_a_space_without_number_is_judged_by_its_worst() -> None:
    [finding] = findings(space(Counts(exact=False)))
    assert (finding.rule, finding.severity) == ("space-partly-unsafe", Severity.error)
    assert "unbounded number of combinations" in finding.message


def test_only_risky_is_a_warning() -> None:
    [finding] = findings(space(Counts(fits=22, at_risk=2), device=Device(capacity=35 * GIB)))
    assert finding.severity is Severity.warning


def test_a_worst_that_exceeds_is_an_error_whatever_is_counted() -> None:
    """Beside a box without a number, the counts of the others say nothing of it."""
    [finding] = findings(space(Counts(fits=24, exact=False)))
    assert (finding.rule, finding.severity) == ("space-partly-unsafe", Severity.error)


def test_code_without_branches_is_a_report_only() -> None:
    found = findings(space(Counts(fits=16, exceeds=8), facts={"search": "optuna"}))
    assert [finding.rule for finding in found] == ["space-partly-unsafe", "oom-not-handled"]
    assert not [p for p in found[0].proposals if any(change.keep for change in p.changes)]


def test_every_model_has_its_own_safe_part() -> None:
    one = space(Counts(fits=16, exceeds=8), facts={"search": "wandb", "handles_oom": True})
    models = (
        ModelVerdict("model", "small", Counts(fits=12), SafeBox({"bs": (4, 8, 32)}, 12)),
        ModelVerdict("model", "large", Counts(fits=4, exceeds=8), SafeBox({"bs": (4,)}, 4, {"bs": (8, 32)})),
        ModelVerdict("model", "giant", Counts(exceeds=12)),
    )
    boxes = tuple(replace(verdict, by_model=models) for verdict in one.space.boxes)
    [finding] = findings(replace(one, space=replace(one.space, boxes=boxes)))
    assert finding.notes[:3] == (
        "small: 12 of 12 combinations fit",
        "large: 4 of 12 combinations fit; all fit with bs in 4",
        "giant: 0 of 12 combinations fit",
    )


def test_all_unsafe() -> None:
    [finding] = findings(space(Counts(exceeds=24), safe=None))
    assert finding.rule == "space-all-unsafe"
    assert "none of the 24 combinations fits" in finding.message
    assert "2 GiB of it weights, gradients and optimizer states" in finding.message


@pytest.mark.parametrize(("handled", "found"), [(True, 0), (False, 1), (None, 1)])
def test_out_of_memory_handling(handled: bool | None, found: int) -> None:
    facts = {"search": "optuna"} | ({} if handled is None else {"handles_oom": handled})
    names = [finding.rule for finding in findings(space(Counts(fits=16, exceeds=8), facts=facts))]
    assert names.count("oom-not-handled") == found
