"""Ultralytics: values that follow from several settings, which tables/ultralytics.toml cannot express.

Its sources (8.3 and 8.4: engine/trainer.py, models/yolo/detect/train.py, data/build.py, data/base.py):

- `batch` is divided over the GPUs; -1 and fractions measure the GPU. The run accumulates to `nbs` (64) by itself, over
  the whole batch of all GPUs.
- the validation loader takes twice the batch and asks for twice the workers; a loader gets at most cpus // gpus.
- a sample leaves the worker letterboxed, uint8, 3 x imgsz x imgsz.
- the file of the data set says how many classes the model has; where it is not among the project's, it has its own.
- `optimizer: auto` is SGD, or since 8.4 MuSGD, in runs of more than 10,000 steps and else AdamW, which holds the most.
- for mosaics every training worker keeps the last min(8 x batch, 1000) images it decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.frameworks.launchers import text
from preflight.frameworks.table import read
from preflight.program.arguments import Arguments, arguments_of_call
from preflight.program.bindings import bind, constant, first_origin, fold, is_unknown
from preflight.program.rows import FoundSettings
from preflight.python.objects import CallRecord, kinds_of
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import Binding, Fact, Rank, Word
from preflight.vocabulary.spelling import OPTIMIZERS, YOLO_NOMINAL_BATCH, spelled
from preflight.vocabulary.text import DocumentError
from preflight.vocabulary.values import Cause, Const, Expr, Op, Value, unknown

_MODELS = ("YOLO", "RTDETR", "YOLOWorld", "YOLOE", "FastSAM")
_PASSED_ON = ("batch", "workers", "imgsz", "nbs", "amp")
"""Arguments that are unknown where a call may take them from a mapping that is passed on."""
_WORKERS = ("data.workers", "data.validation_workers")
BUFFERED_BATCHES, BUFFERED_IMAGES = 8, 1000
CHANNELS = 3


def is_training(record: CallRecord) -> bool:
    """Whether the call trains an Ultralytics model."""
    if record.method != "train":
        return False
    made = (record.receiver or "", *kinds_of(record.receiver_object))
    return any(name.startswith("ultralytics") and name.rpartition(".")[2] in _MODELS for name in made)


def ultralytics_bindings(records: Sequence[CallRecord], project: Project) -> tuple[list[Binding], list[Fact]]:
    """Bindings and facts of every training call (the last wins)."""
    bindings: list[Binding] = []
    facts: list[Fact] = []
    for record in records:
        if is_training(record):
            found = read("ultralytics", arguments_of_call(record))
            most = _most_workers(arguments_of_call(record), project)
            bindings += [_capped(b, most) if b.field in _WORKERS else b for b in found.bindings]
            bindings += _classes(record, project)
            facts = [Fact("framework", "ultralytics", record.origin), *found.facts]
        elif record.method in _MODELS and record.name.startswith("ultralytics"):
            bindings += _model(arguments_of_call(record, ("model",)))
    return bindings, facts


def completed(args: Arguments) -> Arguments:
    """The arguments of a call or a command, with the ranks of expressions."""
    passed: dict[str, Expr] = {}
    if args.call is not None and not args.call.complete:
        reason = unknown("it may be among arguments that are passed on as a whole", args.call.origin)
        passed = {name: reason for name in _PASSED_ON if name not in args}
    return Arguments({**args.given, **passed}, args.defaults, args.empty, None, args.call)


def model(args: Arguments, found: FoundSettings) -> None:
    """The model of a command; a call of `train` is a method of the model."""
    if args.call is None:
        found.bindings += _model(args)


def _model(args: Arguments) -> list[Binding]:
    """`YOLO("yolov8n.pt")`: the architecture is in the file's name."""
    name = args.given.get("model", Const("yolo11n.pt"))
    value, origin = constant(name), args.origin("model")
    if isinstance(value, str):
        stem = value.rpartition("/")[2].removesuffix(".pt").removesuffix(".yaml").removesuffix(".yml")
        target: Expr = Const(f"ultralytics:{stem}", origin)
    else:
        target = fold(Op("concat", (Const("ultralytics:"), Op("replace", (name, Const(".pt"), Const(""))))), origin)
    return [bind("model.target", target), bind("task", Const("other"), Rank.default)]


def batches(args: Arguments, found: FoundSettings) -> None:
    """The batches of one GPU in training and validation, the accumulation, the nominal batch."""
    gpus, whole = _gpus(args), _batch(args, 1)
    batch = _batch(args, gpus)
    steps = fold(Op("max", (Op("round", (Op("/", (args["nbs"], whole)),)), Const(1))))
    found.bindings += [args.bind("train.batch_size", "batch", batch), args.bind("train.grad_accum", "batch", steps)]
    if args.value("val") is not False:
        found.bindings.append(args.bind("validation.batch_size", "batch", _doubled(batch)))
    if gpus > 1:
        counts = ("parallel.gpus_per_node", "parallel.ranks_per_node")
        found.bindings += [bind("parallel.strategy", Const("ddp")), *(bind(field, Const(gpus)) for field in counts)]
    nominal = args.value("nbs")
    known = nominal if isinstance(nominal, int) else YOLO_NOMINAL_BATCH  # set elsewhere: hardly ever changed
    found.facts.append(Fact("nominal_batch", known, args.call.origin if args.call is not None else None))


