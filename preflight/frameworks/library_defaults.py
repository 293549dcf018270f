"""Arguments of transformers' Trainer and of TRL's, by name: the given value, else the library's default."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from preflight.program.arguments import Arguments
from preflight.program.bindings import constant, first_origin, fold
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.values import Const, Expr, Op, Scalar

NO = Const(False)
FP32 = Const("fp32")


class Use(Struct, frozen=True):
    """How a Trainer uses its arguments: when its evaluation keeps logits, and whether it always evaluates."""

    evaluates: bool = False
    compute_metrics: Expr = NO
    reduces_logits: bool = False
    """preprocess_logits_for_metrics is given: its result (usually an argmax) is kept, not the logits."""
    peft: Expr = NO
    """Whether the trainer trains adapters."""
    reference: Expr = NO
    """Whether the program passes a reference model."""
    base: Expr = FP32
    """Precision when neither bf16 nor fp16 is asked for: the weights' own."""
    task: str | None = None
    """The task of the model, if known: only language models have logits to save."""


ANY = Use()
"""A Trainer of which nothing else is known."""


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """The shipped data on transformers and TRL."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("transformers.json").read_bytes())
    return loaded


_Entries = Mapping[str, "list[tuple[str, str, bool, Scalar]]"]
"""Argument -> [since release, type, may be None, default], ..., as scripts/make_defaults.py writes them."""


class Argument(Struct, frozen=True):
    """An argument of a library's class: the type of its flag (int, float, bool, str), and its default."""

    kind: str
    default: Scalar


@lru_cache(maxsize=256)
def arguments_at(flavour: str, version: str | None, trl: str | None = None) -> Mapping[str, Argument]:
    """The arguments that decide memory of transformers' class, and of TRL's for other flavours, in these releases."""
    found = _at(table()["transformers"]["transformers"], version)
    if flavour == "transformers":
        return found
    own = table()["trl"].get(flavour, table()["trl"]["sft"])
    return (_gone(own) if trl is None else {}) | found | _at(own, trl)


Used = frozenset[tuple[str, str]]
"""(class, argument) of calls of a program: each is a sign of the releases that take it."""


class InUse(Struct, frozen=True):
    """Releases that may be in use, the oldest first: the one that is stated, else those that take what is given."""

    transformers: tuple[str, ...]
    trl: tuple[str, ...]

    def told(self, library: str) -> str | None:
        """The stated release, or the newest that may be in use; None if that is the newest of all."""
        may = self.transformers if library == "transformers" else self.trl
        return may[-1] if len(may) == 1 or may[-1] != table()["releases"][library][-1] else None


@lru_cache(maxsize=256)
def in_use(transformers: str | None = None, trl: str | None = None, used: Used = frozenset()) -> InUse:
    """The releases that may be in use; a release of TRL needs some release of transformers."""
    first = (transformers,) if transformers is not None else _taking("transformers", used)
    second = (trl,) if trl is not None else _taking("trl", used)
    needs: Mapping[str, str] = table()["needs"]
    if trl is None:
        newest = release(first[-1]) or NEWEST
        second = tuple(one for one in second if (release(needs[one]) or ()) <= newest) or second
    if transformers is None and len(second) < len(needs):  # something says that TRL is in use
        oldest = release(_needed(second[0])) or ()
        first = tuple(one for one in first if (release(one) or NEWEST) >= oldest) or first
    return InUse(first, second)


def _needed(trl: str) -> str:
    """The oldest transformers that a release of TRL needs; of one that was not read, what the one before needs."""
    stated = release(trl) or NEWEST
    needs: Mapping[str, str] = table()["needs"]
    before = [needed for one, needed in needs.items() if (release(one) or NEWEST) <= stated]
    return before[-1] if before else "0"


def _taking(library: str, used: Used) -> tuple[str, ...]:
    """The releases that were read and take every argument that is used; all of them if none does."""
    every: list[str] = table()["releases"][library]
    spans = [each for name, argument in used if (each := _spans(library, name, argument))]
    bounds = [argument for name, argument in used if name == library]
    within = [one for one in every if all(_within(one, each) for each in bounds)] or every[-1:]
    return tuple([one for one in within if all(_takes(one, each) for each in spans)] or within)


def _within(number: str, bounds: str) -> bool:
    """Whether a release is between the bounds of a requirement: `>=0.24,<1`, `~=4.40.1`, poetry's `^4.28`."""
    this = release(number) or NEWEST
    for sign, text_ in re.findall(r"([<>]=?|~=|\^)\s*([\d.]*\d)", bounds):
        bound = release(text_) or ()
        kept = (2 if bound[:1] == (0,) else 1) if sign == "^" else text_.count(".")  # numbers that stay as they are
        if sign.startswith("<"):
            holds = this < bound or (sign == "<=" and this == bound)
        else:
            holds = this >= bound and (sign != ">" or this > bound)
        if not holds or (sign in ("~=", "^") and this[:kept] != bound[:kept]):
            return False
    return True


