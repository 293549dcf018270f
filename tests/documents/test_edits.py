"""Edits of YAML and JSON: first what must not change, then what must."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from thorough import examples

from preflight.documents import tree_edits
from preflight.documents.document import TreeDocument
from preflight.documents.json import parse_json
from preflight.documents.yaml import parse_yaml
from preflight.vocabulary.text import CannotEdit, Edit, Source, splice
from preflight.vocabulary.values import Route, Value


def parse(text: str, path: str = "a.yaml", version: str = "1.1") -> TreeDocument:
    if path.endswith(".json"):
        return parse_json(Source(path, text))
    return parse_yaml(Source(path, text), version)  # type: ignore[arg-type]


def applied(document: TreeDocument, edits: Edit | tuple[Edit, ...]) -> str:
    return splice(document.source.text, [edits] if isinstance(edits, Edit) else edits)


def without(document: TreeDocument, route: Route) -> tuple[Edit, ...]:
    """The edits that take one item out of its list."""
    size = len(document.find(route[:-1]).node.items)
    return tree_edits.keep(document, route[:-1], [i for i in range(size) if i != route[-1]])


REFUSED: list[tuple[str, str, Any]] = [
    ("an anchor that is repeated", "a: &x 16\nb: *x\n", lambda d: tree_edits.replace(d, ("a",), 8)),
    ("a value behind an alias", "a: &x {k: 16}\nb: *x\n", lambda d: tree_edits.replace(d, ("b", "k"), 8)),
    ("a value behind a merge", "a: &x {k: 16}\nb: {<<: *x}\n", lambda d: tree_edits.replace(d, ("b", "k"), 8)),
    ("an item of a repeated list", "a: &x [1, 2]\nb: *x\n", lambda d: without(d, ("a", 0))),
    ("a key beside a merged one", "a: &x {k: 16}\nb: {<<: *x}\n", lambda d: tree_edits.insert(d, ("b", "k"), "n", 1)),
    ("a key into a repeated mapping", "a: &x {k: 16}\nb: *x\n", lambda d: tree_edits.insert(d, ("a", "k"), "n", 1)),
    ("a key that is there", "a: 1\nb: 2\n", lambda d: tree_edits.insert(d, ("a",), "b", 1)),
    ("the only item", "a: [1]\n", lambda d: without(d, ("a", 0))),
    ("all items", "a:\n- 1\n- 2\n", lambda d: tree_edits.keep(d, ("a",), [])),
    ("a block as a whole", "a:\n  b: 1\n", lambda d: tree_edits.replace(d, ("a",), 1)),
    ("a tag that the new value has not", "a: !!int 3\n", lambda d: tree_edits.replace(d, ("a",), "x")),
    ("a key with `?`", "? a\n: 1\n", lambda d: tree_edits.insert(d, ("a",), "b", 1)),
]


@pytest.mark.parametrize(("what", "text", "edit"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_would_change_more_is_refused(what: str, text: str, edit: Any) -> None:
    with pytest.raises(CannotEdit):
        edit(parse(text))


UNTOUCHED = (
    "# head\t😀\r\nlr: &x 1.0e-3   # tab\there\r\nflow: {a: 1,b : 'q', \"c\": [ ] }\r\n"
    "list:\r\n\r\n- 1   # one\r\n-   2\r\n"
    "text: |\r\n  keep  \r\n\r\n  this\r\nalias: *x\r\nbs:   64  # here\r\nlast: ~"
)


def test_everything_outside_an_edit_stays_byte_for_byte() -> None:
    document = parse(UNTOUCHED)
    assert applied(document, tree_edits.replace(document, ("bs",), 16)) == UNTOUCHED.replace("64", "16")
    assert applied(document, tree_edits.replace(document, ("last",), None)) == UNTOUCHED
    assert applied(document, tree_edits.replace(document, ("list", 1), 3)) == UNTOUCHED.replace("-   2", "-   3")
    assert applied(document, without(document, ("list", 0))) == UNTOUCHED.replace("- 1   # one\r\n", "")
    assert applied(document, tree_edits.insert(document, ("bs",), "n", 1)) == UNTOUCHED.replace(
        "# here\r\n", "# here\r\nn: 1\r\n"
    )
    assert applied(document, tree_edits.insert(document, ("last",), "n", 1)) == UNTOUCHED + "\r\nn: 1"


REPLACED: list[tuple[str, tuple[str | int, ...], Value, str]] = [
    ("a: 64\n", ("a",), 16, "a: 16\n"),
    ("a: 64", ("a",), 16, "a: 16"),
    ('a: "64" # c\n', ("a",), 16, 'a: "16" # c\n'),
    ("a: '64'\n", ("a",), 16, "a: '16'\n"),
    ("a: 1_000\n", ("a",), 20000, "a: 20_000\n"),
    ("a: 1.0e-3\n", ("a",), 1e-5, "a: 1.0e-5\n"),
    ("a: 0.1\n", ("a",), 1e-5, "a: 1.0e-05\n"),
    ("a: 0.1\n", ("a",), 1e22, "a: 1.0e+22\n"),
    ("a: 0.1\n", ("a",), 1, "a: 1.0\n"),
    ("a: 3\n", ("a",), 4.0, "a: 4\n"),
    ("a: 3\n", ("a",), 4.5, "a: 4.5\n"),
    ("a: yes\n", ("a",), False, "a: no\n"),
    ("a: True\n", ("a",), False, "a: False\n"),
    ("a: OFF\n", ("a",), True, "a: ON\n"),
    ("a: adamw\n", ("a",), "sgd", "a: sgd\n"),
    ("a: adamw\n", ("a",), "no", 'a: "no"\n'),
    ("a: adamw\n", ("a",), "1e-5", 'a: "1e-5"\n'),
    ("a: adamw\n", ("a",), "x: y", 'a: "x: y"\n'),
    ("a: adamw\n", ("a",), "x #y", 'a: "x #y"\n'),
    ("a: adamw\n", ("a",), "", 'a: ""\n'),
    ("a: adamw\n", ("a",), "l1\nl2\x07", 'a: "l1\\nl2\\x07"\n'),
    ("a: 'q'\n", ("a",), "it's", "a: 'it''s'\n"),
    ('a: "q"\n', ("a",), 'b\\"', 'a: "b\\\\\\""\n'),
    ("a: {b: adamw}\n", ("a", "b"), "x, y", 'a: {b: "x, y"}\n'),
    ("a: adamw\n", ("a",), "1,2", "a: 1,2\n"),
    ("a:\nb: 1\n", ("a",), 5, "a: 5\nb: 1\n"),
    ("a: # c\nb: 1\n", ("a",), 5, "a: 5 # c\nb: 1\n"),
    ("a: &x\nb: 1\n", ("a",), 5, "a: &x 5\nb: 1\n"),
    ("{a, b: 1}\n", ("a",), 5, "{a: 5, b: 1}\n"),
    ("{a: , b: 1}\n", ("a",), 5, "{a: 5 , b: 1}\n"),
    ("- \n-\n- 1\n", (1,), 5, "- \n- 5\n- 1\n"),
    ("a: &x !!int 3 # c\n", ("a",), 4, "a: &x !!int 4 # c\n"),
    ("a: &x 3\nb: *x\n", ("b",), 4, "a: &x 3\nb: 4\n"),
    ("a: |\n  text\nb: 1\n", ("a",), 5, "a: 5\nb: 1\n"),
    ("a: [1, 2]\n", ("a",), (1, 2, 3), "a: [1, 2, 3]\n"),
    ("a: [ 1,  2 ]\n", ("a",), (1,), "a: [ 1 ]\n"),
    ("a:\n- 1 # one\n- 2\n", ("a",), (3, 2), "a:\n- 3 # one\n- 2\n"),
    ("a: x\n", ("a",), (1, "b"), "a: [1, b]\n"),
    ("a: x\n", ("a",), {"k": 1e-5}, "a: {k: 1.0e-05}\n"),
]


@pytest.mark.parametrize(("text", "route", "value", "expected"), REPLACED)
def test_a_value_is_replaced_in_its_own_style(
    text: str, route: tuple[str | int, ...], value: Value, expected: str
) -> None:
    document = parse(text)
    assert applied(document, tree_edits.replace(document, route, value)) == expected


@pytest.mark.parametrize(
    ("version", "old", "value", "new"),
    [("omegaconf", "1e-4", 1e-5, "1e-5"), ("1.2", "1.0", 1e-5, "1e-05"), ("1.2", "yes", True, "true"),
     ("1.2", "true", False, "false"), ("1.1", "1e-4", 1e-5, "1.0e-5")],
)  # fmt: skip
def test_numbers_are_written_for_the_tool_that_reads_them(version: str, old: str, value: Value, new: str) -> None:
    document = parse(f"a: {old}\n", version=version)
    text = applied(document, tree_edits.replace(document, ("a",), value))
    assert text == f"a: {new}\n"
    assert parse(text, version=version).value(("a",)) == value


INSERTED: list[tuple[str, tuple[str | int, ...], str]] = [
    ("a: 1\nb: 2\n", ("a",), "a: 1\nn: 7\nb: 2\n"),
    ("a: 1", ("a",), "a: 1\nn: 7"),
    ("a: 1 # c\n# d\nb: 2\n", ("a",), "a: 1 # c\nn: 7\n# d\nb: 2\n"),
    ("p:\n  a: {x: [1,\n    2]} # c\n  b: 2\n", ("p", "a"), "p:\n  a: {x: [1,\n    2]} # c\n  n: 7\n  b: 2\n"),
    ("p:\n  a:\n  - 1\n  - 2 # c\n\nq: 1\n", ("p", "a"), "p:\n  a:\n  - 1\n  - 2 # c\n  n: 7\n\nq: 1\n"),
    ("a: |\n  t\n\n\nb: 2\n", ("a",), "a: |\n  t\n\n\nn: 7\nb: 2\n"),
    ("a: |+\n  t\n\nb: 2\n", ("a",), "a: |+\n  t\n\nn: 7\nb: 2\n"),
    ("a: >-\n  t", ("a",), "a: >-\n  t\nn: 7"),
    ("a:\nb: 2\n", ("a",), "a:\nn: 7\nb: 2\n"),
    ("- a: 1\n  b: 2\n", (0, "a"), "- a: 1\n  n: 7\n  b: 2\n"),
    ("- - a: 1\n", (0, 0, "a"), "- - a: 1\n    n: 7\n"),
    ("{a: 1, b: 2}\n", ("a",), "{a: 1, n: 7, b: 2}\n"),
    ("{a: 1, b: 2}\n", ("b",), "{a: 1, b: 2, n: 7}\n"),
    ("{\n  a: 1, # c\n  b: 2  # d\n}\n", ("a",), "{\n  a: 1, # c\n  n: 7,\n  b: 2  # d\n}\n"),
    ("{\n  a: 1, # c\n  b: 2  # d\n}\n", ("b",), "{\n  a: 1, # c\n  b: 2,  # d\n  n: 7\n}\n"),
    ("{\n  a: 1,\n  b: 2 }\n", ("b",), "{\n  a: 1,\n  b: 2,\n  n: 7 }\n"),
    ("{\n  a: 1,\n}\n", ("a",), "{\n  a: 1,\n  n: 7,\n}\n"),
    ('"a": 1\n', ("a",), '"a": 1\n"n": 7\n'),
    ("a: &x 1\nb: *x\n", ("b",), "a: &x 1\nb: *x\nn: 7\n"),
    ("a: 1\r\nb: 2\r\n", ("a",), "a: 1\r\nn: 7\r\nb: 2\r\n"),
]


@pytest.mark.parametrize(("text", "beside", "expected"), INSERTED)
def test_a_key_is_inserted_in_the_layout_of_its_neighbour(
    text: str, beside: tuple[str | int, ...], expected: str
) -> None:
    document = parse(text)
    assert applied(document, tree_edits.insert(document, beside, "n", 7)) == expected


KEPT: list[tuple[str, tuple[int, ...], str]] = [
    ("a: [1, 2, 3]\n", (0,), "a: [1]\n"),
    ("a: [1, 2, 3]\n", (1,), "a: [2]\n"),
    ("a: [1, 2, 3]\n", (2,), "a: [3]\n"),
    ("a: [1, 2, 3]\n", (0, 2), "a: [1, 3]\n"),
    ("a: [ 1 , 2 , 3 ]\n", (0, 2), "a: [ 1 , 3 ]\n"),
    ("a: [1, 2, 3,]\n", (0, 1), "a: [1, 2,]\n"),
    ("a: [1,2,\n    3, 4]\n", (0, 2, 3), "a: [1,\n    3, 4]\n"),
    ("a: [1,2,\n    3, 4]\n", (0, 1), "a: [1,2]\n"),
    ("a: [\n  1, # one\n  2, # two\n  3  # three\n]\n", (0, 2), "a: [\n  1, # one\n  3  # three\n]\n"),
    ("a: [\n  1, # one\n  2, # two\n  3, # three\n]\n", (0, 1), "a: [\n  1, # one\n  2, # two\n]\n"),
    ("a: [\n  1, # one\n  2, # two\n  3  # three\n]\n", (0, 1), "a: [\n  1, # one\n  2 # two\n]\n"),
    ("a: [\n  1,\n  2,\n  3\n]\n", (0,), "a: [\n  1\n]\n"),
    ("a: [\n  1,\n  2,\n  3,\n]\n", (0,), "a: [\n  1,\n]\n"),
    ("a:\n- 1\n- 2\n- 3\n", (0, 2), "a:\n- 1\n- 3\n"),
    ("a:\n- 1\n- 2\n- 3", (0, 1), "a:\n- 1\n- 2"),
    ("a:\n- 1\n- 2\n- 3", (0,), "a:\n- 1"),
    ("a:\r\n- 1\r\n- 2\r\n- 3", (0,), "a:\r\n- 1"),
    ("a:\n  - 1 # 1\n  # of 2\n  - 2 # 2\n\n  - 3\nb: 1\n", (0, 2), "a:\n  - 1 # 1\n  # of 2\n\n  - 3\nb: 1\n"),
    ("a:\n- x: 1\n  y: 2\n- x: 3\n", (1,), "a:\n- x: 3\n"),
    ("a:\n- |\n  t\n\n- 2\n- 3\n", (1, 2), "a:\n- 2\n- 3\n"),
    ("a:\n-\n- 2\n", (1,), "a:\n- 2\n"),
    ("- - 1\n  - 2\n  - 3\n", (1,), ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "indices", "expected"), KEPT[:-1])
def test_items_are_taken_out_with_their_line_or_comma(text: str, indices: tuple[int, ...], expected: str) -> None:
    document = parse(text)
    assert applied(document, tree_edits.keep(document, ("a",), indices)) == expected


def test_the_first_item_of_a_compact_list_gives_its_place_to_the_next() -> None:
    document = parse("- - 1\n  - 2\n  - 3\n")
    assert applied(document, tree_edits.keep(document, (0,), (1, 2))) == "- - 2\n  - 3\n"


JSON: list[tuple[str, Any, str]] = [
    ('{"a": 1, "b": [1, 2]}', lambda d: tree_edits.replace(d, ("a",), 7), '{"a": 7, "b": [1, 2]}'),
    ('{"a": "1"}', lambda d: tree_edits.replace(d, ("a",), 7), '{"a": "7"}'),
    ('{"a": 1.5e-4}', lambda d: tree_edits.replace(d, ("a",), 1e-5), '{"a": 1e-5}'),
    ('{"a": true}', lambda d: tree_edits.replace(d, ("a",), None), '{"a": null}'),
    ('{"a":1}', lambda d: tree_edits.insert(d, ("a",), "n", "é"), '{"a":1, "n":"é"}'),
    ('{\n\t"a": 1\n}\n', lambda d: tree_edits.insert(d, ("a",), "n", True), '{\n\t"a": 1,\n\t"n": true\n}\n'),
    ('{"a": [1, 2, 3]}', lambda d: without(d, ("a", 2)), '{"a": [1, 2]}'),
    ('{"a": [\n  1,\n  2\n]}', lambda d: without(d, ("a", 1)), '{"a": [\n  1\n]}'),
    ('{"a": [\n  1,\n  2\n]}', lambda d: without(d, ("a", 0)), '{"a": [\n  2\n]}'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "edit", "expected"), JSON)
def test_json_is_edited_as_json(text: str, edit: Any, expected: str) -> None:
    document = parse(text, "a.json")
    result = applied(document, edit(document))
    assert result == expected
    json.loads(result)


# --- properties -----------------------------------------------------------------------------------------------------

KEYS = st.text(st.sampled_from("abcé😀_ -1:#"), min_size=1, max_size=4)
LEAVES = st.one_of(
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
    st.sampled_from(["yes", "1e-5", "null", "0x10", "a, b", "- x", "[y", "#c", "x: y", "*z", "&z", "!t"]),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, min_size=1, max_size=4) | st.dictionaries(KEYS, inner, min_size=1, max_size=4),
    max_leaves=12,
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, str]:
    """A random YAML text in block or flow style, with comments, either line ending, with or without a last one."""
    import yaml

    tree = draw(st.dictionaries(KEYS, TREES, min_size=1, max_size=4))
    flow = draw(st.sampled_from([True, False, None]))
    text = yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=draw(st.booleans()), sort_keys=False, width=40)
    if draw(st.booleans()):
        text = "# \t😀 head\n" + text
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    if draw(st.booleans()):
        text = text.rstrip("\r\n")
    return text, draw(st.sampled_from(["1.1", "omegaconf"]))


def _equal(one: Value, other: Value) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


@given(documents(), LEAVES, st.data())
@settings(max_examples=examples(200))
def test_replacing_changes_the_route_and_nothing_else(
    document: tuple[str, str], value: Any, data: st.DataObject
) -> None:
    text, version = document
    before = parse(text, version=version)
    routes = [route for route in before.routes() if route]
    assume(routes)
    route = data.draw(st.sampled_from(routes))
    edit = tree_edits.replace(before, route, value)
    after = parse(splice(text, [edit]), version=version)
    assert [r for r in after.routes() if r[: len(route)] != route] == [r for r in routes if r[: len(route)] != route]
    for other in routes:
        if other != route:
            assert _equal(after.value(other), before.value(other))
    found, old = after.value(route), before.span(route)
    quoted = text[old.start : old.start + 1] in ("'", '"')
    assert _equal(found, value) or (quoted and isinstance(found, str)) or found == value
    assert text[: edit.span.start] + edit.text + text[edit.span.end :] == splice(text, [edit])


@given(documents(), st.data())
@settings(max_examples=examples(200))
def test_keeping_items_leaves_these_items_and_the_rest(document: tuple[str, str], data: st.DataObject) -> None:
    text, version = document
    before = parse(text, version=version)
    lists = {route[:i] for route in before.routes() for i in range(len(route)) if isinstance(route[i], int)}
    assume(lists)
    route = data.draw(st.sampled_from(sorted(lists, key=repr)))
    old = before.value(route)
    assert isinstance(old, tuple)
    kept = data.draw(st.sets(st.integers(0, len(old) - 1), min_size=1))
    edits = tree_edits.keep(before, route, kept)
    after = parse(splice(text, edits), version=version)
    assert after.value(route) == tuple(old[i] for i in sorted(kept))
    assert all(not edit.text for edit in edits)
    assert text.endswith("\n") == splice(text, edits).endswith("\n")


@given(documents(), KEYS, LEAVES, st.data())
@settings(max_examples=examples(200))
def test_inserting_adds_one_key(document: tuple[str, str], key: str, value: Any, data: st.DataObject) -> None:
    text, version = document
    before = parse(text, version=version)
    steps = {route[: i + 1] for route in before.routes() for i in range(len(route)) if isinstance(route[i], str)}
    route = data.draw(st.sampled_from(sorted(steps, key=repr)))
    mapping = before.value(route[:-1])
    assert isinstance(mapping, dict)
    assume(key not in mapping)
    try:
        edit = tree_edits.insert(before, route, key, value)
    except CannotEdit:
        start = before.key_span(route).start
        assert text[max(0, start - 2) : start].startswith("?")
        return
    found = parse(splice(text, [edit]), version=version)
    assert found.value(route[:-1]) == {**mapping, key: value}
    assert edit.span.start == edit.span.end or text[edit.span.start : edit.span.end].strip()[:1] in ("#", "")


@given(st.dictionaries(KEYS, TREES, min_size=1), st.one_of(st.none(), st.integers(0, 4)), LEAVES, st.data())
@settings(max_examples=examples(100))
def test_json_replacing_changes_the_route_alone(tree: Any, indent: int | None, value: Any, data: st.DataObject) -> None:
    text = json.dumps(tree, indent=indent, ensure_ascii=data.draw(st.booleans()))
    before = parse(text, "a.json")
    route = data.draw(st.sampled_from(list(before.routes())))
    result = json.loads(splice(text, [tree_edits.replace(before, route, value)]))
    inner, expected = result, json.loads(text)
    for step in route[:-1]:
        inner, expected = inner[step], expected[step]
    old = expected[route[-1]]
    if not (isinstance(old, str) and not isinstance(value, str)):
        assert _equal(inner[route[-1]], value) or inner[route[-1]] == value
    inner[route[-1]] = expected[route[-1]] = None
    assert inner == expected
