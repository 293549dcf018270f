"""A folder that all processes of one run of the tests share."""

from __future__ import annotations

import os

import pytest
from rooms import SHARED


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """pytest-xdist gives each process a folder of its own, in the folder of the run."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "incidents"
    folder.mkdir(exist_ok=True)
    SHARED.append(folder)