def _spans(library: str, name: str, argument: str) -> list[tuple[str, str]]:
    """When a class of the library took an argument; empty if always, or if nobody knows. What the oldest release that
    was read takes, those before it are taken to take as well."""
    if (name in _OF_TRANSFORMERS) != (library == "transformers"):
        return []
    spans: list[tuple[str, str]] = table()["taken"].get(_OF_TRANSFORMERS.get(name, name), {}).get(argument, [])
    oldest = table()["releases"][library][0]
    return [("0" if first == oldest else first, last) for first, last in spans]


_OF_TRANSFORMERS = {
    "TrainingArguments": "Seq2SeqTrainingArguments",
    "Seq2SeqTrainingArguments": "Seq2SeqTrainingArguments",
    "Trainer": "Trainer",
    "Seq2SeqTrainer": "Seq2SeqTrainer",
}
"""Classes of transformers, each with its name in the table; all others are TRL's."""


def older_names(flavour: str, may: InUse) -> dict[str, str]:
    """Older names of arguments that a release in use may still take, each with the name that the table uses."""
    classes = {"transformers": "TrainingArguments", **_CLASSES}
    found: dict[str, str] = {}
    for old, new in table()["renamed"].items():
        for library, numbers in (("transformers", may.transformers), ("trl", may.trl)):
            name = classes["transformers" if library == "transformers" else flavour]
            spans = _spans(library, name, old)
            if spans and any(_takes(one, spans) for one in numbers):
                found[old] = new
    return found


_CLASSES = {
    "sft": "SFTConfig", "dpo": "DPOConfig", "grpo": "GRPOConfig", "reward": "RewardConfig", "kto": "KTOConfig",
    "orpo": "ORPOConfig", "cpo": "CPOConfig", "rloo": "RLOOConfig", "ppo": "PPOConfig",
}  # fmt: skip
"""Flavour -> TRL's class of arguments."""


def _takes(number: str, spans: Sequence[tuple[str, str]]) -> bool:
    this = release(number) or NEWEST
    return any((release(first) or ()) <= this <= (release(last) or NEWEST) for first, last in spans)


def differing(library: str, flavour: str, candidates: Sequence[str]) -> tuple[str, ...]:
    """Of some releases, the first and those from which on a default of the library's class is another one."""
    entries: _Entries = table()[library].get(flavour, {})
    since = {release(one) or () for changes in entries.values() for one, *_ in changes}
    found: list[str] = []
    before: tuple[int, ...] | None = None
    for one in candidates:
        number = release(one) or NEWEST
        if before is None or any(before < each <= number for each in since):
            found.append(one)
        before = number
    return tuple(found)


@lru_cache(maxsize=64)
def model_config_at(trl: str | None = None) -> Mapping[str, Argument]:
    """The arguments of trl.ModelConfig that decide memory."""
    return _at(table()["trl"]["model"], trl)


def _at(entries: _Entries, version: str | None) -> dict[str, Argument]:
    """Each argument's last entry up to a release, without arguments that were removed by then."""
    found: dict[str, Argument] = {}
    stated = release(version) or NEWEST
    for name, changes in entries.items():
        for since, kind, _, default in changes:
            if (release(since) or NEWEST) <= stated:
                found[name] = Argument(kind, default)
    return {name: argument for name, argument in found.items() if argument.kind}


def _gone(entries: _Entries) -> dict[str, Argument]:
    """Arguments that only older releases have; such a release may be in use if none is stated."""
    return {name: Argument(changes[-2][1], None) for name, changes in entries.items() if not changes[-1][1]}


def library_arguments(
    values: Mapping[str, Expr], flavour: str, version: str | None, trl: str | None = None
) -> Arguments:
    """Arguments that were given, with the defaults of the releases."""
    renamed: dict[str, str] = table()["renamed"]
    given = {renamed.get(name, name): expr for name, expr in values.items()}
    return Arguments(given, _defaults_at(flavour, version, trl), rank=None)


@lru_cache(maxsize=256)
def _defaults_at(flavour: str, version: str | None, trl: str | None) -> Mapping[str, Scalar]:
    return {name: argument.default for name, argument in arguments_at(flavour, version, trl).items()}


def truth(expr: Expr) -> Expr:
    """None counts as False."""
    return expr if isinstance(constant(expr), bool) else fold(Op("bool", (expr,)), first_origin(expr))


def reentrant(expr: Expr) -> Expr:
    """`use_reentrant` of the arguments of gradient checkpointing."""
    given = constant(expr)
    known = given.get("use_reentrant") if isinstance(given, Mapping) else None
    return Const(known if isinstance(known, bool) else None, first_origin(expr))


def shrinks_itself(values: Mapping[str, Expr]) -> Expr | None:
    """`auto_find_batch_size`: the Trainer halves the batch when memory runs out; None if it is not switched on."""
    expr = values.get("auto_find_batch_size")
    return expr if expr is not None and constant(expr) is True else None
