"""Generation by encoders with a decoder (T5, BART, Whisper): tapes of preflight.tracer.answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from preflight.memory.device.law import Law, Peak

if TYPE_CHECKING:
    from preflight.job import Validation

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
