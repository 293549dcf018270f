"""What the recorder of `preflight run` costs in a step of 200 modules.

    python benchmarks/overhead/run.py             measures and prints
    python benchmarks/overhead/run.py --rounds 9  more rounds

`inside`: CPU time of the thread within the recorder, counted where it is entered: no difference of two figures, so a
busy machine changes it little. Counters are those of CUDA where there is a GPU, else dictionaries of the same shape.
`whole`: CPU time of a step with the recorder less that without it, each in a process of its own, the least of several
bursts. It has what torch does to call a hook as well, and far more noise.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START = ROOT / "preflight" / "guard" / "start"
STEP_MS = 100.0
GOAL = 0.01
INSIDE = """
from types import SimpleNamespace
from preflight.guard import counters, phases
spent, depth = 0, 0
def timed(real):
    def called(*args):
        global spent, depth
        begun, depth = time.thread_time_ns(), depth + 1
        try: return real(*args)
        finally:
            depth -= 1
            spent += 0 if depth else time.thread_time_ns() - begun
    return called
class Core:
    FIGURES = ("current", "peak", "allocated", "freed")
    GROUPS = [f"{a}{b}" for a in ("allocated", "reserved", "active", "inactive_split") for b in ("", "_bytes")]
    def _cuda_memoryStats(self, device):
        used, pools = int(device == 0), ("all", "small_pool", "large_pool")
        groups = [*self.GROUPS, "requested_bytes"]
        return {name: {pool: dict.fromkeys(self.FIGURES, used) for pool in pools} for name in groups}
    def _cuda_resetPeakMemoryStats(self, device): pass
device = "cuda" if torch.cuda.is_available() else "cpu"
for name in ("enter", "_entered", "_left", "_step_begins", "_step_ended"):
    setattr(phases.Recorder, name, timed(getattr(phases.Recorder, name)))
recorder = phases.record()
if device == "cpu":
    cuda = SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 0, device_count=lambda: 8)
    recorder.counters, recorder._process = counters.CudaCounters(SimpleNamespace(_C=Core(), cuda=cuda)), dict
"""
PROGRAM = """
import sys, time, torch
device, spent = "cpu", None
if sys.argv[1] == "inside": exec(sys.argv[2])
model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(200))).to(device)
optimizer = torch.optim.SGD(model.parameters())
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(4000, 16)), 2)
def go(steps):
    global spent
    begun, spent = time.process_time(), spent and 0
    for _, [batch] in zip(range(steps), data):
        model(batch.to(device)).pow(2).mean().backward(); optimizer.step(); optimizer.zero_grad()
    return (time.process_time() - begun if spent is None else spent / 1e9) / steps
go(10)
print(min(go(25) for _ in range(12)))
"""


def measured(kind: str, recorded: bool, folder: Path) -> float:
    """Milliseconds of CPU time of one step."""
    start = [] if kind == "inside" else [str(START)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([*start, str(ROOT)])}
    environment |= {"PREFLIGHT_RUN_RECORDS": str(folder), "PREFLIGHT_GUARD": "record" if recorded else "off"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, INSIDE], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    worst = 0.0
    for kind in ("inside", "whole"):
        costs = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                without = measured(kind, False, Path(folder)) if kind == "whole" else 0.0
                costs.append(measured(kind, True, Path(folder)) - without)
        cost = statistics.median(costs)
        worst = max(worst, cost / STEP_MS)
        print(f"{kind:9} {cost:7.3f} ms a step, {cost / STEP_MS:.2%} of {STEP_MS:.0f} ms (rounds: "
              f"{', '.join(f'{one:.3f}' for one in sorted(costs))})")  # fmt: skip
    return 0 if worst < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
