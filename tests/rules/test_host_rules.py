"""Host rules: silence first, then limits, spikes, thresholds and the gentlest change that suffices."""

from __future__ import annotations

import pytest
from cases import GIB, Host, case, origin, spread
from cases import findings as all_findings

from preflight.machines.model import Node
from preflight.vocabulary.estimates import HostEstimate
from preflight.vocabulary.findings import Finding, Safety, Severity
from preflight.vocabulary.reading import Launch, Request
from preflight.vocabulary.records import replace
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
    assert "32 GiB may be used" in finding.message


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


SLURM = {
    "train.batch_size": 22,
    "data.workers": 2,
    "data.validation_workers": 2,
    "data.persistent_workers": True,
    "parallel.ranks_per_node": 4,
    "machine.memory_limit": Const(256 * GIB),
}
REQUEST = Request(memory=256 * GIB, origins={"memory": origin(20)})


def slurm(sample: int | None, node: Node | None = None) -> Case:
    written = SLURM if sample is None else {**SLURM, "data.sample_bytes": Const(sample)}
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
    [finding] = findings(slurm(None))
    assert finding.rule == "validation-memory-spike"
    assert finding.severity is Severity.info
    assert "fits only if one decoded sample is at most" in finding.message
    assert "data.sample_bytes" in finding.message
    threshold = loaders.sample_threshold(slurm(None).job)
    assert threshold is not None
    assert 0 < threshold < (loaders.sample_threshold(slurm(None).job, training_only=True) or 0)


def test_workers_and_processors() -> None:
    [finding] = findings(case({"data.workers": 16, "machine.cpus": Const(8)}))
    assert finding.rule == "workers-exceed-cpus"
    assert "16 workers on 8 CPUs" in finding.message
    assert [(c.field, c.value) for c in finding.proposals[0].changes] == [("data.workers", 8)]


def test_processors_of_one_task_count() -> None:
    request = Request(cpus_per_task=4, origins={"cpus_per_task": origin(30)})
    written = {"data.workers": 8, "machine.cpus": Const(16), "parallel.ranks_per_node": Const(4)}
    [finding] = findings(case(written, request=request))
    assert finding.related == ((origin(30), "4 CPUs per task"),)


def test_ranks_of_one_task_share_its_processors() -> None:
    request = Request(cpus_per_task=2, tasks_per_node=1, origins={"cpus_per_task": origin(30)})
    written = {"data.workers": 8, "parallel.ranks_per_node": Const(4)}
    one = case(written, request=request)
    study = replace(one.study, launch=Launch("torchrun"))
    [finding] = list(WorkersExceedCpus().check(replace(one, study=study)))
    assert finding.message == "4 ranks with 8 workers each on 2 CPUs: 1 in each rank can run at a time"
    assert [change.value for change in finding.proposals[0].changes] == [1]


SHARED = {"train.batch_size": 8, "data.workers": Const(4, origin(2)), "data.sample_bytes": MIB}


@pytest.mark.parametrize(
    "written",
    [
        {**SHARED},
        {**SHARED, "machine.shm": 72 * MIB},
        {**SHARED, "machine.shm": MIB, "data.workers": 0},
        {"train.batch_size": 1, "data.workers": 1, "machine.shm": 64 * MIB},
    ],
    ids=["unknown", "just enough", "no workers", "only samples of 21 MiB would not fit"],
)
def test_enough_shared_memory(written: dict[str, object]) -> None:
    assert findings(case(written)) == []  # type: ignore[arg-type]


def test_shared_memory_is_filled_to_the_byte() -> None:
    [finding] = findings(case({**SHARED, "machine.shm": Const(72 * MIB - 1, origin(7))}))
    assert (finding.rule, finding.severity) == ("shm-too-small", Severity.error)
    assert finding.interval == (72 * MIB,) * 3
    assert finding.origin == origin(7)
    assert [(c.field, c.value) for c in finding.proposals[0].changes] == [("data.workers", 2)]


def offloading(limit: int) -> HostEstimate:
    need = spread(40 * GIB)
    return HostEstimate(need, {"base": 4 * GIB, "offload": 36 * GIB}, limit, "node_memory", need.verdict(limit))


def test_offloaded_states_are_spoken_of_once() -> None:
    written = {"model.parameters": 2 * 10**9, "parallel.offload": "optimizer", "parallel.strategy": "zero3"}
    for limit, rules in ((64, []), (32, ["offload-exceeds-host"])):
        found = findings(case(written, host=lambda _, limit=limit: offloading(limit * GIB)))  # type: ignore[misc]
        assert [finding.rule for finding in found] == rules


def test_copies_are_named_where_they_are_large() -> None:
    written = {"data.workers": 8, "data.in_memory_bytes": GIB, "data.in_memory_kind": "objects"}
    for copies, rules in ((GIB, []), (4 * GIB, ["dataset-copied-per-worker"])):
        need = spread(8 * GIB)
        host = HostEstimate(need, {"base": GIB, "copy_on_write": copies}, None, "unknown", "unknown")
        found = findings(case(written, host=lambda _, host=host: host))  # type: ignore[misc]
        assert [finding.rule for finding in found] == rules
