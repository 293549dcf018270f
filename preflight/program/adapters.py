"""peft's adapters other than LoRA -> train.peft.*. They are unknown where the text does not say which are made.

An adapter that is left out is an estimate of full fine-tuning. The name of the method is always passed on; whether it
is modelled is decided by whoever estimates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from preflight.program.bindings import bind, constant, either, same, under
from preflight.program.call_site import words
from preflight.program.checkpoints import makes_model
from preflight.program.trained import trained
from preflight.program.unread_calls import is_unread
from preflight.python.objects import Abstract, CallRecord, Either, Instance, alternatives
from preflight.vocabulary.budgets import CHOOSING
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_NO_METHOD = frozenset({"Peft", "PromptLearning", "LoftQ", "Eva", "Corda", "LoraRuntime", "LoraGA", "Arrow", "Bd"})
"""Configurations of peft that are a base class, or a part of LoRA's."""
_METHODS = {
    "LNTuning": "ln-tuning", "PromptTuning": "prompt-tuning", "PrefixTuning": "prefix-tuning",
    "PromptEncoder": "p-tuning", "AdaptionPrompt": "llama-adapter", "TrainableTokens": "trainable-tokens",
    "XLora": "x-lora", "MultitaskPromptTuning": "multitask-prompt-tuning",
}  # fmt: skip
"""Class without "Config" -> peft's name of the method, where that is not the class's in lower case (PeftType)."""
_SHAPES = ("r", "target_modules", "task_type")


def adapter_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """Bindings of every adapter but LoRA, whose rows are in calls.toml."""
    found = [b for record in records for b in under(record.conditions, _bindings(record))]
    if not found and not any(_is_configuration(record) for record in records):
        for record in records:
            if _applies(record):
                reason = Unknown("which adapters are made is not known", Cause.not_read)
                found += under(record.conditions, [bind("train.peft.method", Const(reason, record.origin))])
    if not found and not adapting(records):
        found += unread_wrappers(records)
    return found


_ADAPTING = frozenset({
    "lora", "adapter", "adapters", "peft", "inject", "wrap", "freeze", "quantize", "prune", "prefix", "prompt", "dora",
})  # fmt: skip
"""Words in the names of functions that change a model in place, so that less of it is trained."""


def unread_wrappers(records: Sequence[CallRecord]) -> Iterator[Binding]:
    """train.peft.method is unknown if code that was not read gets the model and returns what is trained, or changes it
    by its name: it may train a small part."""
    objects = trained(records)
    wrapping = [one.record for one in objects.objects if one.cls is None and one.record is not None]
    for record in records:
        changes = bool(words(record.method) & _ADAPTING) and record.value is not None
        if not (record in wrapping or changes) or not is_unread(record):
            continue
        given = [
            one
            for value in (*record.arguments, *record.keywords.values())
            for one in alternatives(value)
            if isinstance(one, Instance)
        ]
        if any(one.record is not None and makes_model(one.record) for one in given):
            why = f"{record.name}() gets the model and was not read: it may train a small part of it"
            unknown = bind("train.peft.method", Const(Unknown(why, Cause.not_read), record.origin))
            yield from under(record.conditions, [unknown])


def adapting(records: Sequence[CallRecord]) -> list[CallRecord]:
    """The calls that make adapters, LoRA included, or else their configurations. Adapters freeze what they adapt."""
    return [one for one in records if _applies(one)] or [one for one in records if _is_configuration(one)]


def applied(records: Sequence[CallRecord]) -> list[CallRecord]:
    """The calls, with the configurations of adapters as they are used: under the conditions of the calls that take
    them, and without those that no call takes while others are taken.

    A configuration that is made changes nothing: `config = LoraConfig(...)` before `if args.lora: get_peft_model(...)`.
    """
    made = [record for record in records if _is_configuration(record)]
    if not made:
        return list(records)
    uses: dict[int, list[tuple[Expr, ...]]] = {id(record): [] for record in made}
    for record in records:
        for value in (*record.arguments, *record.keywords.values()):
            for conditions, one in _ways(value):
                if isinstance(one, Instance) and id(one.record) in uses:
                    uses[id(one.record)].append((*record.conditions, *conditions))
    taken = any(uses.values())
    elsewhere = [record.conditions for record in records if _applies(record)]
    found = []
    for record in records:
        ways = uses.get(id(record))
        if ways is None:
            found.append(record)
        elif ways or not taken:
            found.append(_where(record, ways or elsewhere))
    return found


def _ways(value: Abstract, conditions: tuple[Expr, ...] = ()) -> Iterator[tuple[tuple[Expr, ...], Abstract]]:
    """The objects that a value may be, each with the conditions that choose it."""
    if isinstance(value, Either) and len(conditions) < CHOOSING:
        yield from _ways(value.then, (*conditions, value.condition))
        yield from _ways(value.otherwise, (*conditions, Op("not", (value.condition,))))
    else:
        yield conditions, value


def _where(record: CallRecord, ways: Sequence[tuple[Expr, ...]]) -> CallRecord:
    """A call under the conditions of its uses: those that all share, and one of those that are left of each."""
    own = [[one for one in way if not _among(one, record.conditions)] for way in ways]
    if not own or not all(own):
        return record
    shared = [one for one in own[0] if all(_among(one, way) for way in own[1:])]
    rest = [[one for one in way if not _among(one, shared)] for way in own]
    some = [either(*(one[0] if len(one) == 1 else Op("and", tuple(one)) for one in rest))] if all(rest) else []
    return replace(record, conditions=(*record.conditions, *shared, *some))


def _among(condition: Expr, conditions: Sequence[Expr]) -> bool:
    return any(same(condition, one) for one in conditions)


def _is_configuration(record: CallRecord) -> bool:
    return record.method.endswith("Config") and record.name.startswith(("peft.", "unsloth"))


def _bindings(record: CallRecord) -> Iterator[Binding]:
    kind = record.method.removesuffix("Config")
    if not _is_configuration(record) or kind in _NO_METHOD or kind == "Lora":
        return
    yield bind("train.peft.method", Const(_METHODS.get(kind, kind.lower()), record.origin), None, record.origin)
    for field, name in (("train.peft.r", "r"), ("train.peft.targets", "target_modules")):
        expr = record.argument(name)
        if expr is not None and constant(expr) is not None:
            yield bind(field, expr)
    options = {name: constant(expr) for name, expr in record.kwargs.items() if name not in _SHAPES}
    plain = {name: value for name, value in options.items() if isinstance(value, (bool, int, float, str))}
    if plain:
        yield Binding("train.peft.options", Const(plain), Rank.literal, record.origin)


def _applies(record: CallRecord) -> bool:
    """`get_peft_model(model, config)`, `PeftModel.from_pretrained(model, path)`: adapters are made, or loaded."""
    if record.method == "get_peft_model":
        return record.name.startswith("peft.")
    loads = record.method == "from_pretrained" and record.name.startswith("peft.PeftModel")
    return loads or (record.name.startswith("peft.AutoPeftModel") and record.method == "from_pretrained")
