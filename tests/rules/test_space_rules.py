"""Rules about search spaces, searches and settings that contradict each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import GIB, Device, case, origin
from cases import findings as all_findings

from preflight.engine.settings import Settings
from preflight.vocabulary.findings import Finding, Safety, Severity
from preflight.vocabulary.reading import Problem
from preflight.vocabulary.rule import Case
from preflight.vocabulary.values import Axis, Choices, Const, Range, Ref, Value
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


def space(counts: Counts, safe: SafeBox | None = SAFE, **more: object) -> Case:
    return case(
        WRITTEN,
        device=Device(),
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
        space(Counts(unknown=24)),
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
    [finding] = findings(space(Counts(fits=22, at_risk=2)))
    assert finding.severity is Severity.warning


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
        "large: 4 of 12 combinations fit; all do with bs in 4",
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


def test_problems_become_findings_with_their_repair() -> None:
    problem = Problem("number-read-as-string", "1e-5 is read as text", origin(7), "warning", fix="1.0e-5", safe=True)
    [finding] = findings(case({}, problems=(problem,)))
    assert (finding.rule, finding.severity, finding.origin) == (problem.rule, Severity.warning, origin(7))
    [proposal] = finding.proposals
    assert proposal.safety is Safety.safe
    assert (proposal.edits[0].span, proposal.edits[0].text) == (origin(7).span, "1.0e-5")


@pytest.mark.parametrize(
    ("model", "usable", "severity"),
    [
        ({"model_type": "bert", "max_position_embeddings": 512}, 512, Severity.error),
        ({"model_type": "roberta", "max_position_embeddings": 514}, 512, Severity.error),
        ({"model_type": "llama", "max_position_embeddings": 8192}, 8192, Severity.warning),
        ({"block_size": 256}, 256, Severity.error),
    ],
)
def test_length_and_positions(model: dict[str, object], usable: int, severity: Severity) -> None:
    written = {"model.config": Const(model), "train.seq_len": usable + 1}  # type: ignore[arg-type]
    [finding] = findings(case(written))
    assert (finding.rule, finding.severity) == ("length-exceeds-positions", severity)
    assert finding.origin == origin(2)
    assert [(c.field, c.value) for c in finding.proposals[0].changes] == [("train.seq_len", usable)]
    assert not findings(case({**written, "train.seq_len": usable}))


def test_swept_lengths_are_dropped_beyond_the_positions() -> None:
    axis = Axis("len", Choices((256, 512, 1024), (origin(1), origin(2), origin(3))), origin(1), ("train.seq_len",))
    model = Const({"model_type": "bert", "max_position_embeddings": 512})  # type: ignore[dict-item]
    one = case({"train.seq_len": Ref("len"), "model.config": model}, axes=(axis,), worst={"len": 256})
    [finding] = findings(one)
    assert finding.origin == origin(3)
    assert finding.proposals[0].changes[0].keep == (256, 512)


@pytest.mark.parametrize(("stated", "wrong"), [(32, False), (16, False), (48, True)])
def test_a_stated_effective_batch(stated: int, wrong: bool) -> None:
    written = {"train.batch_size": 8, "train.grad_accum": 2, "parallel.ranks_per_node": 2}
    found = findings(case(written, constants={"data.effective_batch_size": Const(stated, origin(9))}))
    assert [finding.rule for finding in found] == ["batch-size-mismatch"] * wrong
    if wrong:
        assert found[0].severity is Severity.warning
        assert "effective_batch_size is 48, but micro-batch 8 x accumulation 2 x ranks 2 is 32" in found[0].message


def test_unknown_length_shows_the_frontier() -> None:
    def device(job):  # type: ignore[no-untyped-def]
        return None if job.train.seq_len is None else Device(states=2 * GIB)(job)

    one = case({"train.batch_size": 8, "train.grad_accum": 1}, device=device, unknown=("train.seq_len",))
    [finding] = findings(one)
    assert (finding.rule, finding.severity) == ("fits-only-if", Severity.info)
    assert "up to 1,664 at batch 8, 3,328 at batch 4, 6,656 at batch 2, 13,312 at batch 1" in finding.message


OPEN = {
    "no GPU": (
        {"train.batch_size": 8}, ("train.seq_len",), None,
        "the length is unknown: at batch 8 it needs 3 GiB at 128, 6 GiB at 512, 18 GiB at 2,048",
    ),
    "length and batch": (
        {}, ("train.seq_len", "train.batch_size"), 16 * GIB,
        "length and batch are unknown: it fits the GPU up to 416 at batch 32, 1,664 at batch 8, 13,312 at batch 1",
    ),
    "the batch alone, no GPU": (
        {"train.seq_len": 512}, ("train.batch_size",), None,
        "the batch size is unknown: it needs 2.5 GiB at 1, 6 GiB at 8, 18 GiB at 32",
    ),
    "a batch that never fits": (
        {"train.seq_len": 2**17}, ("train.batch_size",), 16 * GIB, "the batch size is unknown, and not even 1 fits",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("written", "unknown", "capacity", "says"), OPEN.values(), ids=OPEN.keys())
def test_what_is_unknown_is_solved_for(
    written: dict[str, Value], unknown: tuple[str, ...], capacity: int | None, says: str
) -> None:
    def device(job):  # type: ignore[no-untyped-def]
        known = job.train.seq_len is not None and job.train.batch_size is not None
        return Device(capacity=capacity, states=2 * GIB)(job) if known else None

    [finding] = findings(case(written, device=device, unknown=unknown))
    assert (finding.rule, finding.severity) == ("fits-only-if", Severity.info)
    assert says in finding.message


def test_stated_invariants() -> None:
    axis = Axis("d", Choices((1000, 5000)), origin(4))
    settings = Settings(constraints={"vocabulary": "vocab >= d * (l - 1) + 1"})
    constants = {"vocab": Const(10_000, origin(9)), "l": Const(5, origin(8))}
    [finding] = findings(case({}, axes=(axis,), worst={"d": 5000}, constants=constants, settings=settings))
    assert finding.rule == "constraint-violated"
    assert "does not hold for d=5000" in finding.message
    assert finding.origin == origin(9)
    assert {place for place, _ in finding.related} == {origin(4), origin(8)}
    enough = {**constants, "vocab": Const(20_001, origin(9))}
    assert findings(case({}, axes=(axis,), worst={"d": 5000}, constants=enough, settings=settings)) == []
