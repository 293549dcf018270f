"""Text encoders that are trained for embeddings (sentence-transformers): resolving a job that trains one.

Every text of a sample runs through the encoder by itself: two (a question and its answer), three with a negative. Each
is a whole forward pass whose activations wait for the one backward. `task: contrastive` says so; the texts of a sample
are `model.kwargs.texts` (2), and under a cached loss `model.kwargs.mini_batch_size` texts run at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from preflight.memory.device.law.made import PROBE_LAYERS, Depth, MadeLaw, Runner
from preflight.memory.device.law.setup import with_kernel
from preflight.memory.device.law.workload import Resolved, WorkloadRequest
from preflight.memory.device.workloads.own_step import OwnStep, begin, digest
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Cause, Unknown

_BASE = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "intermediate_size": 3072,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}
_ROBERTA = {**_BASE, "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "bert": {**_BASE, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2},
    "roberta": _ROBERTA,
    "mpnet": {**_BASE, "vocab_size": 30527, "max_position_embeddings": 514},
    "electra": {}, "distilbert": {}, "albert": {}, "modernbert": {}, "deberta-v2": {},
}  # fmt: skip
"""Text encoders, and the config values that decide the tape of those with laws of any depth (published checkpoints)."""
SAME_EVENTS = {"xlm-roberta": "roberta", "camembert": "roberta"}
STACKED = ("bert", "roberta", "mpnet")
STACK = "encoder.layer"
PAIR = 2
"""Texts of a sample where it is not stated: an anchor and a positive."""
FREE = ("vocab_size", "num_hidden_layers")
"""The dimensions of a law."""


class Embedder(OwnStep, frozen=True):
    """A text encoder that is trained for embeddings."""

    kind: ClassVar[str] = "embeddings"
    texts: int
    mini: int | None
    """Texts that run at a time under a cached loss."""

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        return asked.task == "contrastive" and SAME_EVENTS.get(asked.known_as, asked.known_as) in DEFAULTS

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        train, config = asked.job.train, asked.config
        architecture = SAME_EVENTS.get(asked.known_as, asked.known_as)
        counts = _counts(asked.job)
        stacked = architecture in STACKED
        own = {k: v for k, v in config.items() if k in DEFAULTS[architecture]} if stacked else dict(config)
        whole: dict[str, Any] = {**DEFAULTS[architecture], **own}
        longest = whole.get("max_position_embeddings")
        setup = begin(asked, "seq_len")
        if isinstance(setup, Unknown):
            return setup
        if isinstance(counts, Unknown):
            return counts
        lengths = {"b": train.batch_size or 1, "s": train.seq_len or 1}
        if isinstance(longest, int) and lengths["s"] > longest:
            return Unknown(f"length {lengths['s']} is more than the model's {longest} positions", Cause.not_possible)
        texts, mini = counts
        if stacked:
            whole["vocab_size"] = train.vocab_size or int(whole["vocab_size"])
        model = cls(architecture, whole, "embedding", texts, mini if mini and lengths["b"] > mini else None)
        dims = {"V": int(whole["vocab_size"])} if stacked else {}
        dims |= {one.name: int(whole[one.key]) for one in model.depths}
        setup = with_kernel(setup, asked.job, asked.gpu, train.sequences not in ("exact", "packed"))
        return Resolved(model, asked.name, "embedding", dims, lengths, setup)

    def told(self) -> dict[str, Any]:
        return {"texts": self.texts, "mini": self.mini}

    @property
    def filed(self) -> str:
        said = {k: bool(v) if "dropout" in k else v for k, v in self.config.items() if k not in FREE}
        return f"embed-{self.architecture}-{digest(said)}"

    @property
    def extra(self) -> str:
        shallow = "" if self.depths else f" layers={self.config.get('num_hidden_layers', '-')}"
        return f"texts={self.texts}{f' mini={self.mini}' if self.mini is not None else ''}{shallow}"

    @property
    def depths(self) -> tuple[Depth, ...]:
        deep = self.architecture in STACKED and int(self.config["num_hidden_layers"]) >= PROBE_LAYERS
        return (Depth(STACK, "num_hidden_layers", "L"),) if deep else ()

    @property
    def free(self) -> tuple[str, ...]:
        return ("b", "s")

    def make(self, resolved: Resolved, kind: str, run: Runner) -> MadeLaw:
        from preflight.memory.device.fit import pairwise_loss

        return pairwise_loss.make_texts(resolved, kind, run, self.mini)

    def alternatives(self, job: Job, resolved: Resolved) -> Iterator[Job]:
        """Three texts in each sample, where model.kwargs.texts is not stated."""
        given = job.model.kwargs or {}
        if "texts" not in given:
            more = {"kwargs": {**given, "texts": PAIR + 1}}
            yield job.model_copy(update={"model": job.model.model_copy(update=more)})

    def notes(self, job: Job, resolved: Resolved) -> Iterator[str]:
        if "texts" not in (job.model.kwargs or {}):
            yield (
                f"assumed: {PAIR} texts in a sample; the interval also covers a third (a hard negative); "
                "state model.kwargs.texts"
            )


def _counts(job: Job) -> tuple[int, int | None] | Unknown:
    """Texts of a sample, and how many run at a time under a cached loss."""
    given = job.model.kwargs or {}
    texts, mini = given.get("texts", PAIR), given.get("mini_batch_size")
    for key, value in (("texts", texts), ("mini_batch_size", mini)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            return Unknown(f"model.kwargs.{key} is {value!r}: it must be a count", Cause.invalid)
    if texts < PAIR:
        return Unknown(
            "model.kwargs.texts is 1: a contrastive loss needs at least two texts in a sample", Cause.not_possible
        )
    return texts, mini
