"""Which objects of training arguments train: those that a Trainer is made with. A program may make others, and a module
that it imports for one constant too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from preflight.frameworks.library_defaults import NO, table
from preflight.frameworks.transformers_trainer import ARGUMENT_CLASSES, from_command_line, parameters
from preflight.program.bindings import constant, first_origin, is_constant, same, when
from preflight.program.loops import backwards
from preflight.python.objects import Abstract, CallRecord, ClassValue, Either, Instance, alternatives, to_expr
from preflight.python.settings_objects import as_written, with_default
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Ref, Unknown

_POSITION = 1
"""Of `args` in transformers' and TRL's trainers: `Trainer(model, args)`."""


ARGUMENT_PACKAGES = ("transformers", "trl", "sentence_transformers")


def as_used(record: CallRecord) -> CallRecord:
    """The call that made an object of settings, with what the program set in the object until it trains. A class of the
    project that extends training arguments stands for the library's."""
    written = as_written(record)
    base = _extended(record)
    if base is not None:
        written = replace(written, name=base, method=base.rpartition(".")[2], callee=None)
    if written is record or written.method not in ARGUMENT_CLASSES:
        return written
    known = {one.name: one.default for one in parameters(ARGUMENT_CLASSES[written.method])}
    return replace(written, kwargs={key: with_default(one, known.get(key)) for key, one in written.kwargs.items()})


def _extended(record: CallRecord) -> str | None:
    """The class of training arguments that a class of the project extends, where the call makes one."""
    bases = record.callee.external_bases if isinstance(record.callee, ClassValue) else ()
    known = (one for one in bases if one.startswith(ARGUMENT_PACKAGES))
    return next((one for one in known if one.rpartition(".")[2] in ARGUMENT_CLASSES), None)


def used(made: Sequence[CallRecord], trainers: Sequence[CallRecord], calls: Sequence[CallRecord]) -> list[CallRecord]:
    """The arguments' objects that the program's trainers take; all of them if that cannot be followed."""
    if not any(record.method.endswith("Trainer") for record in calls) and backwards(calls):
        return []  # its own loop trains, and reads of such an object what it needs
    taken = [_taken(record, made) for record in trainers]
    if not taken or not all(taken):
        return list(made)
    return [record for record in made if any(record is one for some in taken for one in some)]


def _taken(trainer: CallRecord, made: Sequence[CallRecord]) -> list[CallRecord]:
    """The calls that made the arguments of one Trainer; empty if one of them is not known."""
    given = trainer.object("args", _POSITION)
    found: list[CallRecord] = []
    for one in alternatives(given) if given is not None else ():
        maker = one.record if isinstance(one, Instance) else None
        same_place = [each for each in made if maker is not None and each.node is maker.node]
        if not same_place:
            return []
        # a function that is called twice makes two: `made` may hold copies of the calls, with more arguments
        found += [each for each in same_place if maker is not None and each.args == maker.args] or same_place
    return found


def takes(trainer: CallRecord, made: CallRecord) -> bool:
    """Whether a Trainer is made with these arguments, as far as that can be followed."""
    return any(one is made for one in _taken(trainer, [made]))


_FLAVOURS = {
    "SFTTrainer": "sft", "DPOTrainer": "dpo", "GRPOTrainer": "grpo", "RewardTrainer": "reward", "KTOTrainer": "kto",
    "ORPOTrainer": "orpo", "CPOTrainer": "cpo", "RLOOTrainer": "rloo",
}  # fmt: skip
_WITH_PLAIN_ARGUMENTS = "0.12.2"
"""The last release of TRL whose trainers take transformers' TrainingArguments and the rest as keywords of their own. A
newer one makes its own configuration of them, in which their defaults of precision and checkpointing stay."""


def _flavour(trainer: CallRecord) -> str | None:
    """Which of TRL's trainers a call makes, or a class of the project that is one."""
    callee = trainer.callee
    names = callee.external_bases if isinstance(callee, ClassValue) else (trainer.method,)
    return next((_FLAVOURS[one] for each in names if (one := each.rpartition(".")[2]) in _FLAVOURS), None)


def flavour_of(made: CallRecord, trainers: Sequence[CallRecord], trl: str | None) -> tuple[str, str | None]:
    """The flavour of an object of arguments, and the release of TRL whose defaults it has: transformers' own arguments
    may be given to a trainer of TRL."""
    flavour = ARGUMENT_CLASSES[made.method]
    theirs = next((found for one in trainers if (found := _flavour(one)) is not None), None)
    return (theirs, _WITH_PLAIN_ARGUMENTS) if flavour == "transformers" and theirs is not None else (flavour, trl)


