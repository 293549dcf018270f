from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace
from pydantic import Field

from preflight.api import (
    GIB,
    BoundSource,
    Case,
    Confidence,
    Edit,
    Example,
    Finding,
    Interval,
    Options,
    Origin,
    Proposal,
    Rule,
    Safety,
    Severity,
    Span,
    at_most,
    changed,
    gib,
    related_of,
    sample_bytes,
    samples_in_shared_memory,
    written,
)
from preflight_rules.shared import loaders
from preflight_rules.shared.host import describe_loaders
from preflight_rules.shared.programs import LOADER, SAMPLES
from preflight_rules.shared.remedies import changes_of
from preflight_rules.shared.same_run import workers_hazard

IN_DOCKER = """
#!/bin/bash
#SBATCH --mem=30G
#SBATCH --cpus-per-task=16

docker run --rm --gpus all -v "$PWD:/work" -w /work pytorch/pytorch python train.py --batch_size 64
"""
WITH_SHM = IN_DOCKER.replace("docker run", "docker run --shm-size=11g")
COMPOSE = """
services:
  train:
    image: pytorch/pytorch
    command: python train.py --batch_size 64
    shm_size: 512mb
    gpus: all
"""
POD = """
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  containers:
    - name: train
      image: pytorch/pytorch
      command: ["python", "train.py", "--batch_size=64"]
      resources:
        limits: {memory: 96Gi, nvidia.com/gpu: 1}
      volumeMounts:
        - {name: shm, mountPath: /dev/shm}
  volumes:
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: 4Gi}
"""
SUGGESTED = 16 * GIB
"""The largest size (bytes) that a fix writes. It takes memory of the node, so more is for the user to decide."""
MORE = (
    "give the container more: --shm-size or --ipc=host (docker run), shm_size or ipc: host (compose), an emptyDir with "
    "medium: Memory at /dev/shm (Kubernetes)"
)
_SIZE = re.compile(r"\d+(?:\.\d+)?\s*([bBkKmMgGtT]?[bBi]?)")
"""A size as docker, compose files and Kubernetes write it."""


class ShmOptions(Options):
    largest_sample: int = Field(
        2**20,
        gt=0,
        description="No finding if decoded samples of this size (bytes) would fit and the real size is unknown.",
    )


class ShmTooSmall(Rule[ShmOptions]):
    """Workers pass finished batches through /dev/shm, and it is too small for them.

    A container has 64 MiB of /dev/shm by default. `docker run --shm-size` or `--ipc=host` gives more, and so do
    `shm_size` in a compose file and an emptyDir with `medium: Memory` at /dev/shm in Kubernetes. A node has half of its
    memory. A loader keeps workers x prefetch + 1 batches there, for every rank of the container.

    The error of PyTorch says little: "Bus error. It is possible that dataloader's workers are out of shared memory". It
    often comes late, when the queue is full for the first time.

    The fix gives the container more shared memory if a script starts the container. Otherwise it keeps fewer batches in
    flight. The run stays the same. If no file states the size of a sample, the finding says how large a sample may be.
    """

    name = "shm-too-small"
    summary = "The batches in flight do not fit /dev/shm"
    tags = ("host-memory", "data-loading")
    examples = (
        Example(
            "Docker's 64 MiB, and 33 batches of 256 MiB",
            {"job.sh": IN_DOCKER, "train.py": LOADER},
            fixed={"job.sh": WITH_SHM},
            says=("8.25 GiB of finished batches", "/dev/shm, which has 64 MiB"),
            options={"set": SAMPLES},
        ),
        Example(
            "A machine whose shared memory holds half of the batches",
            {"train.py": LOADER},
            fixed={"train.py": LOADER.replace("num_workers=16", "num_workers=4")},
            says=("which has 4 GiB",),
            options={"set": {**SAMPLES, "machine.shm": 4 * GIB}},
        ),
        Example(
            "The size of a sample is nowhere: the inequality is solved for it",
            {"job.sh": IN_DOCKER, "train.py": LOADER},
            says=("2,112 samples in flight fit only if one decoded sample is at most 31 KiB",),
        ),
        Example(
            "A compose file",
            {"compose.yaml": COMPOSE, "train.py": LOADER},
            fixed={"compose.yaml": COMPOSE.replace("512mb", "11g")},
            says=("/dev/shm, which has 512 MiB",),
            options={"set": SAMPLES},
        ),
        Example(
            "A pod whose memory at /dev/shm is too small",
            {"job.yaml": POD, "train.py": LOADER},
            fixed={"job.yaml": POD.replace("4Gi", "11Gi")},
            says=("/dev/shm, which has 4 GiB",),
            options={"set": SAMPLES},
        ),
        Example("Enough for them", {"job.sh": WITH_SHM, "train.py": LOADER}, finds=0, options={"set": SAMPLES}),
        Example(
            "The node's own shared memory",
            {"job.sh": IN_DOCKER.replace("docker run", "docker run --ipc=host"), "train.py": LOADER},
            finds=0,
            options={"set": SAMPLES},
        ),
    )

    def check(self, case: Case[ShmOptions]) -> Iterator[Finding]:
        shm = case.job.machine.shm
        samples = samples_in_shared_memory(case.job) if shm is not None and case.job.data.workers else None
        if shm is None or not samples:
            return
        each = sample_bytes(case.job)[0]
        if each is None:
            yield from self._solve(case, shm, samples)
        elif samples * each > shm:
            yield self._finding(case, shm, samples * each)

    def _finding(self, case: Case, shm: int, need: int) -> Finding:
        origin = case.origin("machine.shm", "data.workers")
        return self.finding(
            f"{describe_loaders(case.job)} keep {gib(need)} of finished batches in /dev/shm, which has {gib(shm)}"
            f"{_why(case)}",
            origin,
            Severity.error,
            Confidence.high,
            settings=("machine.shm", "data.workers", "data.prefetch", "train.batch_size"),
            related=related_of(case, origin, ("data.workers", f"data.workers = {case.job.data.workers}")),
            label=f"{gib(shm)} of shared memory",
            help=(MORE,),
            interval=Interval(need, need, need),
            capacity=shm,
            side="host",
            proposals=(*_larger(case, need), *_fewer(case, shm)),
        )

    def _solve(self, case: Case[ShmOptions], shm: int, samples: int) -> Iterator[Finding]:
        threshold = shm // samples
        if threshold > case.options.largest_sample:
            return
        yield self.finding(
            f"/dev/shm has {gib(shm)}{_why(case)}: {samples:,} samples in flight fit only if one decoded sample is "
            f"at most {at_most(threshold)}; declare data.sample_bytes ({describe_loaders(case.job)})",
            case.origin("machine.shm", "data.workers"),
            Severity.info,
            Confidence.medium,
            settings=("machine.shm", "data.sample_bytes", "data.workers"),
            label="workers pass finished batches through this memory",
            help=(MORE,),
            side="host",
        )


