"""What torchtune and litgpt call models and the layers that adapters go to, in the hub's and transformers' words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import TypedDict


class Table(TypedDict):
    torchtune: dict[str, str]
    dimensions: dict[str, str]
    targets: dict[str, dict[str, list[str]]]
    families: dict[str, str]


@lru_cache(maxsize=1)
def table() -> Table:
    """The shipped names."""
    loaded: Table = json.loads(files("preflight.libraries").joinpath("recipes.json").read_text("utf-8"))
    return loaded


def targets(model: str, parts: Iterable[str]) -> tuple[str, ...]:
    """Modules of transformers that hold a model's query, key, value, projection, mlp and head."""
    name = model.lower()
    family = next((kind for start, kind in table()["families"].items() if start in name), "llama")
    modules: Mapping[str, list[str]] = table()["targets"][family]
    return tuple(dict.fromkeys(module for part in parts for module in modules[part]))
