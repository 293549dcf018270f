"""Encoders of texts trained to embed them (sentence-transformers): what their law is filed under.

Every text of a sample runs through the encoder by itself: two (a question and its answer), three with a negative. Each
is a whole forward pass whose activations wait for the one backward. `task: contrastive` says so; the texts of a sample
are `model.kwargs.texts` (2), and under a cached loss `model.kwargs.mini_batch_size` texts run at a time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from preflight.memory.device.fit.few_traces import Depth
from preflight.memory.device.fit.make import PROBE_LAYERS
from preflight.vocabulary.values import Cause, Unknown, missing

if TYPE_CHECKING:
    from preflight.memory.device.prepare import Ready
    from preflight.memory.device.resolve import Resolved
    from preflight.vocabulary.job import Job
    from preflight.vocabulary.machine import Gpu

KIND = "embeddings"
_BASE = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12, "intermediate_size": 3072,
         "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}  # fmt: skip
_ROBERTA = {**_BASE, "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "bert": {**_BASE, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2},
    "roberta": _ROBERTA,
    "mpnet": {**_BASE, "vocab_size": 30527, "max_position_embeddings": 514},
    "electra": {}, "distilbert": {}, "albert": {}, "modernbert": {}, "deberta-v2": {},
}  # fmt: skip
"""Encoders of texts, and what decides the tape of those with laws of any depth: published checkpoints' values."""
SAME_EVENTS = {"xlm-roberta": "roberta", "camembert": "roberta"}
STACKED = ("bert", "roberta", "mpnet")
STACK = "encoder.layer"
PAIR = 2
"""Texts of a sample where nothing is said: an anchor and what goes with it."""
FREE = ("vocab_size", "num_hidden_layers")
"""What a law is a function of."""
COUNTS = ("texts", "mini_batch_size")
"""Keys of model.kwargs that say how texts run."""


def knows(architecture: str, task: str) -> bool:
    """Whether this is an encoder of texts that is trained to embed them."""
    return task == "contrastive" and SAME_EVENTS.get(architecture, architecture) in DEFAULTS


def depths_of(architecture: str, config: Mapping[str, Any]) -> tuple[Depth, ...]:
    """The encoder's layers, where they are as many as a trace has."""
    deep = architecture in STACKED and int(config["num_hidden_layers"]) >= PROBE_LAYERS
    return (Depth(STACK, "num_hidden_layers", "L"),) if deep else ()


def filed(architecture: str, config: Mapping[str, Any]) -> str:
    """The name of a model's law file: its architecture, and what its config says."""
    said = {k: bool(v) if "dropout" in k else v for k, v in config.items() if k not in FREE}
    text = json.dumps(said, sort_keys=True, default=str)
    return f"embed-{architecture}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def resolve(job: Job, name: str, architecture: str, config: Mapping[str, Any], gpu: Gpu | None) -> Resolved | Unknown:
    """What the law of an embedding step is looked up by."""
    from preflight.memory.device.attention import kernel
    from preflight.memory.device.resolve import Resolved, setup_of

    train = job.train
    if train.batch_size is None:
        return missing("train.batch_size")
    if train.seq_len is None:
        return missing("train.seq_len")
    architecture = SAME_EVENTS.get(architecture, architecture)
    counts = _counts(job)
    if isinstance(counts, Unknown):
        return counts
    texts, mini = counts
    own = {k: v for k, v in config.items() if k in DEFAULTS[architecture]} if architecture in STACKED else dict(config)
    whole: dict[str, Any] = {**DEFAULTS[architecture], **own}
    longest = whole.get("max_position_embeddings")
    if isinstance(longest, int) and train.seq_len > longest:
        return Unknown(f"length {train.seq_len} is more than the model's {longest} positions", Cause.not_possible)
    setup = setup_of(job, None, whole, gpu)
    if isinstance(setup, Unknown):
        return setup
    mask = train.sequences not in ("exact", "packed")
    chosen = kernel(train.attention or "sdpa", mask, train.precision != "fp32", gpu)
    setup = {**setup, "attention": "sdpa" if chosen == "flash" else chosen, "mask": mask}
    dims: dict[str, int] = {}
    if architecture in STACKED:
        dims["V"] = whole["vocab_size"] = train.vocab_size or int(whole["vocab_size"])
    dims |= {one.name: int(whole[one.key]) for one in depths_of(architecture, whole)}
    shallow = "" if "L" in dims else f" layers={whole.get('num_hidden_layers', '-')}"
    cached = mini is not None and train.batch_size > mini
    extra = f"texts={texts}{f' mini={mini}' if cached else ''}{shallow}"
    model = {"kind": KIND, "architecture": architecture, "config": whole, "texts": texts,
             "mini": mini if cached else None, "task": "embedding",
             "filed": filed(architecture, whole), "extra": extra}  # fmt: skip
    lengths = {"b": train.batch_size, "s": train.seq_len}
    return Resolved(None, "embedding", dims, lengths, {}, setup, model, name)


def _counts(job: Job) -> tuple[int, int | None] | Unknown:
    """Texts of a sample, and how many run at a time under a cached loss."""
    given = job.model.kwargs or {}
    texts, mini = given.get("texts", PAIR), given.get("mini_batch_size")
    for key, value in (("texts", texts), ("mini_batch_size", mini)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            return Unknown(f"model.kwargs.{key} is {value!r}, no count", Cause.invalid)
    if texts < PAIR:
        return Unknown(
            "model.kwargs.texts is 1: a contrastive loss compares at least two texts of a sample", Cause.not_possible
        )
    return texts, mini


def with_possible(ready: Ready, gpu: Gpu | None) -> Ready:
    """With a note of how many texts a sample is taken to have, and in `others` a third one, where it does not say."""
    from preflight.memory.device.prepare import prepare

    job = ready.job
    if "texts" in (job.model.kwargs or {}):
        return ready
    more = {**(job.model.kwargs or {}), "texts": PAIR + 1}
    third = prepare(job.model_copy(update={"model": job.model.model_copy(update={"kwargs": more})}), gpu)
    possible = () if isinstance(third, Unknown) else (third,)
    note = f"{PAIR} texts in a sample; a third one (a hard negative) is in the interval: state model.kwargs.texts"
    return replace(ready, others=(*ready.others, *possible), notes=(*ready.notes, note))
