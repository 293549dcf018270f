"""Values as text in the style of the text that they replace."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from preflight.documents.bash import parse_bash
from preflight.documents.render import Language, language_of, render
from preflight.documents.yaml import parse_yaml
from preflight.vocabulary.text import CannotEdit, Source
from preflight.vocabulary.values import Unknown, Value, evaluate

GIB, MIB = 2**30, 2**20

REFUSED: list[tuple[str, Value, Language]] = [
    ("1", Unknown("x"), "yaml"),
    ("1", (Unknown("x"),), "json"),
    ("1", float("nan"), "json"),
    ("1", {"a": 1}, "bash"),
    ("a", "x\0", "bash"),
    ("4G", "much", "slurm-size"),
    ("4G", -1, "slurm-size"),
    ("4G", True, "slurm-size"),
]


@pytest.mark.parametrize(("old", "value", "language"), REFUSED)
def test_what_a_language_cannot_spell_is_refused(old: str, value: Value, language: Language) -> None:
    with pytest.raises(CannotEdit):
        render(old, value, language)


TEXTS: list[tuple[str, Value, Language, str]] = [
    ("256G", 384 * GIB, "slurm-size", "384G"),
    ("256GB", 384 * GIB, "slurm-size", "384GB"),
    ("256gb", 384 * GIB, "slurm-size", "384gb"),
    ("32000", 64 * GIB, "slurm-size", "65536"),
    ("32000M", 64 * GIB + 1, "slurm-size", "65537M"),
    ("1T", 1536 * GIB, "slurm-size", "1536G"),
    ("2T", 4096 * GIB, "slurm-size", "4T"),
    ("4G", 5 * GIB + 512 * MIB, "slurm-size", "5632M"),
    ("256G", 384 * GIB - 1, "slurm-size", "384G"),
    ("16", 32, "bash", "32"),
    ("'16'", 32, "bash", "'32'"),
    ('"16"', 32, "bash", '"32"'),
    ("true", False, "bash", "false"),
    ("True", False, "bash", "False"),
    ("a", "b c", "bash", "'b c'"),
    ("a", "it's $x", "bash", "'it'\\''s $x'"),
    ('"a"', 'b"$c`\\', "bash", '"b\\"\\$c\\`\\\\"'),
    ("1,2", (1,), "bash", "1"),
    ("[1,2]", (1, 3), "bash", "[1,3]"),
    ("choice(8, 16)", (8,), "hydra", "choice(8)"),
    ("8,16,32", (8, 16), "hydra", "8,16"),
    ("'a b'", "it's", "hydra", "'it\\'s'"),
    ("1e-3", 1e-4, "hydra", "0.0001"),
    ("[1, 2]", (1,), "python", "[1]"),
    ("(1, 2)", (1,), "python", "(1,)"),
    ("'a'", {"k": (1.5, None)}, "python", "{'k': [1.5, None]}"),
    ("1", "é😀", "json", '"é😀"'),
    ("1", "\u2028", "json", '"\\u2028"'),
]


@pytest.mark.parametrize(("old", "value", "language", "expected"), TEXTS)
def test_values_take_the_style_of_what_stands_there(old: str, value: Value, language: Language, expected: str) -> None:
    assert render(old, value, language) == expected


@given(st.integers(0, 2**45), st.sampled_from(["1G", "1", "1M", "1k", "1TB"]))
@settings(max_examples=examples(200))
def test_sizes_are_enough_and_at_most_a_hundredth_more(size: int, old: str) -> None:
    text = render(old, size, "slurm-size").upper().removesuffix("B")
    units = {"K": 2**10, "M": MIB, "G": GIB, "T": 2**40}
    value = int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text) * MIB
    assert size <= value <= max(size * 1.01, size + MIB)


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=8), st.sampled_from(["a", "'a'", '"a"']))
@settings(max_examples=examples(200))
def test_shell_words_read_back(value: str, old: str) -> None:
    text = render(old, value, "bash")
    (assignment,) = parse_bash(Source("a.sh", f"X={text}\n")).assignments
    assert evaluate(assignment.expr) == value


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=("Cs",))),
)


@given(
    SCALARS,
    st.sampled_from(["", "1", "x", "1_000", "1e-4", "True", "0.5"]),
    st.sampled_from(["1.1", "1.2", "omegaconf"]),
)
@settings(max_examples=examples(400))
def test_yaml_values_read_back_in_every_version(value: Value, old: str, version: str) -> None:
    for flow in (False, True):
        text = render(old, value, "yaml", version, flow)  # type: ignore[arg-type]
        document = f"a: [{text}]\n" if flow else f"a:\n- {text}\n"
        found = parse_yaml(Source("a.yaml", document), version).value(("a", 0))  # type: ignore[arg-type]
        assert found == value
        assert isinstance(found, bool) == isinstance(value, bool)


@given(SCALARS, st.sampled_from(["", "1", '"x"', "1e-4", "true"]))
@settings(max_examples=examples(200))
def test_json_values_read_back(value: Value, old: str) -> None:
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return
    found = json.loads(render(old, value, "json"))
    assert found == value or (old == '"x"' and isinstance(found, str))


def test_the_language_is_told_by_the_name() -> None:
    names = ["a.yaml", "b/c.YML", "d.json", "e.py", "f.sbatch", "run"]
    assert [language_of(name) for name in names] == ["yaml", "yaml", "json", "python", "bash", "bash"]
