"""Host rules: silence first, then limits, spikes, thresholds and the gentlest change that suffices."""

from __future__ import annotations

import pytest
from cases import GIB, Host, case, origin, spread
from cases import findings as all_findings

from preflight.vocabulary.estimates import HostEstimate
from preflight.vocabulary.findings import Finding, Safety, Severity
from preflight.vocabulary.rule import Case
from preflight.vocabulary.values import Const, Op
from preflight_rules.checkpoint_loaded_per_rank import CheckpointLoadedPerRank
from preflight_rules.dataset_copied_per_worker import DatasetCopiedPerWorker
from preflight_rules.host_memory_exceeded import HostMemoryExceeded
from preflight_rules.offload_exceeds_host import OffloadExceedsHost
from preflight_rules.shared import loaders
from preflight_rules.shm_too_small import ShmTooSmall
from preflight_rules.validation_memory_spike import ValidationMemorySpike
from preflight_rules.workers_exceed_cpus import WorkersExceedCpus

MIB = 2**20
WORKERS = Const(16, origin(2, "train_sweep.sh"))
BATCH = Const(64, origin(1, "sweep.sh"))
SWEEP = {
    "train.batch_size": BATCH,
    "data.workers": WORKERS,
    "data.validation_workers": Op("*", (WORKERS, Const(2)), WORKERS.origin),
    "validation.batch_size": Op("*", (BATCH, Const(2)), BATCH.origin),
    "data.validation_overlaps": True,
}


RULES = (
    HostMemoryExceeded,
    ValidationMemorySpike,
    WorkersExceedCpus,
    ShmTooSmall,
    DatasetCopiedPerWorker,
    CheckpointLoadedPerRank,
    OffloadExceedsHost,
)


def findings(case: Case) -> list[Finding]:
    return all_findings(case, *RULES)


@pytest.mark.parametrize(
    "quiet",
    [
        case({"train.batch_size": 8, "data.workers": 2, "data.sample_bytes": MIB}, host=Host()),
        case({"train.batch_size": 64, "data.workers": 16, "data.sample_bytes": MIB * 99}, host=Host(limit=None)),
        case({"train.batch_size": 64, "data.workers": 16}, host=Host()),
        case({"data.workers": 4, "machine.cpus": 4}),
        case({"data.workers": 4}),
    ],
    ids=["fits", "no limit", "sample unknown, no validation", "as many workers as CPUs", "CPUs unknown"],
)
def test_silent(quiet: Case) -> None:
    assert findings(quiet) == []


def sweep(sample: int, **more: object) -> Case:
    written = {**SWEEP, "data.sample_bytes": Const(sample)}
    return case(written, host=Host(), facts={"nominal_batch": 64, "framework": "ultralytics", **more})


def test_both_lines_are_located() -> None:
    [finding] = findings(sweep(8 * MIB))
    assert finding.rule == "host-memory-exceeded"
    assert finding.severity is Severity.error
    places = {finding.origin, *(place for place, _ in finding.related)}
    assert {origin(1, "sweep.sh"), origin(2, "train_sweep.sh")} <= places
    assert "batch 64, 16 workers" in finding.message
    assert "the job may use 32 GiB" in finding.message


@pytest.mark.parametrize(
    ("sample", "changes"),
    [
        (8 * MIB, {"data.workers": 8}),
        (16 * MIB, {"data.workers": 8, "train.batch_size": 32}),
        (32 * MIB, {"data.workers": 4, "train.batch_size": 32}),
        (64 * MIB, {"data.workers": 4, "train.batch_size": 16}),
    ],
)
def test_nothing_is_halved_twice_before_the_other_was_once(sample: int, changes: dict[str, int]) -> None:
    [finding] = findings(sweep(sample))
    best = finding.proposals[0]
    assert best.safety is Safety.safe
    assert {change.field: change.value for change in best.changes} == changes


def test_a_fix_on_a_machine_of_ones_own_leaves_room_for_the_rest() -> None:
    written = {**SWEEP, "data.sample_bytes": Const(8 * MIB), "machine.node_memory": Const(32 * GIB)}
    shared = case(written, host=Host(limit=40 * GIB, limited_by="node_memory + swap"), facts={"nominal_batch": 64})
    [finding] = findings(shared)
    room = loaders.unreserved(shared)
    assert room == 32 * GIB - int((1 + 0.8 + 0.8 + 0.96) * GIB) - 100 * MIB
    # half the workers: 25 GiB expected, below the machine's 40 - but not with room to spare
    assert loaders.fits(shared, {"data.workers": 8})
    changes = {change.field: change.value for change in finding.proposals[0].changes}
    after = loaders.host_after(shared, changes)
    assert after is not None
    assert after.per_node.high <= room


def test_a_batch_that_is_another_run_is_not_touched_by_a_safe_fix() -> None:
    written = {"train.batch_size": 64, "data.workers": 16, "data.sample_bytes": Const(64 * MIB)}
    [finding] = findings(case(written, host=Host()))
    assert {change.field: change.value for change in finding.proposals[0].changes} == {"data.workers": 2}
    assert finding.proposals[0].safety is Safety.safe


def test_batch_alone_is_unsafe() -> None:
    written = {"train.batch_size": 64, "data.sample_bytes": Const(64 * MIB)}
    one = case(written, defaults={"data.workers": 16}, host=Host())
    [finding] = findings(one)
    assert {change.field for change in finding.proposals[0].changes} == {"train.batch_size"}
    assert finding.proposals[0].safety is Safety.unsafe


def offloading(limit: int) -> HostEstimate:
    need = spread(40 * GIB)
    return HostEstimate(need, {"base": 4 * GIB, "offload": 36 * GIB}, limit, "node_memory", need.verdict(limit))


def test_offloaded_states_are_spoken_of_once() -> None:
    written = {"model.parameters": 2 * 10**9, "parallel.offload": "optimizer", "parallel.strategy": "zero3"}
    for limit, rules in ((64, []), (32, ["offload-exceeds-host"])):
        found = findings(case(written, host=lambda _, limit=limit: offloading(limit * GIB)))  # type: ignore[misc]
        assert [finding.rule for finding in found] == rules
