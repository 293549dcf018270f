"""Generated requests with the answers that a controller gave: the same comparison where there is no controller.

`python tests/slurm/test_recorded.py` asks one (Slurm 22.05.8) and writes the files anew.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from slurm.clusters import CLUSTERS
from slurm.compare import ours, theirs
from slurm.generated import request

from preflight.slurm.controller.job import CLIENT
from preflight.slurm.import_.conf import read_slurm_conf
from preflight.slurm.import_.importer import by_type

FIRST, COUNT = 100_000, 200
"""Seeds that no other test uses."""
ACCEPTED = "accepted"


def path(name: str) -> Path:
    return Path(__file__).parent / f"recorded_{name}.txt"


@pytest.mark.parametrize("name", CLUSTERS)
def test_recorded_answers(name: str) -> None:
    cluster = by_type(read_slurm_conf(CLUSTERS[name]))
    wrong = []
    for line in path(name).read_text(encoding="utf-8").splitlines():
        answer, _, options = line.partition(" | ")
        own = ours(shlex.split(options), cluster)
        said = ACCEPTED if own.accepted else own.answer
        if answer != said and not (answer != ACCEPTED and not own.accepted and CLIENT in (answer, said)):
            wrong.append(f"{line}\n  preflight: {own}")
    assert wrong == []


def record() -> None:
    """Asks a controller about every request."""
    from slurm.controller import started

    for name, conf in CLUSTERS.items():
        with tempfile.TemporaryDirectory() as folder, started(conf, Path(folder)) as controller:
            lines = []
            for seed in range(FIRST, FIRST + COUNT):
                options = request(seed, name)
                found = controller.test_only(options)
                real = theirs(found.code, found.text)
                lines.append(f"{ACCEPTED if real.accepted else real.answer} | {shlex.join(options)}\n")
        path(name).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    record()
