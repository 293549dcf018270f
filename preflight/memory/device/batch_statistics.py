"""What a model's step takes from the micro-batch as a whole, by the model alone: from `batch_statistics.json`.

Layers with batch statistics (BatchNorm and its like), losses that compare or count over the samples of a micro-batch.
The table is made from the libraries' own code (scripts/make_batch_statistics.py). What it does not have is unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preflight.vocabulary.values import Cause, Unknown

if TYPE_CHECKING:
    from preflight.vocabulary.job import Job

TABLE = Path(__file__).with_name("batch_statistics.json")
_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "causal-lm": ("ForCausalLM", "LMHeadModel"), "masked-lm": ("ForMaskedLM",),
    "sequence-classification": ("ForSequenceClassification",), "token-classification": ("ForTokenClassification",),
    "seq2seq-lm": ("ForConditionalGeneration", "ForSeq2SeqLM"), "image-classification": ("ForImageClassification",),
    "speech-seq2seq": ("ForConditionalGeneration", "ForSpeechSeq2Seq"),
}  # fmt: skip
"""Endings of the classes of transformers that are trained for a task; for others all classes of a type count."""
_CLASS = re.compile(r"(.+?)(For[A-Z]\w+|LMHeadModel|Model)")
_HOMES = ("ultralytics:", "yolov5:")
"""Whose stand-ins have BatchNorm in every block (tracer/yolo.py)."""
_DEPTH = 4
"""Configurations within configurations that are looked at."""

Statistics = bool | Unknown


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return loaded


@lru_cache(maxsize=1)
def _types() -> dict[str, str]:
    """Model types of transformers by their plain spelling."""
    rows = _table()["transformers"]
    return {_plain(kind): kind for kind in (*rows["free"], *rows["mixed"])}


def _plain(kind: str) -> str:
    return re.sub(r"[-_]", "", kind).lower()


def normalises(job: Job) -> Statistics:
    """Whether a layer of the job's model takes statistics of the micro-batch; Unknown where nothing says it."""
    found = [_one(job, *part) for part in parts(job)]
    if not found:
        return Unknown("which model is trained is not known", Cause.not_set, ("model.name",))
    if True in found:
        return True
    return next((one for one in found if isinstance(one, Unknown)), False)


def parts(job: Job) -> list[tuple[str, str, Mapping[str, Any]]]:
    """(import target, architecture, config) of everything that the job says of its model."""
    from preflight.memory.device.law import catalogue
    from preflight.memory.device.law.catalogue import read_config
    from preflight.memory.device.resolve import target_of

    model, config = job.model, dict(job.model.config or {})
    found: list[tuple[str, str, Mapping[str, Any]]] = []
    if model.architecture:
        found.append(("", model.architecture, config))
    for name in (model.target, None if model.architecture else model.name):
        known = catalogue.find(name) if name else None
        if known is not None and known.target is None:
            found.append(("", known.architecture, {**known.config, **config}))
        elif name and (known is not None or target_of(name) or name == model.target):
            found.append(((known.target if known is not None else target_of(name)) or name, "", config))
        elif name:
            read = read_config(name) or {}
            found.append(("", str(read.get("model_type") or read.get("_class_name") or name), {**read, **config}))
    if model.path:
        read = read_config(model.path) or {}
        found.append(("", str(read.get("model_type") or read.get("_class_name") or model.path), {**read, **config}))
    return found


def _one(job: Job, target: str, architecture: str, config: Mapping[str, Any]) -> Statistics:
    if target:
        return of_target(target)
    return _of_class(architecture) if architecture in _diffusers() else _of_type(architecture, config, job.task or "")


