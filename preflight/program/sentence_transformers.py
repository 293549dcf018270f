"""sentence-transformers: its models and losses -> model.name, task, train.seq_len, and how texts run.

Every text of a sample runs through the encoder by itself, so the loss says how many there are at once: some take pairs,
some triplets; the cached ones run a mini-batch at a time (their `mini_batch_size`, 32 where it is not given).
"""

from __future__ import annotations

from collections.abc import Mapping

from preflight.program.bindings import bind, constant, first_origin
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Const

HOME = "sentence_transformers"
TEXTS: Mapping[str, int] = {
    **dict.fromkeys(("CosineSimilarityLoss", "CoSENTLoss", "AnglELoss", "ContrastiveLoss", "OnlineContrastiveLoss",
                     "SoftmaxLoss", "MultipleNegativesSymmetricRankingLoss",
                     "CachedMultipleNegativesSymmetricRankingLoss"), 2),
    "TripletLoss": 3, "MarginMSELoss": 3,
}  # fmt: skip
"""Losses that take so many texts of a sample; others take two or more."""
CACHED = ("CachedMultipleNegativesRankingLoss", "CachedMultipleNegativesSymmetricRankingLoss", "CachedGISTEmbedLoss")
MINI_BATCH = 32
"""Default of their `mini_batch_size`."""


def embedder_bindings(record: CallRecord) -> list[Binding]:
    """Bindings of one call; none where it is none of sentence-transformers'."""
    if not record.name.startswith(HOME):
        return []
    if record.method in ("SentenceTransformer", "CrossEncoder"):
        return _model(record, "contrastive" if record.method == "SentenceTransformer" else "sequence-classification")
    if record.method == "Transformer":
        found = _model(record, "contrastive")
        length = record.argument("max_seq_length", 1)
        return [*found, *([bind("train.seq_len", length)] if length is not None and constant(length) else [])]
    return _loss(record)


def _model(record: CallRecord, task: str) -> list[Binding]:
    name = record.argument("model_name_or_path", 0) or record.argument("model_name", 0)
    if name is None or constant(name) is None:
        return []
    value = constant(name)
    found = [bind("task", Const(task, record.origin), Rank.default)]
    if isinstance(value, str) and "/" not in value and record.method == "SentenceTransformer":
        return [*found, bind("model.name", Const(f"{HOME.replace('_', '-')}/{value}", first_origin(name)))]
    return [*found, bind("model.name", name)]


def _loss(record: CallRecord) -> list[Binding]:
    found: list[Binding] = []
    if record.method in TEXTS:
        found.append(bind("model.kwargs.texts", Const(TEXTS[record.method], record.origin)))
    if record.method in CACHED:
        size = record.argument("mini_batch_size") or Const(MINI_BATCH, record.origin)
        found.append(bind("model.kwargs.mini_batch_size", size))
    return found
