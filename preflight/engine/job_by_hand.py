"""A Job written by hand: accepts the spellings of libraries, and short forms with only one meaning.

Files of frameworks are read by their dialects; this is for `preflight estimate JOB.json` and `--set`. An invalid
value is not changed, so that the Job's own schema refuses it by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from preflight.system.files import real
from preflight.vocabulary.batch_statistics import type_of
from preflight.vocabulary.caches import regex
from preflight.vocabulary.errors import UsageError, suggestion
from preflight.vocabulary.job import Job, fields
from preflight.vocabulary.notation import scaled
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.spelling import (
    DTYPES,
    IMPLEMENTATIONS,
    IN_BACKWARD,
    YOLO_NOMINAL_BATCH,
    Invalid,
    normal,
    yolo_target,
)
from preflight.vocabulary.text import DocumentError
from preflight.vocabulary.values import Unknown, frozen, thawed

SHORT: Mapping[str, str] = {
    "model": "name", "machine": "gpu", "parallel": "strategy", "train.quantization": "type", "train.peft": "method",
}  # fmt: skip
"""Groups that can be given as a single text: {"model": "gpt2"}."""
METHODS: Mapping[str, str] = {"full": "none", "no": "none", "prefix": "prefix-tuning", "prompt": "prompt-tuning"}
"""Adapters by other names than peft's PeftType; those are taken in any case, with dashes."""


def roots(data: Mapping[str, object]) -> set[str]:
    """The groups that a document speaks of; dotted keys ("train.batch_size") count by their first part."""
    return {key.partition(".")[0] for key in data}


def is_job(data: Mapping[str, object]) -> bool:
    """Whether a document holds a Job and nothing else."""
    named = roots(data)
    if not {"model", "train"} & named or not named <= {*Job.model_fields, "version"}:
        return False
    texts = [key for key, value in data.items() if isinstance(value, str) and "." not in key]
    return any(isinstance(data.get(key), Mapping) for key in ("model", "train")) or {*texts} <= {*SHORT, "task"}


def strays(data: Mapping[str, object]) -> list[str]:
    """Keys that keep a document from being a Job, where the rest of it is one."""
    if not {"model", "train"} <= roots(data) or not all(
        isinstance(data.get(k, {}), Mapping) for k in ("model", "train")
    ):
        return []
    return sorted(key for key in data if not roots({key: None}) <= {*Job.model_fields, "version"})


def in_file(path: Path) -> dict[str, object] | None:
    """The dotted fields of a file that holds a Job; None where it holds something else. Raises UsageError."""
    data = document(path)
    return None if data is None else _stated(data, path)


def in_found_file(path: Path, name: str) -> dict[str, object] | None:
    """The same of a file that nobody named. `name`: what messages call it. One that cannot be parsed is taken for a
    Job where its text has the names of a Job's groups: a directory holds data, too. Raises UsageError."""
    try:
        data = document(path, name)
    except UsageError:
        if _looks_like_a_job(path):
            raise
        return None
    return None if data is None else _stated(data, name)


def document(path: Path, name: str | None = None) -> Mapping[str, object] | None:
    """What a JSON or YAML file holds, if it is a mapping. `name`: what messages call it. Raises UsageError."""
    suffix, name = path.suffix.lower(), name or str(path)
    if suffix not in (".json", ".yaml", ".yml"):
        return None
    from preflight.documents.json import parse_json
    from preflight.documents.yaml import parse_yaml

    project = Project(real(path).parent, Settings())
    try:
        source = project.source(path.name)
        data = (parse_json(source) if suffix == ".json" else parse_yaml(source, "1.2")).value()
    except UnreadableFile as error:
        raise UsageError(f"{name} cannot be read: {error}") from error
    except DocumentError as error:
        place = project.source(path.name).place(error.span)
        raise UsageError(f"{name}:{place.line}:{place.column}: {error.message}") from error
    return data if isinstance(data, Mapping) and data else None


def _looks_like_a_job(path: Path) -> bool:
    """Whether the text of a file that cannot be parsed has both groups without which no Job is judged."""
    try:
        text = Project(real(path).parent, Settings()).source(path.name).text
    except UnreadableFile:
        return False
    return all(re.search(rf"""(?m)(?:^|["'{{,\s]){group}(?:["']?\s*:|\.\w)""", text) for group in ("model", "train"))


