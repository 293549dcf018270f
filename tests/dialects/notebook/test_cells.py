"""Cells: every character has its place in the file, whatever the JSON looks like."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.dialects.notebook.cells import Cell, read_notebook
from preflight.dialects.notebook.ipython import translated
from preflight.vocabulary.budgets import PROGRAM_CHARACTERS
from preflight.vocabulary.text import DocumentError, Source

WHOLE = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
"""Texts without half a pair of surrogates."""
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WHOLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WHOLE, inner, max_size=3),
    max_leaves=8,
)


def _cells(text: str) -> list[Cell]:
    return read_notebook(Source("a.ipynb", text)).cells


@given(st.lists(st.lists(WHOLE, max_size=4), max_size=4), JUNK, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_cells_are_what_json_reads(
    sources: list[list[str]], junk: object, ascii_only: bool, indent: int | str | None
) -> None:
    cells = [
        {"outputs": junk, "source": source, "metadata": junk, "attachments": junk, "cell_type": "code"}
        for source in sources
    ]
    text = json.dumps({"metadata": junk, "cells": cells, "z": junk}, ensure_ascii=ascii_only, indent=indent)
    found = _cells(text)
    assert [cell.code.text for cell in found] == [one for one in ("".join(source) for source in sources) if one.strip()]
    for cell in found:
        places = zip(cell.code.starts, cell.code.ends, strict=True)
        assert [json.loads(f'"{text[start:end]}"') for start, end in places] == list(cell.code.text)


@given(st.text(alphabet="abc=!%?#'\"\\\n ()[]1", max_size=60))
def test_any_cell_is_translated_to_python(text: str) -> None:
    for cell in _cells(json.dumps({"cells": [{"cell_type": "code", "source": text}]})):
        python = translated(cell).python
        assert len(python.text) == len(python.starts) == len(python.ends)
        compile(python.text + "\n", "", "exec", flags=0x400, dont_inherit=True)  # ast.PyCF_ONLY_AST


@given(JUNK)
def test_any_json_is_read_or_refused(junk: object) -> None:
    for value in (
        junk,
        {"cells": junk},
        {"cells": [junk, {"cell_type": "code", "source": junk}]},
        {"worksheets": junk},
    ):
        assert isinstance(_cells(json.dumps(value)), list)


@given(st.text(alphabet='{}[],:"\\u12da cells', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(DocumentError):
        _cells(text)


def test_half_a_pair_of_surrogates_is_no_character() -> None:
    [cell] = _cells('{"cells": [{"cell_type": "code", "source": "a\\ud83d\\ude00b\\ud83dc"}]}')
    assert cell.code.text == "a\U0001f600b\ufffdc"
    assert [end - start for start, end in zip(cell.code.starts, cell.code.ends, strict=True)] == [1, 12, 1, 6, 1]


def test_a_program_beyond_the_budget_is_refused() -> None:
    text = json.dumps({"cells": [{"cell_type": "code", "source": "x = 1\n" * (PROGRAM_CHARACTERS // 6 + 1)}]})
    with pytest.raises(DocumentError, match="over the budget"):
        _cells(text)


def test_outputs_of_any_size_are_passed_over() -> None:
    """More values than the budget of a JSON file, and long numbers: they are no settings."""
    outputs = [{"data": {"image/png": "A" * 2_000_000, "plot": list(range(250_000)), "n": 10**4000}}]
    [cell] = _cells(json.dumps({"cells": [{"cell_type": "code", "outputs": outputs, "source": "x = 1"}]}))
    assert cell.code.text == "x = 1"
