"""Generation by an encoder with a decoder: the encoder once, then single tokens after a cache of keys and values.

`transformers` decodes such a model from its first token on, so there is no pass over many. Two tokens are traced: one
that computes what the decoder sees of the encoder, with the cache of `t - 1` tokens that has come to be by then, and
the next one, which finds all of it there.
"""

from __future__ import annotations

from typing import Any

import torch

from . import models
from .cuda import Cuda
from .tape import Observer, Tape

TASKS = ("seq2seq-lm", "speech-seq2seq")


def generate(model: Any, tape: Tape, request: dict[str, Any], dtype: torch.dtype | None) -> None:
    """Phases "encoding", "generation" (a token, and what its layers keep of the encoder), "decoding" (the next one)."""
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
    """The cache to give to a decoder in some of whose layers a window would cut what is kept: one that keeps all, as
    theirs does up to the window's length."""
    from transformers.cache_utils import DynamicCache

    kinds = set(getattr(model.config, "layer_types", None) or ())
    return {"past_key_values": DynamicCache()} if len(kinds) > 1 else {}


def _grown(tokens: int) -> Any:
    """A layer of a cache that is born with the keys and values of tokens before."""
    from transformers.cache_utils import DynamicLayer

    class Grown(DynamicLayer):
        def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
            super().lazy_initialization(key_states, value_states)
            shape = (*key_states.shape[:-2], tokens, key_states.shape[-1])
            self.keys, self.values = key_states.new_empty(shape), value_states.new_empty(shape)

        def get_seq_length(self) -> int:
            return super().get_seq_length() if self.is_initialized else tokens

    return Grown
