"""Lengths against the positions of a model."""

from __future__ import annotations

import pytest
from cases import case, origin
from cases import findings as all_findings

from preflight.vocabulary.findings import Finding, Severity
from preflight.vocabulary.rule import Case
from preflight.vocabulary.values import Axis, Choices, Const, Ref
from preflight_rules.length_exceeds_positions import LengthExceedsPositions


def findings(case: Case) -> list[Finding]:
    return all_findings(case, LengthExceedsPositions)


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
