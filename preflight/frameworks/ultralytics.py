"""Ultralytics: `YOLO(...).train(batch=, workers=, imgsz=, ...)` -> bindings with that trainer's own semantics.

What its sources do (8.3 and 8.4: engine/trainer.py, models/yolo/detect/train.py, data/build.py, data/base.py):

- `batch` is divided over the GPUs; -1 and fractions measure the GPU. The run accumulates to `nbs` (64) by itself, over
  the whole batch of all GPUs.
- the validation loader takes twice the batch and asks for twice the workers; a loader gets at most cpus // gpus.
- loaders are infinite: workers live, and queues stay full, as long as the trainer does; prefetch_factor is 4.
- a sample leaves the worker letterboxed, uint8, 3 x imgsz x imgsz.
- the file of the data set says how many classes the model has; where it is not among the project's, it has its own.
- `optimizer: auto` is SGD, or since 8.4 MuSGD, in runs of more than 10,000 steps and else AdamW, which holds the most.
- for mosaics every training worker keeps the last min(8 x batch, 1000) images it decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from preflight.frameworks.launchers import text
from preflight.program.arguments import Arguments
from preflight.program.bindings import bind, constant, first_origin, fold, is_unknown
from preflight.program.rows import Found
from preflight.python.objects import CallRecord, kinds_of
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import Binding, Fact, Rank, Word
from preflight.vocabulary.spelling import OPTIMIZERS, spelled
from preflight.vocabulary.text import DocumentError
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Scalar, unknown

_MODELS = ("YOLO", "RTDETR", "YOLOWorld", "YOLOE", "FastSAM")
DEFAULTS: dict[str, Scalar] = {"batch": 16, "workers": 8, "imgsz": 640, "nbs": 64, "amp": True, "cache": False,
                               "optimizer": "auto", "mosaic": 1.0}  # fmt: skip
"""ultralytics/cfg/default.yaml."""
PREFETCH = 4
BUFFERED_BATCHES, BUFFERED_IMAGES = 8, 1000
CHANNELS = 3


@dataclass(frozen=True)
class Said:
    """Arguments of a call of the trainer, or of its command line."""

    args: Arguments
    origin: Origin | None = None
    complete: bool = True

    def argument(self, name: str) -> Expr | None:
        """An argument by its name; None where it is not given."""
        return self.args.given.get(name)


def _said(record: CallRecord) -> Said:
    """What a call says; the first argument of a model's class is the model."""
    model = record.argument("model", 0) if record.method in _MODELS else None
    given = {**record.kwargs, **({"model": model} if model is not None else {})}
    return Said(Arguments(given), record.origin, record.complete)


def is_training(record: CallRecord) -> bool:
    """Whether the call trains an Ultralytics model."""
    if record.method != "train":
        return False
    made = (record.receiver or "", *kinds_of(record.receiver_object))
    return any(name.startswith("ultralytics") and name.rpartition(".")[2] in _MODELS for name in made)


def ultralytics_bindings(records: Sequence[CallRecord], project: Project) -> tuple[list[Binding], list[Fact]]:
    """Bindings and facts of every training call (the last wins)."""
    found: list[Binding] = []
    facts: list[Fact] = []
    for record in records:
        if is_training(record):
            found += [*_bindings(_said(record), project), *_classes(record, project)]
            facts = [Fact("framework", "ultralytics", record.origin), _nominal(_said(record))]
        elif record.method in _MODELS and record.name.startswith("ultralytics"):
            found += _model(_said(record))
    return found, facts


def _model(record: Said) -> list[Binding]:
    """`YOLO("yolov8n.pt")`: the architecture is in the file's name."""
    name = record.argument("model") or Const("yolo11n.pt")
    value, origin = constant(name), first_origin(name) or record.origin
    if isinstance(value, str):
        stem = value.rpartition("/")[2].removesuffix(".pt").removesuffix(".yaml").removesuffix(".yml")
        target: Expr = Const(f"ultralytics:{stem}", origin)
    else:
        target = fold(Op("concat", (Const("ultralytics:"), Op("replace", (name, Const(".pt"), Const(""))))), origin)
    return [bind("model.target", target), bind("task", Const("other"), Rank.default)]


