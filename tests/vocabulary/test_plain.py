"""Plain values: whatever is taken without pydantic's validator is what pydantic makes of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from preflight.dialects.wandb.schema import Sweep
from preflight.vocabulary.job import Job, build, identity
from preflight.vocabulary.plain import assign, plain


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    count: Annotated[int, Field(ge=1)] | None = None
    share: float = 0.5


def _doubled(value: object) -> object:
    if value == "no":
        raise ValueError("no")
    return value * 2 if isinstance(value, int) else value


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    kind: Literal["a", "b", 1] | None = None
    inner: Inner = Inner()
    inners: list[Inner] = []
    table: dict[str, int] = {}
    anything: Any = None
    some: Annotated[list[int] | str, Field(min_length=2)] = "xx"
    flag: bool | None = False
    twice: Annotated[int, BeforeValidator(_doubled)] = 0
    long: Annotated[int | None, Field(alias="long-name")] = None


VALUES: st.SearchStrategy[object] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats()
    | st.sampled_from(["", "a", "no", "xx", "1", "\u00e9", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["count", "share", "name", "other"]), inner, max_size=3)
        | st.lists(inner, max_size=2).map(tuple)
    ),
    max_leaves=5,
)
KEYS = st.sampled_from([*Outer.model_fields, "long-name", "other"])


@given(st.dictionaries(KEYS, VALUES, max_size=5).map(lambda found: {"name": "n", **found}))
def test_what_is_taken_is_what_pydantic_makes(values: dict[str, object]) -> None:
    found = plain(Outer, values)
    if found is not None:
        for strict in (False, True):
            made = Outer.model_validate(values, strict=strict)
            assert repr(found) == repr(made)
            assert found.model_fields_set == made.model_fields_set


@pytest.mark.parametrize("values", [
    {"name": "n"}, {"name": "n", "kind": 1}, {"name": "n", "inner": {"count": 2, "share": 1}},
    {"name": "n", "inners": [{"count": None}]}, {"name": "n", "table": {"a": 1}}, {"name": "n", "some": [1, 2]},
    {"name": "n", "twice": 4}, {"name": "n", "long-name": 3}, {"name": "n", "anything": {1: ()}},
])  # fmt: skip
def test_usual_values_are_plain(values: dict[str, object]) -> None:
    assert plain(Outer, values) == Outer.model_validate(values)


@pytest.mark.parametrize("values", [
    {}, {"name": 1}, {"name": "n", "kind": True}, {"name": "n", "inner": {"count": 0}}, {"name": "n", "flag": 1},
    {"name": "n", "inner": {"other": 1}}, {"name": "n", "table": {"a": "1"}}, {"name": "n", "some": "x"},
    {"name": "n", "twice": "no"}, {"name": "n", "long": 3}, {"name": "n", "inners": ({"count": 1},)},
])  # fmt: skip
def test_anything_else_is_left_to_pydantic(values: dict[str, object]) -> None:
    assert plain(Outer, values) is None


def test_a_field_with_a_validator_of_its_own_is_left_to_pydantic() -> None:
    class Checked(BaseModel):
        one: int = 0
        two: int = 0

        @field_validator("two")
        @classmethod
        def _never(cls, value: int) -> int:
            raise ValueError(str(value))

    assert plain(Checked, {"one": 1}) is not None
    assert plain(Checked, {"two": 1}) is None


def test_jobs_are_the_same_either_way() -> None:
    values: dict[str, object] = {
        "train.batch_size": 8,
        "model.name": "gpt2",
        "train.peft.r": 4,
        "software.torch": "2.5",
    }
    tree = {"train": {"batch_size": 8, "peft": {"r": 4}}, "model": {"name": "gpt2"}, "software": {"torch": "2.5"}}
    assert build(values) == Job.model_validate(tree)
    assert identity(build(values)) == identity(Job.model_validate(tree))
    assert identity(build(values)) != identity(build({**values, "train.peft.r": 5}))
    with pytest.raises(ValidationError, match="batch_size"):
        build({"train.batch_size": 0})


def test_an_assignment_is_checked() -> None:
    job = build({})
    assign(job.train, "batch_size", 4)
    assert job.train.batch_size == 4
    assert job.train.model_fields_set == {"batch_size"}
    with pytest.raises(ValidationError):
        assign(job.train, "batch_size", 0)


def test_a_sweep_of_the_usual_shape_is_plain() -> None:
    assert plain(
        Sweep, {"method": "grid", "metric": {"name": "x", "goal": "minimize"}, "parameters": {"a": {"value": 1}}}
    )
    assert plain(Sweep, {"method": "grit"}) is None
