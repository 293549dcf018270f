"""Generation by an encoder with a decoder: the encoder runs once, then the decoder makes one token at a time.

transformers decodes such a model from its first token on: no pass takes many tokens. Two tokens are traced. The first
computes the keys and values of the encoder's output, with `t - 1` tokens in the cache. The second finds them in the
cache.
"""

from __future__ import annotations

from typing import Any

import torch

from . import models
from .cuda import Cuda
from .tape import Observer, Tape

TASKS = ("seq2seq-lm", "speech-seq2seq")


def generate(model: Any, tape: Tape, request: dict[str, Any], dtype: torch.dtype | None) -> None:
    """Trace the phases "encoding", "generation" (the first token) and "decoding" (the next token)."""
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    setup, point = request["setup"], request["point"]
    model.eval()
    model.config.use_cache = True
    mode = Cuda(dtype, setup.get("attention", "sdpa"), Observer(tape))
    batch = models.inputs(request["model"], point, False, models.DTYPES[setup.get("weights", "fp32")])
    token = torch.zeros(point["b"], 1, dtype=torch.int64, device="meta")
    before = DynamicCache()
    config = model.config
    layers = config.num_decoder_layers if hasattr(config, "num_decoder_layers") else config.decoder_layers
    before.layers = [_grown(point["t"] - 1)() for _ in range(layers)]
    cache = EncoderDecoderCache(before, DynamicCache())
    with tape, torch.no_grad(), mode:
        seen = {key: value for key, value in batch.items() if key != "labels"}
        for tensor in (*seen.values(), token):
            tape.known(tensor)
        tape.recording, tape.phase = True, "encoding"
        encoded = model.get_encoder()(**seen)
        del seen, batch
        for tape.phase in ("generation", "decoding"):
            out = model(encoder_outputs=encoded, decoder_input_ids=token, past_key_values=cache, use_cache=True)
            if tape.phase == "generation":
                del out
        tape.recording = False  # the caches live on
    del out, encoded, cache


def whole_cache(model: Any) -> dict[str, Any]:
    """The cache for a decoder with sliding-window layers: it keeps all tokens, as a window does up to its length."""
    from transformers.cache_utils import DynamicCache

    kinds = set(getattr(model.config, "layer_types", None) or ())
    return {"past_key_values": DynamicCache()} if len(kinds) > 1 else {}


def _grown(tokens: int) -> Any:
    """A class of cache layers that start with the keys and values of so many tokens."""
    from transformers.cache_utils import DynamicLayer

    class Grown(DynamicLayer):
        def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
            super().lazy_initialization(key_states, value_states)
            shape = (*key_states.shape[:-2], tokens, key_states.shape[-1])
            self.keys, self.values = key_states.new_empty(shape), value_states.new_empty(shape)

        def get_seq_length(self) -> int:
            return super().get_seq_length() if self.is_initialized else tokens

    return Grown
