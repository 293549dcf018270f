"""Objects of a library that hold settings: `TrainingArguments(...)`, `LoraConfig(...)`. An attribute is what was given
for the argument of its name, until the program sets it. What is set counts, and not what the object was made with.
"""

from __future__ import annotations

from dataclasses import replace

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
        return config.known.get(name) or Config(f"{config.prefix}.{name}".lstrip("."), config.kind, {}, config.origin)
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


def as_written(record: CallRecord) -> CallRecord:
    """A call that made an object of settings, with what the program set in the object as its arguments."""
    holder = record.value
    if isinstance(holder, Config):
        written = {key: value for key, value in holder.known.items() if not _is_parameter(value, key)}
    elif isinstance(holder, Instance) and (holds_settings(holder) or "config" in holder.state):
        own = {**_known(holder), **holder.attributes}
        written = {key: value for key, value in own.items() if not _is_parameter(value, key)}
    else:
        return record
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


def _known(holder: Instance) -> dict[Key, Abstract]:
    config = holder.state.get("config")
    return dict(config.known) if isinstance(config, Config) else {}


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
