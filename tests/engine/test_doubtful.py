"""A length that only a name suggests is not used where the model has fewer positions."""

from __future__ import annotations

import pytest

from preflight.engine.standings import without_doubtful_lengths
from preflight.vocabulary.study import Bound, Box, Study
from preflight.vocabulary.values import Const, Unknown, Value, evaluate


def _length(setting: str, length: int, **model: Value) -> object:
    fields = {f"model.{name}": Bound(f"model.{name}", Const(value)) for name, value in model.items()}
    fields["train.seq_len"] = Bound("train.seq_len", Const(length), setting=setting)
    (box,) = without_doubtful_lengths(Study(("train.py",), ("program",), (Box(fields),))).boxes
    return evaluate(box.fields["train.seq_len"].expr)


@pytest.mark.parametrize(
    ("setting", "length", "name"),
    [
        ("", 4096, "bert-base-uncased"),  # the program reads it
        ("max_length", 512, "bert-base-uncased"),
        ("max_length", 4096, "t5-small"),  # relative positions
        ("max_length", 4096, "someone/unknown"),
    ],
)
def test_a_length_that_the_model_may_have_is_kept(setting: str, length: int, name: str) -> None:
    assert _length(setting, length, name=name) == length


def test_a_length_by_name_beyond_the_positions_is_unknown() -> None:
    found = _length("max_length", 4096, name="bert-base-uncased")
    assert isinstance(found, Unknown)
    assert "max_length" in found.words
    assert "512 positions" in found.words
