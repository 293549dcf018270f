"""Diagnoses other than a kill for memory: /dev/shm, refused memory, processes, time, nodes, unexplained signals."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.postmortem.circumstances import MOST_PLACES, places_of, trial_of, when
from preflight.postmortem.collect import CollectedEvidence
from preflight.postmortem.diagnosis import Diagnosis, HostFigures
from preflight.postmortem.evidence import (
    Accounting,
    HostAllocation,
    JobEnded,
    Killed,
    SharedMemoryFull,
    TooManyFiles,
    TooManyProcesses,
    WorkerDied,
)
from preflight.postmortem.kernel import owner
from preflight.vocabulary.findings import Confidence
from preflight.vocabulary.words import gib


def causes(found: CollectedEvidence, explained: bool) -> Iterator[Diagnosis]:
    """Every diagnosis but those of GPU memory and of a kill for memory; `explained`: there is such a kill."""
    yield from _shared_memory(found)
    yield from _refused(found)
    yield from _files(found)
    yield from _processes(found)
    yield from _time(found)
    yield from _node_failure(found)
    yield from _cancelled(found)
    yield from _signals(found, explained)
    yield from _crashed_workers(found)


def _shared_memory(found: CollectedEvidence) -> Iterator[Diagnosis]:
    full = found.of(SharedMemoryFull)
    buses = [one for one in found.of(WorkerDied) if one.signal.startswith("Bus error")]
    if not full and not buses:
        return
    places = places_of(full, buses)
    traces = [one.frames for one in buses] + [one.frames for one in full]
    frames = next((frames for frames in traces if frames), ())
    yield Diagnosis(
        "shm",
        "/dev/shm was full: DataLoader workers pass their batches through it",
        Confidence.high if full else Confidence.medium,
        tuple(places[:MOST_PLACES]),
        max(len(full), len(buses)),
        when(places, found, frames),
        help=(
            "give the container a larger /dev/shm (Docker: --shm-size or --ipc=host; Kubernetes: an emptyDir with "
            "medium: Memory at /dev/shm), or use fewer workers or a smaller prefetch_factor",
            "df -h /dev/shm in the container shows its size; Docker's default is 64 MiB",
        ),
        host=HostFigures(),
        trial=trial_of(places, found),
    )


def _files(found: CollectedEvidence) -> Iterator[Diagnosis]:
    limits = found.of(TooManyFiles)
    if not limits:
        return
    places = [one.place for one in limits]
    frames = next((one.frames for one in limits if one.frames), ())
    yield Diagnosis(
        "files",
        "the limit on the number of open files was reached",
        Confidence.high,
        tuple(places[:MOST_PLACES]),
        len(limits),
        when(places, found, frames),
        help=(
            "each tensor that a DataLoader worker hands over is an open file: raise the limit (ulimit -n, LimitNOFILE "
            "of systemd), or call torch.multiprocessing.set_sharing_strategy('file_system')",
        ),
        trial=trial_of(places, found),
    )


def _refused(found: CollectedEvidence) -> Iterator[Diagnosis]:
    refused = found.of(HostAllocation)
    if not refused:
        return
    first = next((one for one in refused if one.tried is not None), refused[0])
    asked = f": the program requested {gib(first.tried)} at once" if first.tried is not None else ""
    kind = "pinned (page-locked) memory" if first.pinned else "host memory"
    yield Diagnosis(
        "refused",
        f"the system refused to allocate {kind}{asked}",
        Confidence.high,
        tuple(one.place for one in refused[:MOST_PLACES]),
        len(refused),
        when([one.place for one in refused], found, first.frames),
        notes=(
            "the program got an error and was not killed; possible reasons: a limit on address space (ulimit -v), "
            "strict overcommit, or a request larger than RAM and swap",
        ),
        host=HostFigures(),
        trial=trial_of([first.place], found),
    )


def _processes(found: CollectedEvidence) -> Iterator[Diagnosis]:
    limits = found.of(TooManyProcesses)
    if not limits:
        return
    cgroup = next((one.cgroup for one in limits if one.cgroup), "")
    where = f" of {owner(cgroup)}" if cgroup else ""
    yield Diagnosis(
        "processes",
        f"the limit{where} on the number of processes and threads was reached",
        Confidence.high if cgroup else Confidence.medium,
        tuple(one.place for one in limits[:MOST_PLACES]),
        len(limits),
        help=(
            "each DataLoader worker starts several threads: set OMP_NUM_THREADS=1, use fewer workers, or raise the "
            "limit (TasksMax of systemd, the pids limit of the container, ulimit -u)",
        ),
    )


def _time(found: CollectedEvidence) -> Iterator[Diagnosis]:
    rows = found.of(Accounting)
    places = places_of(_ended(found, "time"), [row for row in rows if row.state == "TIMEOUT"])
    if not places:
        return
    limit = next((row.time_limit for row in rows if row.time_limit), "")
    yield Diagnosis(
        "time",
        "the job reached its time limit" + (f" of {limit}" if limit else ""),
        Confidence.high,
        tuple(places[:MOST_PLACES]),
        when=when(places, found, ()),
        notes=("SLURM ended it while it was still running: memory was not the reason",),
        help=(
            "request more time with --time, or save checkpoints and continue from the last one: --signal=B:USR1@120 "
            "sends the script a signal two minutes before the end",
        ),
    )


def _node_failure(found: CollectedEvidence) -> Iterator[Diagnosis]:
    failed = _ended(found, "node-failure")
    places = places_of(failed, [row for row in found.of(Accounting) if row.state in ("NODE_FAIL", "BOOT_FAIL")])
    if not places:
        return
    node = next((f"node {one.node}" for one in failed if one.node), "a node")
    yield Diagnosis(
        "node-failure",
        f"{node} failed: this is not an error of the job",
        Confidence.high,
        tuple(places[:MOST_PLACES]),
        help=(
            "submit the job again (with --requeue SLURM does this itself); if it fails on every node, look at its "
            "memory: a job that uses all of it can make a node fail",
        ),
    )


def _cancelled(found: CollectedEvidence) -> Iterator[Diagnosis]:
    rows = found.of(Accounting)
    preempted = places_of(_ended(found, "preempted"), [row for row in rows if row.state == "PREEMPTED"])
    cancelled = places_of(_ended(found, "cancelled"), [row for row in rows if row.state == "CANCELLED"])
    if preempted:
        title, sure = "the job was preempted: SLURM gave its nodes to another job", Confidence.high
    else:
        title, sure = "the job was cancelled: by a user, or by srun after one of its tasks failed", Confidence.low
    if preempted or cancelled:
        yield Diagnosis("ended", title, sure, tuple([*preempted, *cancelled][:MOST_PLACES]))


def _ended(found: CollectedEvidence, reason: str) -> list[JobEnded]:
    return [one for one in found.of(JobEnded) if one.reason == reason]


def _signals(found: CollectedEvidence, explained: bool) -> Iterator[Diagnosis]:
    """Processes that ended with signal 9, without a reason in the logs."""
    killed = [one for one in found.of(WorkerDied) if one.signal.startswith("Killed")]
    rows = [row for row in found.of(Accounting) if row.signal == 9 or row.exit_code == 128 + 9]
    places = places_of(killed, found.of(Killed), rows)
    if not places or explained:
        return
    what = "a DataLoader worker" if killed else "a process"
    yield Diagnosis(
        "killed",
        f"{what} was killed (signal 9), and these logs do not say by whom",
        Confidence.low,
        tuple(places[:MOST_PLACES]),
        len(places),
        when(places, found, next((one.frames for one in killed if one.frames), ())),
        notes=(
            "this is nearly always the kernel's out-of-memory killer; a time limit and scancel --signal=KILL look the "
            "same",
        ),
        help=(
            "to know the reason, give this command the output of dmesg -T (or journalctl -k) on the node, and of "
            "sacct -j JOB -P --format=JobID,State,ExitCode,ReqMem,MaxRSS,AllocTRES,NNodes,NTasks",
        ),
        host=HostFigures(),
        trial=trial_of(places, found),
    )


def _crashed_workers(found: CollectedEvidence) -> Iterator[Diagnosis]:
    known = ("Bus error", "Killed", "Terminated")
    crashed = [one for one in found.of(WorkerDied) if one.signal and not one.signal.startswith(known)]
    if crashed:
        yield Diagnosis(
            "worker",
            f"a DataLoader worker crashed: {crashed[0].signal}",
            Confidence.medium,
            tuple(one.place for one in crashed[:MOST_PLACES]),
            len(crashed),
            when([crashed[0].place], found, crashed[0].frames),
            notes=("this is an error in native code, not a memory limit",),
        )
