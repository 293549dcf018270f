"""SLURM's own words in a log, and its accounting in every form."""

from __future__ import annotations

import json

import pytest
from reader import all_of, cause, concluded, only, read

from preflight.postmortem.conclude import conclude, of_job
from preflight.postmortem.evidence import Accounting, JobEnded, MemoryExceeded, Named, StepKilled

GIB = 2**30


@pytest.mark.parametrize(
    ("line", "job", "step", "count"),
    [
        ("slurmstepd: error: Detected 4 oom_kill events in StepId=4711.0. Some of the step tasks", "4711", "0", 4),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=4711.batch. Some of the step", "4711", "batch", 1),
        ("slurmstepd-n7: error: Detected 9 oom-kill event(s) in step 4711.batch cgroup. Some of", "4711", "batch", 9),
        ("[2026-02-24T23:34:12.229] error: Detected 1 oom_kill event in StepId=4711", "4711", "", 1),
        ("3: slurmstepd: error: Detected 52 oom-kill event(s) in StepId=4711_3.extern cgroup.", "4711", "extern", 52),
    ],
)
def test_events_of_every_generation(line: str, job: str, step: str, count: int) -> None:
    found = only(line + "\n", StepKilled)
    assert (found.job, found.step, found.count) == (job, step, count)


@pytest.mark.parametrize(
    ("line", "limit"),
    [
        ("slurmstepd: error: StepId=39.batch exceeded memory limit (6526939136 > 4294967296), being killed", 4 * GIB),
        ("slurmstepd: error: Job 41176 exceeded memory limit (3940736 > 2097152), being killed", 2 * GIB),  # KiB
        ("slurmstepd: error: Job 41176 exceeded memory limit (400000000 > 100000000), being killed", None),  # either
        ("slurmstepd: error: Exceeded job memory limit", None),
    ],
)
def test_a_limit_that_slurm_enforced_itself(line: str, limit: int | None) -> None:
    assert only(line + "\n", MemoryExceeded).limit == limit
    assert cause(line + "\n").limit == "cgroup"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("slurmstepd: error: *** JOB 7 ON c0662 CANCELLED AT 2026-10-02T14:02:37 DUE TO TIME LIMIT ***", "time"),
        ("slurmstepd: error: *** STEP 7.0 ON c0662 CANCELLED AT 2026-10-02T14:02:37 DUE TO TIME LIMIT ***", "time"),
        ("1: slurmstepd: error: *** STEP 7 ON hpc CANCELLED DUE TO TIME LIMIT ***", "time"),
        (
            "slurmstepd: error: *** JOB 7 ON c1 CANCELLED AT 2026-10-02T14:02:37 DUE TO NODE FAILURE, SEE SLURMCTLD",
            "node-failure",
        ),
        ("slurmstepd: error: *** JOB 7 ON c1 CANCELLED AT 2026-10-02T14:02:37 DUE TO PREEMPTION ***", "preempted"),
        ("slurmstepd: error: *** JOB 7 ON c1 CANCELLED AT 2026-10-02T14:02:37 ***", "cancelled"),
        ("srun: error: Node failure on n042", "node-failure"),
    ],
)
def test_who_ended_it(line: str, reason: str) -> None:
    assert only(line + "\n", JobEnded).reason == reason


def test_a_time_limit_is_no_matter_of_memory() -> None:
    found = cause("slurmstepd: error: *** JOB 7 ON n CANCELLED AT 2026-10-02T14:02:37 DUE TO TIME LIMIT ***\n")
    assert found.limit == "time"
    assert found.gpu is None
    assert found.host is None


def test_a_cancelled_step_is_how_a_kill_spreads() -> None:
    text = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
        "slurmstepd: error: *** STEP 7.0 ON n CANCELLED AT 2026-10-02T14:02:37 ***\n"
    )
    assert [one.limit for one in concluded(text).causes] == ["cgroup"]


PARSABLE = """\
JobID|JobName|State|ExitCode|ReqMem|MaxRSS|AveRSS|AllocTRES|NNodes|NTasks|AllocCPUS|WorkDir|SubmitLine
900|train|OUT_OF_MEMORY|0:125|256G|||cpu=256,gres/gpu=16,mem=1T,node=4|4||256|/work/u|sbatch -p gpu train.slurm
900.batch|batch|CANCELLED|0:15||180M||cpu=64,mem=256G,node=1|1|1|64||
900.0|python|OUT_OF_MEMORY|0:125||76021880K|74868326K|cpu=256,mem=1T,node=4|4|16|256||srun python train.py
"""
COLUMNS = """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode     MaxRSS     ReqMem
------------ ---------- ---------- ---------- ---------- ---------- -------- ---------- ----------
900          train-mod+        gpu                     8 OUT_OF_ME+    0:125                  64Gn
900.batch         batch                                8 OUT_OF_ME+    0:125  61000000K       64Gn
"""


