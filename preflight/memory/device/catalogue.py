"""Models known by name: architecture, usual task and dimensions, from `models.json` (facts of their public configs)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from preflight.records import dataclass

_DATA = Path(__file__).with_name("models.json")


@dataclass(frozen=True)
class CatalogueModel:
    """A model by its hub id. `config` uses the keys of its Hugging Face config; absent: that class's default."""

    name: str
    architecture: str
    task: str
    config: Mapping[str, Any]
    target: str | None = None
    aliases: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def _models() -> dict[str, CatalogueModel]:
    data = json.loads(_DATA.read_text(encoding="utf-8"))["models"]
    return {
        name: CatalogueModel(
            name, row["architecture"], row["task"], row["config"], row.get("target"), tuple(row["aliases"])
        )
        for name, row in data.items()
    }


@lru_cache(maxsize=1)
def _index() -> dict[str, CatalogueModel]:
    index: dict[str, CatalogueModel] = {}
    for model in _models().values():
        for name in (model.name, *model.aliases):
            index[name.lower()] = model
    for model in _models().values():  # "bert-large-uncased" for "google-bert/bert-large-uncased"
        index.setdefault(model.name.rpartition("/")[2].lower(), model)
    return index


def names() -> tuple[str, ...]:
    """Hub ids of all models."""
    return tuple(_models())


def find(name: str) -> CatalogueModel | None:
    """A model by hub id, alias or the id's last part, in any case."""
    return _index().get(name.lower())


def nearest(name: str, count: int = 3) -> tuple[str, ...]:
    """Names that look like it, for messages."""
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), list(_index()), n=count, cutoff=0.6)
    return tuple(dict.fromkeys(_index()[c].name for c in close))
