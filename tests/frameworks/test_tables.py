"""The tables of tools' settings: what the schema refuses, and that every name in them means something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec import ValidationError, convert, toml

from preflight.frameworks.table import Table, heads, kinds, load, read
from preflight.program.arguments import Arguments
from preflight.program.rows import FoundSettings, Sheet, TablePart, TableRow, calls, function, spelling_of
from preflight.vocabulary.spelling import kind_of, normal
from preflight.vocabulary.values import Const, Origin, Span, frozen

FREE = ("model.config.", "model.kwargs.", "parallel.options.", "software.")
"""Fields that take any key below them."""


SHEETS: Mapping[str, Sheet] = {**{kind: load(kind) for kind in kinds()}, "calls": calls()}


def rows(sheet: Sheet) -> Iterator[TableRow]:
    yield from (row for part in sheet.parts for row in part.rows)


def of(row: TableRow) -> str:
    """The row in the message of a test that fails."""
    return f"{row.field or row.do} {row.key}"


EVERY_SHEET = pytest.mark.parametrize("sheet", SHEETS.values(), ids=SHEETS)


@pytest.mark.parametrize(
    "row",
    [
        {"field": "train.batch_size", "keys": "batch"},
        {"field": "train.batch_size", "key": "batch", "rank": "highest"},
        {"field": "train.batch_size", "key": "batch", "only": "float"},
        {"field": "train.batch_size", "key": "batch", "when": "always"},
    ],
)
def test_a_row_with_a_key_or_a_word_that_nobody_knows_is_refused(row: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        convert({"rows": [row]}, TablePart)


@pytest.mark.parametrize("wrong", [{"keys": {}}, {"command": {"name": "tool", "trains": [], "key": ""}}])
def test_a_table_with_a_key_that_nobody_knows_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        convert({"source": "a tool 1.0", **wrong}, Table)


def test_the_example_for_contributors_is_a_table() -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
    example = text.partition("# `mytool train x.yaml`")[2].partition("```")[0]
    table = toml.decode(example, type=Table)
    fields = [row.field for part in table.parts for row in part.rows if row.field]
    assert fields
    assert all(kind_of(field) is not None for field in fields)


@pytest.mark.parametrize("kind", kinds())
def test_how_a_tool_is_recognised_stands_before_the_rows(kind: str) -> None:
    head, table = heads()[kind], load(kind)
    read_later = {*Sheet.__struct_fields__, "renamed", "prepare", "defaults"}
    assert head.parts == [] != table.parts
    assert all(getattr(head, name) == getattr(table, name) for name in {*Table.__struct_fields__} - read_later)


@pytest.mark.parametrize("kind", kinds())
def test_a_table_says_what_it_was_read_from(kind: str) -> None:
    assert any(letter.isdigit() for letter in load(kind).source), "a release"


@EVERY_SHEET
def test_a_row_speaks_of_a_field_of_a_job(sheet: Sheet) -> None:
    for row in rows(sheet):
        assert bool(row.field) is not bool(row.do), f"{of(row)}: a field, or a function that knows its fields"
        assert not row.field or row.field.startswith(FREE) or kind_of(row.field) is not None, of(row)


@EVERY_SHEET
def test_a_row_has_one_source_of_its_value(sheet: Sheet) -> None:
    for row in rows(sheet):
        sources = (row.value is not None, bool(row.unknown), bool(row.same_as), bool(row.do))
        stated = any(sources) or not (row.key or row.default is not None)
        assert sum(sources) == (1 if stated else 0), of(row)
        assert (row.yes is None) == (row.no is None), of(row)
        assert row.default is None or not row.unset, of(row)


@EVERY_SHEET
def test_what_a_row_gives_a_field_is_spelled_as_the_job_spells_it(sheet: Sheet) -> None:
    for row in rows(sheet):
        if not row.field or row.field.startswith(FREE):
            continue
        words = spelling_of(row, sheet) if row.spelling else {}
        plain = not (row.spelling or row.through or row.yes is not None)
        given = [*words.values(), row.other, row.value, row.yes, row.no, *([row.default] if plain else [])]
        for value in given:
            assert normal(row.field, frozen(value)) == frozen(value), of(row)


@EVERY_SHEET
def test_a_function_that_a_row_names_is_there(sheet: Sheet) -> None:
    assert all(callable(function(name, sheet.home)) for row in rows(sheet) for name in (row.do, row.through) if name)


def test_every_part_of_the_table_of_calls_reads_some() -> None:
    assert all(part.calls for part in calls().parts)


@pytest.mark.parametrize("kind", kinds())
def test_calls_that_a_table_reads_are_found(kind: str) -> None:
    reads = any(part.calls for part in load(kind).parts)
    assert reads is bool(load(kind).modules), "beginnings of their names"


@pytest.mark.parametrize("kind", kinds())
def test_functions_and_insertions_of_a_head_are_there(kind: str) -> None:
    table = load(kind)
    for name in (table.prepare, table.recognises):
        assert not name or callable(function(name))
    keys = {
        key for part in table.parts for row in part.rows for key in ([row.key] if isinstance(row.key, str) else row.key)
    }
    trainer = any(row.do.endswith("trainer") for part in table.parts for row in part.rows)
    for call in table.calls:
        assert all(kind_of(field) is not None for field in call.inserts)
    for field, key in table.inserts.items():
        assert kind_of(field) is not None
        assert key in keys or trainer or field == "train.gradient_checkpointing", "what a fix adds is read back"


def place(name: str) -> Origin:
    return Origin("x.yaml", Span(len(name), len(name) + 1))


@pytest.mark.parametrize(
    ("row", "given", "expected"),
    [
        ({"field": "train.batch_size", "key": "batch"}, {}, None),
        ({"field": "train.batch_size", "key": "batch", "default": 4}, {}, (4, 1)),
        ({"field": "train.batch_size", "key": "batch", "default": 4}, {"batch": 8}, (8, 2)),
        ({"field": "train.batch_size", "key": ["batch", "micro"], "default": 4}, {"micro": 8}, (8, 2)),
        ({"field": "train.batch_size", "key": "batch", "skip": ["auto"]}, {"batch": "auto"}, None),
        ({"field": "train.batch_size", "key": "batch", "only": "int"}, {"batch": True}, None),
        ({"field": "train.compile", "key": "compile", "is": True, "value": True}, {"compile": 1}, None),
        ({"field": "train.compile", "key": "compile", "is": True, "value": True}, {"compile": True}, (True, 2)),
        ({"field": "train.attention", "key": "a", "spelling": {"fa2": "flash"}, "only_known": True}, {"a": "x"}, None),
        (
            {"field": "train.optimizer", "key": "o", "spelling": "optimizers", "other": "other"},
            {"o": "x"},
            ("other", 2),
        ),
        ({"field": "train.peft.r", "key": "r", "when": {"method": "lora"}}, {"r": 8}, None),
        ({"field": "train.peft.r", "key": "r", "unless": {"method": ["a", "b"]}}, {"r": 8, "method": "b"}, None),
        ({"field": "train.peft.r", "key": "r", "given": ["x", "y"]}, {"r": 8, "y": False}, (8, 2)),
        ({"field": "train.peft.r", "key": "r", "some": ["x", "y"]}, {"r": 8, "y": False}, None),
        ({"field": "train.peft.r", "key": "r", "absent": ["x"]}, {"r": 8, "x": 1}, None),
        ({"field": "train.precision", "value": "bf16", "rank": "literal"}, {}, ("bf16", 3)),
    ],
)
def test_what_a_row_reads(
    row: dict[str, object],
    given: dict[str, object],
    expected: tuple[object, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = convert({"source": "a tool 1.0", "parts": [{"rows": [row]}]}, Table)
    monkeypatch.setattr("preflight.frameworks.table.load", lambda kind: table)
    args = Arguments({name: Const(frozen(value), place(name)) for name, value in given.items()})
    found: FoundSettings = read("a tool", args)
    assert [(b.expr.value, b.rank) for b in found.bindings if isinstance(b.expr, Const)] == (
        [expected] if expected else []
    )
