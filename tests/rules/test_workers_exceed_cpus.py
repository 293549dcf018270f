"""Workers against the processors that a job has."""

from __future__ import annotations

from cases import case, origin
from cases import findings as all_findings
from msgspec.structs import replace

from preflight.vocabulary.findings import Finding
from preflight.vocabulary.reading import Launch, Request
from preflight.vocabulary.rule import Case
from preflight.vocabulary.values import Const
from preflight_rules.workers_exceed_cpus import WorkersExceedCpus


def findings(case: Case) -> list[Finding]:
    return all_findings(case, WorkersExceedCpus)


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
