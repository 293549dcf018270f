"""Calls of code that was not read and that gets the model, or its trainer: they may change how it trains, by any means.

`model = some_lib.prepare(model)` may switch checkpointing on, make adapters, cast or freeze. Nothing says that it does,
so the defaults of these fields hold no longer: they are assumed (the fact `changed_by`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from preflight.program.call_site import is_evaluation, is_module, words
from preflight.program.checkpoints import makes_model
from preflight.program.trained import Trained, trained
from preflight.python.objects import CallRecord, ClassValue, FunctionValue, Instance, alternatives
from preflight.vocabulary.reading import Fact

FACT = "changed_by"


def changed_by_facts(records: Sequence[CallRecord]) -> list[Fact]:
    """The first call that may change how the model trains, as a fact."""
    objects = trained(records)
    for record in records:
        if not record.reached or not may_change(record):
            continue
        what = "the model" if gets_model(record, objects) else "the trainer" if _gets_trainer(record, objects) else ""
        if what:
            return [Fact(FACT, f"{record.name}() gets {what} and was not read", record.origin)]
    return []


def is_unread(record: CallRecord) -> bool:
    """Whether the callee is in no package that is known, and no function of the project that was followed."""
    followed = isinstance(record.callee, (FunctionValue, ClassValue))
    made_by = record.receiver or record.name
    return not followed and made_by.partition(".")[0] not in _known()[0]


def may_change(record: CallRecord) -> bool:
    """Whether a call is not read, and its name does not say that it only looks at what it gets, or runs it."""
    if not is_unread(record) or is_evaluation(record.method):
        return False
    said, (_, harmless, changes) = words(record.method), _known()
    return bool(said & changes) or not (said & harmless or record.method in ("__call__", "append", "add", "update"))


def gets_model(record: CallRecord, objects: Trained) -> bool:
    """Whether an argument of a call is a model that the program trains."""
    return any(_is_model(one, objects) for one in _given(record))


def _gets_trainer(record: CallRecord, objects: Trained) -> bool:
    """Whether an argument of a call is a `Trainer` that has the model: its arguments can be changed until it trains."""
    made = (one.record for one in _given(record) if one.made_by.endswith("Trainer"))
    return any(maker is not None and gets_model(maker, objects) for maker in made)


def _given(record: CallRecord) -> Iterator[Instance]:
    given = (one for value in (*record.arguments, *record.keywords.values()) for one in alternatives(value))
    return (one for one in given if isinstance(one, Instance))


def _is_model(value: Instance, objects: Trained) -> bool:
    if any(value is one for one in objects.objects):
        return True
    made = is_module(value.cls) or (value.record is not None and makes_model(value.record))
    return made and (not objects.objects or objects.has(value))


@lru_cache(maxsize=1)
def _known() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Packages, words of functions that change nothing, and words of functions that do."""
    table = json.loads((Path(__file__).parent / "unread_calls.json").read_text(encoding="utf-8"))
    return frozenset(table["packages"]), frozenset(table["words"]), frozenset(table["changes"])
