"""Adapters (peft) as a part of a setup.

LoRA in a family's layers has laws, in which the rank is a dimension. Other ways to decide the trained weights have not:
such a model is traced as it is, through peft (tracer/adapters.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from preflight.vocabulary.job import Peft

LORA = ("lora", "rslora")
CONTROLNET = "controlnet"
"""The `train.peft.method` of a ControlNet with a frozen denoiser."""
_SHAPING = (
    "modules_to_save", "bias", "lora_bias", "rank_pattern", "layers_to_transform", "layers_pattern", "exclude_modules",
    "trainable_token_indices", "target_parameters", "layer_replication", "ensure_weight_tying", "use_qalora",
)  # fmt: skip
"""Options of LoraConfig that change what is trained or what its layers make; absent, False or "none" they change
nothing. Others are of values: scales, how adapters are initialised (PiSSA, OLoRA, LoftQ, EVA, CorDA)."""
_BY_LAYER = ("layers_to_transform", "layers_pattern", "rank_pattern", "n_frequency_pattern", "block_size_pattern",
             "lambda_pattern", "exclude_modules", "layer_replication")  # fmt: skip
"""Options that may name layers by their number: a model is then traced at its full depth."""
OWN_RANK = (
    "vera",
    "pvera",
    "miss",
    "bone",
    "randlora",
    "hira",
    "gralora",
    "lily",
    "psoft",
    "peanut",
    "vblora",
    "tinylora",
)
"""Methods whose own rank is another than the 8 of a job that does not say (peft, tuners/*/config.py)."""


class Adapters(Struct, frozen=True):
    """Adapters as a tape depends on them. `options`: peft's, of adapters that no family's law covers; None: LoRA in
    a family's layers, whose rank is a dimension. `rank`: theirs where it is no dimension; None: the method's own."""

    method: str
    targets: tuple[str, ...] | str | None
    """Layers that have adapters; None: peft's own default for the type of the model."""
    dropout: bool = False
    half: str | None = None
    """Their dtype, where that is one of 16 bits."""
    rank: int | None = None
    options: Mapping[str, object] | None = None

    def wire(self, rank: int | None = None) -> dict[str, Any]:
        """The adapters in the request to the tracer. `rank`: theirs if it is a dimension."""
        targets = list(self.targets) if isinstance(self.targets, tuple) else self.targets
        told = {"method": self.method, "targets": targets, "dropout": self.dropout}
        half = {"half": self.half} if self.half is not None else {}
        own = {"r": self.rank, "options": dict(self.options)} if self.options is not None else {}
        return {**told, **half, **own, **({"r": rank} if rank is not None else {})}


def is_lora_alone(peft: Peft) -> bool:
    """Whether a family's laws of LoRA cover the adapters."""
    return peft.method in LORA and not any(_says(peft, option) for option in _SHAPING)


def names_layers(peft: Peft) -> bool:
    """Whether the options may name layers by number."""
    return peft.method not in (None, "none") and any(_says(peft, option) for option in _BY_LAYER)


def rank(peft: Peft) -> int | None:
    """The rank of adapters that no law covers; None: the method's own."""
    own = peft.method in OWN_RANK and "r" not in peft.model_fields_set
    return None if own else peft.r or 8


def _says(peft: Peft, option: str) -> bool:
    return peft.options.get(option) not in (None, False, "none", [], {}, ())
