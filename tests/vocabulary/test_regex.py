"""Expressions that are compiled when they are first used."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from processes import HANGS

from preflight.vocabulary.caches import regex

CODE = """
import re
before = re.compile("a").__class__
made = []
compile_ = re._compile
re._compile = lambda text, flags: made.append(text) or compile_(text, flags)
from preflight.vocabulary.caches import regex
one = regex("b+", re.IGNORECASE)
assert made == [], made
assert one.fullmatch("BB") and one.fullmatch("b") and one.search("aBc")
assert made.count("b+") == 2, made  # one for each method that was asked for; `re` keeps the expression
"""


def test_an_expression_is_compiled_at_its_first_use() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], timeout=HANGS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_answers_as_the_compiled_one() -> None:
    later, now = regex(r"(?P<name>\w+)=(\d*)", re.ASCII), re.compile(r"(?P<name>\w+)=(\d*)", re.ASCII)
    assert (later.pattern, later.flags, later.groupindex) == (now.pattern, now.flags, now.groupindex)
    assert later.sub(r"\2", "a=1 b=2") == now.sub(r"\2", "a=1 b=2") == "1 2"
    assert later.findall("a=1 b=") == now.findall("a=1 b=")
    assert regex(b"x+").fullmatch(b"xx") is not None


def test_a_broken_expression_is_an_error_at_its_use() -> None:
    broken = regex("(")
    with pytest.raises(re.error):
        broken.match("")
