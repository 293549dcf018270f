"""Memory that convolutions add to a job: workspaces, benchmarking, the context.

Workspaces of weight gradients are on the tapes of image models (births marked `c`, preflight.tracer.convolutions), so
the law and the replay count them like any storage. This module has the memory that is not on a tape:

- `benchmarks`: with `torch.backends.cudnn.benchmark` every new shape tries all algorithms and then gives the whole
  cache back (ATen/native/cudnn/Conv_v8.cpp, emptyCache after benchmarking), so the first iteration leaves other blocks
  behind than a plain one; `Replay.run` does the same. The workspaces that are tried are larger than those
  in use, but are there when little else is alive; otherwise the interval's upper end has them.
- `context`: cuDNN's kernels. With lazy loading only those that run are loaded; without it, all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.step.effect import Again, Effect
from preflight.memory.device.step.prepared import PreparedJob
from preflight.vocabulary.estimates import Interval
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu

MIB = 2**20
EAGER = {(8, 0): 1421 * MIB, (7, 0): 1343 * MIB}
"""By compute capability: context with every kernel of torch and cuBLAS loaded. A100: 1,443 MiB, the least that
nvidia-smi showed in 3,000 trainings of small perceptrons without a convolution (itu-rad/GPUMemNet, Datasets/MLP,
mlp_data_step1), less the 22 MiB of segments that their tensors and cuBLAS' workspaces take. V100: 1,343 MiB with CUDA
11.2."""
EAGER_CUDNN = 294 * MIB
"""Memory of cuDNN's kernels if all are loaded: nvidia-smi less the replay's reserved bytes, median over 93 timm
models at batch 8 on that same A100 (1,715 MiB; 1,715 with a patch embedding alone, 1,725 with many convolutions), less
the above."""
SLACK = 50 * MIB
"""Above the figure with all kernels loaded: the difference between models, nine of ten."""
LAZY_TORCH, LAZY_CUDA = (1, 13), (11, 7)
"""First versions that load kernels when they run (pytorch#86509; CUDA programming guide, "Lazy Loading"; the driver
must know it as well)."""


class Convolutions(Effect):
    """Algorithms that cuDNN tries, and kernels that are loaded all at once."""

    def tries_kernels(self, prepared: PreparedJob) -> bool:
        return benchmarks(prepared.job, prepared.resolved)

    def reserved(self, prepared: PreparedJob, found: Interval, again: Again) -> Interval:
        """Where it is unknown whether cuDNN tries its algorithms (null), both are possible."""
        job = prepared.job
        if job.train.cudnn_benchmark is not None or not prepared.resolved.workload.image_loop:
            return found
        changed = job.train.model_copy(update={"cudnn_benchmark": not benchmarks(job, prepared.resolved)})
        other = again.reserved(replace(prepared, job=job.model_copy(update={"train": changed})), ())
        return Interval(min(found.low, other.low), found.expected, max(found.high, other.high))

    def notes(self, prepared: PreparedJob) -> Iterator[str]:
        """A note about the assumption of the expected context, if no setting decides it."""
        eager = prepared.job.machine.context is None and _is_eager(prepared.job, prepared.gpu)
        if eager and prepared.resolved.workload.image_loop:
            yield (
                "the CUDA context is estimated for kernels that are all loaded at once; torch 1.13 and later on a "
                "recent driver need a GiB less: state software.torch or machine.context"
            )


def benchmarks(job: Job, resolved: Resolved) -> bool:
    """Whether cuDNN tries its algorithms in the first iteration: what the job states, else what its framework does.
    timm's train.py has it do so; PyTorch's default is not to."""
    if not resolved.workload.image_loop:
        return False
    stated = job.train.cudnn_benchmark if "cudnn_benchmark" in job.train.model_fields_set else None
    return resolved.workload.prefetches if stated is None else stated


def context(job: Job, gpu: Gpu | None, plain: Interval) -> Interval:
    """Context of a process that runs convolutions, given that of one whose kernels are loaded as they run.

    No file states how kernels are loaded, so the interval has both cases. If the figure for all kernels was measured on
    the GPU's generation, it is expected, unless the versions say otherwise: every table of image models that we found
    was measured so, and it is on the safe side. On other GPUs the plain figure is expected.
    """
    known = EAGER.get(gpu.compute_capability) if gpu is not None else None
    others = plain.expected - gpu.context[1] if gpu is not None else 0  # NCCL's
    eager = (known or max(EAGER.values())) + EAGER_CUDNN + max(0, others)
    expected = eager if _is_eager(job, gpu) else plain.expected
    return Interval(plain.low, max(expected, plain.expected), max(eager + SLACK, plain.high))


def loaded_at_once(job: Job, gpu: Gpu | None, plain: Interval) -> Interval:
    """Context of any process whose stated versions load all kernels when the first is used (before torch 1.13); `plain`
    where they do not, or are not stated."""
    if _loads_lazily(job) is not False:
        return plain
    known = EAGER.get(gpu.compute_capability) if gpu is not None else None
    expected = known or min(EAGER.values())
    low = expected - SLACK if known else plain.expected
    return Interval(min(low, expected), max(expected, plain.expected), max(plain.high, max(EAGER.values()) + SLACK))


def _is_eager(job: Job, gpu: Gpu | None) -> bool:
    return gpu is not None and gpu.compute_capability in EAGER and not _loads_lazily(job)


def _loads_lazily(job: Job) -> bool | None:
    """Whether the stated versions load kernels as they run; None: none is stated."""
    for name, first in (("torch", LAZY_TORCH), ("cuda", LAZY_CUDA)):
        version = _version(job.software.get(name, ""))
        if version is not None:
            return version >= first
    return None


def _version(text: str) -> tuple[int, int] | None:
    numbers = text.lstrip("=<>~! v").split("+")[0].split(".")
    return (int(numbers[0]), int(numbers[1])) if len(numbers) > 1 and all(x.isdecimal() for x in numbers[:2]) else None
