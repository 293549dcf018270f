"""JSON: what json.loads takes, with places."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from preflight.documents.json import JsonDocument, parse_json
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Value


def parse(text: str) -> JsonDocument:
    return parse_json(Source("a.json", text))


REFUSED = [
    ("", 1, 1, "expected"),
    ("{", 1, 2, "key"),
    ("{'a': 1}", 1, 2, "double quotes"),
    ('{"a": 1,}', 1, 9, "key"),
    ("[1,]", 1, 4, "expected"),
    ('{"a" 1}', 1, 6, "':'"),
    ("[1 2]", 1, 4, "','"),
    ("// c\n1", 1, 1, "expected"),
    ('{"a": 1} x', 1, 10, "more text"),
    ('{"a":\n  tru}', 2, 3, "tru"),
    ('["😀", 01]', 1, 8, "expected"),
    ('"a\nb"', 1, 3, "control"),
    ("[" * 100_000, 1, 201, "nested"),
    ("[" + "1," * 200_001 + "1]", 1, 400_000, "values"),
    ("1" * 5000, 1, 1, "long"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), REFUSED)
def test_what_is_not_json_is_an_error_with_its_place(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(DocumentError, match=words) as caught:
        parse(text)
    assert Source("a.json", text).line_column(caught.value.span.start) == (line, column)


def test_a_key_given_twice_is_reported_and_the_last_counts() -> None:
    document = parse('{"a": 1,\n "a": 2}')
    assert document.value() == {"a": 2}
    assert [note.kind for note in document.problems] == ["duplicate-key"]


def test_the_words_that_python_adds_are_read() -> None:
    assert str(parse("[NaN, Infinity, -Infinity]").value()) == "(nan, inf, -inf)"


def listed(value: Value) -> Any:
    """A value as json.loads gives it."""
    if isinstance(value, tuple):
        return [listed(item) for item in value]
    return {key: listed(item) for key, item in value.items()} if isinstance(value, dict) else value


TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(TREES, st.sampled_from([None, 1, "\t"]), st.booleans())
@settings(max_examples=examples(200))
def test_values_and_places_agree_with_the_library(tree: Any, indent: Any, ascii: bool) -> None:
    text = json.dumps(tree, indent=indent, ensure_ascii=ascii)
    document = parse(text)
    assert listed(document.value()) == json.loads(text)
    for route in document.routes():
        span = document.span(route)
        assert json.loads(text[span.start : span.end]) == listed(document.value(route))
