"""Random programs: what the evaluator says of a variable is what Python computes, or unknown - never something else."""

from __future__ import annotations

import ast
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples

from preflight.python.interpreter import Interpreter
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Cause, Const, Expr, Unknown, evaluate

NAMES = ("a", "b", "c")
PARAMETERS = ("p", "q")

HEAD = """
import argparse
from lib import probe
parser = argparse.ArgumentParser()
parser.add_argument("--p", type=int, default=0)
parser.add_argument("--q", type=int, default=0)
args = parser.parse_args()
a, b, c, d = 1, 2, [3, 4], {"k": 5}
"""
TAIL = "probe(a)\nprobe(b)\nprobe(c[0] if c else 0)\nprobe(d['k'])\n"

atoms = st.one_of(
    st.integers(-3, 9).map(str),
    st.sampled_from(["a", "b", "len(c)", "c[0]", "d['k']", "args.p", "args.q", "d.get('z', 7)"]),
)
numbers = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"max({t[0]}, {t[1]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} > 2 else {t[2]})"),
        inner.map(lambda t: f"sum([x * 2 for x in [1, {t}]])"),
        inner.map(lambda t: f"f({t})"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]} or {t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]} and {t[1]})"),
    ),
    max_leaves=4,
)
conditions = st.one_of(
    st.tuples(numbers, st.sampled_from(["<", ">", "==", "!=", "<="]), numbers).map(" ".join),
    st.sampled_from(["args.p", "not args.q", "args.p in (1, 2)", "0 < args.p < 3", "True", "a"]),
)
simple = st.one_of(
    st.tuples(st.sampled_from(["a", "b", "c[0]", "d['k']", "d['z']"]), numbers).map(lambda t: f"{t[0]} = {t[1]}"),
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["+=", "-="]), numbers).map(" ".join),
    numbers.map(lambda n: f"c.append({n})"),
    st.just("a, b = b, a"),
    numbers.map(lambda n: f"d.update(k={n})"),
    st.just("c = [a, *c][:6]"),
)


def indented(block: list[str]) -> str:
    return "\n".join("    " + line for statement in block for line in statement.split("\n"))


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    block = st.lists(inner, min_size=1, max_size=3).map(indented)
    return st.one_of(
        st.tuples(conditions, block, block).map(lambda t: f"if {t[0]}:\n{t[1]}\nelse:\n{t[2]}"),
        st.tuples(conditions, block).map(lambda t: f"if {t[0]}:\n{t[1]}"),
        block.map(lambda b: f"for a in [1, 2, 3]:\n{b}"),
        block.map(lambda b: f"for _ in range(args.p):\n{b}"),
        st.tuples(conditions, block).map(lambda t: f"for b in [1, 2]:\n    if {t[0]}:\n        continue\n{t[1]}"),
        st.tuples(conditions, block).map(lambda t: f"for b in [1, 2, 3]:\n    if {t[0]}:\n        break\n{t[1]}"),
        block.map(lambda b: f"try:\n{b}\nexcept ZeroDivisionError:\n    a = 100"),
        st.tuples(conditions, numbers, numbers, numbers).map(
            lambda t: (
                f"def g(x):\n    if {t[0]}:\n        return {t[1]}\n    if x > 3:\n        x = {t[2]}\n"
                f"    return x - {t[3]}\nb = g(a)"
            )
        ),
    )


programs = st.lists(st.recursive(simple, compound, max_leaves=6), min_size=1, max_size=4).map("\n".join)
FUNCTION = "def f(x):\n    if x > 4:\n        return x - 1\n    return x + args.q\n"


def truth(text: str, p: int, q: int) -> list[object] | None:
    """What Python computes; None where the program raises."""
    seen: list[object] = []
    arguments = type("Args", (), {"p": p, "q": q})()
    scope = {"args": arguments, "probe": seen.append, "a": 1, "b": 2, "c": [3, 4], "d": {"k": 5}}
    try:
        exec(compile(ast.parse(text), "random", "exec"), scope)  # generated above: arithmetic and control flow alone
    except Exception:
        return None
    return seen


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(programs, st.integers(0, 4), st.integers(0, 4))
def test_never_a_wrong_value(program: str, p: int, q: int) -> None:
    body = FUNCTION + program + "\n" + TAIL
    expected = truth(body, p, q)
    if expected is None:
        return
    with TemporaryDirectory() as directory:
        (Path(directory) / "main.py").write_text(HEAD + body)
        evaluator = Interpreter(Project(Path(directory), Settings()))
        evaluator.run("main.py")
    found = [call.args[0] for call in evaluator.calls if call.name == "lib.probe"]
    assert len(found) == len(expected)
    env: dict[str, Expr] = {"p": Const(p), "q": Const(q)}
    for expr, value in zip(found, expected, strict=True):
        said = evaluate(expr, env)
        assert isinstance(said, Unknown) or said == value, program


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(programs)
def test_nothing_is_unknown_where_all_is_given(program: str) -> None:
    """Without parameters and loops of unknown length, every value is known that is within the budgets."""
    body = (FUNCTION + program + "\n" + TAIL).replace("args.p", "3").replace("args.q", "1")
    expected = truth(body, 0, 0)
    if expected is None or any(word in body for word in ("c.append", "range(")):
        return
    with TemporaryDirectory() as directory:
        (Path(directory) / "main.py").write_text(HEAD + body)
        evaluator = Interpreter(Project(Path(directory), Settings()))
        evaluator.run("main.py")
    found = [evaluate(call.args[0]) for call in evaluator.calls if call.name == "lib.probe"]
    assert len(found) == len(expected)
    for said, value in zip(found, expected, strict=True):
        assert said == value or (isinstance(said, Unknown) and said.cause is Cause.budget), program