def _stated(data: Mapping[str, object], name: Path | str) -> dict[str, object] | None:
    ours = data.get("job")  # as `--output-format json` wrote it
    whole: Mapping[str, object] = ours if isinstance(ours, Mapping) and "model" in ours else data
    if is_job(whole):
        return dotted(whole)
    if str(name).lower().endswith(".json") and (stray := strays(whole)):
        raise UsageError(f"{name}: {stray[0]} is not a Job field{suggestion(stray[0], tuple(Job.model_fields))}")
    return None


def dotted(data: Mapping[str, object]) -> dict[str, object]:
    """The dotted fields of a Job. Raises UsageError for a short form that needs more than it says."""
    found = dict(_flat({key: value for key, value in data.items() if key != "version"}, "", fields()))
    return completed(found)


def _flat(data: Mapping[str, object], prefix: str, known: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    for key, value in data.items():
        name = prefix + key
        group = name not in known and any(field.startswith(name + ".") for field in known)
        if group and isinstance(value, str) and name in SHORT:
            yield f"{name}.{SHORT[name]}", value
        elif group and value is None:
            continue  # the group says nothing
        elif isinstance(value, Mapping) and name not in known:
            yield from _flat(value, name + ".", known)
        else:
            yield name, value


def completed(values: Mapping[str, object]) -> dict[str, object]:
    """The same in the Job's spelling, with the other fields that a spelling decides. Raises UsageError."""
    found = {field: stated(field, value) for field, value in values.items()}
    name = values.get("train.optimizer")
    if isinstance(name, str):
        if name.lower() in IMPLEMENTATIONS:
            found.setdefault("train.optimizer_impl", IMPLEMENTATIONS[name.lower()])
        if name.lower() in IN_BACKWARD:
            found.setdefault("train.optimizer_in_backward", True)
    if found.get("train.peft.method") == "qlora":
        if found.get("train.quantization.type") in (None, "none"):
            raise UsageError('train.peft.method = \'qlora\': write "lora", and train.quantization.type "nf4"')
        found["train.peft.method"] = "lora"
    target = found.get("model.target") or found.get("model.name")
    if isinstance(target, str) and yolo_target(target) is not None:
        found = {**_ultralytics_defaults(found), **found}
    options = found.get("train.peft.options")
    if isinstance(options, Mapping) and options.get("use_dora") and found.get("train.peft.method") == "lora":
        found["train.peft.method"] = "dora"
    config = found.get("model.config")
    if isinstance(config, Mapping) and isinstance(config.get("model_type"), str):  # a whole config.json
        found.setdefault("model.architecture", config["model_type"])
    return found


def _ultralytics_defaults(values: Mapping[str, object]) -> dict[str, object]:
    """The defaults of Ultralytics' trainer."""
    batch = values.get("train.batch_size")
    found: dict[str, object] = {"train.precision": "fp16-mixed", "train.copies.ema": 1}
    if isinstance(batch, int) and batch > 0:
        found["train.grad_accum"] = max(1, round(YOLO_NOMINAL_BATCH / batch))
    return found


def stated(field: str, value: object) -> object:
    """One value in the Job's spelling; None where it is decided elsewhere ("auto")."""
    if isinstance(value, str):
        value = _text(field, value)
    try:
        found = normal(field, frozen(value))
    except Invalid:
        return value
    return None if isinstance(found, Unknown) else thawed(found)


_COUNT = regex(r"(\d+(?:\.\d+)?)\s*([KMBT])", re.IGNORECASE)


def _text(field: str, value: str) -> object:
    if field == "model.architecture":
        return type_of(value) or value
    if field == "model.parameters":  # "7B" are billions here, and bytes anywhere else
        match = _COUNT.fullmatch(value.strip())
        number = scaled(float(match[1]), 1000 ** (1 + "KMBT".index(match[2].upper()))) if match else None
        return value if number is None else number
    if field == "train.precision":  # a Job's "bf16" is a dtype, and so are its other spellings, not a mode of autocast
        return DTYPES.get(value.lower(), value)
    if field == "train.peft.method":
        low = value.lower().replace("_", "-")
        return METHODS.get(low, low)
    if field == "train.peft.targets" and value != "all-linear" and re.fullmatch(r"[\w\s,]+", value):
        return [part for part in re.split(r"[\s,]+", value) if part]  # names, and no pattern of them
    if field == "train.optimizer":
        return value.rpartition(".")[2]
    return value