def _batch(args: Arguments, gpus: int) -> Expr:
    """The batch of one GPU; unknown if Ultralytics measures it."""
    batch, value = args["batch"], args.value("batch")
    if isinstance(value, (int, float)) and value < 1:
        return unknown("Ultralytics chooses the batch by measuring the GPU", first_origin(batch), Cause.run_time)
    return batch if gpus == 1 else fold(Op("//", (batch, Const(gpus))))


def _doubled(expr: Expr) -> Expr:
    return fold(Op("*", (expr, Const(2))), first_origin(expr))


def workers(args: Arguments, found: FoundSettings) -> None:
    """Workers of the training loader and of the validation loader."""
    found.bindings.append(args.bind("data.workers", "workers"))
    found.bindings.append(args.bind("data.validation_workers", "workers", _doubled(args["workers"])))


def _capped(binding: Binding, most: int | None) -> Binding:
    """At most `most` workers. A binding that is certainly below is not changed, so that a fix can edit it."""
    workers, value = binding.expr, constant(binding.expr)
    if most is None or is_unknown(workers) or (isinstance(value, (int, float)) and value <= most):
        return binding
    known = isinstance(value, (int, float))
    expr = Const(most, first_origin(workers)) if known else Op("min", (workers, Const(most)), workers.origin)
    return bind(binding.field, expr, binding.rank)


def longer_side(size: Expr) -> Expr:
    """The longer one of two sides."""
    value = constant(size)
    if isinstance(value, tuple) and value and all(isinstance(side, int) for side in value):
        return Const(max(side for side in value if isinstance(side, int)), first_origin(size))
    return size


def samples(args: Arguments, found: FoundSettings) -> None:
    """The bytes of one sample, and of the workers' buffers for mosaics."""
    side, batch = longer_side(args["imgsz"]), _batch(args, _gpus(args))
    sample = fold(Op("*", (Const(CHANNELS), Op("*", (side, side)))), first_origin(side))
    kept = Op("min", (Op("*", (Const(BUFFERED_BATCHES), batch)), Const(BUFFERED_IMAGES)))
    bytes_kept = fold(Op("*", (kept, sample)), first_origin(batch))
    found.bindings.append(args.bind("data.sample_bytes", "imgsz", sample))
    found.bindings.append(args.bind("data.worker_bytes", "batch", bytes_kept))


def precision(args: Arguments, found: FoundSettings) -> None:
    """Mixed unless `amp` is a plain no."""
    kind = "fp32" if args.value("amp") is False else "fp16-mixed"
    found.bindings.append(args.bind("train.precision", "amp", Const(kind, first_origin(args["amp"]))))


def optimizer(name: Expr) -> Expr:
    """The optimizer by its name; SGD has Nesterov momentum here."""
    return spelled(name, {**OPTIMIZERS, "sgd": "sgd-momentum"}, "other")


def _gpus(args: Arguments) -> int:
    """How many GPUs `device` names: 0, "0", [0, 1], "0,1"; one by default."""
    value = args.value("device")
    if isinstance(value, str):
        return max(1, len([part for part in value.split(",") if part.strip()]))
    return max(1, len(value)) if isinstance(value, tuple) else 1


def _most_workers(args: Arguments, project: Project) -> int | None:
    """The most workers that a loader gets: CPUs // GPUs of a machine with one type of node; None without a machine."""
    name = project.settings.machine
    if name is None:
        return None
    from preflight.machines.clusters import MachineError, find_machine

    try:
        counts = {node.cpus for node in find_machine(name, project.root).nodes}
    except MachineError:
        return None  # the engine reports it
    cpus = counts.pop() if len(counts) == 1 else None
    return None if cpus is None else max(1, cpus // _gpus(args))


def _classes(record: CallRecord, project: Project) -> list[Binding]:
    """How many classes the data set has, if its file is in the project."""
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


def is_training_run(top: Mapping[str, Value]) -> bool:
    """Whether a file of Ultralytics' arguments is of a training run: it says so."""
    return top.get("mode") == "train"


def training(words: Sequence[Word]) -> tuple[Word, ...] | None:
    """The settings of a `yolo` command that trains, in whatever order its words stand; None for a command that does
    something else (`mode` is predict unless it is stated)."""
    said = {text(word) for word in words}
    if not said & {"train", "mode=train"}:
        return None
    return tuple(word for word in words if word.prefix.endswith("=") and word.prefix != "mode=")
