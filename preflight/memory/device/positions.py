"""What a model's config or the catalogue says of a published model: its positions, and the type it was saved in.

A sequence longer than its positions fails, or leaves the lengths that the model was trained for: a rule says so of a
length that the program reads, and a length that only a name suggests is not believed.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from preflight.memory.device.law.catalogue import find
from preflight.vocabulary.job import Job

KEYS = ("max_position_embeddings", "n_positions", "block_size")
"""Names for the number of positions in transformers' configs and in nanoGPT's."""
PADDED = frozenset({"roberta", "xlm-roberta", "camembert", "longformer"})
"""Families whose position ids start after the padding index, so that two entries of the table are never a position
(transformers, `create_position_ids_from_input_ids`)."""
LEARNED = frozenset(
    {"bert", "roberta", "xlm-roberta", "distilbert", "electra", "albert", "gpt2", "gpt_neo", "opt", "bart", "camembert"}
)
"""Families with a table of positions: an index beyond it is an error. Relative and rotary ones only lose quality."""
UNLIMITED = frozenset({"t5", "mt5", "umt5", "deberta-v2", "deberta"})
"""Families with relative positions, which take any length."""


class Positions(Struct, frozen=True):
    """`usable`: the longest sequence; `learned`: whether a longer one is an error rather than a loss of quality."""

    usable: int
    learned: bool


def positions_of(job: Job) -> Positions | None:
    """The positions of the model; None if they are unknown or unlimited."""
    family, config = _config(job)
    if family in UNLIMITED:
        return None
    number = next((value for key in KEYS if isinstance(value := config.get(key), int)), None)
    if number is None:
        return None
    learned = family in LEARNED or "block_size" in config or "n_positions" in config
    return Positions(number - 2 if family in PADDED else number, learned)


def longest(job: Job, field: str) -> int | None:
    """The most tokens that a field of lengths can have, whatever the data; None where nothing ends them.

    An index beyond a table of positions is an error of torch. Packed rows are longer: the positions of each sample in
    them start anew.
    """
    if job.train.sequences not in ("exact", "bound", "dynamic"):
        return None
    table = positions_of(job)
    most = table.usable if table is not None and table.learned else None
    return {"train.seq_len": most, "train.target_len": targets_of(job) or most}.get(field)


def targets_of(job: Job) -> int | None:
    """The positions of the decoder if it has a table of them (448 for Whisper), else None."""
    number = _config(job)[1].get("max_target_positions")
    return number if isinstance(number, int) else None


def _config(job: Job) -> tuple[str | None, Mapping[str, object]]:
    """Family and configuration, from the files or, for a known name, from the catalogue."""
    config: Mapping[str, object] = job.model.config or {}
    family = config.get("model_type") or job.model.architecture
    if not config and job.model.name is not None:
        known = find(job.model.name)
        if known is not None:
            family, config = family or known.architecture, known.config
    return (str(family) if family is not None else None), config


_SAVED_IN_FP32 = frozenset({
    "bert", "roberta", "distilbert", "electra", "albert", "deberta", "deberta-v2", "xlm-roberta", "gpt2", "t5", "bart",
    "vit", "clip", "wav2vec2", "hubert",
})  # fmt: skip
"""Architectures whose published checkpoints have fp32 weights (the sizes of their files on the hub)."""


def saved_in_fp32(name: object) -> bool:
    """Whether every release of transformers loads a model in fp32, because its weights were saved so."""
    known = find(name) if isinstance(name, str) else None
    return known is not None and known.architecture in _SAVED_IN_FP32
