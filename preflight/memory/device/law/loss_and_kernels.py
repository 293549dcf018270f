"""Which loss and which fused kernels a model really has: what the job states, the releases, and what Liger knows."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from preflight.vocabulary.notation import NEWEST, release

TABLE = Path(__file__).with_name("liger_models.json")
SWITCH = "liger"
"""In `train.fused_kernels`: Liger applies them, as its release does for the model type."""


@lru_cache(maxsize=1)
def replaced() -> Mapping[str, Sequence[str]]:
    """Model type -> what Liger replaces by default: "norm", "rope", "mlp" (gated products), "loss" (with the head).

    Other model types keep transformers' own code. The file is made by scripts/make_liger_table.py.
    """
    found: Mapping[str, Sequence[str]] = json.loads(TABLE.read_text(encoding="utf-8"))["replaced"]
    return found


def applied(asked: Collection[str], loss: str | None, model_type: str | None) -> tuple[tuple[str, ...], str | None]:
    """The kernels and the loss that a model really has, of `train.fused_kernels` and `train.loss`.

    Liger leaves a model alone whose type it does not know. Kernels that are stated without Liger are taken as they are.
    """
    if SWITCH not in asked:
        return tuple(sorted(asked)), loss
    known = replaced().get(model_type or "", ())
    kernels = tuple(sorted(one for one in asked if one in known))
    return kernels, "full" if loss == "fused" and "loss" not in known else loss


def notes(asked: Collection[str], kernels: Collection[str]) -> tuple[str, ...]:
    """What to say of a model that Liger does not know."""
    if SWITCH not in asked or kernels:
        return ()
    return ("Liger has no kernels for this type of model: it is estimated without them",)


OF_CHUNKED_OUTPUT = ("torchtune", "litgpt")
"""Libraries whose chunked loss is of 16-bit logits that are all there (torchtune, CEWithChunkedOutputLoss; litgpt/
utils.py, chunked_cross_entropy)."""


LOG_PROBABILITIES = "log-probabilities"
OF_FP32 = f"{LOG_PROBABILITIES}-of-fp32"
"""The loss of preferences, whose trainer reads logits that accelerate has cast."""


def loss_of(
    asked: str | None, transformers: str | None, software: Mapping[str, str], casts: bool = False
) -> str | None:
    """How a causal language model's loss is computed (tracer/losses.py); None: as today's transformers does. `casts`:
    16-bit logits are fp32 when the model has returned.

    Releases before 4.49 copied the shifted logits, those before 4.46 handed out fp32 ones (loss/loss_utils.py and
    modeling_llama.py of 4.31 to 5.0).
    """
    if asked == "chunked":
        return "chunked" if any(name in software for name in OF_CHUNKED_OUTPUT) else "pieces"
    if asked == LOG_PROBABILITIES and casts:
        return OF_FP32
    if asked in ("chunked-output", "fused", LOG_PROBABILITIES):
        return asked.removesuffix("-output")
    version = release(transformers) or NEWEST
    if version >= (4, 49):
        return None
    return "shifted" if version >= (4, 46) else "shifted-out"
