"""The table of docs/reference/slurm.md: where preflight and SLURM differ, row by row as a controller answers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from slurm.clusters import CLUSTERS
from slurm.compare import ours
from slurm.controller import started

from preflight.slurm.import_.importer import import_slurm

pytestmark = pytest.mark.integration

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "slurm.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([^`]+)` \| (accepted|refused) \| (accepted|refused) \|", re.MULTILINE)


def rows() -> list[tuple[str, bool, bool]]:
    table = PAGE[PAGE.index("<!-- differences -->") : PAGE.index("<!-- end of differences -->")]
    return [(options, real == "accepted", own == "accepted") for options, real, own in ROW.findall(table)]


def test_what_the_guide_says_differs_does(tmp_path: Path) -> None:
    found = rows()
    assert found
    with started(CLUSTERS["mixed"], tmp_path) as controller:
        cluster = import_slurm(controller.conf)
        for options, real, own in found:
            words = shlex.split(options)
            assert real != own, options
            assert controller.test_only(words).accepted == real, options
            assert ours(words, cluster).accepted == own, options
