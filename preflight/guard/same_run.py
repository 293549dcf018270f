"""Why accumulation over smaller micro-batches would be another run: the one decision, for files and for live objects.

The rules ask it with what the files say (preflight_rules/shared/same_run.py); the guard asks it with the model that is
there. Each asks in this order, and stops at the first reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

CONTRASTIVE, STATISTICS, TOKEN_MEAN, OWN_LOSS = "contrastive", "statistics", "token_mean", "own_loss"
OBJECTS, BALANCED, SCHEDULER, DEALT_OUT = "objects", "balanced", "scheduler", "dealt_out"
SEARCHED, READ_ELSEWHERE, UNDIVIDED = "searched", "read_elsewhere", "undivided"

REASONS = {
    CONTRASTIVE: "the loss is contrastive: each sample is compared only with its micro-batch, so a smaller one has "
    "fewer negatives",
    STATISTICS: "batch normalisation takes its statistics from the micro-batch",
    TOKEN_MEAN: "the loop averages the loss over the tokens of a micro-batch, so accumulation weights samples "
    "differently",
    OWN_LOSS: "the program overrides compute_loss of the trainer, and it may compare samples of a micro-batch",
    OBJECTS: "the loss is divided by the objects of a micro-batch, so accumulation weights images differently",
    BALANCED: "a loss balances the experts over the tokens of a micro-batch (output_router_logits)",
    SCHEDULER: "the learning-rate scheduler steps once per micro-batch, so the schedule would run faster",
    UNDIVIDED: "the loop does not divide the loss by the batches that it adds up, so gradients grow with their number",
    DEALT_OUT: "each worker makes batches from its part of the stream, so other samples would share a step",
    SEARCHED: "the batch size is part of the search, and another value changes the search",
    READ_ELSEWHERE: "other lines read the batch size",
}
"""Why the run would change, in the order in which it is asked."""

LAYERS = re.compile(r"(?:Lazy|Sync)?BatchNorm\w*|InPlaceABN\w*|\w+BatchNorm(?:Act)?(?:2d)?")
"""Classes of layers that take statistics of their batch while they train."""
LOSSES = re.compile(
    r"InfoNCE|NTXent|SupCon|Contrastive|ClipLoss|SigLip|MultipleNegatives|NPairs|Triplet", re.IGNORECASE
)


def hazard(known: Callable[[str], str | bool]) -> str:
    """The first reason; "" if there is none. `known` says whether one holds, or gives its own words for it."""
    for name, words in REASONS.items():
        found = known(name)
        if found:
            return found if isinstance(found, str) else words
    return ""


def of_modules(*modules: Any) -> str:
    """The reason that live modules give: a layer with batch statistics in training mode, a loss that compares."""

    def known(name: str) -> str | bool:
        for one in (part for module in modules if module is not None for part in module.modules()):
            kind = type(one).__name__
            if name == CONTRASTIVE and LOSSES.search(kind):
                return True
            if name == STATISTICS and one.training and LAYERS.fullmatch(kind) and _takes_statistics(one):
                return True
        return False

    return hazard(known)


def _takes_statistics(layer: Any) -> bool:
    """Whether a layer normalises by its batch in training mode. A frozen one has no parameters or buffers to update."""
    return not type(layer).__name__.startswith("Frozen")
