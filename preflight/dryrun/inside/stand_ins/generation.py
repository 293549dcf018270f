"""transformers' `generate`: no made-up token ends a text, and of many tokens the first two and the last are run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from .. import values
from ..patches import wrap
from ..tape import Tape

FEW = 16
"""New tokens up to which each is run."""
_WHOLE = ("output_scores", "output_logits", "output_attentions", "output_hidden_states", "return_dict_in_generate")
"""What keeps something of every token: these are run to their end."""


class Generation:
    """Texts that are generated have the most tokens that the program allows."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._inside = False

    def install(self, module: Any) -> None:
        """transformers.generation.utils."""
        wrap(module.GenerationMixin, "generate", self._generated)

    def _generated(self, real: Any, model: Any, inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        if self._inside:
            return real(model, inputs, *args, **kwargs)
        self._inside = True
        try:
            return self._made(functools.partial(real, model), model, inputs, args, kwargs)
        finally:
            self._inside = False

    def _made(self, generate: Any, model: Any, inputs: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        prompt = inputs if inputs is not None else kwargs.get("input_ids")
        config = kwargs.get("generation_config") or (args[0] if args else None) or model.generation_config
        count = _new_tokens(prompt, config, kwargs) if not model.config.is_encoder_decoder else None
        whole = len(args) > 1 or any(_asked(name, config, kwargs) for name in _WHOLE)
        whole = whole or (_asked("num_beams", config, kwargs) or 1) > 1 or _asked("use_cache", config, kwargs) is False
        if whole or prompt is None or count is None or count <= FEW:
            return self._unended(generate(inputs, *args, **kwargs), prompt, config, kwargs)
        short = {**kwargs, "max_new_tokens": 2, "min_new_tokens": 2, "return_dict_in_generate": True}
        short.pop("max_length", None)
        begun = generate(inputs, *args, **short)
        cache = getattr(begun, "past_key_values", None)
        layers = getattr(cache, "layers", None)
        if not layers or any(type(one).__name__ != "DynamicLayer" for one in layers):
            del begun, cache, layers
            return self._unended(generate(inputs, *args, **kwargs), prompt, config, kwargs)
        out = prompt.new_empty((prompt.shape[0], prompt.shape[1] + count))
        self._last(model, cache, prompt, count)
        self._tape.assume(f"of {count} tokens that are generated the first two and the last were run")
        return self._unended(out, prompt, config, kwargs)

    def _last(self, model: Any, cache: Any, prompt: Any, count: int) -> None:
        """The last token, with all others in the cache. A layer's keys and values are copied when one is added."""
        before = prompt.shape[1] + count - 1
        for layer in cache.layers:
            for name in ("keys", "values"):
                kept = getattr(layer, name)
                shape = (*kept.shape[:-2], before, kept.shape[-1])
                setattr(layer, name, None)
                del kept
                setattr(layer, name, torch.empty(shape, dtype=layer.dtype, device=layer.device))
        mask = torch.ones((prompt.shape[0], before + 1), dtype=torch.long, device=prompt.device)
        with torch.no_grad():
            model(
                input_ids=prompt[:, -1:], attention_mask=mask, past_key_values=cache, use_cache=True,
                position_ids=torch.full_like(prompt[:, -1:], before),
            )  # fmt: skip

    def _unended(self, out: Any, prompt: Any, config: Any, kwargs: Mapping[str, Any]) -> Any:
        """The same with values: the prompt's, then a token that neither ends nor fills a text."""
        tokens = out if isinstance(out, torch.Tensor) else getattr(out, "sequences", None)
        if tokens is None or not values.small(tokens):
            return out
        special = {one for name in ("eos_token_id", "pad_token_id", "bos_token_id")
                   for one in _numbers(_asked(name, config, kwargs))}  # fmt: skip
        made = torch.full(tokens.shape, next(i for i in range(10, 1000) if i not in special), dtype=tokens.dtype)
        known = values.known(prompt) if isinstance(prompt, torch.Tensor) else None
        if known is not None and known.shape[0] == made.shape[0] and known.shape[1] <= made.shape[1]:
            made[:, : known.shape[1]] = known
        values.give(tokens, made)
        words = "the tokens that a model generates are made up: no text ends before the length that the program allows"
        self._tape.assume(words, "train.seq_len")
        return out


def _asked(name: str, config: Any, kwargs: Mapping[str, Any]) -> Any:
    return kwargs[name] if name in kwargs else getattr(config, name, None)


def _numbers(given: Any) -> list[int]:
    if isinstance(given, torch.Tensor):
        given = values.made_up(given).tolist() if hasattr(given, "fake_mode") else given.tolist()
    return [one for one in (given if isinstance(given, (list, tuple)) else [given]) if isinstance(one, int)]


def _new_tokens(prompt: Any, config: Any, kwargs: Mapping[str, Any]) -> int | None:
    """The most tokens that are generated; None where the program does not say."""
    if not isinstance(prompt, torch.Tensor) or prompt.dim() != 2:
        return None
    count = _asked("max_new_tokens", config, kwargs)
    if isinstance(count, int):
        return count
    total = _asked("max_length", config, kwargs)
    return total - prompt.shape[1] if isinstance(total, int) and total > prompt.shape[1] else None
