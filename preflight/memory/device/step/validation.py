"""What a job does on the device beside training steps: validation at its own batch and length, and generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from preflight.memory.device.law.law import Law, Peak
from preflight.memory.device.law.laws import laws_for
from preflight.memory.device.law.tape import Tape
from preflight.memory.device.parallel import derive
from preflight.memory.device.step.replay import Segment
from preflight.vocabulary.values import Unknown

if TYPE_CHECKING:
    from preflight.memory.device.prepare import Ready
    from preflight.vocabulary.job import Validation


@dataclass(frozen=True)
class Phase:
    """One phase: its peak by the law, its tape at `dims`, and what is kept besides (`kept`: logits accumulated over the
    evaluation set; `kept_again`: the copy that joining the last batch to them makes), in bytes."""

    name: str
    peak: Peak
    tape: Tape
    dims: Mapping[str, int]
    kept: tuple[int, ...] = ()
    kept_again: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    """Weights that are there for this phase alone, in bytes."""
    notes: tuple[str, ...] = ()

    def segment(self) -> Segment:
        """The events, expanded (a search space needs the peak alone)."""
        return Segment.of(self.tape, self.dims, phase=self.name)


def phases_beside(ready: Ready, smooth: bool = False) -> tuple[Phase, ...]:
    """Validation, when the job names a batch for it; generation, when it generates. `smooth`: see `Law.peak`."""
    workload = ready.resolved.workload
    found = [*workload.phases(ready, smooth)]
    if ready.job.validation.generates and workload.generation_phase == "validation":
        return tuple(found)
    if ready.job.validation.batch_size is not None:
        phase = _validation(ready, smooth)
        if phase is not None:
            found.append(phase)
        if ready.job.validation.generates:
            phase = _generation(ready, smooth)
            if phase is not None:
                found.append(phase)
    return tuple(found)


def _validation(ready: Ready, smooth: bool) -> Phase | None:
    laws = laws_for(ready.resolved, "eval", ready.tracing)
    if isinstance(laws, Unknown):
        return None
    laws = derive(ready.rank, laws)
    validation = ready.job.validation
    dims = {**ready.dims, "b": validation.batch_size or 1}
    if validation.seq_len is not None and "s" in dims:
        dims["s"] = validation.seq_len
    kept: tuple[int, ...] = ()
    if validation.accumulates_logits and validation.samples is not None:
        batches = validation.eval_accumulation
        samples = validation.samples if batches is None else min(validation.samples, batches * dims["b"])
        kept = (samples * _logits_per_sample(ready, dims),)
    return Phase("validation", laws.plain.peak(dims, smooth=smooth), laws.made.tape, dims, kept, kept)


def _logits_per_sample(ready: Ready, dims: dict[str, int]) -> int:
    """fp32 logits of one sample, in bytes (accelerate's ConvertOutputsToFp32; without autocast, the model's dtype)."""
    size = 2 if ready.resolved.setup.weights != "fp32" and not ready.resolved.setup.autocast else 4
    if ready.resolved.task in ("causal-lm", "masked-lm"):
        return size * dims["s"] * dims["V"]
    if ready.resolved.task in ("seq2seq-lm", "speech-seq2seq"):
        return size * dims["t"] * dims["V"]
    return size * 2


def _generation(ready: Ready, smooth: bool) -> Phase | None:
    laws = laws_for(ready.resolved, "generate", ready.tracing)
    validation = ready.job.validation
    if isinstance(laws, Unknown) or "s" not in ready.dims:
        return None
    laws = derive(ready.rank, laws)
    prompt = validation.seq_len or ready.dims["s"]
    batch = (validation.batch_size or 1) * (validation.beams or 1)
    # The tape is a prefill and one more token; the last token of the answer has everything before it in the cache.
    dims = {**ready.dims, "b": batch, "s": prompt + (validation.max_new_tokens or 1) - 1}
    if ready.resolved.task in TASKS:
        given = {**ready.dims, "s": prompt if ready.resolved.task == "seq2seq-lm" else ready.dims["s"]}
        peak, larger = largest(laws.plain, given, validation, smooth)
        return Phase("generation", Peak(peak.bytes, peak.parts, "generation", peak.where), laws.made.tape, larger)
    longest = ready.dims.get("P")
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
