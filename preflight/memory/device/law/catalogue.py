"""Models known by name: architecture, usual task and dimensions, from `models.json` (facts of their public configs)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from preflight.system import observed
from preflight.system.files import UnreadableFile, read_text

_DATA = (Path(__file__).with_name("models.json"), Path(__file__).with_name("perception.json"))
_MIRRORS = {
    "unsloth", "nousresearch", "ai-modelscope", "llm-research", "modelscope", "zhipuai", "shanghai_ai_laboratory",
    "thebloke", "redhatai", "neuralmagic", "hugging-quants", "casperhansen", "techxgenus", "mlx-community",
}  # fmt: skip
"""Owners of hub ids that publish others' models under the models' own names, as they are or quantised."""
_TUNED = ("-instruct", "-chat", "-it", "-base", "-pt", "-sft", "-dpo", "-hf", "-instruct-2507", "-thinking-2507")
"""Endings of names of models that differ from another of their owner's in the values of weights alone."""
_QUANTISED = {
    "-unsloth-bnb-4bit": "nf4", "-bnb-4bit": "nf4", "-bnb-8bit": "int8", "-gptq-int4": "GPTQ", "-gptq-int8": "GPTQ",
    "-gptq": "GPTQ", "-int4": "GPTQ", "-int8": "GPTQ", "-awq": "AWQ", "-awq-int4": "AWQ", "-gguf": "GGUF",
    "-fp8": "FP8", "-fp8-dynamic": "FP8", "-fp8-block": "FP8", "-4bit": "MLX", "-8bit": "MLX",
}  # fmt: skip
"""Endings that say how a model's weights are quantised."""
_HUBS = ("https://huggingface.co/", "huggingface.co/", "https://hf.co/", "hf.co/", "hf:", "models/")


class CatalogueModel(Struct, frozen=True):
    """A model by its hub id. `config` uses the keys of its Hugging Face config; absent: that class's default."""

    name: str
    architecture: str
    task: str
    config: Mapping[str, Any]
    target: str | None = None
    aliases: tuple[str, ...] = ()
    parameters: str | None = None
    """The published count, as it is written there: "6.74B"."""
    unknown: str | None = None
    """Why no law holds for its training."""
    quantised: str | None = None
    """How its weights are quantised where its name says that they are: a type of Job's, or another method."""


@lru_cache(maxsize=1)
def _rows() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for path in _DATA:
        rows |= json.loads(path.read_text(encoding="utf-8"))["models"]
    return rows


@lru_cache(maxsize=1)
def _index() -> dict[str, str]:
    """Every spelling in lower case -> hub id."""
    index: dict[str, str] = {}
    for name, row in _rows().items():
        index[name.lower()] = name
        for alias in row["aliases"]:
            index[alias.lower()] = name
    for spelling, name in list(index.items()):  # "bert-large-uncased" for "google-bert/bert-large-uncased"
        index.setdefault(spelling.rpartition("/")[2], name)
    return index


