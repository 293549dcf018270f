"""Python's newest grammar, whatever Python runs: what older parsers refuse, and places that stay exact."""

from __future__ import annotations

import ast

import pytest

from preflight.documents.python import parse_python
from preflight.vocabulary.python_grammar import not_this_python, parse, parse_module
from preflight.vocabulary.reading import cannot_be_parsed
from preflight.vocabulary.text import DocumentError, Source

SAME = {
    # 3.12: any expression in an f-string
    """f"{d["a"]}" """: """f"{d['a']}" """,
    """f"{d["a"]!r:>{w["x"]}} {e}" """: """f"{d['a']!r:>{w['x']}} {e}" """,
    """f"{f"{d["a"]}"}" """: 'f"""{f\'{d["a"]}\'}"""',
    """f"{(lambda x: x["a"])(d)}" """: """f"{(lambda x: x['a'])(d)}" """,
    """f"{a if b == "x" else "y"}" """: """f"{a if b == 'x' else 'y'}" """,
    """f"{x != "a"}" "b" f"{{}}" """: """f"{x != 'a'}" "b" f"{{}}" """,
    """rf"\\d{d["a"]}" """: """rf"\\d{d['a']}" """,
    # PEP 695, without what a job does not need
    "def f[T: (int, str)](x: T) -> T:\n    return x": "def f(x: T) -> T:\n    return x",
    "class C[T](list): pass": "class C(list): pass",
    "class D[\n    A, B\n](object): pass": "class D(object): pass",
}


def without_types(tree: ast.AST) -> str:
    for node in ast.walk(tree):
        if hasattr(node, "type_params"):
            node.type_params = []
    return ast.dump(tree)


@pytest.mark.parametrize("text", SAME)
def test_newer_syntax_means_the_same(text: str) -> None:
    assert without_types(parse(text.strip())) == without_types(parse(SAME[text].strip()))


def test_an_escape_inside_an_expression() -> None:
    tree = parse_module('x = f"{"\\n".join(lines)}"')
    constants = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert "\n" in constants


@pytest.mark.parametrize("text", ["type X = int\ny = 1\n", "type X[T] = list[T]\ny = 1\n"])
def test_type_aliases_are_read_over(text: str) -> None:
    assert isinstance(parse_module(text).body[-1], ast.Assign)


def test_places_behind_an_f_string_stay_exact() -> None:
    text = 'é = f"{d["é"]} {d["b"]:>8}"; batch_size = 16\n'
    document = parse_python(Source("train.py", text))
    last = document.tree.body[-1]
    assert document.text(last) == "batch_size = 16"
    assert document.text(document.tree.body[0]) == 'é = f"{d["é"]} {d["b"]:>8}"'


@pytest.mark.parametrize(
    "text",
    ["x = f'{a", "f'{d['a'}'", "def f[T(x): pass", "x = (", "f'{a b}'", "login(<your token>)", 'f"{d["a" b]}"'],
)
def test_what_no_python_reads(text: str) -> None:
    with pytest.raises(SyntaxError) as caught:
        parse(text)
    assert not_this_python(text, caught.value) is None
    with pytest.raises(DocumentError) as error:
        parse_python(Source("train.py", text))
    assert cannot_be_parsed("train.py", error.value).severity == "error"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('print "hello"\n', "Python 2"),
        ("print x, y\n", "Python 2"),
        ("try:\n    pass\nexcept IOError, error:\n    pass\n", "Python 2"),
        ("x = 10L\n", "Python 2"),
        ("mode = 0755\n", "Python 2"),
        ("raise ValueError, 'no'\n", "Python 2"),
        ("if x <> 1: pass\n", "Python 2"),
        ("{% if train %}\nx = 1\n{% endif %}\n", "a template"),
        ("lr = {{ cookiecutter.lr }} 1\n", "a template"),
    ],
)
def test_another_language_is_no_mistake(text: str, words: str) -> None:
    with pytest.raises(DocumentError, match=words) as caught:
        parse_python(Source("train.py", text))
    assert not caught.value.mistake
    assert cannot_be_parsed("train.py", caught.value).severity == "info"
