"""Lightning: `Trainer.fit` runs `training_step` of the program's module on what its loader gives.

The loop is the library's, so that no loop of the program shows what a step keeps. The loader is the one that `fit` is
given, or what `train_dataloader` of the data module or of the model makes after `setup`. Only a trainer that is told to
train on the processor counts: what a GPU takes needs a law of the whole model.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from preflight.python.access import class_attribute
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.objects import Abstract, CallRecord, Frame, FunctionValue, Instance
from preflight.python.steps import rehearse_step
from preflight.vocabulary.values import Cause, unknown


def _fit(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`trainer.fit(model, loader)`, `trainer.fit(model, datamodule=data)`: one step, on the processor."""
    model = record.object("model", 0)
    step = _method(model, "training_step")
    if step is None or ev.ledger is not None or id(record.node) in ev.rehearsed or not _on_processor(record, ev):
        return None
    ev.rehearsed.add(id(record.node))
    index = unknown("the round of a loop", record.origin, Cause.run_time)

    def loss(batch: Abstract) -> Abstract:
        return ev.call(step, (batch, index))

    rehearse_step(ev, Frame({}, step.module), lambda: _loader(record, ev), loss)
    return None


def _method(value: Abstract | None, name: str) -> FunctionValue | None:
    """A method of an object of the program's own class."""
    found = class_attribute(value.cls, name) if isinstance(value, Instance) and value.cls is not None else None
    return replace(found, self_value=value) if isinstance(found, FunctionValue) else None


def _on_processor(record: CallRecord, ev: Evaluator) -> bool:
    """Whether the trainer is told to train there."""
    trainer = record.receiver_object
    made = trainer.record if isinstance(trainer, Instance) and trainer.made_by.endswith("Trainer") else None
    where = made.argument("accelerator", 0) if made is not None else None
    return where is not None and ev.value_of(where) == "cpu"


def _loader(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """The training loader: given, or made by the data module or by the model itself."""
    given = record.object("train_dataloaders", 1)
    for owner in (record.object("datamodule"), given, record.object("model", 0)):
        make = _method(owner, "train_dataloader")
        if make is not None:
            if (setup := _method(owner, "setup")) is not None:
                ev.call(setup, (unknown("the stage", record.origin),))
            return ev.call(make, ())
    return given


HOOKS: Mapping[str, Hook] = {"*.fit": _fit}
