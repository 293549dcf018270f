"""Device rules: what they leave alone first, then what they find and what they would do about it."""

from __future__ import annotations

import pytest
from cases import GIB, Device, case, origin
from cases import findings as all_findings

from preflight.vocabulary.estimates import LargestAllocation
from preflight.vocabulary.findings import Proposal, Safety, Severity
from preflight.vocabulary.rule import Case
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Axis, Choices, Ref
from preflight_rules.eval_unbatched import EvalUnbatched
from preflight_rules.gpu_memory_exceeded import GpuMemoryExceeded
from preflight_rules.gpu_memory_tight import GpuMemoryTight
from preflight_rules.logits_exceed_gpu import LogitsExceedGpu
from preflight_rules.shared import remedies
from preflight_rules.shared.vocabulary_size import cap_vocabulary
from preflight_rules.states_exceed_gpu import StatesExceedGpu

FITS = {"train.batch_size": 8, "train.seq_len": 1024}
TOO_BIG = {"train.batch_size": 32, "train.seq_len": 1024, "train.grad_accum": 2, "model.name": "gpt2"}


RULES = (GpuMemoryExceeded, GpuMemoryTight, StatesExceedGpu, LogitsExceedGpu, EvalUnbatched)


def findings(case: Case) -> dict[str, list]:
    found: dict[str, list] = {}
    for finding in all_findings(case, *RULES):
        found.setdefault(finding.rule, []).append(finding)
    return found


@pytest.mark.parametrize(
    "quiet",
    [
        case(FITS, device=Device()),
        case(TOO_BIG, device=Device(capacity=None)),
        case(TOO_BIG),
        case({"train.seq_len": 1024}, device=Device()),
        case(FITS, device=Device(), facts={"eval_unbatched": False}),
    ],
    ids=["fits", "no capacity", "no estimate", "batch unknown", "evaluation in batches"],
)
def test_silent(quiet: Case) -> None:
    assert findings(quiet) == {}


def test_exceeded_says_what_where_and_how_much() -> None:
    found = findings(case(TOO_BIG, device=Device()))
    assert list(found) == ["gpu-memory-exceeded"]
    [finding] = found["gpu-memory-exceeded"]
    assert finding.severity is Severity.error
    assert "gpt2, batch 32 x 1024, accumulation 2, fp32, adamw (foreach) needs 34 GiB" in finding.message
    assert "16 GiB" in finding.message
    assert finding.origin == origin(1)
    assert (finding.capacity, finding.interval[1]) == (16 * GIB, 34 * GIB)
    assert any("weights, gradients and optimizer states: 2 GiB" in note for note in finding.notes)


def test_accumulation_keeps_the_product_exactly() -> None:
    [finding] = findings(case(TOO_BIG, device=Device()))["gpu-memory-exceeded"]
    best = finding.proposals[0]
    assert best.safety is Safety.safe
    assert {change.field: change.value for change in best.changes} == {"train.batch_size": 8, "train.grad_accum": 8}
    assert "stays 64" in best.title


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        ("contrastive_loss", "contrastive"),
        ("batch_norm", "batch normalisation"),
        ("token_mean_loss", "tokens"),
        ("scheduler_per_micro_batch", "scheduler"),
    ],
)
def test_accumulation_is_unsafe_where_it_is_another_run(fact: str, words: str) -> None:
    [finding] = findings(case(TOO_BIG, device=Device(), facts={fact: True}))["gpu-memory-exceeded"]
    best = finding.proposals[0]
    assert best.safety is Safety.unsafe
    assert words in best.reason
    assert {change.field: change.value for change in best.changes} == {"train.batch_size": 8, "train.grad_accum": 8}


def test_no_accumulation_without_a_place_for_it() -> None:
    written = {"train.batch_size": 32, "train.seq_len": 1024}
    [finding] = findings(case(written, device=Device()))["gpu-memory-exceeded"]
    [batch] = finding.proposals
    assert [change.field for change in batch.changes] == ["train.batch_size"]
    assert (batch.changes[0].value, batch.safety) == (8, Safety.unsafe)
    assert "32 to 8" in batch.reason


def test_a_shorter_length_where_the_batch_has_no_place() -> None:
    one = case({"train.seq_len": 1024}, defaults={"train.batch_size": 32}, device=Device())
    [length] = findings(one)["gpu-memory-exceeded"][0].proposals
    assert (length.changes[0].field, length.changes[0].value, length.safety) == ("train.seq_len", 384, Safety.unsafe)