def passed(trainers: Sequence[CallRecord], flavour: str) -> dict[str, Expr]:
    """Arguments of the configuration that older releases of TRL take as keywords of the trainer."""
    known = set(table()["trl"].get(flavour, ())) | set(table()["renamed"])
    own = [one for one in trainers if _flavour(one) is not None]
    return {
        name: expr for one in own for name, expr in one.kwargs.items() if name in known and constant(expr) is not None
    }


def trains_adapters(trainers: Sequence[CallRecord], calls: Sequence[CallRecord]) -> Expr:
    """Whether the trainers train adapters: `peft_config=`, or a model that peft has wrapped."""
    wrapped = next((one for one in calls if _wraps(one)), None)
    if wrapped is not None:
        return Const(True, wrapped.origin)
    given = [one for one in trainers if "peft_config" in one.kwargs]
    return _is_given(given[0], "peft_config") if given else NO


def passed_reference(trainers: Sequence[CallRecord]) -> Expr:
    """Whether the program passes a reference model in any case. One that it passes under a condition is passed where
    there are no adapters, and there the trainer would make one."""
    for record in trainers:
        given = record.object("ref_model", 1) if _flavour(record) in ("dpo", "kto") else None
        if given is not None and all(isinstance(one, Instance) for one in alternatives(given)):
            return Const(True, first_origin(record.argument("ref_model", 1)) or record.origin)
    return NO


def _wraps(record: CallRecord) -> bool:
    """`get_peft_model(model, config)`, `PeftModel.from_pretrained(model, path)`."""
    if record.method == "get_peft_model":
        return True
    return record.method == "from_pretrained" and record.name.startswith(("peft.PeftModel", "peft.AutoPeftModel"))


def _is_given(record: CallRecord, name: str) -> Expr:
    """Whether an argument is something other than None: yes, no, or what decides it."""
    given, expr = record.object(name), record.argument(name)
    place = first_origin(expr) or record.origin
    made = list(alternatives(given)) if given is not None else []
    if made and all(isinstance(one, Instance) for one in made):
        maker = made[0].record if isinstance(made[0], Instance) else None
        if maker is not None and maker.method == "get_peft_config":  # TRL's: None unless `use_peft`
            return _use_peft(maker)
        return Const(True, place)
    if expr is not None and is_constant(expr):
        return Const(constant(expr) is not None, place)
    if isinstance(given, Either):
        return when(to_expr(given.condition), _something(given.then), _something(given.otherwise))
    return Const(Unknown(f"whether {name} is None is not known", Cause.run_time), place)


def _something(value: Abstract) -> Expr:
    if isinstance(value, Instance):
        return Const(True)
    expr = to_expr(value)
    return Const(constant(expr) is not None) if is_constant(expr) else expr


def _use_peft(maker: CallRecord) -> Expr:
    """`get_peft_config(model_args)`: adapters are made if `ModelConfig(use_peft=True)`, or `--use_peft`, says so."""
    given = maker.object("model_args", 0)
    made = given.record if isinstance(given, Instance) else None
    if made is not None and made.method == "ModelConfig" and not from_command_line(made):
        return made.kwargs.get("use_peft", Const(False, made.origin))
    return Ref("use_peft", maker.origin)


def beside_each_other(made: Sequence[CallRecord], groups: Sequence[Sequence[Binding]]) -> list[Binding]:
    """The bindings of each object. If it trains with one after the other, what they say differently is unknown.

    Objects that a condition chooses between, or that are made on the command line, are one and the same training.
    """
    branches = any(isinstance(constant(condition), Unknown) for record in made for condition in record.conditions)
    if len(groups) < 2 or branches or any(from_command_line(record) for record in made):
        return [one for group in groups for one in group]
    fields = dict.fromkeys(one.field for group in groups for one in group)
    return [each for field in fields for each in _joined([_of(field, group) for group in groups])]


def _of(field: str, group: Iterable[Binding]) -> list[Binding]:
    return [one for one in group if one.field == field]


def _joined(groups: Sequence[list[Binding]]) -> list[Binding]:
    first = groups[0]
    if all(len(group) == len(first) and all(map(_alike, group, first)) for group in groups):
        return first
    words = "the program trains several times, with different values"
    one = next(group[-1] for group in groups if group)
    return [replace(one, expr=Const(Unknown(words, Cause.not_modelled), one.origin), rank=Rank.read)]


def _alike(left: Binding, right: Binding) -> bool:
    return left.rank == right.rank and same(left.expr, right.expr)
