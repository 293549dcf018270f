"""What the recorder of `preflight run` costs: CPU time of a step of 200 modules, with it and without.

    python benchmarks/overhead/run.py             measures and prints
    python benchmarks/overhead/run.py --rounds 9  more rounds

Each round starts both processes in turn, and each gives the least CPU time of several bursts of steps, so a busy
machine costs little. `hooks` has no counters to read. `counters` takes figures at every change of phase, as on a GPU,
without what torch itself needs to read them.
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
PROGRAM = """
import sys, time, torch
from preflight.guard import counters
if sys.argv[1] == "counters":
    class Fixed(counters.NoCounters):
        device = "fixed"
        def take(self): return {"requested": 1, "allocated": 1, "reserved": 1}
        def now(self): return {"allocated": 1}
        def events(self): return {"retries": 0, "ooms": 0}
    if hasattr(sys, "_preflight_recorder"):
        sys._preflight_recorder.counters = Fixed()
model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(200)))
optimizer = torch.optim.SGD(model.parameters())
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(4000, 16)), 2)
def go(steps):
    begun = time.process_time()
    for _, [batch] in zip(range(steps), data):
        model(batch).pow(2).mean().backward(); optimizer.step(); optimizer.zero_grad()
    return (time.process_time() - begun) / steps
go(10)
print(min(go(25) for _ in range(12)))
"""


def measured(kind: str, recorded: bool, folder: Path) -> float:
    """Milliseconds of CPU time of one step."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{START}{os.pathsep}{ROOT}"}
    environment |= {"PREFLIGHT_RUN_RECORDS": str(folder), "PREFLIGHT_GUARD": "record" if recorded else "off"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    worst = 0.0
    for kind in ("hooks", "counters"):
        costs = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                costs.append(measured(kind, True, Path(folder)) - measured(kind, False, Path(folder)))
        cost = statistics.median(costs)
        worst = max(worst, cost / STEP_MS)
        print(f"{kind:9} {cost:7.3f} ms a step, {cost / STEP_MS:.2%} of {STEP_MS:.0f} ms (rounds: "
              f"{', '.join(f'{one:.3f}' for one in sorted(costs))})")  # fmt: skip
    return 0 if worst < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
