"""Programs that tests run dry, and the command line that runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import HANGS

TRAINS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

net = nn.Sequential(nn.Linear(100, 400), nn.ReLU(), nn.Linear(400, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
data = TensorDataset(torch.randn(1000, 100), torch.randint(0, 10, (1000,)))
for epoch in range(1000):
    net.train()
    for x, y in DataLoader(data, batch_size=64):
        loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        for x, y in DataLoader(data, batch_size=128):
            net(x.cuda())
    torch.save(net.state_dict(), "net.pt")
"""
PARAMETERS = 4 * (100 * 400 + 400 + 400 * 10 + 10)
"""Bytes of its weights, of their gradients, and of each of AdamW's two states."""
STEP = """\
import torch
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    net(torch.zeros(8, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line about why there is no answer."""
        lines = [line for line in self.err.splitlines() if not line.startswith("preflight dry-run executes")]
        assert len(lines) == 1, self.err
        return lines[0]


def start(folder: Path, *words: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """`preflight dry-run` with these words, in a folder."""
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
    variables = {**os.environ, "PATH": path, "TMPDIR": str(folder.parent), **(environment or {})}
    return subprocess.Popen(
        [sys.executable, "-m", "preflight", "dry-run", *words],
        cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test run in the background ignores it
    )  # fmt: skip


def dry_run(folder: Path, *words: str, environment: dict[str, str] | None = None) -> Ran:
    """The same, to its end."""
    process = start(folder, *words, environment=environment)
    try:
        out, err = process.communicate(timeout=HANGS)
    finally:
        process.kill()
    return Ran(process.returncode, out, err)
