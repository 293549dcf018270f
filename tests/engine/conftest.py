"""The server of `kept_results`, which takes three seconds of a processor to start: one for all tests of a process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from kept_results import Server


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("home"))
    yield server
    server.stop()


@pytest.fixture
def server(processes: Server) -> Server:
    """The server, with nothing kept."""
    shutil.rmtree(processes.home / "cache", ignore_errors=True)
    shutil.rmtree(processes.home / ".config", ignore_errors=True)
    return processes