def test_parsable_rows() -> None:
    job, batch, step = all_of(PARSABLE, Accounting)
    assert (job.state, job.exit_code, job.signal, job.per_node) == ("OUT_OF_MEMORY", 0, 125, 256 * GIB)
    assert (batch.step, batch.state, batch.per_node) == ("batch", "CANCELLED", 256 * GIB)
    assert (step.largest_task, step.average_task, step.tasks) == (76021880 * 1024, 74868326 * 1024, 16)
    assert job.submit_line == "sbatch -p gpu train.slurm"


def test_cut_columns_with_an_empty_account() -> None:
    job, batch = all_of(COLUMNS, Accounting)
    assert (job.state, job.requested, job.per, job.largest_task) == ("OUT_OF_MEMORY", 64 * GIB, "node", None)
    assert (batch.step, batch.largest_task) == ("batch", 61000000 * 1024)


@pytest.mark.parametrize(
    ("memory", "cpus", "nodes", "per_node"),
    [("4000Mc", 16, 2, 8 * 4000 * 2**20), ("16Gn", 16, 2, 16 * GIB), ("16G", 16, 1, 16 * GIB), ("16G", 16, 2, None)],
)
def test_what_was_requested_per_node(memory: str, cpus: int, nodes: int, per_node: int | None) -> None:
    text = f"JobID|State|ExitCode|ReqMem|AllocCPUS|NNodes\n5|FAILED|1:0|{memory}|{cpus}|{nodes}\n"
    assert only(text, Accounting).per_node == per_node


def test_max_rss_is_one_tasks_sample() -> None:
    [one] = [one for one in concluded(PARSABLE).misleading if "MaxRSS" in one.figure]
    assert "72.5 GiB" in one.figure
    assert "4 tasks ran on each node" in one.why


def number(value: int, generation: str) -> object:
    return value if generation == "21.08" else {"set": True, "infinite": False, "number": value}


@pytest.mark.parametrize("generation", ["21.08", "23.11"])
def test_json_of_two_generations(generation: str) -> None:
    state = "OUT_OF_MEMORY" if generation == "21.08" else ["OUT_OF_MEMORY"]
    signal = (
        {"signal_id": 125, "name": ""} if generation == "21.08" else {"id": number(125, generation), "name": "UNKNOWN"}
    )
    exit_code = {"status": "SIGNALED", "return_code": number(0, generation), "signal": signal}
    job = {
        "job_id": 900,
        "name": "train",
        "state": {"current": state},
        "exit_code": exit_code,
        "working_directory": "/work/u",
        "submit_line": "sbatch train.slurm",
        "required": {"memory_per_node": number(65536, generation)},
        "tres": {
            "allocated": [{"type": "cpu", "count": 8}, {"type": "mem", "count": 131072}, {"type": "node", "count": 2}]
        },
        "time": {"elapsed": 4000, "limit": number(60, generation)},
        "steps": [
            {
                "step": {"id": "900.0", "name": "python"},
                "state": state,
                "exit_code": exit_code,
                "nodes": {"count": 2},
                "tasks": {"count": 8},
                "tres": {"requested": {"max": [{"type": "mem", "count": 5 * GIB}], "average": []}},
            }
        ],
    }
    found, step = all_of(json.dumps({"jobs": [job]}, indent=1), Accounting)
    assert (found.job, found.state, found.signal, found.per_node) == ("900", "OUT_OF_MEMORY", 125, 64 * GIB)
    assert (found.elapsed, found.time_limit) == ("01:06:40", "01:00:00")
    assert (step.step, step.largest_task, step.tasks, step.nodes) == ("0", 5 * GIB, 8, 2)


def test_seff() -> None:
    text = (
        "Job ID: 900\nCluster: c\nState: OUT_OF_MEMORY (exit code 0)\nNodes: 2\nCores per node: 4\n"
        "Memory Utilized: 49.15 MB\nMemory Efficiency: 0.12% of 40.00 GB (20.00 GB/node)\n"
    )
    found = only(text, Accounting)
    assert (found.state, found.per_node, found.cpus) == ("OUT_OF_MEMORY", 20 * GIB, 8)


def test_a_table_ends_where_its_rows_do() -> None:
    assert len(all_of(COLUMNS + "nothing more\n901 x gpu a 1 FAILED 1:0 1K 1G\n", Accounting)) == 2


def test_one_job_of_several() -> None:
    text = PARSABLE + PARSABLE.replace("900", "901").replace("OUT_OF_MEMORY", "TIMEOUT")
    assert conclude(of_job(read(text), "901_4")).causes[0].limit == "time"
    assert conclude(of_job(read(text), "900")).causes[0].limit == "cgroup"
    assert not conclude(of_job(read(text), "5")).causes


def test_the_script_is_named() -> None:
    assert only("$ sbatch --mem=64G train.slurm\n", Named).path == "train.slurm"
    assert only("+ srun python -u scripts/train.py --x 1\n", Named).path == "scripts/train.py"
