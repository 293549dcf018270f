"""Phases of a job except training: validation at its own batch and length, generation, and those of its kind
of model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.memory.device.law import store
from preflight.memory.device.law.law import Law, Laws, Peak
from preflight.memory.device.law.tape import Tape
from preflight.memory.device.law.workload import ExtraPhase, Resolved
from preflight.memory.device.laws_of_job import laws_for
from preflight.memory.device.parallel import derive
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.replay import Phase
from preflight.vocabulary.job import Validation
from preflight.vocabulary.values import Unknown

NOTHING = Tape((), (), (), {})


def phases_beside(prepared: PreparedJob, smooth: bool = False) -> tuple[Phase, ...]:
    """Validation, when the job names a batch for it; generation, when it generates. `smooth`: see `Law.peak`.

    Trainer's predict_with_generate generates and then computes the loss as well (transformers, trainer_seq2seq.py,
    prediction_step); a loop written by hand may do one of the two (validation.loss).
    """
    workload = prepared.resolved.workload
    found = [*_extra_phases(prepared, smooth)]
    if prepared.job.validation.generates and workload.generation_phase == "validation":
        return tuple(found)
    if prepared.job.validation.batch_size is not None:
        phase = _validation(prepared, smooth) if computes_loss(prepared.job.validation) else None
        if phase is not None:
            found.append(phase)
        if prepared.job.validation.generates:
            phase = _generation(prepared, smooth)
            if phase is not None:
                found.append(phase)
    return tuple(found)


def computes_loss(validation: Validation) -> bool:
    """Whether validation has a labelled forward pass, as far as a setting says."""
    return not validation.generates if validation.loss is None else validation.loss


def leaves_loss_open(validation: Validation) -> bool:
    """Whether nothing says if a validation that generates computes a loss as well."""
    return bool(validation.generates) and validation.loss is None and validation.batch_size is not None


def _extra_phases(prepared: PreparedJob, smooth: bool) -> Iterator[Phase]:
    """Phases that only models of this kind have, and the images that the job generates."""
    workload, weights = prepared.resolved.workload, (prepared.parameters, prepared.rank.rows)
    for phase in workload.extra_phases(prepared.job, prepared.resolved, *weights):
        yield from _run(phase, prepared, smooth)
    if prepared.job.validation.generates:
        images = workload.image_generation(prepared.job, prepared.resolved, *weights)
        if images is not None:
            yield from _run(images, prepared, smooth)


def _run(phase: ExtraPhase, prepared: PreparedJob, smooth: bool) -> Iterator[Phase]:
    """The phase with the laws of what runs in it; empty where one of them is not known."""
    if not phase.steps:
        yield Phase(phase.name, Peak(0, {}, phase.name, ""), NOTHING, {}, loaded=phase.loaded)
    found: list[tuple[Resolved, Laws]] = []
    for one in phase.steps:
        laws = laws_for(one, "eval", prepared.tracing)
        if isinstance(laws, Unknown):
            return
        found.append((one, laws))
    for one, laws in found:
        dims = prepared.dims if phase.of_batch else one.all_dims
        peak = laws.plain.peak(dims, smooth=smooth and not phase.of_batch)
        yield Phase(phase.name, peak, laws.made.tape, dims, loaded=phase.loaded)


def note_on_images(prepared: PreparedJob) -> Iterator[str]:
    """A note with the memory of generating images, if it is not known whether the job generates them."""
    job = prepared.job
    if "generates" in job.validation.model_fields_set or job.validation.generates:
        return
    images = prepared.resolved.workload.image_generation(
        job, prepared.resolved, prepared.parameters, prepared.rank.rows
    )
    if images is None or store.load(store.key_of(images.steps[0], "eval")) is None:  # not worth a trace
        return
    found = list(_run(images, prepared, smooth=False))
    if found:
        takes = prepared.weights + prepared.storage_bytes + sum(prepared.optimizer.states) + sum(images.loaded)
        takes += max(one.peak.bytes for one in found)
        yield (
            f"generating an image for validation would need {takes / 2**30:.1f} GiB of tensors, and no setting says "
            "that the job does: state validation.generates"
        )


def _validation(prepared: PreparedJob, smooth: bool) -> Phase | None:
    laws = laws_for(prepared.resolved, "eval", prepared.tracing)
    if isinstance(laws, Unknown):
        return None
    laws = derive(prepared.rank, laws)
    validation = prepared.job.validation
    dims = {**prepared.dims, "b": validation.batch_size or 1}
    if validation.seq_len is not None and "s" in dims:
        dims["s"] = validation.seq_len
    kept: tuple[int, ...] = ()
    if validation.accumulates_logits and validation.samples is not None:
        batches = validation.eval_accumulation
        samples = validation.samples if batches is None else min(validation.samples, batches * dims["b"])
        kept = (samples * _logits_per_sample(prepared, dims),)
    return Phase("validation", laws.plain.peak(dims, smooth=smooth), laws.made.tape, dims, kept, kept)


def _logits_per_sample(prepared: PreparedJob, dims: dict[str, int]) -> int:
    """fp32 logits of one sample, in bytes (accelerate's ConvertOutputsToFp32; without autocast, the model's dtype)."""
    size = 2 if prepared.resolved.setup.weights != "fp32" and not prepared.resolved.setup.autocast else 4
    if prepared.resolved.task in ("causal-lm", "masked-lm"):
        return size * dims["s"] * dims["V"]
    if prepared.resolved.task in ("seq2seq-lm", "speech-seq2seq"):
        return size * dims["t"] * dims["V"]
    return size * 2


def _generation(prepared: PreparedJob, smooth: bool) -> Phase | None:
    laws = laws_for(prepared.resolved, "generate", prepared.tracing)
    validation = prepared.job.validation
    if isinstance(laws, Unknown) or "s" not in prepared.dims:
        return None
    laws = derive(prepared.rank, laws)
    prompt = validation.seq_len or prepared.dims["s"]
    batch = (validation.batch_size or 1) * (validation.beams or 1)
    # The tape is a prefill and one more token; the last token of the answer has everything before it in the cache.
    dims = {**prepared.dims, "b": batch, "s": prompt + (validation.max_new_tokens or 1) - 1}
    if prepared.resolved.task in TASKS:
        given = {**prepared.dims, "s": prompt if prepared.resolved.task == "seq2seq-lm" else prepared.dims["s"]}
        peak, larger = largest(laws.plain, given, validation, smooth)
        return Phase("generation", Peak(peak.bytes, peak.parts, "generation", peak.where), laws.made.tape, larger)
    longest = prepared.dims.get("P")
    if longest is not None:
        dims["s"] = min(dims["s"], longest)
    decoding = laws.plain.peak(dims, frozenset({"decoding"}), smooth)
    prefill = laws.plain.peak({**dims, "s": prompt}, frozenset({"generation"}), smooth)
    larger = dims if decoding.bytes > prefill.bytes else {**dims, "s": prompt}
    peak = max(decoding, prefill, key=lambda p: p.bytes)
    return Phase("generation", Peak(peak.bytes, peak.parts, "generation", peak.where), laws.made.tape, larger)


# Generation by encoders with a decoder (T5, BART, Whisper): tapes of preflight.tracer.seq2seq_generation.

TASKS = ("seq2seq-lm", "speech-seq2seq")
ENCODES, DECODES = frozenset({"encoding"}), frozenset({"generation", "decoding"})


def largest(law: Law, dims: Mapping[str, int], validation: Validation, smooth: bool) -> tuple[Peak, dict[str, int]]:
    """The largest moment, and the dimensions that it has.

    The encoder sees a batch once; beams come after it (transformers, generation/utils.py, _expand_inputs_for_generation
    follows _prepare_encoder_decoder_kwargs_for_generation). The last token finds all before it in the cache, the one
    that starts among them.
    """
    answer = max(1, (validation.max_new_tokens or 1) - 1)
    once = {**dims, "b": validation.batch_size or 1, "t": min(answer, dims.get("P", answer))}
    beams = {**once, "b": once["b"] * (validation.beams or 1)}
    encoded, decoded = law.peak(once, ENCODES, smooth), law.peak(beams, DECODES, smooth)
    return (encoded, once) if encoded.bytes > decoded.bytes else (decoded, beams)
