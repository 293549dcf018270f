"""The usual spellings of Job fields: `field_for("data.val.num_workers", "hydra")` is "data.validation_workers".

The table is data (`aliases.json`). A key is judged by its last components: the name itself, the roles (train,
validation) that it or its parents mention, and parents that say it is something else (a replay buffer's batch, a
scheduler's length). A name with two possible meanings has no field: a global batch size is divided in Python, by an
unknown number.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

from preflight.vocabulary.caches import regex
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.spelling import OPTIMIZERS, PRECISIONS, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Unknown, Value

_MAPPED = {
    "train.optimizer": ("optimizer", "optim", "optimizer_name", "optim_name", "optimizer_type", "opt"),
    "train.precision": ("precision", "mixed_precision", "amp_dtype", "train_dtype"),
}
"""Fields whose values have special spellings; their last component may also be `optimizer.name` and similar."""


class _Table(TypedDict):
    fields: dict[str, list[str]]
    validation: dict[str, str]
    dimensions: dict[str, list[str]]
    roles: dict[str, list[str]]
    not_a_step: list[str]
    transparent: list[str]


@lru_cache(maxsize=1)
def _table() -> tuple[_Table, dict[str, str], dict[str, str]]:
    """The table, and its two inverse maps: spelling -> field, spelling -> key of a model's configuration."""
    table: _Table = json.loads(Path(__file__).with_name("aliases.json").read_bytes())
    spellings = {name: field for field, names in table["fields"].items() for name in names}
    dimensions = {name: key for key, names in table["dimensions"].items() for name in names}
    return table, spellings, dimensions


def dimensions() -> frozenset[str]:
    """Keys of Hugging Face configurations that size a transformer."""
    return frozenset(_table()[0]["dimensions"])


@lru_cache(maxsize=4096)
def _components(key: str) -> tuple[str, ...]:
    """`Trainer.maxLen` -> ("trainer", "max_len"); empty and transparent components are left out."""
    transparent = _table()[0]["transparent"]
    parts = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", part) for part in re.split(r"[./]", key)]
    words = [part.lower().replace("-", "_").strip("_") for part in parts]
    kept = [word for word in words[:-1] if word and word not in transparent]
    return (*kept, words[-1]) if words[-1] else tuple(kept)


@lru_cache(maxsize=4096)
def _role(components: tuple[str, ...]) -> str:
    """train, validation or none (a test set), by the component closest to the name; else train."""
    roles = _table()[0]["roles"]
    for component in reversed(components):
        words = set(component.split("_"))
        for role in ("none", "validation", "train"):
            if words.intersection(roles[role]):
                return role
    return "train"


def _without_roles(name: str) -> str:
    """`val_batch_size` and `batch_size_val` -> `batch_size`."""
    roles = _table()[0]["roles"]
    everything = {word for words in roles.values() for word in words}
    return "_".join(word for word in name.split("_") if word not in everything)


@lru_cache(maxsize=4096)
def field_for(key: str, kind: str = "") -> str | None:
    """The Job field that a setting's name usually means; None if it means none, or more than one.

    `kind` is the language the key is written in (wandb, argparse, hydra, optuna, json). Only fields whose value is
    written as the Job has it: for optimizers and precisions, which have spellings of their own, see `binding_for`.
    A dimension of a transformer is "model.config.KEY" with the key that Hugging Face configurations use.
    """
    table, spellings, dimensions = _table()
    components = _components(key)
    if not components:
        return None
    name, parents = components[-1], components[:-1]
    if any(set(parent.split("_")).intersection(table["not_a_step"]) for parent in parents):
        return None
    if kind == "hydra" and parents and parents[-1] in ("sampler", "tokenizer_training"):
        return None
    close = parents[-1] if parents else ""
    exact = spellings.get(f"{close}.{name}") or spellings.get(name)
    if exact is not None and exact.startswith("validation."):
        return exact
    role = _role(components)
    bare = _without_roles(name)
    field = exact or spellings.get(f"{close}.{bare}") or spellings.get(bare)
    if field is not None:
        if role == "train":
            return field
        return table["validation"].get(field) if role == "validation" else None
    dimension = dimensions.get(f"{close}.{name}") or dimensions.get(name)
    if dimension is not None and role == "train" and "tokenizer" not in parents:
        return f"model.config.{dimension}"
    return None


