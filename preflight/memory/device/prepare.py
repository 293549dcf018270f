"""A job with all that its estimate needs: the law, its dimensions, what lies on the GPU, and the optimizer's step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from preflight.memory.device.law import other_laws as fused
from preflight.memory.device.law import other_laws as gathered
from preflight.memory.device.law import quantization
from preflight.memory.device.law.laws import Laws, laws_for
from preflight.memory.device.law.setup import NEWEST, release
from preflight.memory.device.law.sizes import evaluate
from preflight.memory.device.parallel import Layout, Rank, layouts, rank_of, view
from preflight.memory.device.resolve import resolve
from preflight.memory.device.step.loading import scales
from preflight.memory.device.step.optimizers import Step, as_released, unknown
from preflight.memory.device.workload import Resolved
from preflight.memory.device.workloads.image_models import decayed
from preflight.memory.device.workloads.pipelines import CONTROLNET
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.tracing import TRACE, Tracing
from preflight.vocabulary.values import Cause, Unknown, missing

LITGPT_DISTRIBUTED = (0, 5)
"""litgpt shards with ModelParallelStrategy, which loads parameter by parameter (litgpt/finetune/lora.py, 0.5)."""


@dataclass(frozen=True)
class Ready:
    """All that an estimate of one job needs, at its dimensions."""

    job: Job
    resolved: Resolved
    laws: Laws
    dims: Mapping[str, int]
    parameters: tuple[tuple[int, float, bool], ...]
    """(elements, bytes per element, trainable); a fraction of a byte where weights are quantised."""
    buffers: int
    optimizer: Step
    rank: Rank
    """What lies on this GPU, where several share the job."""
    peers: tuple[Ready, ...] = ()
    """Other ranks of the job that may be fuller (the last stage of a pipeline)."""
    others: tuple[Ready, ...] = ()
    """What the job may be as well, where what decides between them is stated nowhere."""
    notes: tuple[str, ...] = ()
    fused: bool = False
    """The law is that of a compiled step."""
    gpu: Gpu | None = None
    tracing: Tracing = TRACE
    """Whether laws of other steps may be traced."""

    @property
    def trainable(self) -> list[tuple[int, int]]:
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
    def held(self) -> int:
        """Bytes of what communication, sharded optimizers and other models keep throughout."""
        return sum(each.nbytes for each in self.rank.held)

    @property
    def gathered(self) -> int:
        """Bytes of all weights, where a checkpoint is loaded into the shards with every parameter whole on each GPU."""
        if not (self.rank.layout.sharded and _gathers(self.job)):
            return 0
        return sum(round(n * each) for n, each, _ in self.parameters)

    @property
    def outputs_kept(self) -> bool:
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
        return bool(self.job.train.optimizer_in_backward)

    @property
    def outputs(self) -> int:
        """Bytes of what the model returned and of what the loss holds, where their names are bound until the step is
        over or longer."""
        if not self.outputs_kept:
            return 0
        sizes = self.laws.made.tape.values(self.dims)
        return sum(sizes[at] for at in self.laws.outputs) + self.laws.held(self.dims)


def _gathers(job: Job) -> bool:
    """Whether FSDP loads a checkpoint with all parameters whole on every GPU: litgpt until 0.5, through Fabric
    (lightning/fabric/strategies/fsdp.py, load_checkpoint: `summon_full_params(module, rank0_only=False)`)."""
    installed = job.software.get("litgpt")
    through_fabric = installed is not None and (release(installed) or NEWEST) < LITGPT_DISTRIBUTED
    return job.parallel.strategy == "fsdp" and through_fabric


def prepare(job: Job, gpu: Gpu | None = None, compiled: bool = False, tracing: Tracing = TRACE) -> Ready | Unknown:
    """Look a job's law up and evaluate its parameters. The reason of an Unknown names the field that is missing.
    `compiled`: a job under torch.compile has the law of its compiled step, which takes seconds for each batch."""
    job = quantization.stated(job)
    found = layouts(job)
    if isinstance(found, Unknown):
        known = resolve(job, gpu, tracing)
        return known if isinstance(known, Unknown) else found
    first, *rest = [_rank(job, gpu, layout, compiled, tracing) for layout in (*found.ranks, *found.others)]
    if isinstance(first, Unknown):
        return first
    peers = tuple(one for one in rest[: len(found.ranks) - 1] if isinstance(one, Ready))
    others = [one for one in rest[len(found.ranks) - 1 :] if isinstance(one, Ready)]
    for other in first.resolved.workload.alternatives(job, first.resolved):
        alone = _first_rank(other, gpu, tracing)
        if isinstance(alone, Ready):
            others.append(alone)
    return replace(first, peers=peers, others=tuple(others), notes=found.notes)


def _first_rank(job: Job, gpu: Gpu | None, tracing: Tracing) -> Ready | Unknown:
    """The first rank of a job, without what the job may be as well."""
    found = layouts(job)
    return found if isinstance(found, Unknown) else _rank(job, gpu, found.ranks[0], False, tracing)


def _rank(job: Job, gpu: Gpu | None, layout: Layout, compiled: bool, tracing: Tracing) -> Ready | Unknown:
    """One rank of a job under a layout."""
    resolved = resolve(view(job, layout), gpu, tracing)
    if isinstance(resolved, Unknown):
        return resolved
    graphs = fused.laws_of(job, resolved, tracing) if compiled and layout.scheme in ("none", "ddp") else None
    laws = graphs or gathered.in_half(job, layout, resolved, gpu, tracing) or laws_for(resolved, "train", tracing)
    if isinstance(laws, Unknown):
        return laws
    dims = resolved.all_dims
    made = laws.made
    rows = made.parameters.sizes(made.tape.depths, dims)
    if job.train.quantization.type in ("nf4", "fp4"):
        rows = scales(rows, bool(job.train.quantization.double_quant))
    name = job.train.optimizer
    how = as_released(job.train.optimizer_impl or "foreach", release(job.software.get("torch")))
    if name is None:
        return missing("train.optimizer")
    rank = rank_of(layout, resolved, laws, rows)
    if isinstance(rank, Unknown):
        return rank
    optimizer = rank.stepped(name, "for-loop" if job.train.optimizer_in_backward and how != "fused" else how)
    if optimizer is None:
        return Unknown(unknown(name), Cause.not_modelled)
    optimizer = decayed(optimizer, job, resolved, [(n, int(size)) for n, size, trains in rows if trains])
    buffers = evaluate(made.parameters.buffers, dims)
    refused = resolved.workload.refuses(resolved, rank.laws, layout.scheme)
    if refused is not None:
        return refused
    beside = resolved.workload.beside(job, resolved, rows, buffers)
    if isinstance(beside, Unknown):
        return beside
    rank = replace(rank, held=(*rank.held, *beside))
    return Ready(job, resolved, rank.laws, rank.dims, tuple(rows), buffers, optimizer, rank,
                 fused=graphs is not None, gpu=gpu, tracing=tracing)  # fmt: skip
