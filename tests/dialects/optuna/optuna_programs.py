"""What tests of Optuna's studies share: the program that they tune, and what a reading comes to."""

from __future__ import annotations

from collections.abc import Callable

from preflight.vocabulary.reading import Reading
from preflight.vocabulary.values import Choices, Range

Read = Callable[..., Reading]


TRAIN = """
import optuna
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification


def train(name, batch_size, length=128):
    model = AutoModelForSequenceClassification.from_pretrained(name).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in DataLoader([], batch_size=batch_size):
        model(**batch).loss.backward()
        optimizer.step()
"""


def plain(domain: object) -> object:
    if isinstance(domain, Choices):
        return Choices(domain.values)
    if isinstance(domain, Range):
        return Range(domain.low, domain.high, domain.step, domain.integer, domain.log)
    return domain


def field(reading: Reading, name: str) -> object:
    return [binding.expr for binding in reading.bindings if binding.field == name][-1]


def facts(reading: Reading) -> dict[str, object]:
    return {fact.name: fact.value for fact in reading.facts}
