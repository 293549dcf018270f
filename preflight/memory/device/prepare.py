"""Preparing a job for its estimate: one `PreparedJob` for each rank and each alternative."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from preflight.memory.device import fsdp_in_16_bits
from preflight.memory.device.law import quantization
from preflight.memory.device.law.made import Weight
from preflight.memory.device.law.sizes import evaluate
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.laws_of_job import compiled_laws, laws_for
from preflight.memory.device.optimizers import as_released, unknown, with_weight_decay
from preflight.memory.device.parallel import DeviceRank, ShardLayout, layouts, rank_of, view
from preflight.memory.device.phases import leaves_loss_open
from preflight.memory.device.resolve import resolve
from preflight.memory.device.step.loading import scales
from preflight.memory.device.step.prepared import PreparedJob
from preflight.vocabulary.edits_of_job import in_sequences
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.notation import release
from preflight.vocabulary.optimizer import Step
from preflight.vocabulary.tracing import TRACE, Tracing
from preflight.vocabulary.values import Cause, Unknown, missing


def prepare(
    job: Job, gpu: Gpu | None = None, compiled: bool = False, tracing: Tracing = TRACE
) -> PreparedJob | Unknown:
    """Looks up the law of a job and evaluates its parameters. The reason of an Unknown names the field that is missing.
    `compiled`: for a job under torch.compile, trace the compiled step, which takes seconds for each batch."""
    if job.train.sequences_per_sample is None:
        known = resolve(job, gpu, tracing)
        if isinstance(known, Unknown) and known.cause is Cause.model_unknown:
            return known  # how many sequences a sample has says nothing of it
        return missing("train.sequences_per_sample")
    job = quantization.stated(in_sequences(job))
    found = layouts(job)
    if isinstance(found, Unknown):
        known = resolve(job, gpu, tracing)
        return known if isinstance(known, Unknown) else found
    first, *rest = [_rank(job, gpu, layout, compiled, tracing) for layout in (*found.ranks, *found.alternatives)]
    if isinstance(first, Unknown):
        return first
    peers = tuple(one for one in rest[: len(found.ranks) - 1] if isinstance(one, PreparedJob))
    alternatives = [one for one in rest[len(found.ranks) - 1 :] if isinstance(one, PreparedJob)]
    with_loss, notes = _with_loss(job, first)
    for other in (*first.resolved.workload.alternatives(job, first.resolved), *with_loss):
        alone = _first_rank(other, gpu, tracing)
        if isinstance(alone, PreparedJob):
            alternatives.append(alone)
    return replace(first, peers=peers, alternatives=tuple(alternatives), notes=(*found.notes, *notes))


def _with_loss(job: Job, first: PreparedJob) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """The job with a loss in its validation, and a note, where no setting says whether it computes one."""
    if not leaves_loss_open(job.validation) or first.resolved.workload.generation_phase == "validation":
        return (), ()
    note = "whether validation computes a loss beside what it generates is not stated: the interval covers both"
    return (job.model_copy(update={"validation": job.validation.model_copy(update={"loss": True})}),), (note,)


def _first_rank(job: Job, gpu: Gpu | None, tracing: Tracing) -> PreparedJob | Unknown:
    """The first rank of a job, without its alternatives."""
    found = layouts(job)
    return found if isinstance(found, Unknown) else _rank(job, gpu, found.ranks[0], False, tracing)


def _rank(job: Job, gpu: Gpu | None, layout: ShardLayout, compiled: bool, tracing: Tracing) -> PreparedJob | Unknown:
    """One rank of a job under a layout."""
    resolved = resolve(view(job, layout), gpu, tracing)
    if isinstance(resolved, Unknown):
        return resolved
    graphs = compiled_laws(job, resolved, tracing) if compiled and layout.scheme in ("none", "ddp") else None
    in_16_bits = None if graphs else fsdp_in_16_bits.laws_of(job, layout, resolved, gpu, tracing)
    laws = graphs or in_16_bits or laws_for(resolved, "train", tracing)
    if isinstance(laws, Unknown):
        return laws
    dims = resolved.all_dims
    made = laws.made
    rows = made.parameters.sizes(made.tape.depths, dims)
    if job.train.quantization.type in ("nf4", "fp4"):
        rows = tuple(scales(rows, bool(job.train.quantization.double_quant)))
    if job.train.optimizer is None:
        return missing("train.optimizer")
    rank = rank_of(layout, resolved, laws, rows)
    if isinstance(rank, Unknown):
        return rank
    optimizer = _optimizer(job, job.train.optimizer, resolved, rank, rows)
    if isinstance(optimizer, Unknown):
        return optimizer
    buffers = evaluate(made.parameters.buffers, dims)
    refused = resolved.workload.refuses(resolved, rank.laws, layout.scheme)
    if refused is not None:
        return refused
    beside = resolved.workload.beside(job, resolved, rows, buffers)
    if isinstance(beside, Unknown):
        return beside
    rank = replace(rank, storages=(*rank.storages, *beside))
    return PreparedJob(
        job,
        resolved,
        rank.laws,
        rank.dims,
        tuple(rows),
        buffers,
        optimizer,
        rank,
        compiled=graphs is not None,
        gpu=gpu,
        tracing=tracing,
    )


def _optimizer(job: Job, name: str, resolved: Resolved, rank: DeviceRank, rows: Sequence[Weight]) -> Step | Unknown:
    """One rank's optimizer step. `rows`: the weights of the whole model."""
    train = job.train
    implementation = as_released(train.optimizer_impl or "foreach", release(job.software.get("torch")))
    in_backward = train.optimizer_in_backward and implementation != "fused"
    step = rank.stepped(name, "for-loop" if in_backward else implementation)
    if step is None:
        return Unknown(unknown(name), Cause.not_modelled)
    if resolved.workload.image_loop and name in ("sgd", "sgd-momentum") and train.optimizer_impl == "foreach":
        # Recipes for images have weight decay: timm's train.py by default, torchvision's references.
        return with_weight_decay(step, [(n, int(size)) for n, size, trains in rows if trains])
    return step
