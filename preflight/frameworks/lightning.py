"""Lightning: devices, the file of LightningCLI and the dtype of weights, which tables/lightning.toml cannot express."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence

from preflight.frameworks.arguments import arguments_of, document_of, given_by
from preflight.frameworks.fsdp import fsdp_objects
from preflight.frameworks.named_files import PROCESSES, located, name_in, without_file
from preflight.frameworks.table import read
from preflight.program.arguments import Arguments, arguments_of_call
from preflight.program.bindings import bind, constant, first_origin, fold, under, when
from preflight.program.names import binding_for
from preflight.program.rows import FoundSettings
from preflight.python.objects import CallRecord, ClassValue
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import Binding, Rank, Word
from preflight.vocabulary.spelling import OPTIMIZERS
from preflight.vocabulary.text import DocumentError
from preflight.vocabulary.values import Cause, Const, Expr, Op, Scalar, Unknown

_TRAINERS = ("Trainer", "Fabric")
_LIGHTNING = ("lightning", "pytorch_lightning")
TRAINER_DEFAULTS: Mapping[str, Scalar] = {
    "precision": None,
    "accumulate_grad_batches": 1,
    "num_nodes": 1,
    "devices": None,
    "strategy": "auto",
}
"""The Trainer's (2.6), for a call that takes its arguments from a configuration as a whole."""


def is_lightning_trainer(record: CallRecord) -> bool:
    """Whether the call makes Lightning's Trainer or Fabric."""
    return record.method in _TRAINERS and record.name.startswith(_LIGHTNING)


def lightning_bindings(records: Sequence[CallRecord], weights: Expr | None) -> list[Binding]:
    """Bindings of the calls of Trainer and Fabric; `weights` is the type that the weights are stored in, if stated."""
    found: list[Binding] = []
    for record in records:
        if is_lightning_trainer(record):
            args = arguments_of_call(record)
            stored = [] if weights is None else [bind("train.precision", weights, Rank.default)]
            made = read("lightning", args).bindings
            found += under(record.conditions, [*made, *(stored if "precision" not in args else [])])
    return found


def trainer(args: Arguments) -> Arguments:
    """The arguments of a file of LightningCLI: the Trainer's without their prefix, with the rank of a call's."""
    if not any(name.startswith("trainer.") for name in args.given):
        return _renewed(args)
    given = {name: expr for name, expr in args.inner("trainer").given.items() if constant(expr) is not None}
    return _renewed(Arguments({**args.given, **given}, rank=None))


_OLD_NAMES = {"gpus": "devices", "distributed_backend": "strategy"}
"""Keys until 1.9 and 1.4 -> today's (pytorch_lightning 1.9, trainer/connectors/accelerator_connector.py)."""
_OLD_STRATEGIES = ("dp", "ddp", "ddp2", "ddp_spawn", "ddp_sharded", "ddp_sharded_spawn")
"""Strategies that `accelerator` named until 1.4."""


def _renewed(args: Arguments) -> Arguments:
    """The arguments under the names that Lightning 2 has for them."""
    more = {new: args[old] for old, new in _OLD_NAMES.items() if old in args and new not in args}
    if "strategy" not in args and args.value("accelerator") in _OLD_STRATEGIES:
        more["strategy"] = args["accelerator"]
    return args.completed(more) if more else args


def is_command_line(record: CallRecord) -> bool:
    """Whether the call makes a LightningCLI, or an object of a class of the project that is one."""
    bases = record.callee.external_bases if isinstance(record.callee, ClassValue) else [record.name]
    return any(base.endswith("LightningCLI") for base in bases)


_SUBCOMMANDS = ("fit", "validate", "test", "predict")
_OF_CLASSES = ("train.batch_size", "train.optimizer", "data.workers")
"""Job fields that the classes of the model and the data set."""
_BY_CLASS = Unknown("a class that the configuration names says it", Cause.not_read)
_SETTABLE = ("train.precision", "train.grad_accum", "train.batch_size", "train.optimizer", *PROCESSES)
"""Job fields, besides the sharding, that a file of LightningCLI may set."""


def command_line(
    words: Sequence[Word], project: Project, starts: Sequence[str], parameters: Sequence[str] = ()
) -> tuple[FoundSettings, list[str], Mapping[str, Expr]]:
    """The settings of a LightningCLI's command line and of its files (`--config x.yaml`), these files, and the values
    that they give to `parameters`: arguments of the model and of the data.

    Later words win, as jsonargparse reads them: a flag in front of a file is lost to it. A file that is named before
    the subcommand has the settings of each subcommand below its name. What the classes that a file names set themselves
    is not followed, so no default holds in its place.
    """
    positional = (constant(word.value) for word in words if not word.prefix and word.value is not None)
    subcommand = next((str(one) for one in positional if one in _SUBCOMMANDS), None)
    given: dict[str, Expr] = {}
    missing: list[Binding] = []
    reads: list[str] = []
    for name, expr in _said(words):
        if name not in ("config", "c"):
            given |= _opened(name, expr, project, starts, reads, missing)
            continue
        said = name_in(expr) or ""
        path = located(said, project, starts)
        top = _mapping(path, project) if path is not None else None
        if path is None or top is None:
            missing += without_file(said, expr.origin)
            missing += without_file(said, expr.origin, _SETTABLE, Rank.not_followed)
            given |= dict.fromkeys(parameters, missing[-1].expr)
            continue
        reads.append(path)
        below = top.inner(subcommand).given if subcommand is not None else {}
        beside = (posixpath.dirname(path), *starts)
        for key, value in (below or top.given).items():
            given |= _opened(key, value, project, beside, reads, missing)
    found = read("lightning", Arguments({"trainer.precision": Const(None), **given}))
    classes = [expr for name, expr in given.items() if name in ("model.class_path", "data.class_path")]
    unread = [bind(name, Const(_BY_CLASS, one.origin), Rank.not_followed) for one in classes for name in _OF_CLASSES]
    found.bindings = [*unread, *missing, *found.bindings]
    return found, reads, {name.replace(".init_args.", "."): expr for name, expr in given.items()}


