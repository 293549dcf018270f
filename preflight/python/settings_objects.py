"""Objects of a library that hold settings: `TrainingArguments(...)`, `LoraConfig(...)`. An attribute is what was given
for the argument of its name, until the program sets it. What is set when a trainer starts counts, and not what the
object was made with, nor what is set behind the training.
"""

from __future__ import annotations

from msgspec.structs import replace

from preflight.python.config_objects import config_child
from preflight.python.objects import (
    CHANGED,
    Abstract,
    CallRecord,
    ClassValue,
    Config,
    Instance,
    Key,
    to_expr,
)
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_KINDS = ("Arguments", "Config")
"""The ends of the names of classes whose attributes are their arguments."""
DEFAULT = Const(Unknown("it has the default of the library", Cause.not_set))
"""An argument that was not given, where the program sets the attribute in one of two branches."""
SEVERAL = Const(Unknown("the program trains several times, with different values", Cause.not_modelled))
_AT_TRAINING = "at training"
"""The key of an object's state for its values at each start of a training."""
_TRAINER = "Trainer"
_ARGUMENTS = "args", 1
"""Of a trainer of transformers or TRL: name and position, and the name of the attribute."""


def holds_settings(value: Abstract) -> bool:
    """Whether the attributes of an object are what it was made with."""
    return (
        isinstance(value, Instance)
        and value.cls is None
        and value.record is not None
        and value.made_by.endswith(_KINDS)
        and value.made_by.rpartition(".")[2] == value.record.method
    )


def library_object(record: CallRecord) -> Instance:
    """What a call of a library returns."""
    made = Instance(record.qualified, record=record, origin=record.origin)
    if holds_settings(made):
        made.attributes.update(record.keywords)
    return made


def before(holder: Instance, name: Key) -> Abstract | None:
    """The value of an attribute that was not set so far: of the command line, or the library's; None: there is none."""
    config = holder.state.get("config")
    if isinstance(config, Config):
        return config_child(config, name)
    return DEFAULT if holds_settings(holder) else None


def arguments_of(trainer: Instance, name: Key) -> Abstract | None:
    """`trainer.args`: the object that the trainer was made with."""
    record = trainer.record
    if name != _ARGUMENTS[0] or record is None or not _is_trainer(trainer):
        return None
    return record.object(*_ARGUMENTS) if trainer.cls is None else record.object(_ARGUMENTS[0])


def _is_trainer(value: Instance) -> bool:
    bases = value.cls.external_bases if isinstance(value.cls, ClassValue) else (value.made_by,)
    return any(base.endswith(_TRAINER) for base in bases)


def note_training(record: CallRecord) -> None:
    """`trainer.train()`: keeps what the trainer's arguments are at this moment."""
    trainer = record.receiver_object
    held = arguments_of(trainer, _ARGUMENTS[0]) if isinstance(trainer, Instance) and record.method == "train" else None
    if isinstance(held, (Config, Instance)):
        seen = held.state.setdefault(_AT_TRAINING, [])
        assert isinstance(seen, list)
        seen.append(_values(held))


def as_written(record: CallRecord) -> CallRecord:
    """A call that made an object of settings, with what the program set in the object as its arguments."""
    holder = record.value
    if not _is_made_by(holder, record):
        return record
    assert isinstance(holder, (Config, Instance))
    seen = holder.state.get(_AT_TRAINING)
    written = _joined(seen) if isinstance(seen, list) else _values(holder)
    given = record.keywords
    new = {key: value for key, value in written.items() if isinstance(key, str) and given.get(key) is not value}
    open_ = isinstance(holder, Instance) and CHANGED in holder.state
    if not new and not open_:
        return record
    return replace(
        record,
        kwargs={**record.kwargs, **{key: to_expr(value) for key, value in new.items()}},
        keywords={**given, **new},
        complete=record.complete and not open_,
        more=record.more or open_,
    )


def _is_made_by(holder: Abstract | None, record: CallRecord) -> bool:
    """Whether a call made an object of settings, or the parser that the call stands for. Others hand one on."""
    if isinstance(holder, Config):
        return holder.kind == "dataclass" and record.method.endswith(_KINDS)
    if not isinstance(holder, Instance):
        return False
    if holder.cls is not None:
        parsed = "config" in holder.state and record.name in holder.cls.external_bases
        made = holder.record is not None and holder.record.node is record.node
        return parsed or (made and any(base.endswith(_KINDS) for base in holder.cls.external_bases))
    return holds_settings(holder) and holder.record is not None and holder.record.node is record.node


def _values(holder: Config | Instance) -> dict[Key, Abstract]:
    """What the program has set, without what the command line gives."""
    config = holder if isinstance(holder, Config) else holder.state.get("config")
    found = dict(config.known) if isinstance(config, Config) else {}
    found |= holder.attributes if isinstance(holder, Instance) else {}
    return {key: value for key, value in found.items() if not _is_parameter(value, key)}


def _joined(seen: list[dict[Key, Abstract]]) -> dict[Key, Abstract]:
    """What each training had, where all had the same."""
    return {
        key: value if all(key in one and to_expr(one[key]) == to_expr(value) for one in seen) else SEVERAL
        for values in seen
        for key, value in values.items()
    }


def _is_parameter(value: Abstract, key: Key) -> bool:
    """Whether it is what the command line gives."""
    return isinstance(value, Config) and value.prefix == key and not value.known


def with_default(expr: Expr, default: Expr | None) -> Expr:
    """The expression of an argument, with the library's default where the program sets nothing."""
    if expr is DEFAULT:
        return default if default is not None else expr
    if isinstance(expr, Op):
        return replace(expr, operands=tuple(with_default(one, default) for one in expr.operands))
    return expr


def made_anew(value: Instance, record: CallRecord, attributes: dict[Key, Abstract]) -> Instance:
    """`dataclasses.replace(args, ...)`: another object, made where the call stands."""
    assert value.record is not None
    keywords = {key: one for key, one in attributes.items() if isinstance(key, str)}
    made = replace(
        value.record,
        kwargs={key: to_expr(one) for key, one in keywords.items()},
        keywords=keywords,
        keyword_origins={**value.record.keyword_origins, **record.keyword_origins},
        node=record.node,
        origin=record.origin,
        conditions=record.conditions,
        complete=value.record.complete and record.complete,
        more=value.record.more or record.more,
    )
    made.value = Instance(value.made_by, None, dict(attributes), made, record.origin, dict(value.state))
    return made.value
