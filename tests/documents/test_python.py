"""Python: places in code points, edits that change one node."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from preflight.documents.python import PythonDocument, parse_python
from preflight.vocabulary.text import CannotEdit, DocumentError, Source, splice


def parse(text: str) -> PythonDocument:
    return parse_python(Source("a.py", text))


def call(document: PythonDocument, name: str = "f") -> ast.Call:
    nodes = [n for n in ast.walk(document.tree) if isinstance(n, ast.Call)]
    return next(n for n in nodes if isinstance(n.func, ast.Name) and n.func.id == name)


def constant(document: PythonDocument) -> ast.Constant:
    return next(n for n in ast.walk(document.tree) if isinstance(n, ast.Constant))


NOT_EDITED = [
    ("f(n=1)", "n is given already"),
    ("f(**k)", "may be given"),
    ("f(x for x in y)", "generator"),
    ("g(f'{f(1)}')", "f-string"),
]


@pytest.mark.parametrize(("text", "why"), NOT_EDITED)
def test_a_keyword_is_not_inserted_where_it_would_not_be_sure(text: str, why: str) -> None:
    document = parse(text)
    with pytest.raises(CannotEdit, match=why):
        document.insert_keyword(call(document), "n", "8")


def test_nodes_of_an_f_string_have_its_place_and_are_not_edited() -> None:
    document = parse("é = f'😀 {a + f(1)}' f'{b}'\n")
    inner = next(n for n in ast.walk(document.tree) if isinstance(n, ast.Call))
    assert document.text(inner).startswith("f'😀")
    with pytest.raises(CannotEdit, match="f-string"):
        document.insert_keyword(inner, "n", "8")


INSERTED = [
    ("f()", "f(n=8)"),
    ("f( )", "f( n=8)"),
    ("f(a)", "f(a, n=8)"),
    ("f(a,)", "f(a, n=8)"),
    ("f((a))", "f((a), n=8)"),
    ("f(a, *b)", "f(a, *b, n=8)"),
    ("f(a=')') # )", "f(a=')', n=8) # )"),
    ("é = f('😀', b=2)\r\n", "é = f('😀', b=2, n=8)\r\n"),
    ("f(\n  a,\n  b=1,  # c\n)\n", "f(\n  a,\n  b=1,  # c\n  n=8,\n)\n"),
    ("f(\r\n\ta,\r\n\tb=1 # c\r\n)", "f(\r\n\ta,\r\n\tb=1, # c\r\n\tn=8\r\n)"),
    ("f(\n  a,\n  b=(1) # ,)\n)", "f(\n  a,\n  b=(1), # ,)\n  n=8\n)"),
    ("f(\n  a,\n  b=1)", "f(\n  a,\n  b=1,\n  n=8)"),
    ("f(a\n, b)", "f(a\n, b, n=8)"),
    ("f(a, # )\n  )", "f(a, n=8 # )\n  )"),
    ("g(f(a), b)", "g(f(a, n=8), b)"),
]


@pytest.mark.parametrize(("text", "expected"), INSERTED)
def test_a_keyword_is_inserted_in_the_layout_of_the_call(text: str, expected: str) -> None:
    document = parse(text)
    before = ast.dump(document.tree)
    assert splice(text, [document.insert_keyword(call(document), "n", "8")]) == expected
    assert ast.dump(document.tree) == before


BROKEN = [
    ("x = 1\ndef f(:\n", 2, 7),
    ("é = 😀\n", 1, 5),
    ("a\0b", 1, 2),
    ("'''", 1, 1),
    ("(" * 5000, 1, 201),
    ("1+" * 50_000 + "1", 1, 1),
    ("-" * 50_000 + "1", 1, 1),
]


@pytest.mark.parametrize(("text", "line", "column"), BROKEN)
def test_what_is_not_python_is_an_error_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(DocumentError) as caught:
        parse(text)
    assert Source("a.py", text).line_column(caught.value.span.start) == (line, column)


def test_a_tree_that_recursion_could_not_walk_is_refused() -> None:
    with pytest.raises(DocumentError, match="nested"):
        parse("x = " + "a." * 400 + "b")


def test_odd_escapes_warn_nobody(recwarn: pytest.WarningsRecorder) -> None:
    parse("a = '\\d'\n")
    assert not recwarn.list


@given(
    st.lists(st.sampled_from(["é", "😀", "a", "'", "1"]), min_size=1, max_size=6), st.sampled_from(["\n", "\r\n", "\r"])
)
@settings(max_examples=examples(100))
def test_places_hold_the_text_of_their_node(pieces: list[str], newline: str) -> None:
    strings = [repr(piece * 3) for piece in pieces]
    text = newline.join(f"x{i} = [{', '.join(strings)}, {string}]  # é" for i, string in enumerate(strings))
    document = parse(text)
    for node in ast.walk(document.tree):
        if isinstance(node, ast.Constant):
            assert ast.literal_eval(document.text(node)) == node.value
