"""All effects: memory and events of a job in addition to the tape of its law, in the order in which they apply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.step.convolution import Convolutions
from preflight.memory.device.step.effect import Effect, Passage
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.remote_code import RemoteCode
from preflight.memory.device.step.saving import Checkpoints
from preflight.memory.device.step.softmax import KeptScores
from preflight.memory.device.step.varying_lengths import VaryingLengths
from preflight.vocabulary.machine import Gpu

MIB = 2**20
CUBLAS_WORKSPACE = 8 * MIB + 128 * 1024
"""CUBLAS_WORKSPACE_CONFIG's default :4096:2:16:8, in bytes: 2 x 4,096 KiB + 8 x 16 KiB; 32 MiB from compute capability
9.0 on (ATen/cuda/CUDABlas.cpp, parseChosenWorkspaceSize). One per thread that multiplies: forward and backward."""
CUBLAS_WORKSPACE_HOPPER = 32 * MIB

PREFETCHED = 2.25
"""Batches under timm's PrefetchLoader except the one in use: the one before, which the loop still names, the next in
fp32, and its 8-bit original (timm/data/loader.py, PrefetchLoader.__iter__)."""


def workspaces(gpu: Gpu | None) -> tuple[int, int]:
    """Bytes of cuBLAS' workspaces."""
    hopper = gpu is not None and gpu.compute_capability >= (9, 0)
    return (CUBLAS_WORKSPACE_HOPPER if hopper else CUBLAS_WORKSPACE,) * 2


class WholeCheckpoint(Effect):
    """A checkpoint that is loaded into shards, with every parameter whole on each GPU."""

    def before(self, prepared: PreparedJob) -> Iterator[Passage]:
        if prepared.whole_checkpoint:
            yield Passage("load", "weights", passing=(prepared.whole_checkpoint,))


class KeptStorages(Effect):
    """The memory that communication, sharded optimizers and other models keep on the GPU throughout."""

    def before(self, prepared: PreparedJob) -> Iterator[Passage]:
        for each in prepared.rank.storages:
            yield Passage("load", each.part, (each.nbytes,))


class Workspaces(Effect):
    """The workspaces that cuBLAS allocates at the first matrix product."""

    def before(self, prepared: PreparedJob) -> Iterator[Passage]:
        yield Passage("forward", "temporary", workspaces(prepared.gpu), library=True)


class WaitingBatches(Effect):
    """Image batches that are loaded ahead onto the GPU. A plain loop has none: its variable names the batch before only
    until the next is there, when no activations are."""

    def before(self, prepared: PreparedJob) -> Iterator[Passage]:
        found = waiting(prepared.resolved, prepared.dims)
        if found:
            yield Passage("forward", "temporary", tuple(found))


def waiting(resolved: Resolved, dims: Mapping[str, int]) -> list[int]:
    """Bytes of the image batches on the GPU that wait or are no longer used."""
    if not resolved.workload.image_loop or not resolved.workload.prefetches or "i" not in dims:
        return []
    return [round(PREFETCHED * 3 * dims["i"] ** 2 * 4 * dims["b"])]


EFFECTS: tuple[Effect, ...] = (
    WholeCheckpoint(),
    KeptStorages(),
    Checkpoints(),
    Workspaces(),
    WaitingBatches(),
    RemoteCode(),
    KeptScores(),
    Convolutions(),
    VaryingLengths(),
)
"""To add an effect, write its class and add a row."""