def test_a_vocabulary_that_is_the_cause_goes_before_the_batch() -> None:
    logits = LargestAllocation(6 * GIB, "lm_head", "200 tokens x 10,000,000 vocabulary x 4")
    written = {"train.batch_size": 4, "train.seq_len": 1024, "train.vocab_size": 10_000_000}
    found = findings(case(written, device=Device(capacity=12 * GIB, logits=logits, vocabulary=1000)))
    assert found["logits-exceed-gpu"][0].proposals[0].changes[0].field == "train.vocab_size"
    assert "gpu-memory-exceeded" not in found, "one cause, one finding"


def test_nominal_batch_is_the_same_run() -> None:
    written = {"train.batch_size": 32, "train.seq_len": 1024}
    facts = {"nominal_batch": 64, "framework": "ultralytics"}
    [finding] = findings(case(written, device=Device(), facts=facts))["gpu-memory-exceeded"]
    assert finding.proposals[0].safety is Safety.safe
    [other] = findings(case({**written, "model.name": "yolov8n.pt"}, device=Device(), facts=facts))[
        "gpu-memory-exceeded"
    ]
    assert other.proposals[0].safety is Safety.unsafe
    assert other.proposals[0].changes == finding.proposals[0].changes
    assert [(c.field, c.value) for c in finding.proposals[0].changes] == [("train.batch_size", 8)]


def test_checkpointing_where_no_batch_is_small_enough() -> None:
    written = {"train.batch_size": 1, "train.seq_len": 20480, "train.gradient_checkpointing": False}
    [finding] = findings(case(written, device=Device()))["gpu-memory-exceeded"]
    assert finding.proposals[0].safety is Safety.safe
    assert [(c.field, c.value) for c in finding.proposals[0].changes] == [("train.gradient_checkpointing", True)]


