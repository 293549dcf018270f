"""What is kept of a run: the command's end, findings, and each study's answer. Plain data, for reports made later."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypedDict

from typing_extensions import NotRequired

VERSION = 2
Answer = Literal["figure", "assumed", "range", "unknown"]
Causes = Literal["model", "batch", "length", "other", ""]
USUAL: Mapping[str, object] = {"train.batch_size": 8, "train.precision": "fp32", "parallel.gpus_per_node": 1}
"""Fields that a figure assumes where they have no place in a file, and this value."""


class FindingRow(TypedDict):
    rule: str
    severity: str
    path: str | None
    line: int | None
    message: str


class Why(TypedDict):
    """What keeps a study from a figure: the kind of gap, the fields to state, the words of the report."""

    cause: str
    fields: list[str]
    words: str


class StudyRow(TypedDict):
    paths: list[str]
    dialects: list[str]
    answer: Answer
    cause: Causes
    bytes: int | None
    stated: list[str]
    standings: dict[str, str]
    values: dict[str, object]
    why: NotRequired[list[Why]]


class Ended(TypedDict):
    """What supervisor.py says of a command. `status`: minus the signal that ended it."""

    status: int
    timed_out: bool
    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int


class Record(Ended):
    version: int
    name: str
    commit: str
    software: str
    errors: list[str]
    files: int | None
    launch_files: list[str]
    findings: list[FindingRow]
    studies: list[StudyRow]


def findings(document: Mapping[str, Any]) -> list[FindingRow]:
    """The findings of `--output json=FILE`."""
    keys = ("rule", "severity", "path", "line", "message")
    return [{key: each[key] for key in keys} for each in document["findings"]]  # type: ignore[misc]


def studies(document: Mapping[str, Any]) -> list[StudyRow]:
    """The studies of `--output json=FILE`."""
    by_file = {(each["path"]) for each in document["findings"] if each["rule"] == "fits-only-if"}
    return [_study(each, by_file) for each in document["studies"]]


def _study(study: Mapping[str, Any], fits_only_if: set[str | None]) -> StudyRow:
    device = study["device"]
    values = dict(_flat(study["worst"], ""))
    stated = sorted(study["origins"])
    answer: Answer
    if device is None:
        # the need at usual values of what no file states, or the largest value that fits, is a range
        told = fits_only_if.intersection(study["paths"]) and _cause(study["unknown"]) != "model"
        answer = "range" if told and not _model_unknown(study) else "unknown"
    elif device["lower_bound"] or study["combinations"] is None or study["paths"][0] in fits_only_if:
        answer = "range"
    else:
        assumed = any(values.get(name) == usual for name, usual in USUAL.items() if name not in stated)
        answer = "assumed" if assumed else "figure"
    return {
        "paths": study["paths"],
        "dialects": study["dialects"],
        "answer": answer,
        "cause": _cause(study["unknown"]) if answer == "unknown" else "",
        "bytes": device["process"]["expected"] if device else None,
        "stated": stated,
        "standings": study["standings"],
        "values": values,
        "why": study.get("unknown_causes", []) if device is None else [],
    }


def _cause(unknown: list[str]) -> Causes:
    """The first field that is missing for the device, by what it says."""
    if any(name.startswith("model.") for name in unknown):
        return "model"
    if "train.batch_size" in unknown:
        return "batch"
    lengths = ("train.seq_len", "train.target_len", "train.text_len", "train.image_size")
    return "length" if any(name in unknown for name in lengths) else "other"


def _model_unknown(study: Mapping[str, Any]) -> bool:
    return any(one["cause"] == "model-not-known" for one in study["unknown_causes"])


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield prefix + key, value


def loaded(text: str) -> Record | None:
    """A record; None if it is of another version."""
    found: Record = json.loads(text)
    return found if found.get("version") == VERSION else None
