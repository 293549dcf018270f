"""Our `dataclass` beside the library's: what every class made with either does."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest

from preflight.vocabulary import records

Make = Callable[..., Any]


@records.dataclass(frozen=True, slots=True)
class Kept:
    """At module level, so that it can be pickled."""

    a: int
    b: tuple[int, ...] = ()


def classes(make: Make, **options: Any) -> tuple[type, type]:
    @make(**options)
    class Point:
        x: int
        y: int = 2
        z: list[int] = dataclasses.field(default_factory=list)
        w: int = dataclasses.field(default=4, compare=False, repr=False)

    @make(**options)
    class One:
        value: object = None

        @property
        def double(self) -> object:
            return self.value, self.value

    return Point, One


@pytest.fixture(params=[(frozen, slots) for frozen in (True, False) for slots in (True, False)])
def pairs(request: pytest.FixtureRequest) -> list[tuple[type, type]]:
    frozen, slots = request.param
    options = {"frozen": frozen, "slots": slots}
    ours, theirs = classes(records.dataclass, **options), classes(dataclasses.dataclass, **options)
    return list(zip(ours, theirs, strict=True))


def outcome(call: Callable[[], object]) -> object:
    """A result or the kind of error."""
    try:
        return call()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize(
    "use",
    [
        lambda cls: repr(cls(1)),
        lambda cls: cls(1) == cls(1),
        lambda cls: cls(1) == cls(2),
        lambda cls: cls(1) == 1,
        lambda cls: cls(1) != cls(2),
        lambda cls: hash(cls(1)) == hash(cls(1)),
        lambda cls: cls(),
        lambda cls: cls(1, 2, 3, 4, 5),
        lambda cls: cls(nothing=1),
        lambda cls: dataclasses.replace(cls(1), **{dataclasses.fields(cls)[0].name: 9}) == cls(9),
        lambda cls: dataclasses.asdict(cls(1)),
        lambda cls: setattr(cls(1), dataclasses.fields(cls)[0].name, 3),
        lambda cls: delattr(cls(1), dataclasses.fields(cls)[0].name),
        lambda cls: copy.deepcopy(cls(1)) == cls(1),
        lambda cls: copy.copy(cls(1)) == cls(1),
        lambda cls: cls.__match_args__,
        lambda cls: [(one.name, one.type) for one in dataclasses.fields(cls)],
        lambda cls: cls(cls(1)) == cls(cls(1)),
        lambda cls: hasattr(cls(1), "__dict__"),
        lambda cls: cls.__hash__ is None,
    ],
)
def test_same_as_the_library(pairs: list[tuple[type, type]], use: Callable[[type], object]) -> None:
    for ours, theirs in pairs:
        mine, wanted = outcome(lambda ours=ours: use(ours)), outcome(lambda theirs=theirs: use(theirs))
        if isinstance(wanted, (bool, str, tuple, list, dict, type, type(None))):
            assert mine == wanted
        else:
            assert repr(mine) == repr(wanted)


def test_defaults_are_not_shared() -> None:
    point, _ = classes(records.dataclass, frozen=True)
    first, second = point(1), point(1)
    first.z.append(5)
    assert (first.z, second.z) == ([5], [])


def test_hash_of_one_field_and_of_many_serve_as_keys() -> None:
    _, one = classes(records.dataclass, frozen=True, slots=True)
    assert {one("a"): 1}[one("a")] == 1
    assert {Kept(1, (2,)): 1}[Kept(1, (2,))] == 1


def test_pickle() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, (2, 3)))) == Kept(1, (2, 3))


def test_post_init_and_cached_properties() -> None:
    @records.dataclass(frozen=True)
    class Checked:
        a: int

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")

        @cached_property
        def square(self) -> int:
            return self.a**2

    assert Checked(3).square == 9
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_what_is_not_plain_goes_to_the_library() -> None:
    @records.dataclass(order=True)
    class Ordered:
        a: int

    @records.dataclass(frozen=True)
    class Computed:
        a: int
        b: int = dataclasses.field(init=False, default=7)

    @records.dataclass(frozen=True)
    class OwnEquality:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

    assert Ordered(1) < Ordered(2)
    assert Computed(1).b == 7
    assert OwnEquality(1) == OwnEquality(2)
