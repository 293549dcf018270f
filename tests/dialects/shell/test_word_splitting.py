"""Words that the shell makes of a long value: their places, and work that grows with the value alone."""

from __future__ import annotations

from itertools import chain

import pytest

from preflight.dialects.shell import values
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Const, Origin, Span

COUNT = 300
WORDS = [f"--option{number} {number}" for number in range(COUNT)]


def split(text: str, raw: str, path: str = "run.sh", editable: bool = True) -> list[tuple[str, Origin | None]]:
    """The words of a value, each with its place, where the file has `raw` for the value."""
    origin = Origin(path, Span(5, 5 + len(raw)), editable=editable)
    found = values.split(Const(text, origin), origin, Source("run.sh", f"ARGS={raw}\n"))
    return [
        (str(one.value.value), one.value.origin) if isinstance(one.value, Const) else (one.prefix, one.origin)
        for one in found
    ]


def test_the_text_of_the_file_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared for every word, a value of 64 KiB took 14 seconds."""
    compared: list[str] = []
    places = values._places
    monkeypatch.setattr(values, "_places", lambda text, raw: (compared.append(text), places(text, raw))[1])
    text = " ".join(WORDS)
    assert len(split(text, f'"{text}"')) == 2 * COUNT
    assert compared == [text]


@pytest.mark.parametrize("joint", [" ", " \\\n", "  \t"])
def test_each_value_has_its_place_in_the_file(joint: str) -> None:
    raw = '"' + joint.join(WORDS) + '"'
    found = split(raw[1:-1].replace("\\\n", ""), raw)
    texts = list(chain.from_iterable(word.split() for word in WORDS))
    assert [text for text, _ in found] == texts
    file = f"ARGS={raw}\n"
    for text, origin in found[1::2]:
        assert origin is not None
        assert origin.editable
        assert file[origin.span.start : origin.span.end] == text


def test_a_value_that_the_file_has_not_is_not_edited() -> None:
    (_, _), (text, origin) = split("--batch 8", "$X")
    assert text == "8"
    assert origin is not None
    assert not origin.editable


@pytest.mark.parametrize(("editable", "moved"), [(True, True), (False, False)])
def test_a_value_of_another_file_keeps_its_place_there(editable: bool, moved: bool) -> None:
    (_, _), (text, origin) = split("--batch 8", "--batch 8", "other.yaml", editable)
    assert text == "8"
    assert origin is not None
    assert origin.path == "other.yaml"
    assert (origin.span == Span(13, 14)) is moved
