"""Validation loaders that start beside the training ones."""

from __future__ import annotations

from cases import GIB, Host, case, origin
from cases import findings as all_findings

from preflight.vocabulary.findings import Finding, Safety, Severity
from preflight.vocabulary.machine import Node
from preflight.vocabulary.reading import Request
from preflight.vocabulary.rule import Case
from preflight.vocabulary.values import Const
from preflight_rules.host_memory_exceeded import HostMemoryExceeded
from preflight_rules.shared import loaders
from preflight_rules.validation_memory_spike import ValidationMemorySpike

MIB = 2**20


def findings(case: Case) -> list[Finding]:
    """Of the two rules about a node's memory exactly one may speak."""
    return all_findings(case, HostMemoryExceeded, ValidationMemorySpike)


SLURM = {
    "train.batch_size": 22,
    "data.workers": 2,
    "data.validation_workers": 2,
    "data.persistent_workers": True,
    "parallel.ranks_per_node": 4,
    "machine.memory_limit": Const(256 * GIB),
}


REQUEST = Request(memory=256 * GIB, origins={"memory": origin(20)})


def slurm(sample: int | None, node: Node | None = None, batch: int = 22) -> Case:
    written = {**SLURM, "train.batch_size": batch}
    written = written if sample is None else {**written, "data.sample_bytes": Const(sample)}
    return case(written, host=Host(), request=REQUEST, node=node)


def test_a_spike_raises_the_request_and_quiets_the_loaders() -> None:
    [finding] = findings(slurm(2300 * MIB, Node("l40s", memory=513 * GIB)))
    assert finding.rule == "validation-memory-spike"
    assert "training fits with 198" in finding.message
    assert finding.origin in (origin(1), origin(2), origin(3))
    assert origin(20) in {place for place, _ in finding.related}
    best = finding.proposals[0]
    assert best.safety is Safety.safe
    changes = {change.field: change.value for change in best.changes}
    assert changes == {"request.memory": 313 * GIB, "data.persistent_workers": False}


def test_a_spike_without_a_known_node_quiets_the_loaders_alone() -> None:
    [finding] = findings(slurm(2300 * MIB))
    assert {change.field: change.value for change in finding.proposals[0].changes} == {"data.persistent_workers": False}


def test_an_unknown_sample_is_solved_for() -> None:
    [finding] = findings(slurm(None, batch=22_000))
    assert finding.rule == "validation-memory-spike"
    assert finding.severity is Severity.info
    assert "fits only if one decoded sample is at most" in finding.message
    assert "data.sample_bytes" in finding.message
    job = slurm(None, batch=22_000).job
    threshold = loaders.sample_threshold(job)
    assert threshold is not None
    assert 0 < threshold < (loaders.sample_threshold(job, training_only=True) or 0)


def test_samples_of_any_usual_size_that_fit_are_no_finding() -> None:
    assert loaders.sample_threshold(slurm(None).job) is not None
    assert findings(slurm(None)) == []
