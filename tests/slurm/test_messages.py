"""What is said of a value that sbatch does not take, beside what sbatch says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from slurm.clusters import CLUSTERS
from slurm.compare import asked
from slurm.controller import started

from preflight.dialects.slurm.schema import FIELDS, WORDS

pytestmark = pytest.mark.integration


def test_messages_have_sbatchs_words(tmp_path: Path) -> None:
    checked = 0
    with started(CLUSTERS["even"], tmp_path) as controller:
        for name in (*FIELDS, *WORDS, "requeue", "oversubscribe"):
            for text in ("abc$X", "-1"):
                option = f"--{name}={text}"
                real = controller.test_only([option])
                for problem in asked([option])[1]:
                    assert not real.accepted, option
                    quoted = re.search(r"\((?:error: )?(.*)\)(?::|$)", problem.message)
                    if quoted is not None:
                        assert quoted[1] in real.text, option
                        checked += 1
    assert checked > 50
