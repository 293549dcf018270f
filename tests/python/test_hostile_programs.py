"""Programs that would hang, crash or exhaust an interpreter: bounded, and unread past a bound."""

from __future__ import annotations

import time

import pytest

from preflight.python.module import load_module
from preflight.vocabulary.budgets import PROGRAM_DEPTH, PROGRAM_STEPS, OverBudget
from preflight.vocabulary.values import evaluate

HOSTILE = {
    "deep parentheses": "x = " + "(" * 150 + "1" + ")" * 150,
    "deep operators": "x = " + "+".join(["a"] * 5000),
    "deep unary": "x = " + "-" * 3000 + "1",
    "deep attributes": "x = a" + ".b" * 3000,
    "deep calls": "x = f" + "()" * 1000,
    "deep lists": "x = " + "[" * 90 + "]" * 90,
    "deep blocks": "\n".join("    " * i + "if a:" for i in range(90)) + "\n" + "    " * 90 + "x = 1",
    "nested loops": "\n".join("    " * i + f"for i{i} in range(50):" for i in range(12)) + "\n" + "    " * 12 + "f()",
    "unknown branches": "\n".join(f"if unknown({i}):\n    x = {i}" for i in range(400)),
    "nested unknown branches": (
        "def f(n):\n    if unknown():\n        f(n)\n    else:\n        f(n)\n    if unknown():\n        f(n)\nf(1)"
    ),
    "doubling": "x = a\nfor _ in range(60):\n    x = x + x",
    "doubling list": "x = [1]\nfor _ in range(60):\n    x = x + x",
    "doubling text": "x = 'a'\n" + "x = x * 1000\n" * 20,
    "doubling dict": "d = {}\n" + "".join(f"d{i} = {{'a': d, 'b': d}}\nd = d{i}\n" for i in range(60)) + "f(d)",
    "huge power": "x = 9 ** 9 ** 9 ** 9",
    "huge repeat": "x = [0] * 10 ** 12",
    "huge range": "x = list(range(10 ** 12))",
    "huge number": "x = " + "9" * 4000,
    "self import": "import main\nfrom main import x",
    "own container": "d = {}\nd['d'] = d\nf(d)\nx = [d]\nd['x'] = x\nf(**d)",
    "own attribute": "class C: pass\nc = C()\nc.c = c\nf(c.c.c)\nf(vars(c))",
    "mutual recursion": "def f(n):\n    return g(n) + g(n)\ndef g(n):\n    return f(n) + f(n)\nf(1)",
    "endless while": "while True:\n    x = 1",
    "generator of itself": "def f():\n    yield from f()\nlist(f())",
    "decorator of itself": "def d(f):\n    return d(f)\n@d\ndef g():\n    pass\ng()",
    "class of itself": "class A(A):\n    pass\nA()",
    "cyclic bases": "class A: pass\nclass B(A): pass\nA.x = B\nclass A(B): pass\nA().missing",
    "property of itself": "class C:\n    @property\n    def p(self):\n        return self.p\nC().p",
    "product": "import itertools\nx = list(itertools.product(range(100), range(100), range(100)))",
    "many calls": "\n".join(f"f({i})" for i in range(20000)),
    "wide literal": "x = [" + ", ".join(str(i) for i in range(60000)) + "]",
}


CUT_OFF = {"deep calls": PROGRAM_DEPTH, "nested loops": PROGRAM_STEPS}
"""What comes behind the end of these budgets may set anything: such a program is unread."""


@pytest.mark.parametrize("name", sorted(HOSTILE.keys() - CUT_OFF.keys()))
def test_a_hostile_program_ends(name: str, run) -> None:
    start = time.process_time()
    evaluator = run(f"from lib import probe\nprobe(1)\n{HOSTILE[name]}\n")
    assert time.process_time() - start < 20  # at most two seconds of a processor's time
    first = [call for call in evaluator.calls if call.name == "lib.probe"]
    if load_module("main.py", evaluator.project) is not None:
        assert [evaluate(call.args[0]) for call in first] == [1]


@pytest.mark.parametrize("name", CUT_OFF)
def test_a_hostile_program_is_cut_off(name: str, run) -> None:
    with pytest.raises(OverBudget) as over:
        run(HOSTILE[name])
    assert over.value.budget is CUT_OFF[name]


@pytest.mark.parametrize("text", ["x = (", "\0", "x = 1\n\tif", "print 'python 2'"])
def test_what_is_not_python_has_no_module(text: str, run) -> None:
    evaluator = run(text)
    assert not evaluator.calls
    assert load_module("main.py", evaluator.project) is None


def test_a_script_of_usual_size_is_quick(run) -> None:
    body = "".join(
        f"""
def step_{i}(model, loader, args):
    for index, batch in enumerate(loader):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss / args.accum
        loss.backward()
        if (index + 1) % args.accum == 0:
            optimizer.step()
            optimizer.zero_grad()
    return loss
"""
        for i in range(50)
    )
    text = (
        f"import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--accum', type=int)\n"
        f"args = p.parse_args()\n{body}"
    )
    run(text)  # imports
    start = time.process_time()
    run(text, path="again.py")
    assert time.process_time() - start < 2  # some 40 ms of a processor's time
