"""Whether a trainer writes its first checkpoint only after the first validation: if that fails, all steps are lost.

transformers' Trainer evaluates before it saves where both are due (trainer.py, `_maybe_log_save_evaluate`), and
Lightning's ModelCheckpoint saves after validation, or at the end of the epoch, unless it counts steps or time
(callbacks/model_checkpoint.py). Nothing is said where a callback, a resumed run or a call of the program might save.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.frameworks.lightning import is_lightning_trainer
from preflight.frameworks.transformers_trainer import ARGUMENT_CLASSES, from_command_line
from preflight.program.bindings import constant
from preflight.python.objects import CallRecord, ClassValue, Container, Instance
from preflight.vocabulary.reading import Fact
from preflight.vocabulary.values import Unknown, Value

FACT = "saves_late"

_SAVING = ("save", "save_model", "save_pretrained", "save_checkpoint", "save_state", "save_file", "push_to_hub")
_STARTING = ("train", "fit")
_RESUMING = ("resume_from_checkpoint", "ckpt_path")
_STEPS = 500
"""Steps between two checkpoints, and between two evaluations, of a Trainer that is told none."""


def late_checkpoints(calls: Sequence[CallRecord]) -> list[Fact]:
    """The fact that no checkpoint is written before the first validation; empty where that is not certain."""
    started = [at for at, record in enumerate(calls) if record.method in _STARTING and record.reached]
    if len(started) != 1 or any(_given(calls[started[0]], name) for name in _RESUMING):
        return []
    if any(r.method in _SAVING and (at < started[0] or not r.reached) for at, r in enumerate(calls)):
        return []
    arguments = [one for one in calls if one.method in ARGUMENT_CLASSES]
    trainers = [one for one in calls if one.method.endswith("Trainer") and not one.conditions]
    if len(trainers) != 1 or not _known(trainers[0]) or any(one.method == "add_callback" for one in calls):
        return []
    trainer = trainers[0]
    if is_lightning_trainer(trainer):
        late = _lightning(trainer, calls)
    else:
        late = len(arguments) == 1 and trainer.name.startswith(("transformers.", "trl.")) and _trainer(arguments[0])
    return [Fact(FACT, True, trainer.origin)] if late else []


def _given(record: CallRecord, name: str) -> bool:
    return not record.complete or record.more or (name in record.kwargs and constant(record.kwargs[name]) is not None)


def _known(trainer: CallRecord) -> bool:
    """Whether all arguments of a library's trainer are known, and its callbacks are the library's own."""
    callbacks = trainer.object("callbacks")
    if isinstance(trainer.callee, ClassValue) or not trainer.complete or trainer.more:
        return False
    if callbacks is None:
        return True
    listed = isinstance(callbacks, Container) and not callbacks.open
    return listed and all(isinstance(one, Instance) and one.cls is None for one in callbacks.items.values())  # type: ignore[union-attr]


def _lightning(trainer: CallRecord, calls: Sequence[CallRecord]) -> bool:
    if "enable_checkpointing" in trainer.kwargs and constant(trainer.kwargs["enable_checkpointing"]) is not True:
        return constant(trainer.kwargs["enable_checkpointing"]) is False
    made = [one for one in calls if one.method.endswith("Checkpoint")]
    counting = ("every_n_train_steps", "train_time_interval")
    return all(one.method == "ModelCheckpoint" and not any(_given(one, name) for name in counting) for one in made)


_WHEN = ("eval_delay", "eval_on_start", "eval_steps", "logging_steps", "save_steps")
"""Arguments that say when a Trainer evaluates and saves, beside its strategies."""


def _trainer(arguments: CallRecord) -> bool:
    given = {"eval_strategy": arguments.kwargs.get("evaluation_strategy"), **arguments.kwargs}
    values = {name: None if expr is None else constant(expr) for name, expr in given.items()}
    if not arguments.complete or arguments.more or arguments.conditions or from_command_line(arguments):
        return False
    if any(isinstance(values.get(name), Unknown) for name in _WHEN):
        return False
    evaluates, saves = _strategy(values.get("eval_strategy")), _strategy(values.get("save_strategy", "steps"))
    if evaluates not in ("steps", "epoch") or values.get("eval_delay"):
        return False
    if saves in ("no", "best") or values.get("eval_on_start") is True or (evaluates, saves) == ("epoch", "epoch"):
        return True
    every = values.get("eval_steps") or values.get("logging_steps") or _STEPS
    kept = values.get("save_steps") or _STEPS
    known = isinstance(every, (int, float)) and isinstance(kept, (int, float)) and (every < 1) is (kept < 1)
    return (evaluates, saves) == ("steps", "steps") and known and every <= kept  # type: ignore[operator]


def _strategy(value: Value) -> str:
    """A strategy, as a text or a member of the enumeration; "" where it is not known."""
    return value.rpartition(".")[2].lower() if isinstance(value, str) else ""
