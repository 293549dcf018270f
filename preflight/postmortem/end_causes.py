"""Ends that are not a memory limit's kill: /dev/shm, refused memory, processes, time, nodes, unexplained signals."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.postmortem.circumstances import MOST_PLACES, places_of, trial_of, when
from preflight.postmortem.collect import Found
from preflight.postmortem.diagnosis import Diagnosis, HostFigures
from preflight.postmortem.evidence import (
    Accounting,
    HostAllocation,
    JobEnded,
    Killed,
    SharedMemoryFull,
    TooManyProcesses,
    WorkerDied,
)
from preflight.postmortem.kernel import owner
from preflight.vocabulary.findings import Confidence
from preflight.vocabulary.words import gib


def causes(found: Found, explained: bool) -> Iterator[Diagnosis]:
    """Everything that is neither the GPU's nor a kill for memory; `explained`: such a kill is known."""
    yield from _shared_memory(found)
    yield from _refused(found)
    yield from _processes(found)
    yield from _ended(found)
    yield from _workers(found, explained)


def _shared_memory(found: Found) -> Iterator[Diagnosis]:
    full = found.of(SharedMemoryFull)
    buses = [one for one in found.of(WorkerDied) if one.signal.startswith("Bus error")]
    if not full and not buses:
        return
    places = places_of(full, buses)
    traces = [one.frames for one in buses] + [one.frames for one in full]
    frames = next((frames for frames in traces if frames), ())
    yield Diagnosis(
        "shm",
        "/dev/shm was full: DataLoader workers pass finished batches through it",
        Confidence.high if full else Confidence.medium,
        tuple(places[:MOST_PLACES]),
        max(len(full), len(buses)),
        when(places, found, frames),
        help=(
            "give the container more of it (docker run --shm-size, --ipc=host; Kubernetes: an emptyDir with medium "
            "Memory at /dev/shm); or fewer workers, a smaller prefetch factor",
            "df -h /dev/shm on the node shows its size: Docker's default is 64 MiB",
        ),
        host=HostFigures(),
        trial=trial_of(places, found),
    )


def _refused(found: Found) -> Iterator[Diagnosis]:
    refused = found.of(HostAllocation)
    if not refused:
        return
    first = next((one for one in refused if one.tried is not None), refused[0])
    asked = f": {gib(first.tried)} were asked for at once" if first.tried is not None else ""
    kind = "pinned (page-locked) memory" if first.pinned else "host memory"
    yield Diagnosis(
        "refused",
        f"the system refused {kind}{asked}",
        Confidence.high,
        tuple(one.place for one in refused[:MOST_PLACES]),
        len(refused),
        when([one.place for one in refused], found, first.frames),
        notes=("the program got an error instead of being killed: a limit on address space (ulimit -v), strict "
               "overcommit, or a request larger than RAM and swap",),
        host=HostFigures(),
        trial=trial_of([first.place], found),
    )  # fmt: skip


def _processes(found: Found) -> Iterator[Diagnosis]:
    limits = found.of(TooManyProcesses)
    if not limits:
        return
    cgroup = next((one.cgroup for one in limits if one.cgroup), "")
    where = f" of {owner(cgroup)}" if cgroup else ""
    yield Diagnosis(
        "processes",
        f"no further process or thread was allowed: the limit{where} on their number was reached",
        Confidence.high if cgroup else Confidence.medium,
        tuple(one.place for one in limits[:MOST_PLACES]),
        len(limits),
        help=("each loader worker starts threads of its own: OMP_NUM_THREADS=1, fewer workers, or a higher TasksMax, "
              "pids limit or ulimit -u",),
    )  # fmt: skip


def _ended(found: Found) -> Iterator[Diagnosis]:
    """SLURM ended it: time, a node's failure, preemption."""
    ends, rows = found.of(JobEnded), found.of(Accounting)
    late = [one for one in ends if one.reason == "time"]
    slow = [row for row in rows if row.state == "TIMEOUT"]
    if late or slow:
        places = places_of(late, slow)
        limit = next((row.time_limit for row in rows if row.time_limit), "")
        yield Diagnosis(
            "time",
            "the time limit was reached" + (f": {limit}" if limit else ""),
            Confidence.high,
            tuple(places[:MOST_PLACES]),
            when=when(places, found, ()),
            notes=("it was running when it was ended: memory was not what ended it",),
            help=("ask for more with --time, or save checkpoints and go on from the last: --signal=B:USR1@120 gives "
                  "the script two minutes' notice",),
        )  # fmt: skip
    failed = [one for one in ends if one.reason == "node-failure"]
    broken = [row for row in rows if row.state in ("NODE_FAIL", "BOOT_FAIL")]
    if failed or broken:
        node = next((one.node for one in failed if one.node), "")
        yield Diagnosis(
            "node-failure",
            f"the node {node} failed; the job is not to blame".replace("node  failed", "node failed"),
            Confidence.high,
            tuple(places_of(failed, broken)[:MOST_PLACES]),
            help=(
                "submit it again (--requeue does so by itself); a node that a job drives out of memory can fail too",
            ),
        )
    others = [one for one in ends if one.reason in ("preempted", "cancelled")]
    gone = [row for row in rows if row.state in ("PREEMPTED", "CANCELLED")]
    if others or gone:
        preempted = any(one.reason == "preempted" for one in others) or any(r.state == "PREEMPTED" for r in gone)
        yield Diagnosis(
            "ended",
            "the job was preempted"
            if preempted
            else "the job was cancelled: by hand, or by srun after a task had failed",
            Confidence.high if preempted else Confidence.low,
            tuple(places_of(others, gone)[:MOST_PLACES]),
        )


def _workers(found: Found, explained: bool) -> Iterator[Diagnosis]:
    """Ends that are only reported: signal 9 without a reason, a worker that crashed."""
    deaths = [one for one in found.of(WorkerDied) if not one.signal.startswith("Bus error")]
    killed = [one for one in deaths if one.signal.startswith("Killed")]
    crashed = [one for one in deaths if one.signal and one not in killed and not one.signal.startswith("Terminated")]
    signals = found.of(Killed)
    rows = [row for row in found.of(Accounting) if row.signal == 9 or row.exit_code == 128 + 9]
    if (killed or signals or rows) and not explained:
        places = places_of(killed, signals, rows)
        what = "a DataLoader worker" if killed else "a process"
        yield Diagnosis(
            "killed",
            f"{what} was killed (signal 9), and nothing in these logs says by whom",
            Confidence.low,
            tuple(places[:MOST_PLACES]),
            len(places),
            when(places, found, next((one.frames for one in killed if one.frames), ())),
            notes=("nearly always the kernel's out-of-memory killer; a time limit and scancel -s KILL look the same",),
            help=("to know: dmesg -T (or journalctl -k) on the node, and sacct -j JOB -P "
                  "--format=JobID,State,ExitCode,ReqMem,MaxRSS,AllocTRES,NNodes,NTasks; give them to this command",),
            host=HostFigures(),
            trial=trial_of(places, found),
        )  # fmt: skip
    if crashed:
        yield Diagnosis(
            "worker",
            f"a DataLoader worker crashed: {crashed[0].signal}",
            Confidence.medium,
            tuple(one.place for one in crashed[:MOST_PLACES]),
            len(crashed),
            when([crashed[0].place], found, crashed[0].frames),
            notes=("that is a fault in native code, not a limit on memory",),
        )
