"""No code reads a sentence: what is decided by an unknown value or a finding is decided by its cause, fields or kind.

Words are for people. Where code compared or matched them, rewording a message would change verdicts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from sources import with_one_of

SENTENCES = ("words", "message")
"""`Unknown.words`, `Finding.message` and `Problem.message`."""
OF_TEXT = frozenset(
    [
        "startswith",
        "endswith",
        "partition",
        "rpartition",
        "split",
        "rsplit",
        "find",
        "rfind",
        "index",
        "rindex",
        "count",
        "removeprefix",
        "removesuffix",
        "replace",
        "lower",
        "upper",
        "casefold",
        "strip",
    ]
)
OF_PATTERNS = frozenset(["match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"])


def _is_sentence(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def reads_of_sentences(text: str) -> Iterator[tuple[int, str]]:
    """(line, source) of every comparison, text method and pattern that a sentence is put to."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            read = any(_is_sentence(one) for one in (node.left, *node.comparators))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_text = _is_sentence(node.func.value) and node.func.attr in OF_TEXT
            read = of_text or (node.func.attr in OF_PATTERNS and any(_is_sentence(one) for one in node.args))
        else:
            read = False
        if read:
            yield node.lineno, ast.unparse(node)


def causeless(text: str) -> Iterator[int]:
    """Lines that make an Unknown without saying its cause."""
    for node in ast.walk(ast.parse(text)):
        made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Unknown"
        if made and isinstance(node, ast.Call) and len(node.args) + len(node.keywords) < 2:
            yield node.lineno


@pytest.mark.parametrize(
    "text",
    [
        'found.words == "train.precision is not known"',
        '"no law" in found.words',
        'found.words.startswith("no law ")',
        'name, _, rest = found.words.partition(" ")',
        're.match("train", found.words)',
        'PATTERN.search(finding.message)',
        'finding.message != other.message',
    ],
)  # fmt: skip
def test_reading_a_sentence_is_seen(text: str) -> None:
    assert list(reads_of_sentences(text))


@pytest.mark.parametrize(
    "text", ["found.cause is Cause.no_law", "print(found.words)", "link.words[1:]", "clean(finding.message)"]
)
def test_showing_a_sentence_is_not_reading_it(text: str) -> None:
    assert not list(reads_of_sentences(text))


def test_no_code_reads_a_sentence() -> None:
    found = [
        f"{name}:{line}: {source}"
        for name, text in with_one_of(*(f".{one}" for one in SENTENCES))
        for line, source in reads_of_sentences(text)
    ]
    assert found == []


def test_every_unknown_value_says_its_cause() -> None:
    found = [f"{name}:{line}" for name, text in with_one_of("Unknown(") for line in causeless(text)]
    assert found == []


def test_an_unknown_value_without_a_cause_is_seen() -> None:
    assert list(causeless('Unknown("it is not known")')) == [1]
    assert list(causeless('Unknown("it is not known", Cause.not_set)')) == []