_GROUPS = ("trainer", "model", "data", "optimizer", "lr_scheduler")
"""Groups of settings that may lie in a file of their own: `--model model.yaml`, and `model: model.yaml` in a file."""


def _opened(
    name: str, expr: Expr, project: Project, starts: Sequence[str], reads: list[str], missing: list[Binding]
) -> dict[str, Expr]:
    """A setting, or those of the file that a group is given as. jsonargparse looks for it from the folder of the file
    that names it."""
    said = constant(expr)
    if name not in _GROUPS or not isinstance(said, str) or not said.endswith(_FILES):
        return {name: expr}
    path = located(said, project, starts)
    inner = _mapping(path, project) if path is not None else None
    if path is None or inner is None:
        missing += without_file(said, expr.origin)
        missing += without_file(said, expr.origin, _SETTABLE, Rank.not_followed)
        return {}
    reads.append(path)
    return {f"{name}.{key}": value for key, value in inner.given.items()}


_FILES = (".yaml", ".yml", ".json")


def _said(words: Sequence[Word]) -> Iterator[tuple[str, Expr]]:
    """The options of a command line in their order, several of one name too."""
    for at, word in enumerate(words):
        if word.prefix.startswith("-"):
            yield from given_by(words[at : at + 2] if word.value is None else words[at : at + 1]).items()


def _mapping(path: str, project: Project) -> Arguments | None:
    try:
        document = document_of(project.source(path), project)
    except (DocumentError, UnreadableFile):
        return None
    top = document.value()
    return arguments_of(document, top) if isinstance(top, Mapping) else None


def names_of_parts(args: Arguments, found: FoundSettings) -> None:
    """Settings of the data module and the model in a file of LightningCLI, by their names."""
    for key, expr in args.given.items():
        suggested = binding_for(key, expr, "json") if key.startswith(("data.", "model.")) else None
        if suggested is not None:
            found.bindings.append(suggested)
    name = constant(args.get("optimizer.class_path", constant(args.get("optimizer"))))
    if isinstance(name, str):
        kind = OPTIMIZERS.get(name.rpartition(".")[2].lower(), "other")
        found.add("train.optimizer", Const(kind, args.origin("optimizer.class_path") or args.origin("optimizer")))


ALL = Unknown("devices: as many as the machine has", Cause.run_time)


def devices(said: Expr) -> Expr | None:
    """The number of devices: 2 and "2" state it, [0, 1] and "0,1" list them; -1 and "auto" take all that are there."""
    value = constant(said)
    if isinstance(value, str) and value.strip() in ("auto", "-1"):
        return Const(ALL, first_origin(said))
    if isinstance(value, tuple):
        return Const(len(value), first_origin(said))
    if isinstance(value, str):
        listed = [part for part in value.split(",") if part.strip()]
        if "," not in value:
            return Const(int(value), first_origin(said)) if value.strip().isdecimal() else None
        return Const(len(listed), first_origin(said))
    if value == -1:
        return Const(ALL, first_origin(said))
    return None if isinstance(value, int) and value < 1 else said


def auto_strategy(args: Arguments, found: FoundSettings) -> None:
    """`strategy="auto"`, the default: DDP on more than one device, none on one (trainer/connectors/
    accelerator_connector.py, _choose_strategy). As many devices as there are: the launch says."""
    if ("strategy" in args and args.value("strategy") != "auto") or args.value("accelerator") in _NO_GPU:
        return
    place = args.origin("devices")
    nodes = args["num_nodes"] if "num_nodes" in args else Const(1)
    count = devices(args["devices"]) if "devices" in args else Const(1)
    if count is not None and not (isinstance(count, Const) and isinstance(count.value, Unknown)):
        several = fold(Op(">", (fold(Op("*", (count, nodes))), Const(1))))
        if "devices" in args or constant(several) is True:
            found.add("parallel.strategy", when(several, Const("ddp", place), Const("none", place)))


_NO_GPU = ("cpu", "tpu", "mps", "hpu")


def overlaps(every: Expr) -> Expr:
    """Validation before the epoch's end (`val_check_interval`) runs while the training loader is full."""
    return fold(Op("!=", (every, Const(1.0))), first_origin(every))


def fsdp(args: Arguments, found: FoundSettings) -> None:
    """Objects and enumerations that FSDPStrategy is given."""
    found.bindings += fsdp_objects(args.call) if args.call is not None else []