def names(words: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Hub ids of all models, or of those that every one of `words` occurs in: name, alias, architecture or task."""
    lowered = [word.lower() for word in words]
    found = []
    for name, row in _rows().items():
        text = " ".join((name, row["architecture"], row["task"], *row["aliases"])).lower()
        if all(word in text for word in lowered):
            found.append(name)
    return tuple(found)


def find(name: str) -> CatalogueModel | None:
    """A model by hub id, alias or the id's last part, in any case, with or without "-hf" and the hub's address; by the
    ids of tuned models of its owner, and of copies, quantised ones too."""
    spelled = name.strip().lower().rstrip("/")
    for prefix in _HUBS:
        spelled = spelled.removeprefix(prefix)
    index = _index()
    for spelling in (spelled, f"{spelled}-hf", spelled.removesuffix("-hf")):
        if spelling in index:
            return _model(index[spelling])
    ending = next((e for e in sorted(_QUANTISED, key=len, reverse=True) if spelled.endswith(e)), "")
    found = _related(spelled.removesuffix(ending), index)
    if found is None:
        return None
    return replace(_model(found), quantised=_QUANTISED[ending]) if ending else _model(found)


def _related(spelled: str, index: Mapping[str, str]) -> str | None:
    """The hub id of the model that a name without its quantisation is another of: of the same owner, or a copy."""
    owner, _, last = spelled.rpartition("/")
    names = [last]
    for _ in range(2):  # "-Instruct-hf", "-Base-hf"
        names += [one.removesuffix(ending) for one in names for ending in _TUNED if one.endswith(ending)]
    for candidate in dict.fromkeys(names):
        for form in (candidate, f"{candidate}-hf"):
            if form and f"{owner}/{form}" in index:
                return index[f"{owner}/{form}"]
            if form in index and (owner in _MIRRORS or not owner):
                return index[form]
    return None


def quantised_by(config: Mapping[str, Any]) -> str | None:
    """How the weights of a model are quantised by its config (transformers, utils/quantization_config.py): a type of
    Job's, or the name of another method."""
    given = config.get("quantization_config")
    if not isinstance(given, Mapping):
        return None
    method = str(given.get("quant_method", "bitsandbytes"))
    if not method.startswith("bitsandbytes"):
        return method.upper()
    if given.get("load_in_8bit"):
        return "int8"
    return str(given.get("bnb_4bit_quant_type", "fp4")) if given.get("load_in_4bit") else None


@lru_cache(maxsize=256)
def _model(name: str) -> CatalogueModel:
    row = _rows()[name]
    return CatalogueModel(
        name,
        row["architecture"],
        row["task"],
        row["config"],
        row.get("target"),
        tuple(row["aliases"]),
        row.get("parameters"),
        row.get("unknown"),
    )


def published(model: CatalogueModel) -> tuple[int, int] | None:
    """The published number of parameters and half a unit of its last digit."""
    if model.parameters is None:
        return None
    digits, unit = model.parameters[:-1], {"M": 6, "B": 9}[model.parameters[-1]]
    decimals = len(digits.partition(".")[2])
    return int(digits.replace(".", "")) * 10 ** (unit - decimals), 5 * 10 ** (unit - decimals - 1)


_ALIKE = 0.65
"""How alike a name is that was meant. Below, only `8b-instruct` or `large` is the same, and a suggestion misleads."""


def nearest(name: str, count: int = 3) -> tuple[str, ...]:
    """Names that look like it, for messages."""
    from difflib import get_close_matches

    index = _index()
    close = get_close_matches(name.lower(), list(index), n=2 * count, cutoff=_ALIKE)
    return tuple(dict.fromkeys(index[c] for c in close))[:count]


def unknown_words(name: str) -> str:
    """Why a name that no model has is unknown, with the names that look like it."""
    if name.startswith((".", "/", "~")):
        return f"there is no folder {name} of a model, or it has no config.json"
    near = nearest(name)
    return f"no model is known as {name}" + (
        f"; did you mean {' or '.join(near)}?" if near else "; preflight model list shows the known ones"
    )


def read_config(path: str) -> dict[str, Any] | None:
    """config.json of a local model directory or file, or of a model in the Hugging Face cache; None: there is none."""
    candidates = [Path(path), Path(path) / "config.json"]
    cache = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser() / "hub"
    snapshots = cache / f"models--{path.replace('/', '--')}" / "snapshots"
    try:
        if observed.is_dir(snapshots):
            candidates += [snapshots / name / "config.json" for name in observed.names(snapshots)]
        for candidate in candidates:
            if candidate.name.endswith(".json") and observed.is_file(candidate):
                data = json.loads(read_text(candidate, _LARGEST_CONFIG))
                return data if isinstance(data, dict) else None
    except (OSError, ValueError, UnreadableFile):
        return None
    return None


_LARGEST_CONFIG = 2**20
"""Bytes of a config.json; the largest that is published has a hundredth."""
