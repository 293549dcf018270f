"""A prepared job: its law and dimensions, the weights and other storages of one rank, and the optimizer's step."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from preflight.memory.device.law.adapters import CONTROLNET
from preflight.memory.device.law.law import Laws
from preflight.memory.device.law.made import Weight
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.parallel import DeviceRank
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.optimizer import Step
from preflight.vocabulary.tracing import TRACE, Tracing

LITGPT_DISTRIBUTED = (0, 5)
"""litgpt shards with ModelParallelStrategy, which loads parameter by parameter (litgpt/finetune/lora.py, 0.5)."""


class PreparedJob(Struct, frozen=True):
    """All that the estimate of one rank of a job needs, at the dimensions of the job."""

    job: Job
    resolved: Resolved
    laws: Laws
    dims: Mapping[str, int]
    parameters: tuple[Weight, ...]
    buffers: int
    optimizer: Step
    rank: DeviceRank
    """The share of this GPU, if several share the job."""
    peers: tuple[PreparedJob, ...] = ()
    """Other ranks of the job that may be fuller (the last stage of a pipeline)."""
    alternatives: tuple[PreparedJob, ...] = ()
    """Other possible forms of the job, if no setting decides between them."""
    notes: tuple[str, ...] = ()
    compiled: bool = False
    """The law is that of a compiled step."""
    gpu: Gpu | None = None
    tracing: Tracing = TRACE
    """Whether laws of other steps may be traced."""

    @property
    def trainable(self) -> list[tuple[int, int]]:
        """(elements, bytes per element) of the parameters that are trained."""
        return [(n, int(size)) for n, size, trains in self.parameters if trains]

    @property
    def weights(self) -> int:
        """Bytes of weights and buffers on one GPU, copies included."""
        copies = 1 + (self.job.train.copies.reference or 0) + (self.job.train.copies.ema or 0)
        return self.rank.weights * copies + self.buffers

    @property
    def gradients(self) -> int:
        """Bytes of gradients on one GPU between backward and the step."""
        return self.rank.gradients

    @property
    def storage_bytes(self) -> int:
        """Bytes that communication, sharded optimizers and other models keep on the GPU throughout."""
        return sum(each.nbytes for each in self.rank.storages)

    @property
    def whole_checkpoint(self) -> int:
        """Bytes of all weights, where a checkpoint is loaded into the shards with every parameter whole on each GPU;
        what they are beyond the shards, where the model is cut on the GPU; else 0."""
        layout = self.rank.layout
        gathered = layout.sharded and _gathers(self.job)
        if not layout.cut_late and not gathered:
            return 0
        whole = sum(round(n * each) for n, each, _ in self.parameters)
        return max(0, whole - self.rank.weights) if layout.cut_late else whole

    @property
    def outputs_kept(self) -> bool:
        """Whether the program's variables keep the model's outputs through backward."""
        return self.job.train.outputs_kept in ("step", "loop")

    @property
    def accumulating(self) -> bool:
        """Whether gradients are there when a backward begins: of earlier micro-batches, or zeros that stayed."""
        return (self.job.train.grad_accum or 1) > 1 or self.zeros_stay

    @property
    def zeros_stay(self) -> bool:
        """Before torch 2.0 zero_grad filled gradients with zeros (set_to_none=False) where 2.0 frees them; diffusers'
        scripts of ControlNets ask for zeros (--set_grads_to_none is off)."""
        return self.job.software.get("torch", "").startswith(("0.", "1.")) or self.job.train.peft.method == CONTROLNET

    @property
    def in_backward(self) -> bool:
        """Whether the optimizer steps parameter by parameter in backward, which frees each gradient at once."""
        return bool(self.job.train.optimizer_in_backward)

    @property
    def outputs(self) -> int:
        """Bytes of what the model returned and of what the loss holds, where their names are bound until the step is
        over or longer."""
        if not self.outputs_kept:
            return 0
        sizes = self.laws.made.tape.values(self.dims)
        return sum(sizes[at] for at in self.laws.outputs) + self.laws.held_by_loss(self.dims)


def _gathers(job: Job) -> bool:
    """Whether FSDP loads a checkpoint with all parameters whole on every GPU: litgpt until 0.5, through Fabric
    (lightning/fabric/strategies/fsdp.py, load_checkpoint: `summon_full_params(module, rank0_only=False)`)."""
    installed = job.software.get("litgpt")
    through_fabric = installed is not None and (release(installed) or NEWEST) < LITGPT_DISTRIBUTED
    return job.parallel.strategy == "fsdp" and through_fabric
