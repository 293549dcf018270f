"""One real cluster for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_live.cluster import Cluster, running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("cluster")) as found:
        yield found