def _argument(record: Said, name: str) -> tuple[Expr, Rank | None]:
    """An argument's expression and its rank: a default's where it is not given, unknown where it may be passed on."""
    expr = record.argument(name)
    if expr is not None:
        return expr, None
    if not record.complete:
        return unknown("it is among arguments that are passed on", record.origin), None
    return Const(DEFAULTS[name]), Rank.default


def _classes(record: CallRecord, project: Project) -> list[Binding]:
    """How many classes the data set has, where its file is among the project's."""
    data = record.argument("data")
    value = constant(data)
    if not isinstance(value, str) or not value.endswith((".yaml", ".yml")) or not project.exists(value):
        return []
    from preflight.documents.yaml import parse_yaml

    try:
        found = parse_yaml(project.source(value)).value()
    except (DocumentError, UnreadableFile):
        return []
    names = found.get("names") if isinstance(found, Mapping) else None
    count = len(names) if isinstance(names, (Mapping, list, tuple)) else None
    stated = found.get("nc", count) if isinstance(found, Mapping) else None
    return [bind("model.kwargs.nc", Const(stated, first_origin(data)))] if isinstance(stated, int) else []


def _nominal(record: Said) -> Fact:
    value = constant(_argument(record, "nbs")[0])
    known = value if isinstance(value, int) else DEFAULTS["nbs"]  # a configuration could set it: nobody does
    return Fact("nominal_batch", known, record.origin)