def of_target(target: str) -> Statistics:
    """Whether a model that is named by its library and name there has such a layer."""
    from preflight.memory.device.workloads.detectors import Detector, config_of

    if target.startswith(_HOMES):
        return True
    if Detector.target_of(target) is not None:
        stand_in = config_of(target)
        if stand_in is not None and not target.startswith("torchvision:"):
            return False  # frozen, or in evaluation mode
    home, _, name = target.partition(":")
    rows = _built().get(home)
    plain = name.partition(".")[0]
    if rows is None or plain not in rows:
        return Unknown(f"{target} is not in the table of models with batch statistics", Cause.model_unknown)
    return rows[plain]


@lru_cache(maxsize=1)
def _built() -> dict[str, dict[str, bool]]:
    """Models of the libraries that name them by target: name -> whether it has such a layer."""
    return {
        home: {name: status == "has" for status in ("free", "has") for name in _table()[home][status].split()}
        for home in ("timm", "torchvision")
        if home in _table()
    }


@lru_cache(maxsize=1)
def _diffusers() -> dict[str, bool]:
    rows = _table()["diffusers"]
    return {name: status == "has" for status in ("free", "has") for name in rows[status]}


def _of_class(name: str) -> Statistics:
    return _diffusers()[name]


def type_of(architecture: str) -> str | None:
    """The model type of transformers that a type or a class is, in its own spelling."""
    types = _types()
    found = types.get(_plain(architecture))
    if found is not None:
        return found
    of_class = _CLASS.fullmatch(architecture)
    return types.get(_plain(of_class[1])) if of_class is not None else None


def _of_type(architecture: str, config: Mapping[str, Any], task: str, depth: int = 0) -> Statistics:
    kind = type_of(architecture)
    rows = _table()["transformers"]
    if kind is None or depth > _DEPTH:
        return Unknown(f"{architecture} is not in the table of models with batch statistics", Cause.model_unknown)
    if kind in rows["free"]:
        return False
    row = rows["mixed"][kind]
    statuses = set(_statuses(row, architecture, config, task))
    if "has" in statuses:
        return True
    return _within(kind, row, config, depth) if "depends" in statuses else False


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


def _within(kind: str, row: Mapping[str, Any], config: Mapping[str, Any], depth: int) -> Statistics:
    """Of the models that the configuration names, or has by default."""
    found: list[Statistics] = []
    for key, usual in row["within"].items():
        inner = config.get(key) if isinstance(config.get(key), Mapping) else {}
        stated = (inner or {}).get("model_type") or usual
        found.append(Unknown(f"{key} of {kind} is not stated", Cause.not_set) if stated is None
                     else _of_type(str(stated), inner or {}, "", depth + 1))  # fmt: skip
    if not found:
        return Unknown(f"what {kind} is made of is in its configuration", Cause.model_unknown)
    return True if True in found else next((one for one in found if isinstance(one, Unknown)), False)


def compares(job: Job) -> bool:
    """Whether the model's own loss compares the samples of a micro-batch with each other."""
    if job.task not in (None, "other"):
        return job.task == "contrastive"
    return any(kind in _table()["transformers"]["contrastive"] for kind in _kinds(job))


def counts_objects(job: Job) -> bool:
    """Whether the model's own loss is divided by the objects in the images of a micro-batch."""
    from preflight.memory.device.workloads.detectors import Detector

    return any(
        type_of(architecture) in _table()["transformers"]["per_object"]
        or (target and Detector.target_of(target) is not None)
        for target, architecture, _ in parts(job)
    )


def balances(job: Job) -> bool:
    """Whether experts are balanced by a loss over the tokens of a micro-batch, as far as the configuration says."""
    rows = _table()["transformers"]["balancing"]
    for _, architecture, config in parts(job):
        kind = type_of(architecture) if architecture else None
        if kind in rows and config.get("output_router_logits", rows[kind]):
            return True
    return False


def has_experts(job: Job) -> bool:
    """Whether the model can balance its experts by a loss over the tokens of a micro-batch."""
    return any(kind in _table()["transformers"]["balancing"] for kind in _kinds(job))


def _kinds(job: Job) -> list[str]:
    found = (type_of(architecture) for _, architecture, _ in parts(job) if architecture)
    return [kind for kind in found if kind is not None]
