"""What this computer and the files say about the GPU: nvidia-smi, the cluster's commands, job scripts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from preflight.engine.files import Batch
from preflight.engine.target import Wanted, choose
from preflight.machines.gpus import find_gpu
from preflight.system.processes import ask_program, found_program
from preflight.vocabulary.errors import MachineError
from preflight.vocabulary.progress import Progress
from preflight.vocabulary.project import Project

if TYPE_CHECKING:
    from preflight.vocabulary.machine import Cluster, Gpu

NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
SECONDS = 20
"""Seconds that nvidia-smi may take: without its daemon it loads the driver first."""


class Found(Struct, frozen=True):
    """The GPU or cluster of a project, with the source of the knowledge."""

    gpu: Gpu | None = None
    source: str = ""
    cluster: Cluster | None = None
    notes: tuple[str, ...] = ()


def ask_computer() -> Found:
    """The cluster that scontrol describes, else the GPU that nvidia-smi names. Neither need be there."""
    cluster, notes = _cluster()
    if cluster is not None:
        return Found(cluster=cluster, source="scontrol", notes=notes)
    found = _by_nvidia_smi()
    return Found(found.gpu, found.source, notes=(*notes, *found.notes))


def _cluster() -> tuple[Cluster | None, tuple[str, ...]]:
    if found_program("scontrol") is None:
        return None, ()
    from preflight.slurm.import_.importer import import_slurm

    try:
        return import_slurm(), ()
    except MachineError as error:
        return None, (f"scontrol does not describe the cluster: {error}",)


def _by_nvidia_smi() -> Found:
    if found_program(NVIDIA_SMI[0]) is None:
        return Found(notes=("there is no nvidia-smi here, so the GPU of this computer is not known",))
    try:
        done = ask_program(NVIDIA_SMI, SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        return Found(notes=(f"nvidia-smi does not answer: {_first_line(error)}",))
    names = list(dict.fromkeys(line.strip() for line in done.stdout.splitlines() if line.strip()))
    if done.returncode or not names:
        said = _first_line(done.stdout.strip() or done.stderr.strip() or "no GPU")
        return Found(notes=(f"nvidia-smi names no GPU: {said}",))
    known = {name: gpu for name in names if (gpu := find_gpu(name)) is not None}
    unknown = tuple(f'nvidia-smi names "{name[:80]}", which is not known here' for name in names if name not in known)
    if not known:
        return Found(notes=unknown)
    least = min(known.values(), key=lambda gpu: gpu.capacity)
    several = (f"this computer has several GPUs: {', '.join(names)}; the smallest is written",) if names[1:] else ()
    return Found(least, "nvidia-smi on this computer", notes=(*unknown, *several))


def _first_line(value: object) -> str:
    return (str(value).splitlines() or [""])[0][:200]


def ask_files(projects: Iterable[Batch], progress: Progress) -> Found:
    """The one GPU that job scripts and configurations ask for. Nothing if they ask for several."""
    from preflight.study.build import build

    asked: dict[str, tuple[Gpu, str]] = {}
    for batch in projects:
        project = Project(batch.root, batch.settings)
        for study in build((*batch.named, *batch.walked), project, progress=progress)[0]:
            gpu = choose(study, Wanted()).gpu
            if gpu is not None:
                asked.setdefault(gpu.name, (gpu, study.paths[0]))
    if len(asked) == 1:
        [(gpu, path)] = asked.values()
        return Found(gpu, f"asked for in {Path(path).as_posix()}")
    several = f"the files ask for several GPUs: {', '.join(asked)}"
    return Found(notes=(several,) if asked else ())