def _optimizer(expr: Expr) -> Expr:
    """The optimizer of a setting, also by its class (`torch.optim.AdamW`). One that is not known is no default."""
    value = expr.value if isinstance(expr, Const) else None
    if not isinstance(value, str):
        return spelled(expr, OPTIMIZERS)
    name = value.rpartition(".")[2] if value.startswith("torch.optim.") else value
    known: Value = OPTIMIZERS.get(name.lower())
    reason = Unknown(f"{value!r} is not an optimizer that preflight knows", Cause.not_modelled)
    return Const(reason if known is None else known, expr.origin)


_OF_A_DEVICE = frozenset({"micro", "microbatch", "device", "gpu", "local", "mbs", "mbsz"})


@lru_cache(maxsize=4096)
def of_a_device(key: str) -> bool:
    """Whether a setting's name says that it counts for one device: beside it, `train_batch_size` is of all of them."""
    components = _components(key)
    return bool(components) and bool(_OF_A_DEVICE & set(components[-1].split("_")))


_FREEZES = regex(
    r"(un)?freeze(_\w+)?|\w+_(un)?freeze|(un|num_)?frozen(_\w+)?|\w+_frozen|linear_prob(e|ing)|(train|tune)_head_only"
)
"""Settings that say by their name that a part of the model is not trained."""
_FREEZES_NO_PART = regex(r"(^|_)(epochs?|steps?|iters?|bn|batch_?norms?|norms?|stats|until|after|lr)(_|$)")
"""What such a name speaks of where the need is that of the whole model: a time, after which all is trained; statistics
of layers; a rate."""


def _frozen(components: tuple[str, ...], expr: Expr) -> Expr | None:
    """The frozen parts, which nobody read, of a setting that says that there are some; None if it says nothing."""
    name, value = components[-1], expr.value if isinstance(expr, Const) else None
    if _role(components) == "none" or not _FREEZES.fullmatch(name) or _FREEZES_NO_PART.search(name):
        return None
    if isinstance(value, Unknown) or not value or str(value).lower() in ("none", "false", "no", "off", "0"):
        return None
    words = f"{name} is set, and no code that was read uses it: which parts of the model are frozen is not known"
    return Const(Unknown(words, Cause.not_modelled), expr.origin)


def _names_no_model(name: str, value: Value) -> bool:
    """Whether a value is no id at the hub: a plain word chooses among the program's own models (`model.name: small`),
    and a `model_id` with `_` and without an owner is the id of a run (`exchange_96_96`)."""
    if not isinstance(value, str):
        return False
    return value.isalpha() or (name == "model_id" and "_" in value and "/" not in value)


def binding_for(key: str, expr: Expr, kind: str = "") -> Binding | None:
    """The lowest-ranked Binding that a setting's name suggests, its value put into the Job's spelling."""
    components = _components(key)
    if components:
        name = components[-1]
        if name in ("name", "type", "target", "optimizer") and len(components) > 1:
            name = components[-2] if components[-2] in ("optimizer", "optim") else name
        for field, names in _MAPPED.items():
            if name in names and _role(components) == "train":
                found = _optimizer(expr) if field == "train.optimizer" else spelled(expr, PRECISIONS)
                return Binding(field, found, Rank.by_name, expr.origin)
        if frozen := _frozen(components, expr):
            return Binding("train.frozen", frozen, Rank.by_name, expr.origin)
    meant = field_for(key, kind)
    if meant == "model.name" and isinstance(expr, Const) and _names_no_model(components[-1], expr.value):
        return None
    return None if meant is None else Binding(meant, expr, Rank.by_name, expr.origin)
