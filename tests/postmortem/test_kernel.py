"""Kernel reports of several generations and what their figures mean."""

from __future__ import annotations

import pytest
from reader import all_of, cause, concluded, only

from preflight.postmortem.evidence import KernelKill, TooManyProcesses
from preflight.postmortem.kernel import owner, page_bytes

KIB = 1024
V2 = """\
[81234.100001] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[81234.100010] CPU: 3 PID: 7001 Comm: python Not tainted 6.8.0-45-generic #45-Ubuntu
[81234.100200] memory: usage 268435456kB, limit 268435456kB, failcnt 411
[81234.100201] swap: usage 0kB, limit 9007199254740988kB, failcnt 0
[81234.100202] Memory cgroup stats for /system.slice/slurmstepd.scope/job_4711/step_0:
[81234.100203] anon 271000000000
[81234.100204] file 1000000
[81234.100205] shmem 3500000000
[81234.100206] shmem_thp 0
[81234.100300] Tasks state (memory values in pages):
[81234.100301] [  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents adj name
[81234.100302] [   7001]  1000  7001  9000000  4000000  3990000     9000      1000 33000000        0   0 python
[81234.100303] [   7002]  1000  7002  8000000  1000000   990000     9000      1000 13000000        0   0 pt_data_worker
[81234.100400] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,\
oom_memcg=/system.slice/slurmstepd.scope/job_4711,\
task_memcg=/system.slice/slurmstepd.scope/job_4711/step_0/user/task_1,task=python,pid=7001,uid=1000
[81234.100500] Memory cgroup out of memory: Killed process 7001 (python) total-vm:36000000kB, anon-rss:15960000kB, \
file-rss:36000kB, shmem-rss:4000kB, UID:1000 pgtables:32227kB oom_score_adj:0
"""
SYSLOG = "".join(f"Mar  3 02:11:09 node17 kernel: {line}\n" for line in V2.splitlines())
V1 = """\
[9.1] Memory cgroup stats for /slurm/uid_1000/job_99/step_batch: cache:0KB rss:2048KB shmem:512KB swap:0KB
[9.2] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/slurm/uid_1000/job_99,task=train,pid=12,uid=0
[9.3] Memory cgroup out of memory: Killed process 12 (train) total-vm:4096kB, anon-rss:2000kB, file-rss:8kB
"""
OLD = """\
[5.1] java invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0
[5.2] Out of memory: Kill process 345 (python3) score 902 or sacrifice child
[5.3] Killed process 345 (python3) total-vm:9000kB, anon-rss:8000kB, file-rss:4kB
"""
NODE = """\
[7.0] 7864320 pages RAM
[7.1] Free swap  = 0kB
[7.2] Total swap = 8388608kB
[7.3] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task=python,pid=5,uid=0
[7.4] Out of memory: Killed process 5 (python) total-vm:400kB, anon-rss:300kB, file-rss:4kB, shmem-rss:0kB, UID:0
"""


@pytest.mark.parametrize("text", [V2, SYSLOG], ids=["dmesg", "syslog"])
def test_a_cgroup_report(text: str) -> None:
    kill = only(text, KernelKill)
    assert (kill.scope, kill.job, kill.victim, kill.pid) == ("cgroup", "4711", "python", 7001)
    assert (kill.usage, kill.limit) == (256 * 2**30, 256 * 2**30)
    assert (kill.anon, kill.shmem) == (271000000000, 3500000000)
    assert (kill.total_vm, kill.anon_rss) == (36000000 * KIB, 15960000 * KIB)
    assert [task.name for task in kill.tasks] == ["python", "pt_data_worker"]
    assert page_bytes(kill) == 4096


def test_the_limit_of_the_cgroup_is_what_the_job_hit() -> None:
    found = cause(V2)
    assert found.limit == "cgroup"
    assert "SLURM job 4711 reached its memory limit of 256 GiB" in found.title
    assert found.host is not None
    assert found.host.limit == 256 * 2**30


def test_figures_that_mislead_are_named() -> None:
    words = [one.figure for one in concluded(V2).misleading]
    assert any("total-vm 34.33 GiB" in word for word in words)
    assert any("19.07 GiB, the sum of rss" in word for word in words)  # 5,000,000 pages of 4 KiB


def test_version_1_statistics() -> None:
    kill = only(V1, KernelKill)
    assert (kill.anon, kill.shmem, kill.job, kill.limit) == (2048 * KIB, 512 * KIB, "99", None)


def test_old_kernels_take_two_lines_for_a_victim() -> None:
    kill = only(OLD, KernelKill)
    assert (kill.scope, kill.pid, kill.victim, kill.anon_rss, kill.shmem_rss) == (
        "node",
        345,
        "python3",
        8000 * KIB,
        None,
    )
    assert kill.place.line == 2


def test_the_node_ran_out() -> None:
    found = cause(NODE)
    assert found.limit == "node"
    assert found.host is not None
    assert found.host.limit is None  # no task table: the page size is not known


def test_ram_and_swap_are_the_nodes_limit() -> None:
    table = "[7.25] java invoked oom-killer: x\n[7.26] 7864320 pages RAM\n[7.27] Total swap = 8388608kB\n"
    row = "[7.28] [   5]     0     5      100       75      0    0             0 python\n"
    found = cause(table + row + NODE.split("\n", 3)[3])
    assert found.host is not None
    assert found.host.limit == 7864320 * 4096 + 8388608 * KIB


def test_a_victim_line_that_was_quoted_in_two() -> None:
    text = "[1.0] Out of memory: Killed process 14 (python)\n                total-vm:50344988kB  (~50GB!)\n"
    kill = only(text, KernelKill)
    assert (kill.pid, kill.total_vm) == (14, 50344988 * KIB)


def test_a_repeated_report_is_one_kill() -> None:
    text = V2 + V2.splitlines()[-1].replace("[81234.100500]", "node-problem-detector: Message:") + "\n"
    assert len(all_of(text, KernelKill)) == 1


def test_a_cgroup_kill_that_names_no_constraint() -> None:
    text = "[1.0] Memory cgroup out of memory: Kill process 9 (a.out) score 904 or sacrifice child\n"
    assert only(text, KernelKill).scope == "cgroup"


def test_the_jobs_own_kill_counts_among_those_of_a_node() -> None:
    other = NODE.replace("(python)", "(chrome)").replace("pid=5", "pid=6").replace("process 5", "process 6")
    assert "python" in cause(other + V2).title


def test_processes_are_limited_too() -> None:
    text = "[2.0] cgroup: fork rejected by pids controller in /user.slice/user-1000.slice/session-1.scope\n"
    assert only(text, TooManyProcesses).cgroup.endswith("session-1.scope")
    assert cause(text).limit == "processes"


@pytest.mark.parametrize(
    ("cgroup", "words"),
    [
        ("/slurm/uid_5/job_12/step_0", "SLURM job 12"),
        ("/system.slice/slurmstepd.scope/job_8/step_batch", "SLURM job 8"),
        ("/kubepods.slice/kubepods-burstable.slice/pod1", "the Kubernetes pod"),
        ("/system.slice/docker-93f0.scope", "the container"),
        ("/user.slice/user-1000.slice", "the user's session"),
        ("/leaker", "the control group /leaker"),
        ("", "a control group"),
    ],
)
def test_whose_limit_it_was(cgroup: str, words: str) -> None:
    assert owner(cgroup) == words
