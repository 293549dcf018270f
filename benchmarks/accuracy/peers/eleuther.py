"""EleutherAI's transformer memory formula (EleutherAI/cookbook, calc/calc_transformer_mem.py, calc_mem), re-expressed.

Weights (parameters from the dimensions), gradients in fp32, 12 bytes of Adam per parameter, and the activations of
"Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198), all layers' also where they are
checkpointed. Its option for miscellaneous memory is 0 unless its user has a figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.accuracy.peers.base import Answer, Refused, adapts, described, one_figure, quantised
from benchmarks.accuracy.truth import TIERS, Tier
from preflight.vocabulary.job import Job

LOW, HIGH, GRADIENT, ADAM = 2, 4, 4, 12
"""Bytes per value: low_prec_bytes_per_val, high_prec_bytes_per_val, bytes_per_grad_ele, and Adam's per parameter."""


@dataclass(frozen=True)
class Shape:
    layers: int
    heads: int
    hidden: int
    vocabulary: int
    expansion: float


class Eleuther:
    name = "eleutherai"
    tiers: tuple[Tier, ...] = TIERS
    version: str | None = "069ae2e, re-expressed"

    def estimate(self, job: Job) -> Answer | Refused:
        """One GPU, or data parallel with ZeRO."""
        train = job.train
        if adapts(job) or quantised(job):
            return Refused("full training only")
        if train.optimizer not in ("adamw", "adam"):
            return Refused("Adam only")
        if job.task not in (None, "causal-lm"):
            return Refused("only decoders that predict text")
        if train.batch_size is None or train.seq_len is None:
            return Refused("batch size and length have to be stated")
        stages = {None: 0, "none": 0, "ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}
        if job.parallel.strategy not in stages:
            return Refused(f"no option for {job.parallel.strategy}")
        found = described(job)
        if isinstance(found, Refused):
            return found
        shape = _shape(found.config)
        if shape is None:
            return Refused("no option for this architecture's dimensions")
        gpus = (job.parallel.nodes or 1) * max(job.parallel.gpus_per_node or 1, job.parallel.ranks_per_node or 1)
        low = train.precision != "fp32"
        states = _states(_parameters(shape, train.seq_len), low, stages[job.parallel.strategy], gpus)
        scores = not train.gradient_checkpointing
        return one_figure(states + _activations(shape, train.batch_size, train.seq_len, scores))


def _shape(config: Mapping[str, object]) -> Shape | None:
    def first(*names: str) -> int | None:
        found = next((config[n] for n in names if config.get(n) is not None), None)
        return found if isinstance(found, int) else None

    layers, heads = first("num_hidden_layers", "n_layer"), first("num_attention_heads", "n_head")
    hidden, vocabulary = first("hidden_size", "n_embd"), first("vocab_size")
    if layers is None or heads is None or hidden is None or vocabulary is None:
        return None
    wide = first("intermediate_size", "n_inner") or 4 * hidden
    return Shape(layers, heads, hidden, vocabulary, wide / hidden)


def _parameters(x: Shape, length: int) -> float:
    """Embedding twice, positions, norms, attention (4 h^2) and a feed-forward of two matrices."""
    h = x.hidden
    return (
        2 * x.vocabulary * h + h * length + 8 * h * x.layers + 2 * h
        + 4 * x.layers * h * h + 2 * x.layers * h * x.expansion * h
    )  # fmt: skip


def _states(count: float, low: bool, stage: int, gpus: int) -> float:
    weights = count * (LOW if low else HIGH) / (gpus if stage == 3 else 1)
    gradients = count * GRADIENT / (gpus if stage >= 2 else 1)
    return weights + gradients + count * ADAM / (gpus if stage >= 1 else 1)


def _activations(x: Shape, batch: int, length: int, scores: bool) -> float:
    per = 16 * LOW + 2 + ((2 * LOW + 1) * x.heads * length / x.hidden if scores else 0)
    return length * batch * x.hidden * x.layers * per
