"""What calls a program makes and with what: `probe(x)` records the value of x."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from preflight.python.interpreter import Interpreter
from preflight.python.module import load_module
from preflight.python.objects import CallRecord, Instance, alternatives
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Const, Expr, Op, Ref, Unknown, evaluate


def probes(evaluator: Interpreter) -> list[CallRecord]:
    return [call for call in evaluator.calls if call.name == "lib.probe"]


def values(evaluator: Interpreter, **environment: object) -> list[object]:
    env: dict[str, Expr] = {name: Const(value) for name, value in environment.items()}  # type: ignore[arg-type]
    return [evaluate(call.args[0], env) for call in probes(evaluator)]


KNOWN = {
    "literal": ("probe(16)", 16),
    "negative": ("probe(-16)", -16),
    "names": ("a = 4\nb = a\nprobe(b)", 4),
    "arithmetic": ("n = 8\nprobe(n * 4 + 2 ** 3 - 7 // 2)", 37),
    "rebound": ("a = 1\na = 2\nprobe(a)", 2),
    "augmented": ("a = 1\na += 2\nprobe(a)", 3),
    "unpacked": ("a, (b, c) = 1, (2, 3)\nprobe(a + b * c)", 7),
    "starred": ("first, *rest, last = [1, 2, 3, 4]\nprobe(len(rest) * 10 + last)", 24),
    "walrus": ("if (n := 5) > 3:\n    probe(n)", 5),
    "list item": ("xs = [8, 16, 32]\nprobe(xs[-1])", 32),
    "slice": ("xs = [8, 16, 32]\nprobe(sum(xs[1:]))", 48),
    "append": ("xs = []\nxs.append(3)\nprobe(xs[0])", 3),
    "dict": ('PARAMS = {"bs": 12, "opt": {"lr": 3}}\nprobe(PARAMS["opt"]["lr"])', 3),
    "dict get": ('d = {"a": 1}\nprobe(d.get("b", 7))', 7),
    "dict set": ('d = {}\nd["x"] = {}\nd["x"]["y"] = 5\nprobe(d["x"]["y"])', 5),
    "dict update": ('d = {"a": 1}\nd.update({"b": 2}, c=3)\nprobe(d["a"] + d["b"] + d["c"])', 6),
    "dict merge": ('d = {**{"a": 1}, "a": 2}\nprobe(d["a"])', 2),
    "dict or": ('d = {"a": 1} | {"a": 5}\nprobe(d["a"])', 5),
    "comprehension": ("probe(max([x * 2 for x in range(5) if x < 4]))", 6),
    "dict comprehension": ('d = {k: len(k) for k in ["a", "bb"]}\nprobe(d["bb"])', 2),
    "f-string": ('n = 3\nprobe(f"layer{n}")', "layer3"),
    "format": ('probe("layer{}-{x}".format(3, x=4))', "layer3-4"),
    "join": ('probe("-".join(["a", "b"]))', "ab".replace("", "-")[1:-1]),
    "methods of texts": ('probe("Bert-Large".lower().split("-")[1])', "large"),
    "condition": ('n = "xl-large"\nprobe(1 if "large" in n else 2)', 1),
    "any": ('n = "roberta-large"\nprobe(any(k in n for k in ["-large", "xlm"]))', True),
    "chained comparison": ("n = 5\nprobe(1 < n < 6)", True),
    "boolean": ("a = None\nprobe(a or 5)", 5),
    "not": ("probe(not [])", True),
    "an item behind a mapping that is not known": ("import lib\nd = {**lib.more(), 'n': 2}\nprobe(d['n'])", 2),
    "an argument beside a mapping that is not known": (
        "import lib\ndef f(n=1):\n    return n\nprobe(f(n=2, **lib.more()))",
        2,
    ),
    "attributes with another beginning": (
        'import lib\nclass C:\n    n = 2\nc = C()\nfor k in lib.items():\n    setattr(c, f"layer{k}", 3)\nprobe(c.n)',
        2,
    ),
    "an item under a key with another beginning": (
        'import lib\nd = {"n": 2}\nfor k in lib.items():\n    d[f"layer{k}"] = 3\nprobe(d["n"])',
        2,
    ),
    "an item under a key that is a tuple": ('d = {"n": 2}\nd[("n", 1)] = 3\nprobe(d["n"])', 2),
    "an item of another mapping under a key that is not known": (
        "import lib\nn = {'n': 2}\nd = {}\nfor k, v in lib.items():\n    d[k] = v\nprobe(n['n'])",
        2,
    ),
    "object.__setattr__": ("class C:\n    n = 2\nc = C()\nobject.__setattr__(c, 'n', 3)\nprobe(c.n)", 3),
    "a union in place": ("d = {'n': 2}\ne = d\nd |= {'n': 3}\nprobe(e['n'])", 3),
    "exec of another name": ("n = 2\nexec('m = 3')\nprobe(n)", 2),
    "exec within a function": ("import lib\nn = 2\ndef f():\n    exec(lib.text())\nf()\nprobe(n)", 2),
    "exec elsewhere": ("import lib\nn = 2\nexec(lib.text(), {})\nprobe(n)", 2),
    "a replaced field beside a mapping that is not known": (
        "import dataclasses, lib\n@dataclasses.dataclass\nclass C:\n    n: int = 1\n"
        "probe(dataclasses.replace(C(), n=2, **lib.more()).n)",
        2,
    ),
    "if else": ("n = 3\nif n > 2:\n    x = 1\nelse:\n    x = 2\nprobe(x)", 1),
    "loop": ("t = 0\nfor x in [1, 2, 3]:\n    t = x\nprobe(t)", 3),
    "zip": ("for a, b in zip([1, 2], [3, 4]):\n    pass\nprobe(a * b)", 8),
    "enumerate": ("for i, x in enumerate([5, 6], 1):\n    pass\nprobe(i * x)", 12),
    "items": ('for k, v in {"a": 1}.items():\n    probe(v)', 1),
    "break": ("for x in [1, 2, 3]:\n    if x == 2:\n        break\nprobe(x)", 2),
    "function": ("def f(a, b=3, *, c=4):\n    return a + b + c\nprobe(f(1, c=10))", 14),
    "varargs": ("def f(*xs, **kw):\n    return xs[1] + kw['z']\nprobe(f(1, 2, z=3))", 5),
    "spread": ('def f(a, b):\n    return a * b\nprobe(f(**{"a": 2, "b": 5}))', 10),
    "closure": ("def f(a):\n    def g():\n        return a\n    return g\nprobe(f(9)())", 9),
    "lambda": ("f = lambda x: x + 1\nprobe(f(1))", 2),
    "partial": ("from functools import partial\ndef f(a, b):\n    return a - b\nprobe(partial(f, b=1)(5))", 4),
    "early return": ("def f(n):\n    if n > 3:\n        return 1\n    return 2\nprobe(f(4))", 1),
    "global": ("N = 1\ndef f():\n    global N\n    N = 6\nf()\nprobe(N)", 6),
    "nonlocal": (
        "def f():\n    n = 1\n    def g():\n        nonlocal n\n        n = 2\n    g()\n    return n\nprobe(f())",
        2,
    ),
    "recursion ends": ("def f(n):\n    return 1 if n < 1 else f(n - 1)\nprobe(f(1))", 1),
    "class attribute": ("class C:\n    bs = 12\nprobe(C.bs)", 12),
    "instance attribute": ("class C:\n    def __init__(self, n):\n        self.n = n\nprobe(C(7).n)", 7),
    "method": ("class C:\n    n = 2\n    def f(self, k):\n        return self.n * k\nprobe(C().f(4))", 8),
    "inherited": (
        "class A:\n    def __init__(self):\n        self.n = 5\nclass B(A):\n    def __init__(self):\n"
        "        super().__init__()\n        self.m = self.n + 1\nprobe(B().m)",
        6,
    ),
    "property": ("class C:\n    @property\n    def n(self):\n        return 3\nprobe(C().n)", 3),
    "static method": ("class C:\n    @staticmethod\n    def f(x):\n        return x\nprobe(C().f(3))", 3),
    "class method": ("class C:\n    n = 4\n    @classmethod\n    def f(cls):\n        return cls.n\nprobe(C.f())", 4),
    "call": ("class C:\n    def __call__(self, x):\n        return x * 2\nprobe(C()(4))", 8),
    "dataclass": (
        "from dataclasses import dataclass, field\n@dataclass\nclass C:\n    a: int = 1\n"
        "    b: list = field(default_factory=lambda: [5])\nprobe(C(a=3).a * C().b[0])",
        15,
    ),
    "dataclass replace": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: int\n    b: int = 2\n"
        "c = dataclasses.replace(C(1), b=9)\nprobe(c.a + c.b)",
        10,
    ),
    "asdict": (
        "from dataclasses import dataclass, asdict\n@dataclass\nclass C:\n    a: int = 1\nprobe(asdict(C())['a'])",
        1,
    ),
    "named tuple": ("from typing import NamedTuple\nclass C(NamedTuple):\n    a: int = 4\nprobe(C().a)", 4),
    "namespace": ("from types import SimpleNamespace\nn = SimpleNamespace(a=1)\nn.b = n.a + 1\nprobe(vars(n)['b'])", 2),
    "getattr": ("class C:\n    n = 2\nprobe(getattr(C(), 'n', 5))", 2),
    "getattr default": ("class C:\n    n = 2\nprobe(getattr(C(), 'm', 5))", 5),
    "setattr": ("class C:\n    pass\nc = C()\nsetattr(c, 'n', 3)\nprobe(c.n)", 3),
    "math": ("import math\nprobe(math.ceil(10 / 4))", 3),
    "int of text": ('probe(int("12") + float("0.5"))', 12.5),
    "try": ("try:\n    n = 4\nexcept ValueError:\n    n = 1\nprobe(n)", 4),
    "import that may fail": (
        "try:\n    import fancy\n    HAS = True\nexcept ImportError:\n    HAS = False\nprobe(HAS)",
        True,
    ),
    "finally": ("try:\n    n = 1\nfinally:\n    n = 2\nprobe(n)", 2),
    "with": ("with open('x') as f:\n    n = 3\nprobe(n)", 3),
    "match": ("k = 'b'\nmatch k:\n    case 'a' | 'c':\n        n = 1\n    case _:\n        n = 2\nprobe(n)", 2),
    "environment of a launcher": ("import os\nprobe(int(os.environ.get('WORLD_SIZE', '6')))", 6),
    "deep copy": ("import copy\na = {'x': [1]}\nb = copy.deepcopy(a)\nb['x'].append(2)\nprobe(len(a['x']))", 1),
    "main": ("def main():\n    probe(1)\nif __name__ == '__main__':\n    main()", 1),
    "decorated": ("import functools\n@functools.lru_cache\ndef f():\n    return 3\nprobe(f())", 3),
    "own decorator": (
        "import functools\ndef deco(fn):\n    @functools.wraps(fn)\n    def inner(*a, **k):\n"
        "        return fn(*a, **k)\n    return inner\n@deco\ndef f(x):\n    return x\nprobe(f(8))",
        8,
    ),
    "power": ("probe(2 ** 5)", 32),
    "large power": ("probe(len(str(9 ** 9 ** 9)) if False else 3)", 3),
    "set": ("probe(len({1, 2, 3}))", 3),
    "product": ("import itertools\nprobe(len(list(itertools.product([1, 2], [3, 4, 5]))))", 6),
    "sorted": ("probe(sorted([3, 1, 2])[0])", 1),
    "reversed": ("probe(list(reversed([3, 1, 2]))[0])", 2),
    "map": ("probe(list(map(lambda x: x * 2, [1, 2]))[1])", 4),
    "filter": ("probe(list(filter(lambda x: x > 1, [1, 2]))[0])", 2),
    "async": ("async def f():\n    return 2\nasync def g():\n    return await f()\nprobe(g())", 2),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_value(name: str, run) -> None:
    text, expected = KNOWN[name]
    assert values(run(f"from lib import probe\n{text}\n")) == [expected]


SETTINGS = "import lib\nclass C:\n    m = 2\n    def __init__(self):\n        self.n = 2\nc = C()\n"
FLAGS = "import argparse, lib\nparser = argparse.ArgumentParser()\nparser.add_argument('--n', type=int, default=2)\n"
UNKNOWN = {
    "undefined": "probe(nothing)",
    "a library's value": "import lib\nprobe(lib.size())",
    "counted in a loop": "import lib\nn = 0\nfor x in lib.items():\n    n += 1\nprobe(n)",
    "set in a loop that may not run": "import lib\nn = 0\nfor x in lib.items():\n    n = 5\nprobe(n)",
    "a parameter nobody gives": "def f(x):\n    probe(x)",
    "input": "probe(int(input()))",
    "environment": "import os\nprobe(os.environ['N'])",
    "eval": "probe(eval('1'))",
    "sorted by key": "probe(sorted([1, 2], key=print)[0])",
    "too large": "x = 'a'\nfor _ in range(40):\n    x = x + x\nprobe(x)",
    "popped in a loop": "import lib\nxs = [1]\nfor _ in lib.items():\n    xs.append(2)\nprobe(len(xs))",
    "appended under a condition": ("import lib\nxs = [1]\nif lib.more():\n    xs.append(2)\nprobe(len(xs))"),
    "a dict updated with a mapping that is not known": "import lib\nd = {'n': 2}\nd.update(lib.more())\nprobe(d['n'])",
    "a mapping that is not known in a display": "import lib\nd = {**{'n': 2}, **lib.more()}\nprobe(d['n'])",
    "a mapping that is not known as arguments": "import lib\ndef f(n=2):\n    return n\nprobe(f(**lib.more()))",
    "a mapping that is not known, passed on": (
        "import lib\ndef f(**kw):\n    return kw.get('n', 2)\nprobe(f(**lib.more()))"
    ),
    "a dataclass of a mapping that is not known": (
        "import lib\nfrom dataclasses import dataclass\n@dataclass\nclass C:\n    n: int = 2\nprobe(C(**lib.more()).n)"
    ),
    "an attribute of a name that is not known": (
        "import lib\nclass C:\n    n = 2\nc = C()\nfor k, v in lib.items():\n    setattr(c, k, v)\nprobe(c.n)"
    ),
    "an attribute of a section that is not known": (
        "import lib\nclass A:\n    def __init__(self):\n        self.n = 2\n"
        "class C:\n    def __init__(self):\n        self.a = A()\nc = C()\n"
        "for k, v in lib.items():\n    setattr(getattr(c, k), v, 3)\nprobe(c.a.n)"
    ),
    "an item of an object's dictionary under a name that is not known": (
        f"{SETTINGS}for k, v in lib.items():\n    vars(c)[k] = v\nprobe(c.n)"
    ),
    "an item of __dict__ under a name that is not known": (
        f"{SETTINGS}for k, v in lib.items():\n    c.__dict__[k] = v\nprobe(c.n)"
    ),
    "an attribute of the class, replaced in an object's dictionary": (
        f"{SETTINGS}for k, v in lib.items():\n    vars(c)[k] = v\nprobe(c.m)"
    ),
    "an attribute of the class, replaced by an update": f"{SETTINGS}vars(c).update(lib.more())\nprobe(c.m)",
    "an attribute of a library's object, replaced by an update": (
        "import lib\nc = lib.Config()\nc.n = 2\nvars(c).update(lib.more())\nprobe(c.n)"
    ),
    "an item under a key that is not known": "import lib\nd = {'n': 2}\nd[lib.key()] = 3\nprobe(d['n'])",
    "an attribute of a class under a name that is not known": (
        f"{SETTINGS}for k, v in lib.items():\n    setattr(C, k, v)\nprobe(c.m)"
    ),
    "a name and a value that are not known": (f"{SETTINGS}for pair in lib.items():\n    setattr(c, *pair)\nprobe(c.n)"),
    "object.__setattr__": f"{SETTINGS}for k, v in lib.items():\n    object.__setattr__(c, k, v)\nprobe(c.n)",
    "__setattr__": f"{SETTINGS}for k, v in lib.items():\n    c.__setattr__(k, v)\nprobe(c.n)",
    "__setattr__ of the base class": (
        "import lib\nclass C:\n    def __init__(self):\n        self.n = 2\n"
        "        for k, v in lib.items():\n            super().__setattr__(k, v)\nprobe(C().n)"
    ),
    "dataclasses.replace": (
        "import dataclasses, lib\n@dataclasses.dataclass\nclass C:\n    n: int = 2\n"
        "probe(dataclasses.replace(C(), **lib.more()).n)"
    ),
    "set_defaults of no words": f"{FLAGS}parser.set_defaults(**lib.more())\nprobe(parser.parse_args([]).n)",
    "a namespace whose value is not known": (
        f"{FLAGS}space = argparse.Namespace(n=lib.more())\nprobe(parser.parse_args([], space).n)"
    ),
    "a union with a mapping that is not known": "import lib\nd = {'n': 2} | lib.more()\nprobe(d['n'])",
    "a union with a mapping of unknown keys": (
        "import lib\nd = {'n': 2} | {k: v for k, v in lib.items()}\nprobe(d['n'])"
    ),
    "a mapping that is not known, merged in place": ("import lib\nd = {'n': 2}\ne = d\nd |= lib.more()\nprobe(e['n'])"),
    "an update with keywords that are not known": "import lib\nd = {'n': 2}\nd.update(**lib.more())\nprobe(d['n'])",
    "exec of a file": "n = 2\nexec(open('settings.py').read())\nprobe(n)",
    "exec of a text that is not known": "import lib\nn = 2\nexec(lib.text())\nprobe(n)",
    "exec of a text that is known": "n = 2\nexec('n = 3')\nprobe(n)",
    "exec in a dictionary": "import lib\nd = {'n': 2}\nexec(lib.text(), d)\nprobe(d['n'])",
    "exec in the module's names": ("import lib\nn = 2\ndef f():\n    exec(lib.text(), globals())\nf()\nprobe(n)"),
    "exec with a dictionary of settings": "import lib\nd = {'n': 2}\nexec(lib.text())\nprobe(d['n'])",
    "while": "import lib\nn = 1\nwhile lib.more():\n    n = n * 2\nprobe(n)",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_value(name: str, run) -> None:
    (value,) = values(run(f"from lib import probe\n{UNKNOWN[name]}\n"))
    assert isinstance(value, Unknown)


ARGS = """
import argparse
from lib import probe
parser = argparse.ArgumentParser()
parser.add_argument("--n", type=int, default=3)
parser.add_argument("--flag", action="store_true")
args = parser.parse_args()
"""
JOINED = {
    "if": ("x = 1\nif args.flag:\n    x = 2\nprobe(x)", {"flag": True}, 2, {"flag": False}, 1),
    "else": ("if args.flag:\n    x = 2\nelse:\n    x = 3\nprobe(x)", {"flag": True}, 2, {"flag": False}, 3),
    "ternary": ("probe(args.n if args.flag else 9)", {"flag": True, "n": 4}, 4, {"flag": False, "n": 4}, 9),
    "early return": (
        "def f():\n    if args.flag:\n        return args.n * 2\n    return 0\nprobe(f())",
        {"flag": True, "n": 4}, 8, {"flag": False, "n": 4}, 0,
    ),
    "attribute": (
        "class C:\n    n = 1\nc = C()\nc.n = 1\nif args.flag:\n    c.n = 5\nprobe(c.n)",
        {"flag": True}, 5, {"flag": False}, 1,
    ),
    "class attribute": (
        "class C:\n    n = 1\nc = C()\nif args.flag:\n    c.n = 5\nprobe(c.n)", {"flag": True}, 5, {"flag": False}, 1,
    ),
    "nested continue": (
        "x = 0\nfor k in [1, 2]:\n    if args.n:\n        if args.flag:\n            continue\n    x = k\nprobe(x)",
        {"flag": True, "n": 1}, 0, {"flag": True, "n": 0}, 2,
    ),
    "break": (
        "for x in [1, 2, 3]:\n    if args.flag:\n        break\nprobe(x)", {"flag": True}, 1, {"flag": False}, 3,
    ),
    "return from a loop": (
        "def f():\n    for x in [1, 2]:\n        if args.n == x:\n            return x * 10\n    return 5\nprobe(f())",
        {"n": 2}, 20, {"n": 7}, 5,
    ),
    "changed before a return": (
        'd = {"a": 1}\ndef f():\n    if args.flag:\n        d["a"] = 2\n        return\n    d["a"] = 3\n'
            'f()\nprobe(d["a"])',
        {"flag": True}, 2, {"flag": False}, 3,
    ),
    "item": ('d = {"a": 1}\nif args.flag:\n    d["a"] = 5\nprobe(d["a"])', {"flag": True}, 5, {"flag": False}, 1),
    "raise": (
        "if args.n > 5:\n    raise ValueError\nx = 1\nif args.flag:\n    x = 2\nprobe(x)",
        {"flag": True}, 2, {"flag": False}, 1,
    ),
    "object": (
        "class A:\n    n = 1\nclass B:\n    n = 2\nc = A() if args.flag else B()\nprobe(c.n)",
        {"flag": True}, 1, {"flag": False}, 2,
    ),
    "overwritten argument": ("args.n = args.n * 2\nprobe(args.n)", {"n": 4}, 8, {"n": 5}, 10),
    "lookup": ('SIZES = {"a": 1, "b": 2}\nprobe(SIZES[args.n])', {"n": "a"}, 1, {"n": "b"}, 2),
    "vars": ('probe(vars(args)["n"])', {"n": 4}, 4, {"n": 5}, 5),
    "and": ("probe(args.flag and args.n)", {"flag": True, "n": 4}, 4, {"flag": False, "n": 4}, False),
    "elif": (
        "if args.n == 1:\n    x = 10\nelif args.n == 2:\n    x = 20\nelse:\n    x = 30\nprobe(x)",
        {"n": 2}, 20, {"n": 7}, 30,
    ),
    "continue": (
        "x = 0\nfor k in [1, 2]:\n    if args.flag:\n        continue\n    x = k\nprobe(x)",
        {"flag": True}, 0, {"flag": False}, 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINED)
def test_a_condition_that_is_not_known_keeps_both_sides(name: str, run) -> None:
    text, first, expected, second, other = JOINED[name]
    evaluator = run(ARGS + text + "\n")
    assert values(evaluator, **first)[-1] == expected
    assert values(evaluator, **second)[-1] == other


def test_an_origin_is_the_literals_own_text(run) -> None:
    text = "from lib import probe\nBATCH = 64\ndef f(bs=BATCH):\n    probe(bs)\nf()\n"
    (call,) = probes(run(text))
    assert isinstance(call.args[0], Const)
    origin = call.args[0].origin
    assert origin is not None
    assert text[origin.span.start : origin.span.end] == "64"
    assert origin.editable


def test_an_origin_after_characters_of_several_bytes(run) -> None:
    text = 'from lib import probe\nname, n = "größe 🚀", 64; probe(n)\n'
    (call,) = probes(run(text))
    origin = call.args[0].origin
    assert origin is not None
    assert text[origin.span.start : origin.span.end] == "64"


def test_an_expression_keeps_its_operands_places(run) -> None:
    text = ARGS + "probe(args.n * 2)\n"
    (call,) = probes(run(text))
    assert isinstance(call.args[0], Op)
    assert call.args[0].operands[0] == Ref("n")


def test_keyword_arguments_and_their_places(run) -> None:
    text = "from lib import probe\nn = 3\nprobe(1, size=n)\n"
    (call,) = probes(run(text))
    place = call.keyword_origins["size"]
    assert text[place.span.start : place.span.end] == "n"
    assert call.argument("size") == call.kwargs["size"]
    assert call.argument("first", 0) == call.args[0]
    assert call.argument("second", 1) is None


def test_names_are_qualified_through_imports(run) -> None:
    evaluator = run(
        """
        import torch.nn as nn
        from torch.utils import data
        from torch.utils.data import DataLoader as DL
        import transformers
        nn.Linear(1, 2)
        data.DataLoader([])
        DL([])
        transformers.AutoModel.from_pretrained("x").generate(3)
        """
    )
    assert [call.qualified for call in evaluator.calls] == [
        "torch.nn.Linear", "torch.utils.data.DataLoader", "torch.utils.data.DataLoader",
        "transformers.AutoModel.from_pretrained", "transformers.AutoModel.from_pretrained.generate",
    ]  # fmt: skip


def test_a_methods_receiver_is_what_made_the_object(run) -> None:
    evaluator = run(
        """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                return torch.relu(x)
        net = Net().to("cuda")
        opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
        out = net(1)
        opt.step()
        """
    )
    by_name = {call.name: call for call in evaluator.calls}
    assert by_name["opt.step"].receiver == "torch.optim.AdamW"
    assert by_name["opt.step"].method == "step"
    assert by_name["net.parameters"].receiver == "main.Net"
    assert by_name["torch.relu"].function == "Net.forward"


def test_where_a_call_stands(run) -> None:
    evaluator = run(
        """
        import torch
        from lib import probe, items
        def step():
            for x in items():
                with torch.no_grad():
                    try:
                        probe(x)
                    except (RuntimeError, torch.OutOfMemoryError):
                        pass
        step()
        """
    )
    (call,) = probes(evaluator)
    assert call.in_loop
    assert call.function == "step"
    assert call.in_try == ("RuntimeError", "torch.OutOfMemoryError")
    assert [context.name for context in call.contexts] == ["torch.no_grad"]
    assert evaluator.tries[0].calls == (call,)


def test_conditions_on_the_way(run) -> None:
    (call,) = probes(run(ARGS + "if args.flag:\n    if args.n > 2:\n        probe(1)\n"))
    assert len(call.conditions) == 2
    assert call.conditions[0] == Ref("flag")


def test_a_decorator_is_a_context(run) -> None:
    (call,) = probes(run("import torch\nfrom lib import probe\n@torch.no_grad()\ndef f():\n    probe(1)\nf()\n"))
    assert [context.name for context in call.contexts] == ["torch.no_grad"]


def test_functions_that_nothing_calls_are_read_too(run) -> None:
    evaluator = run(
        """
        from lib import probe
        class Module:
            def __init__(self, bs=8):
                self.bs = bs
            def train_dataloader(self):
                probe(self.bs)
        def unused(n=4):
            probe(n)
        probe(1)
        Module(16)
        """
    )
    assert [(evaluate(c.args[0]), c.reached) for c in probes(evaluator)] == [(1, True), (16, False), (4, False)]


def test_a_call_in_an_unrolled_loop_is_recorded_once_per_argument(run) -> None:
    assert values(run("from lib import probe\nfor x in [1, 2]:\n    for _ in [3, 4]:\n        probe(x)\n")) == [1, 2]


def test_assumptions_decide_without_replacing(run) -> None:
    evaluator = run(ARGS + "if args.flag:\n    probe(args.n)\nelse:\n    probe(0)\n", assume={"flag": Const(True)})
    assert [call.args[0] for call in probes(evaluator)] == [Ref("n")]
    assert evaluator.decided_by == {"flag"}


def test_a_launchs_environment(run) -> None:
    evaluator = run(
        "import os\nfrom lib import probe\nprobe(int(os.environ.get('N', '6')))\n", environment={"N": Const("8")}
    )
    assert values(evaluator) == [8]


FILES = {
    "relative": ("pkg/main.py", "from .config import BATCH\n", {"pkg/__init__.py": "", "pkg/config.py": "BATCH = 5\n"}),
    "absolute": ("train/main.py", "from conf.config import BATCH\n"
        "", {"conf/__init__.py": "", "conf/config.py": "BATCH = 5\n"}),
    "beside the script": ("train/main.py", "from config import BATCH\n", {"train/config.py": "BATCH = 5\n"}),
    "src layout": ("src/app/main.py", "from app.config import BATCH\n"
        "", {"src/app/__init__.py": "", "src/app/config.py": "BATCH = 5\n"}),
    "module": ("main.py", "import config\nBATCH = config.BATCH\n", {"config.py": "BATCH = 5\n"}),
    "dotted": ("main.py", "import a.b\nBATCH = a.b.BATCH\n", {"a/__init__.py": "", "a/b.py": "BATCH = 5\n"}),
    "dotted namespace": ("main.py", "import a.b\nBATCH = a.b.BATCH\n", {"a/b.py": "BATCH = 5\n"}),
    "namespace package": ("main.py", "from a import b\nBATCH = b.BATCH\n", {"a/b.py": "BATCH = 5\n"}),
    "star": ("main.py", "from config import *\n", {"config.py": "BATCH = 5\n"}),
    "re-exported": (
        "main.py", "from a import BATCH\n", {"a/__init__.py": "from .b import BATCH\n", "a/b.py": "BATCH = 5\n"}),
    "cycle": ("main.py", "from a import BATCH\n", {"a.py": "import b\nBATCH = 5\n", "b.py": "import a\nX = a.BATCH\n"}),
    "up": ("pkg/sub/main.py", "from ..config import BATCH\n", {"pkg/__init__.py": "", "pkg/config.py": "BATCH = 5\n"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_imports_within_the_project(name: str, run) -> None:
    path, text, files = FILES[name]
    evaluator = run(f"from lib import probe\n{text}probe(BATCH)\n", files, path=path)
    assert values(evaluator) == [5]
    assert set(evaluator.reads) <= {path, *files}


@pytest.mark.parametrize(
    ("body", "generates"),
    [
        ("    return 1\n", False),
        ("    def inner():\n        yield 1\n    return inner\n", False),
        ("    return lambda: (yield)\n", False),
        ("    if x:\n        yield 1\n", True),
        ("    y = yield from x\n", True),
    ],
)
def test_a_function_with_a_yield_of_its_own_gives_a_generator(body: str, generates: bool, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"def first(x):\n{body}\n\ndef second(x):\n    yield x\n")
    module = load_module("a.py", Project(tmp_path, Settings()))
    assert module is not None
    first, second = (one for one in module.tree.body if isinstance(one, ast.FunctionDef))
    assert [module.is_generator(one) for one in (first, second, first)] == [generates, True, generates]


@pytest.mark.parametrize(
    ("made", "kinds"),
    [
        ("made = other()\nmade[2] = Small()", {"unknown"}),
        ("made = list(other())\nmade[1] = Small()", {"unknown"}),
        ("made = []\nmade.extend(other())\nmade[3] = Small()", {"unknown"}),
        ("made = [Small(), Large()]", {"lib.Small", "lib.Large"}),
    ],
)
def test_an_item_of_a_list_of_which_only_some_items_were_seen(made: str, kinds: set[str], run) -> None:
    """Any of the others may be the chosen one, so that what was seen says nothing."""
    head = "import argparse\nfrom lib import Large, Small, other, probe\np = argparse.ArgumentParser()\n"
    head += 'p.add_argument("--which", type=int)\nargs = p.parse_args()\n'
    [call] = probes(run(f"{head}{made}\nprobe(made[args.which])\n"))
    found = {one.made_by if isinstance(one, Instance) else "unknown" for one in alternatives(call.arguments[0])}
    assert found == kinds


def test_the_truth_of_an_array_is_decided_by_its_values(run) -> None:
    head = "import torch\nimport numpy as np\nfrom lib import probe\n"
    found = run(head + "if torch.from_numpy(np.zeros(1)) > 0.5:\n    probe(1)\nelse:\n    probe(2)\n")
    assert values(found) == [1, 2]
