"""YAML: what is read, where, and what cannot be."""

from __future__ import annotations

import math
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from preflight.documents.yaml import YamlDocument, parse_yaml
from preflight.vocabulary.budgets import TREE_DEPTH
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Unknown


def parse(text: str, version: str = "1.1") -> YamlDocument:
    return parse_yaml(Source("a.yaml", text), version)  # type: ignore[arg-type]


def at(document: YamlDocument, *route: str | int) -> str:
    span = document.span(route)
    return document.source.text[span.start : span.end]


SCALARS = [  # text, as PyYAML's safe loader, as OmegaConf, by the core schema
    ("1e-5", "1e-5", 1e-5, 1e-5),
    ("1.0e-5", 1e-5, 1e-5, 1e-5),
    ("1e5", "1e5", 1e5, 1e5),
    ("1_000", 1000, 1000, "1_000"),
    ("yes", True, True, "yes"),
    ("off", False, False, "off"),
    ("True", True, True, True),
    ("None", "None", "None", "None"),
    ("null", None, None, None),
    ("~", None, None, None),
    ("", None, None, None),
    ("010", 8, 8, 10),
    ("0o10", "0o10", "0o10", 8),
    ("0x1F", 31, 31, 31),
    ("0b11", 3, 3, "0b11"),
    ("1:30", 90, 90, "1:30"),
    (".5", 0.5, 0.5, 0.5),
    ("-.inf", -math.inf, -math.inf, -math.inf),
    ("2020-01-01", "2020-01-01", "2020-01-01", "2020-01-01"),
    ("'1'", "1", "1", "1"),
    ("!!str 1", "1", "1", "1"),
    ("!!int '7'", 7, 7, 7),
    ("! 1", 1, 1, "1"),
    ("16", 16, 16, 16),
    ("0", 0, 0, 0),
]


@pytest.mark.parametrize(("text", "old", "omegaconf", "core"), SCALARS)
def test_scalars_mean_what_the_reading_tool_takes_them_for(
    text: str, old: object, omegaconf: object, core: object
) -> None:
    for version, expected in (("1.1", old), ("omegaconf", omegaconf), ("1.2", core)):
        value = parse(f"a: {text}", version).value(("a",))
        assert (type(value), value) == (type(expected), expected), version


@given(st.from_regex(r"[-+]?[0-9a-fx_:.eEoO+-]{1,8}|[yYnN~]|on|off|true|null|\.nan", fullmatch=True))
@settings(max_examples=examples(200))
def test_plain_scalars_agree_with_the_libraries(text: str) -> None:
    from omegaconf._utils import get_yaml_loader

    for version, loader in (("1.1", yaml.SafeLoader), ("omegaconf", get_yaml_loader())):
        try:
            expected = yaml.load(f"- {text}", Loader=loader)
        except (yaml.YAMLError, ValueError):
            continue
        if not (isinstance(expected, list) and len(expected) == 1):
            continue
        try:
            found = parse(f"- {text}", version).value((0,))
        except DocumentError:
            pytest.fail(f"{text!r} is read by the library")
        wanted = expected[0]
        if hasattr(wanted, "isoformat"):
            wanted = text
        if isinstance(wanted, (list, dict)):
            continue
        assert found == wanted or (found != found and wanted != wanted), (version, text)
        assert type(found) is type(wanted), (version, text)


def test_the_places_of_values_are_exact() -> None:
    document = parse(
        "# 😀\nparameters:\n  lr: &x !!float 0.1  # c\n  b:\n    values: [ 16 , '32',\n      \"64\" ] # d\n"
        "  t: |-\n    a\n    b\n\n  # tail\n  e:\n  m: {k: v}\n"
    )
    assert at(document, "parameters", "lr") == "0.1"
    assert at(document, "parameters", "b", "values") == "[ 16 , '32',\n      \"64\" ]"
    assert at(document, "parameters", "b", "values", 1) == "'32'"
    assert at(document, "parameters", "e") == ""
    assert at(document, "parameters", "m") == "{k: v}"
    assert at(document, "parameters", "t").rstrip() == "|-\n    a\n    b"
    key = document.key_span(("parameters", "b", "values"))
    assert document.source.text[key.start : key.end] == "values"
    assert document.value(("parameters", "t")) == "a\nb"
    assert document.source.place(document.span(("parameters", "lr"))).line == 3


def test_offsets_count_code_points_and_keep_windows_line_endings() -> None:
    document = parse('a: "😀"\r\nb: 1\r\nc:\r\n- 2\r\n')
    assert at(document, "b") == "1"
    assert at(document, "c", 0) == "2"
    assert document.source.line_column(document.span(("b",)).start) == (2, 4)


def test_keys_that_are_no_strings_are_spelled_as_written() -> None:
    document = parse("1: a\non: b\n~: c\n'2': d\n")
    assert document.value() == {"1": "a", "on": "b", "~": "c", "2": "d"}


def test_aliases_and_merge_keys_have_their_place_at_the_anchor_and_are_not_editable() -> None:
    document = parse("base: &b {lr: 0.1, n: 2}\na:\n  <<: *b\n  n: 3\nc: *b\nd: [*b]\n")
    assert document.value(("a",)) == {"n": 3, "lr": 0.1}
    assert at(document, "a", "lr") == "0.1"
    merged = document.origin(("a", "lr"))
    assert not merged.editable
    assert [document.source.text[via.span.start : via.span.end] for via in merged.via] == ["*b"]
    assert document.origin(("a", "n")).editable
    assert not document.origin(("base", "lr")).editable
    assert not document.origin(("c",)).editable
    assert document.value(("d", 0, "n")) == 2


