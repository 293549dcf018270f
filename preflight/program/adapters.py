"""peft's adapters other than LoRA -> train.peft.*. They are unknown where the text does not say which are made.

An adapter that is left out is an estimate of full fine-tuning. The name of the method is always passed on; whether it
is modelled is decided by whoever estimates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.program.bindings import bind, constant, under
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Unknown

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
    return found


def adapts(records: Sequence[CallRecord]) -> bool:
    """Whether the program makes adapters, LoRA included. They freeze the model that they adapt."""
    return any(_is_configuration(record) or _applies(record) for record in records)


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