def _bindings(record: Said, project: Project | None) -> list[Binding]:
    gpus = _gpus(record)
    (batch, rank), (workers, workers_rank) = _batch(record, gpus), _argument(record, "workers")
    cpus = cpus_of(project) if project is not None else None
    most = None if cpus is None else max(1, cpus // gpus)
    return [
        bind("train.batch_size", batch, rank),
        bind("train.grad_accum", _accumulation(_argument(record, "nbs")[0], _batch(record, 1)[0]), rank),
        bind("data.workers", _capped(workers, most), workers_rank),
        bind("data.validation_workers", _capped(_scaled(workers, 2), most), workers_rank),
        bind("data.prefetch", Const(PREFETCH), Rank.default),
        bind("data.persistent_workers", Const(True), Rank.default),
        bind("data.validation_overlaps", Const(True), Rank.default),
        bind("data.pin_memory", Const(True), Rank.default),
        bind("data.shuffle", Const(True), Rank.default),
        *_images(record, batch, rank),
        *_rest(record, batch, rank, gpus),
    ]


def _batch(record: Said, gpus: int) -> tuple[Expr, Rank | None]:
    """The batch of one GPU; a batch that Ultralytics finds out by itself is unknown."""
    batch, rank = _argument(record, "batch")
    value = constant(batch)
    if isinstance(value, (int, float)) and value < 1:
        return unknown("Ultralytics measures the GPU to choose the batch", first_origin(batch), Cause.run_time), None
    return (batch, rank) if gpus == 1 else (fold(Op("//", (batch, Const(gpus)))), rank)


def _accumulation(nominal: Expr, batch: Expr) -> Expr:
    return fold(Op("max", (Op("round", (Op("/", (nominal, batch)),)), Const(1))))


def _scaled(expr: Expr, factor: int) -> Expr:
    return fold(Op("*", (expr, Const(factor))), first_origin(expr))


def _capped(workers: Expr, most: int | None) -> Expr:
    """At most `most` workers. A value set elsewhere that stays below it needs no cap, and is left invertible."""
    value = constant(workers)
    if most is None or is_unknown(workers):
        return workers
    if not isinstance(value, (int, float)):
        return Op("min", (workers, Const(most)), workers.origin)
    return workers if value <= most else Const(most, first_origin(workers))


def _images(record: Said, batch: Expr, rank: Rank | None) -> list[Binding]:
    """What one sample takes, and what the workers keep for mosaics."""
    size, size_rank = _argument(record, "imgsz")
    value = constant(size)
    if isinstance(value, tuple) and value and all(isinstance(side, int) for side in value):
        size = Const(max(side for side in value if isinstance(side, int)), first_origin(size))
    sample = fold(Op("*", (Const(CHANNELS), Op("*", (size, size)))), first_origin(size))
    found = [bind("train.image_size", size, size_rank), bind("data.sample_bytes", sample, size_rank)]
    kept = Op("min", (Op("*", (Const(BUFFERED_BATCHES), batch)), Const(BUFFERED_IMAGES)))
    found.append(bind("data.worker_bytes", fold(Op("*", (kept, sample)), first_origin(batch)), rank))
    return found + _cache(record)


def _cache(record: Said) -> list[Binding]:
    """`cache=True` (or "ram") keeps every decoded image in the parent process."""
    cache, _ = _argument(record, "cache")
    value = constant(cache)
    if value is True or value == "ram":
        reason = "every decoded image is cached in memory, and how many there are is in the data set"
        return [bind("data.in_memory_bytes", unknown(reason, first_origin(cache), Cause.run_time), Rank.read)]
    return []


def _rest(record: Said, batch: Expr, rank: Rank | None, gpus: int) -> list[Binding]:
    amp, amp_rank = _argument(record, "amp")
    mixed = constant(amp)
    precision = "fp32" if mixed is False else "fp16-mixed"
    found = [
        bind("train.precision", Const(precision, first_origin(amp)), amp_rank),
        bind("train.copies.ema", Const(1), Rank.default),  # ModelEMA is always on
    ]
    if constant(record.argument("val")) is not False:
        found.append(bind("validation.batch_size", _scaled(batch, 2), rank))
    optimizer = record.argument("optimizer")
    if optimizer is not None and constant(optimizer) != "auto":
        names = {**OPTIMIZERS, "sgd": "sgd-momentum"}  # its SGD has Nesterov momentum
        found.append(bind("train.optimizer", spelled(optimizer, names, "other")))
    if gpus > 1:
        found += [bind("parallel.strategy", Const("ddp")), bind("parallel.gpus_per_node", Const(gpus)),
                  bind("parallel.ranks_per_node", Const(gpus))]  # fmt: skip
    return found


def _gpus(record: Said) -> int:
    """How many GPUs `device` names: 0, "0", [0, 1], "0,1"; one where it does not say."""
    device = record.argument("device")
    value = constant(device) if device is not None else None
    if isinstance(value, tuple):
        return max(1, len(value))
    if isinstance(value, str):
        return max(1, len([part for part in value.split(",") if part.strip()]))
    return 1


def cpus_of(project: Project) -> int | None:
    """CPUs of the machine that the settings name, where it has one type of node; None where nobody says."""
    name = project.settings.machine
    if name is None:
        return None
    from preflight.machines.clusters import MachineError, find_machine

    try:
        nodes = find_machine(name, project.root).nodes
    except MachineError:
        return None  # the engine reports it
    counts = {node.cpus for node in nodes}
    return counts.pop() if len(counts) == 1 else None


# Ultralytics' command line: `yolo detect train model=yolov8n.pt data=coco.yaml batch=16 imgsz=640`.


def command(args: Arguments, found: Found) -> None:
    """The trainer's arguments and its defaults."""
    said = Said(args)
    found.facts += [Fact("framework", "ultralytics"), _nominal(said)]
    found.bindings += [*_model(said), *_bindings(said, None)]


def training(words: Sequence[Word]) -> tuple[Word, ...] | None:
    """The settings of a command that trains, in whatever order its words stand; None for one that does something else
    (`mode` is predict where nothing says)."""
    said = {text(word) for word in words}
    if not said & {"train", "mode=train"}:
        return None
    return tuple(word for word in words if word.prefix.endswith("=") and word.prefix != "mode=")
