"""Sizes of decoded samples that real runs of a program showed: they answer where no file states them.

A run speaks of a study if it started the same program, if the files that the program is made of are the same, and if
every word and variable of the environment that may choose other data was the same. Words that feed the batch, the
workers and what else leaves a sample as it is may differ, and so may the file that starts the program.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from preflight.engine.dry_runs import SOURCE_BYTES, is_without_effect, link_of, program_of
from preflight.engine.recorded import recorded_runs
from preflight.system.files import UnreadableFile, read_bytes
from preflight.vocabulary.standing import Standing
from preflight.vocabulary.study import Bound, Box, Source, Study
from preflight.vocabulary.values import Const, Unknown, Value, evaluate, names

ALIKE = 0.1
"""The share by which samples of the validation may differ from those of the training to be one figure."""
SIZE, VALIDATION_SIZE = "sample_bytes", "validation_sample_bytes"
FIELD = "data.sample_bytes"
STARTING = ("wandb", "slurm", "kubernetes", "compose", "shell")
"""Dialects of files that start a program: their words are compared, and not their texts."""
SAME_SAMPLES = (
    "train.batch_size", "train.grad_accum", "train.optimizer", "train.precision", "train.gradient_checkpointing",
    "train.compile", "train.attention", "train.empty_cache_every", "validation.batch_size",
    "validation.eval_accumulation", "data.workers", "data.prefetch", "data.persistent_workers", "data.pin_memory",
    "data.shuffle", "data.validation_workers", "parallel.strategy", "parallel.nodes", "parallel.gpus_per_node",
    "parallel.ranks_per_node",
)  # fmt: skip
"""Fields whose value leaves a decoded sample as it is."""


def data_of(study: Study, root: Path, environment: Mapping[str, str] | None = None) -> str:
    """A hash of a study's program with all that may choose its data; "" where something of it is not known.

    `environment`: that of the run; None: what the study's files say of it.
    """
    box = study.boxes[0]
    if len(study.boxes) != 1 or any(not _may_vary(axis.name, axis.fields) for axis in box.axes):
        return ""
    words = list(_words(study, box))
    if None in words:
        return ""
    try:
        texts = [read_bytes(root / path, SOURCE_BYTES) for path in _of_the_program(study)]
    except UnreadableFile:
        return ""
    variables = _variables(study, texts, environment)
    if variables is None:
        return ""
    contents = sorted(sha256(text).hexdigest() for text in texts)
    text = json.dumps([program_of(study, root), contents, variables, sorted(word for word in words if word)])
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _of_the_program(study: Study) -> list[str]:
    """The files that a program is made of, without those that start it."""
    starting = {reading.path for reading in study.readings if reading.dialect in STARTING}
    return [path for path in study.paths if path not in starting]


def _variables(study: Study, texts: Sequence[bytes], environment: Mapping[str, str] | None) -> list[str] | None:
    """The variables of the environment that the program names; None where the value of one is not known."""
    link = link_of(study)
    stated = link.launch.environment if link is not None and environment is None else {}
    found: dict[str, Value] = {**(environment or {}), **{name: evaluate(expr) for name, expr in stated.items()}}
    quoted = {name: (f'"{name}"'.encode(), f"'{name}'".encode()) for name in found}
    named = {name for name, forms in quoted.items() if any(form in text for text in texts for form in forms)}
    if any(isinstance(found[name], Unknown) for name in named):
        return None
    return sorted(f"{name}={found[name]}" for name in named)


def _may_vary(name: str, fed: tuple[str, ...]) -> bool:
    return is_without_effect(name) or (bool(fed) and all(one in SAME_SAMPLES for one in fed))


def _words(study: Study, box: Box) -> Iterator[str | None]:
    """The words that may choose data, each flag with its value; None for a value that is not known."""
    link = link_of(study)
    own = {bound.origin for name, bound in box.fields.items() if name in SAME_SAMPLES and bound.origin is not None}
    axes = {axis.name for axis in box.axes}
    flag = ""
    for word in link.words if link is not None else ():
        if word.value is None:
            yield flag
            flag = word.hydra_prefix + word.prefix
            continue
        value = evaluate(word.value, {name: Const(one) for name, one in box.fixed.items()})
        name = flag if not word.prefix else word.prefix.rstrip("=")
        same = word.origin in own or getattr(word.value, "origin", None) in own or is_without_effect(name)
        if not same and not any(one in axes for one in names(word.value)):
            if isinstance(value, Unknown):
                yield None
            else:
                yield f"{name}={value}"
        flag = ""
    yield flag


def with_measured(study: Study, root: Path) -> tuple[Study, tuple[str, ...]]:
    """The study with the size of a sample that runs of its program showed, and a note that says so."""
    if len(study.boxes) != 1:
        return study, ()
    box = study.boxes[0]
    bound = box.fields.get(FIELD)
    if bound is not None and bound.standing is not Standing.unknown:
        return study, ()
    runs = [one for one in recorded_runs() if one.data and one.host.get(SIZE)]
    digest = data_of(study, root) if runs else ""
    found = [one for one in runs if one.data == digest] if digest else []
    if not found:
        return study, ()
    size = max(one.host[SIZE] for one in found)
    other = max(one.host.get(VALIDATION_SIZE, size) for one in found)
    if abs(other - size) > ALIKE * size:
        words = f"{SIZE} is {size} in training and {other} in validation by recorded runs: state {FIELD} yourself"
        return study, (f"{study.paths[0]}: {words}",)
    size = max(size, other)
    known = {**box.fields, FIELD: Bound(FIELD, Const(size), source=Source.measured)}
    times = "1 run" if len(found) == 1 else f"{len(found)} runs"
    note = f"{study.paths[0]}: {FIELD} = {size} was measured in {times} of its program"
    return replace(study, boxes=(replace(box, fields=known),)), (note,)