def test_earlier_merges_win_and_merges_may_nest() -> None:
    document = parse("x: &x {a: 1}\ny: &y {<<: *x, a: 2, b: 2}\nz: {<<: [*x, *y], c: 3}\n")
    assert document.value(("z",)) == {"c": 3, "a": 1, "b": 2}


def test_an_anchor_nobody_repeats_is_editable() -> None:
    assert parse("a: &x 16\n").origin(("a",)).editable


def test_duplicate_keys_are_reported_and_the_last_counts() -> None:
    document = parse("a: 1\nb: 2\na: 3\n")
    assert document.value() == {"a": 3, "b": 2}
    (note,) = document.problems
    assert note.kind == "duplicate-key"
    assert "line 1" in note.message
    assert document.source.line_column(note.span.start) == (3, 1)


def test_the_first_of_several_documents_counts() -> None:
    document = parse("a: 1\n---\na: 2\n")
    assert document.value() == {"a": 1}
    assert [note.kind for note in document.problems] == ["several-documents"]


def test_an_empty_file_is_null() -> None:
    assert parse("# nothing\n").value() is None
    assert parse("").value() is None


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!reference", "!!binary", "!!set"])
def test_foreign_tags_are_unknown_values_and_never_constructed(tag: str) -> None:
    document = parse(f"a: {tag} [x]\nb: 1\n")
    assert isinstance(document.value(("a",)), Unknown)
    assert document.value(("b",)) == 1
    assert document.problems


def test_a_number_that_is_none_is_unknown() -> None:
    document = parse("a: !!int abc\n")
    assert isinstance(document.value(("a",)), Unknown)


def test_routes_lead_to_every_leaf_and_nowhere_else() -> None:
    document = parse("a: {b: [1, {c: 2}], d: []}\ne:\n")
    assert list(document.routes()) == [("a", "b", 0), ("a", "b", 1, "c"), ("a", "d"), ("e",)]
    assert document.has(("a", "b", 1, "c"))
    for wrong in (("x",), ("a", 0), ("a", "b", 2), ("a", "b", -1), ("a", "b", 0, "c")):
        assert not document.has(wrong)
        with pytest.raises(KeyError):
            document.value(wrong)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{key}: &{key} [{', '.join([f'*{before}'] * 10)}]\n" for before, key in zip("abcdefgh", "bcdefghi", strict=True)
)

BROKEN = [
    ("a: [1, 2", 1, 9),
    ("a: 1\n b: 2\n", 2, 3),
    ("a: 'x\n", 1, 4),
    ("a: *x\n", 1, 4),
    ("a: &x [*x]\n", 1, 8),
    ("\tb: 1\n", 1, 1),
    ("a: 1\nb: \x07\n", 2, 4),
    ("é: 1\nb: \x07\n", 2, 4),
    ("a: \ud800\n", 1, 4),
    ("[ " * 100_000, 1, TREE_DEPTH * 2 + 1),
    ("- " * 100_000, 1, TREE_DEPTH * 2 + 1),
    ("{a: " * 100_000, 1, 798),
    (BOMB, 6, 24),
    ("%YAML 9.0\n---\na: 1\n", 1, 1),
]


@pytest.mark.parametrize(("text", "line", "column"), BROKEN)
def test_what_cannot_be_read_is_an_error_with_its_place_and_soon(text: str, line: int, column: int) -> None:
    started = time.process_time()
    with pytest.raises(DocumentError) as caught:
        parse(text)
    assert time.process_time() - started < 5
    assert caught.value.message
    found = Source("a.yaml", text).line_column(caught.value.span.start)
    assert found == (line, column), caught.value.message


def test_a_deep_chain_of_aliases_is_an_error() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}]\n" for n in range(TREE_DEPTH + 5))
    with pytest.raises(DocumentError, match="nested"):
        parse(text)


def test_too_many_values_are_an_error() -> None:
    with pytest.raises(DocumentError, match="values"):
        parse("[" + "1," * 200_001 + "]")


@given(st.text(max_size=60))
@settings(max_examples=examples(300))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        document = parse(text)
        spans = [document.span(route) for route in document.routes()]
    except DocumentError as error:
        spans = [error.span]
    assert all(0 <= span.start <= span.end <= len(text) for span in spans)


@pytest.mark.parametrize("line", ["a: 1\n", "a: |\n", "-\n", "<<: {}\n", "a: &a x\n"])
def test_many_lines_of_one_kind_are_read_in_linear_time(line: str) -> None:
    started = time.process_time()
    document = parse(line * 20_000)
    document.value()
    for route in document.routes():
        document.span(route)
    assert time.process_time() - started < 10


def test_many_keys_are_looked_up_in_linear_time() -> None:
    document = parse("".join(f"k{n}: {n}\n" for n in range(30_000)))
    started = time.process_time()
    assert sum(document.value((f"k{n}",)) == n for n in range(30_000)) == 30_000
    assert time.process_time() - started < 5