def _place(case: Case) -> tuple[Origin, str] | None:
    """Where a file states the shared memory of its container, or where it could, and the text there."""
    bound = case.bound("machine.shm")
    origin = bound.origin if bound is not None else None
    if origin is None or bound is None or bound.source is not BoundSource.container:
        return None
    text = case.project.source(origin.path).text[origin.span.start : origin.span.end]
    if text[:1] in ("'", '"'):
        origin, text = replace(origin, span=Span(origin.span.start + 1, origin.span.end - 1)), text[1:-1]
    return origin, text


def _why(case: Case) -> str:
    place = _place(case)
    unsaid = place is not None and not _SIZE.fullmatch(place[1])
    return " (the default of a container)" if unsaid else ""


def _larger(case: Case, need: int) -> Iterator[Proposal]:
    """More shared memory, in the file that states it or starts the container: whole GiB, a quarter more than needed."""
    place, size = _place(case), -(-need * 5 // 4 // GIB)
    if place is None or size * GIB > SUGGESTED:
        return
    origin, text = place
    written = _SIZE.fullmatch(text)
    if written is not None and origin.editable:
        span, new = origin.span, _spelled(size, written[1])
    elif text == "run":
        span, new = Span(origin.span.end, origin.span.end), f" --shm-size={size}g"
    else:
        return
    yield Proposal(
        f"shared memory of the container -> {size} GiB", safety=Safety.safe, edits=(Edit(origin.path, span, new),)
    )


def _spelled(size: int, unit: str) -> str:
    """GiB in the unit of the file. Units of docker are powers of 1024, those of Kubernetes only with an i."""
    if not unit:
        return str(size * GIB)
    if unit.endswith("i"):
        return f"{size}Gi"
    return f"{size}G" if unit[0].isupper() else f"{size}g"


def _fewer(case: Case, shm: int) -> Iterator[Proposal]:
    """The smallest change of the loaders after which the batches in flight fit."""
    for changes, hazard in loaders.safe_candidates(case):
        job = changed(case, changes)
        samples, each = samples_in_shared_memory(job), sample_bytes(job)[0]
        if samples is not None and each is not None and samples * each <= shm:
            yield loaders.proposed(case, loaders.title(case.job, changes), changes_of(changes), hazard)
            return
    alone = not case.job.data.persistent_workers and not written(case, "data.prefetch")  # refused without workers
    if alone and written(case, "data.workers"):
        changes = {"data.workers": 0}
        yield loaders.proposed(case, loaders.title(case.job, changes), changes_of(changes), workers_hazard(case))
