"""Hostile model files: their reading ends at a known line, quickly and in little memory, and runs nothing of theirs."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from preflight.tracer import own  # noqa: E402
from preflight.tracer.reading.stopped import Stopped  # noqa: E402

SETUP = {"weights": "fp32"}
CPU_SECONDS = 60
MEMORY_MIB = 1024

START = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nimport os\nfrom torch.nn import *\n"
MARK = "/tmp/preflight-reading-ran"


def _init(body: str) -> str:
    lines = "\n        ".join(body.splitlines())
    return f"{START}class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {lines}\n"


HOSTILE = {
    "class": _init("self.x = ().__class__.__bases__[0].__subclasses__()"),
    "globals": _init("self.x = F.relu.__globals__"),
    "globals of a method": _init("self.x = self.parameters.__func__"),
    "getattr": _init("self.x = getattr(torch, '__builtins__')"),
    "getattr with a joined name": _init("self.x = getattr(self, '__cl' + 'ass__')"),
    "getattr of a library": _init("self.x = getattr(getattr(torch, 'hub'), 'load')('a/b', 'c')"),
    "eval": _init("self.x = eval('1')"),
    "exec": _init("exec('x = 1')"),
    "import": _init("self.x = __import__('os')"),
    "open": _init(f"self.x = open({MARK!r}, 'w')"),
    "system": _init(f"os.system('touch {MARK}')"),
    "subprocess": _init(f"import subprocess\nsubprocess.run(['touch', {MARK!r}])"),
    "load": _init("self.x = torch.load('x.pt')"),
    "save": _init(f"torch.save(self.state_dict(), {MARK!r})"),
    "hub": _init("self.x = torch.hub.load('a/b', 'c')"),
    "numpy": _init(f"import numpy\nnumpy.save({MARK!r}, 1)"),
    "ops": _init("self.x = torch.ops.load_library('x.so')"),
    "tensor file": _init("self.x = torch.from_file('/etc/passwd', size=10)"),
    "format": _init("self.x = '{0.__class__}'.format(self)"),
    "f-string": _init("self.x = f'{self!r}'"),
    "f-string of a great width": _init("self.x = f'{1:1000000000}'"),
    "percent": _init("self.x = '%1000000000d' % 1"),
    "text": _init("self.x = 'a' * 10**10"),
    "list": _init("self.x = [0] * 10**10"),
    "range": _init("self.x = list(range(10**10))"),
    "power": _init("self.x = 9 ** 9 ** 9"),
    "shift": _init("self.x = 1 << 10**10"),
    "growing": _init("x = [1]\nfor i in range(64):\n    x = x + x"),
    "growing text": _init("x = 'ab'\nfor i in range(64):\n    x = x + x"),
    "endless": _init("while True:\n    pass"),
    "endless inside": _init("for i in range(10**12):\n    x = i"),
    "nested loops": _init("for i in range(10**5):\n    for j in range(10**5):\n        x = torch.zeros(1)"),
    "recursion": _init("self.build()") + "    def build(self):\n        return self.build()\n",
    "deep": _init("self.x = " + "(" * 150 + "1" + ")" * 150 + "\nself.y = " + "not " * 3000 + "x"),
    "long chain": _init("self.x = " + "1+" * 20000 + "1\nself.z = unknown"),
    "tensor": _init("self.x = nn.Parameter(torch.zeros(10**9, 10**9))"),
    "dimensions": _init("self.x = torch.zeros([1] * 1000)"),
    "layers": _init("self.x = nn.LSTM(8, 8, 10**7)"),
    "stack": _init("self.x = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 1), 10**7)"),
    "many layers": _init("self.x = nn.ModuleList([nn.Linear(1, 1) for _ in range(10**7)])"),
    "pieces": _init("self.x = torch.zeros(10**9).split(1)"),
    "pieces by iteration": _init("self.x = [a for a in torch.zeros(10**9)]"),
    "pieces by unbind": _init("self.x = torch.zeros(10**9).unbind()"),
    "metaclass": START + "class M(type):\n    pass\nclass Net(nn.Module, metaclass=M):\n    pass\n",
    "decorator": START
    + f"def d(c):\n    os.system('touch {MARK}')\n    return c\n@d\nclass Net(nn.Module):\n    pass\n",
    "getattribute": START + "class Net(nn.Module):\n    def __getattr__(self, name):\n        return os.system\n",
    "patched library": START + "nn.Linear = print\n" + _init("self.x = nn.Linear(1, 1)")[len(START) :],
    "patched forward": _init("pass") + "Net.forward = lambda self, x: x\n",
    "patched by setattr": _init("pass") + "setattr(nn, 'Linear', print)\n",
    "class body": START
    + f"class Net(nn.Module):\n    x = os.system('touch {MARK}')\n    def __init__(self):\n        self.x\n",
    "top": START + f"os.system('touch {MARK}')\n" + _init("self.x = unknown")[len(START) :],
    "default": START + f"class Net(nn.Module):\n    def __init__(self, x=os.system('touch {MARK}')):\n        pass\n",
    "reduce": _init("self.x = F.relu.__reduce__()"),
    "layer's code": _init("self.x = nn.Linear(1, 1).forward.__code__"),
    "hook": _init("self.register_forward_hook(print)"),
    "module attribute": _init("self._modules = {}"),
    "grad function": _init("self.x = torch.zeros(1, requires_grad=True).sum().grad_fn"),
    "storage": _init("self.x = torch.zeros(1).untyped_storage()"),
    "data pointer": _init("self.x = torch.zeros(1).data_ptr()"),
    "lambda": _init("(lambda: os.system('true'))()"),
    "einsum": _init("self.x = torch.einsum(','.join(['a'] * 1000), *[torch.zeros(1)] * 1000)\nself.y = unknown"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_unknown(name: str) -> None:
    Path(MARK).unlink(missing_ok=True)
    model = {
        "sources": {"net.py": HOSTILE[name]},
        "imports": {},
        "model": {"new": {"of": {"own": ["net.py", "Net"]}, "args": [], "kwargs": {}}},
        "step": {"path": "net.py", "line": 1, "column": 0, "batch": {"list": []}, "names": {}},
    }
    start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Stopped) as stopped:
        own.build(model, SETUP, {"fp32": torch.float32}).forward()
    assert time.process_time() - start < CPU_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY_MIB * 1024
    assert not Path(MARK).exists()
    assert stopped.value.cause["what"]
