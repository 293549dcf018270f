"""Which models have layers with batch statistics (BatchNorm and its like), by their names: `batch_statistics.json`.

The table is made from the libraries' code (scripts/make_batch_statistics.py). Models that are not in it are unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from preflight.vocabulary.caches import regex
from preflight.vocabulary.errors import suggestion
from preflight.vocabulary.spelling import YOLO_HOMES
from preflight.vocabulary.values import Cause, Unknown

TABLE = Path(__file__).with_name("batch_statistics.json")
_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "causal-lm": ("ForCausalLM", "LMHeadModel"), "masked-lm": ("ForMaskedLM",),
    "sequence-classification": ("ForSequenceClassification",), "token-classification": ("ForTokenClassification",),
    "seq2seq-lm": ("ForConditionalGeneration", "ForSeq2SeqLM"), "image-classification": ("ForImageClassification",),
    "speech-seq2seq": ("ForConditionalGeneration", "ForSpeechSeq2Seq"),
}  # fmt: skip
"""Endings of the classes of transformers that are trained for a task; for others all classes of a type count."""
_CLASS = regex(r"(.+?)(For[A-Z]\w+|LMHeadModel|Model)")
_DEPTH = 4
"""Configurations within configurations that are looked at."""

Statistics = bool | Unknown


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """The shipped table, by library."""
    loaded: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return loaded


def joined(found: list[Statistics]) -> Statistics | None:
    """Whether one of several parts has such a layer; None of no part."""
    if True in found:
        return True
    return next((one for one in found if isinstance(one, Unknown)), False if found else None)


def of_target(target: str) -> Statistics:
    """Whether a model that is named by its library and its name there ("timm:resnet50") has such a layer."""
    if target.startswith(YOLO_HOMES):
        return True  # in every block (tracer/reimplementations/yolo.py)
    home, _, name = target.partition(":")
    plain = name.partition(".")[0]
    found = _with_and_without(home).get(plain) if home in ("timm", "torchvision") else None
    return Unknown(_missing(target), Cause.model_unknown) if found is None else found


def no_such_target(target: str) -> str | None:
    """Why no library has a model of this name ("timm:resnet5"), with the nearest name; None if one may have it."""
    home, _, name = target.partition(":")
    if home not in ("timm", "torchvision") or not re.fullmatch(r"\w+(\.\w+)?", name):
        return None
    known = _with_and_without(home)
    plain = name.partition(".")[0]
    if plain in known:
        return None
    return f"{home} {table()['made_with'][home]} has no model {plain}{suggestion(plain, known)}"


def of_architecture(architecture: str, config: Mapping[str, Any], task: str) -> Statistics:
    """Whether a model of transformers or diffusers has such a layer, by its type or class and its configuration."""
    of_diffusers = _with_and_without("diffusers").get(architecture)
    return _of_type(architecture, config, task) if of_diffusers is None else of_diffusers


def type_of(architecture: str) -> str | None:
    """The model type of transformers that a type or a class is, in its own spelling."""
    found = table()["transformers"]["named_otherwise"].get(architecture)
    return type_named(architecture) if found is None else str(found)


def type_named(architecture: str) -> str | None:
    """The same as the name alone spells it: "GPTNeoXForCausalLM" is "gpt_neox"."""
    types = _types()
    found = types.get(_plain(architecture))
    if found is not None:
        return found
    of_class = _CLASS.fullmatch(architecture)
    return types.get(_plain(of_class[1])) if of_class is not None else None


@lru_cache(maxsize=1)
def _types() -> dict[str, str]:
    """Model types of transformers by their plain spelling."""
    rows = table()["transformers"]
    return {_plain(kind): kind for kind in (*rows["free"], *rows["mixed"])}


def _plain(kind: str) -> str:
    return re.sub(r"[-_]", "", kind).lower()


@lru_cache(maxsize=4)
def _with_and_without(library: str) -> dict[str, bool]:
    """Names of a library's models -> whether it has such a layer."""
    rows = table().get(library, {"free": (), "has": ()})
    names = {status: rows[status].split() if isinstance(rows[status], str) else rows[status] for status in rows}
    return {name: status == "has" for status in ("free", "has") for name in names[status]}


def _missing(name: str) -> str:
    return f"{name} is not in the table of models with batch statistics"


def _of_type(architecture: str, config: Mapping[str, Any], task: str, depth: int = 0) -> Statistics:
    kind = type_of(architecture)
    rows = table()["transformers"]
    if kind is None or depth > _DEPTH:
        return Unknown(_missing(architecture), Cause.model_unknown)
    if kind in rows["free"]:
        return False
    row = rows["mixed"][kind]
    statuses = set(_statuses(row, architecture, config, task))
    if "has" in statuses:
        return True
    return _of_inner_models(kind, row, config, depth) if "depends" in statuses else False


def _statuses(row: Mapping[str, Any], architecture: str, config: Mapping[str, Any], task: str) -> Iterator[str]:
    """Of the class that is named, of those that the task trains, else of all."""
    if "all" in row:
        yield row["all"]
        return
    classes: Mapping[str, str] = row["classes"]
    named = config.get("architectures") or ()
    stated = [name for name in (architecture, *((named,) if isinstance(named, str) else named)) if name in classes]
    trained = [name for name in classes if name.endswith(_SUFFIXES.get(task, ()))] if task in _SUFFIXES else []
    for name in stated or trained or classes:
        yield classes[name]


def _of_inner_models(kind: str, row: Mapping[str, Any], config: Mapping[str, Any], depth: int) -> Statistics:
    """Of the models that the configuration names, or has by default."""
    found: list[Statistics] = []
    for key, usual in row["within"].items():
        inner = config.get(key) if isinstance(config.get(key), Mapping) else {}
        stated = (inner or {}).get("model_type") or usual
        if stated is None:
            found.append(Unknown(f"{key} of {kind} is not stated", Cause.not_set))
        else:
            found.append(_of_type(str(stated), inner or {}, "", depth + 1))
    known = joined(found)
    reason = f"the models inside {kind} are named by its configuration alone"
    return Unknown(reason, Cause.model_unknown) if known is None else known