def test_evaluation_batch_where_evaluation_is_the_peak() -> None:
    written = {**FITS, "validation.batch_size": 256}
    [finding] = findings(case(written, device=Device(evaluation=GIB // 8)))["gpu-memory-exceeded"]
    assert finding.origin == origin(3)
    assert "at validation (batch 256)" in finding.message
    assert finding.proposals[0].safety is Safety.safe
    assert [(c.field, c.value) for c in finding.proposals[0].changes] == [("validation.batch_size", 64)]


def test_no_smaller_evaluation_batch_where_it_is_the_whole_set() -> None:
    """It would be fewer samples, and another result."""
    written = {**FITS, "validation.batch_size": 256}
    one = case(written, device=Device(evaluation=GIB // 8), facts={"eval_unbatched": True})
    [finding] = findings(one)["gpu-memory-exceeded"]
    assert not [c for proposal in finding.proposals for c in proposal.changes if c.field == "validation.batch_size"]


@pytest.mark.parametrize(("fact", "said"), [({"saves_late": True}, True), ({}, False)])
def test_no_checkpoint_before_a_validation_that_does_not_fit(fact: dict[str, object], said: bool) -> None:
    written = {**FITS, "validation.batch_size": 256}
    [finding] = findings(case(written, device=Device(evaluation=GIB // 8), facts=fact))["gpu-memory-exceeded"]
    words = "at validation (batch 256); no checkpoint is written before the first validation"
    assert (words in finding.message) is said


def test_logits_are_named_with_their_product() -> None:
    size = 200 * 10_000_000 * 4
    logits = LargestAllocation(size, "lm_head", "200 tokens x 10,000,000 vocabulary x 4")
    written = {**TOO_BIG, "train.vocab_size": 10_000_000}
    device = Device(logits=logits, vocabulary=1000)
    found = findings(case(written, device=device))
    [finding] = found["logits-exceed-gpu"]
    assert "200 tokens x 10,000,000 vocabulary x 4 = 7.45 GiB" in finding.message
    assert finding.origin == origin(5)
    assert "logits-exceed-gpu" not in findings(case(TOO_BIG, device=Device()))


def test_the_evaluation_is_not_to_blame_for_logits_of_the_training() -> None:
    logits = LargestAllocation(6 * GIB, "lm_head", "200 tokens x 10,000,000 vocabulary x 4")
    written = {**TOO_BIG, "validation.batch_size": 32}
    [finding] = findings(case(written, device=Device(logits=logits, vocabulary=1000)))["logits-exceed-gpu"]
    assert finding.origin == case(written).origin("train.batch_size")


def test_vocabulary_is_capped_in_round_numbers() -> None:
    written = {"train.vocab_size": 10_000_000, "train.batch_size": 1, "train.seq_len": 1}

    def proposals(bound: int) -> list[Proposal]:
        settings = Settings(constraints={"vocabulary": f"train.vocab_size >= {bound}"})
        return list(cap_vocabulary(case(written, device=Device(vocabulary=4000), settings=settings)))

    [proposal] = proposals(4001)
    assert proposal.safety is Safety.unsafe
    assert proposal.changes[0].value == 3_000_000
    assert "4,001" in proposal.reason
    assert proposals(3_333_333)[0].changes[0].value == 3_333_333
    assert proposals(9_000_000) == []


def test_axes_of_a_constraint_are_cut_where_the_vocabulary_cannot_be() -> None:
    written = {"train.vocab_size": 10_000_000, "train.batch_size": 1, "train.seq_len": 1}
    axis = Axis("d", Choices((5000, 1_000_000, 10_000)), origin(4))
    settings = Settings(constraints={"vocabulary": "train.vocab_size >= d * 4 + 1"})
    device = Device(vocabulary=8000)
    [proposal] = cap_vocabulary(case(written, device=device, settings=settings, axes=(axis,), worst={"d": 5000}))
    assert [(c.field, c.keep or c.value) for c in proposal.changes] == [
        ("d", (5000, 10_000)),
        ("train.vocab_size", 1_000_000),
    ]


def test_a_swept_batch_is_not_edited_as_if_it_were_one_value() -> None:
    axis = Axis("bs", Choices((32,), (origin(1),)), origin(1), ("train.batch_size",))
    other = Axis("lr", Choices((1, 2)), origin(2))
    written = {"train.batch_size": Ref("bs"), "train.seq_len": 1024, "train.grad_accum": 1}
    one = case(written, device=Device(), axes=(axis, other), worst={"bs": 32, "lr": 1})
    assert findings(one)["gpu-memory-exceeded"][0].proposals[0].safety is Safety.safe
    two = Axis("bs", Choices((32, 64)), origin(1), ("train.batch_size",))
    assert remedies.accumulation_hazard(case(written, axes=(two,), worst={"bs": 32})).startswith(
        "the batch size is part of the search"
    )


@pytest.mark.parametrize(("generates", "word"), [(True, "a separate run"), (False, "a smaller evaluation batch")])
def test_images_that_do_not_fit_are_generated_elsewhere(generates: bool, word: str) -> None:
    fields = {**FITS, "task": "diffusion", "validation.batch_size": 1, "validation.generates": generates}
    (finding,) = findings(case(fields, device=Device(evaluation=20 * GIB)))["gpu-memory-exceeded"]
    assert any(word in line for line in finding.help)


def test_tight() -> None:
    found = findings(case({"train.batch_size": 14, "train.seq_len": 1000}, device=Device()))
    assert list(found) == ["gpu-memory-tight"]
    assert found["gpu-memory-tight"][0].severity is Severity.warning


def test_states_alone_never_advise_a_smaller_batch() -> None:
    found = findings(case(TOO_BIG, device=Device(states=20 * GIB)))
    assert list(found) == ["states-exceed-gpu"]
    [finding] = found["states-exceed-gpu"]
    assert "20 GiB" in finding.message
    assert "no smaller batch helps" in finding.message
    assert not any(c.field == "train.batch_size" for p in finding.proposals for c in p.changes)
    assert not any("smaller batch" in line for line in finding.help)


def test_a_need_that_is_likely_to_fit_is_a_remark() -> None:
    """From a GPU that is too small to one with room: an error, a warning, a remark, nothing."""
    said: list[Severity | None] = []
    for tenths in range(80, 140):
        [*found] = all_findings(case(FITS, device=Device(capacity=tenths * GIB // 10)), *RULES)
        severity = found[0].severity if found else None
        if not said or said[-1] is not severity:
            said.append(severity)
    assert said == [Severity.error, Severity.warning, Severity.info, None]
