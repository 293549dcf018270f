"""Interpolations by OmegaConf's own grammar: what is not read, then what each form becomes."""

from __future__ import annotations

import pytest

from preflight.dialects.hydra.parse import (
    InterpolatedKey,
    Literal,
    Part,
    ResolverCall,
    Sequence,
    parse,
    primitive,
)
from preflight.vocabulary.budgets import INTERPOLATED_CHARACTERS

REFUSED = [
    "${a b}", "${1:-$BATCH}", "${X:=8}", "${{a}}", "${a", "${}", "${f:'a}", "x\0y${a}", "${f:" + "9" * 5000 + "}",
    "${" * 900 + "a" + "}" * 900, "${f:" + "[" * 500 + "]" * 500 + "}", "${" * (INTERPOLATED_CHARACTERS // 2),
    "${f:" + "a," * INTERPOLATED_CHARACTERS + "}",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=[text[:12].encode().hex() for text in REFUSED])
def test_what_omegaconf_does_not_read_or_has_no_bound_is_not_read(text: str) -> None:
    assert parse(text) is None


B = InterpolatedKey((Literal("b"),))
READ: list[tuple[str, tuple[Part, ...]]] = [
    ("a$b", (Literal("a$b"),)),
    ("\\${a}", (Literal("${a}"),)),
    ("x_${b}_y", (Literal("x_"), B, Literal("_y"))),
    ("${..a[0].c}", (InterpolatedKey((Literal("..a[0].c"),)),)),
    ("${a.${b}}", (InterpolatedKey((Literal("a."), B)),)),
    ("${f:}", (ResolverCall("f", ()),)),
    ("${f:1,,'1'}", (ResolverCall("f", ((Literal(1),), (Literal(""),), (Literal("1"),))),)),
    ("${n.f: true , null, 1e-5, x y}", (ResolverCall("n.f", ((Literal(True),), (Literal(None),), (Literal(1e-5),),
                                                     (Literal("x y"),))),)),
    ("${f:'${b} * 2'}", (ResolverCall("f", ((B, Literal(" * 2")),)),)),
    ("${f:[1,[${b}]]}", (ResolverCall("f", ((Sequence(((Literal(1),), (Sequence(((B,),)),))),),)),)),
    ("${f:{a: 1}}", (ResolverCall("f", ((Literal("{a: 1}"),),)),)),
    ("${f:{a:${b}}}", (ResolverCall("f", ((Literal("{a:"), B, Literal("}")),)),)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "parts"), READ, ids=[text for text, _ in READ])
def test_each_form_has_its_parts(text: str, parts: tuple[Part, ...]) -> None:
    assert parse(text) == parts


def test_an_unquoted_word_is_what_omegaconf_makes_of_it() -> None:
    assert [primitive(text) for text in ("1", " 1_000 ", "1e-5", "TRUE", "null", "010", "a b", "[1]", "")] == [
        1, 1000, 1e-5, True, None, "010", "a b", "[1]", "",
    ]  # fmt: skip
