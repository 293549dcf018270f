"""Measures what tests cost, and writes the list of those that a plain `pytest` leaves to `pytest -m slow`.

`python scripts/costly_tests.py`, on an idle machine. What a test costs is processor time, that of the
processes that it starts included. The first test that needs a library pays for its import: a second call may add some.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from costs import LIST, left_to_slow  # noqa: E402

SECONDS = 0.2
"""More than this, and a plain run leaves a test out."""
ALWAYS = ("tests/architecture/",)
"""What a change of any file can break."""


def measured() -> list[tuple[str, float]]:
    """Each test of a plain run, those of the list included, and the seconds of a processor it took."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PREFLIGHT_MEASURE_TESTS": folder}
        subprocess.run([sys.executable, "-m", "pytest"], cwd=ROOT, env=environment, check=False)
        lines = [line for file in Path(folder).iterdir() for line in file.read_text(encoding="utf-8").splitlines()]
    rows = [line.split(" ", 1) for line in lines]
    return [(test, float(seconds)) for seconds, test in rows]


def main() -> int:
    costs = measured()
    chosen = left_to_slow(costs, SECONDS, ALWAYS)
    LIST.write_text("".join(f"{test}\n" for test in chosen), encoding="utf-8")
    total = sum(seconds for _, seconds in costs)
    left = sum(seconds for test, seconds in costs if test in set(chosen))
    print(f"{len(costs)} tests took {total:.0f} s of a processor; {len(chosen)} of them, {left:.0f} s, are left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
