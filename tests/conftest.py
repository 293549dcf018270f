"""What tests of several rooms share."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from costs import pytest_collection_modifyitems, pytest_runtest_protocol  # noqa: F401  # hooks
from folders import Write
from hypothesis import HealthCheck, settings
from thorough import examples

if TYPE_CHECKING:
    from command_line import Command

    from preflight.vocabulary.project import Project

# Images of containers often forbid compiled files. Hundreds of processes are started here, and without such files each
# would compile preflight anew, which takes longer than a check; pytest keeps its rewritten tests in them, too.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["PREFLIGHT_NO_CACHE"] = "1"  # what is traced in a test is traced there
os.environ["PREFLIGHT_STORE"] = "off"  # runs that somebody recorded on this machine change no test
os.environ["OMP_NUM_THREADS"] = "1"  # tests run beside each other: threads of small products only wait for processors
settings.register_profile(
    "any machine", deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")  # no property fails because a machine is busy
gc.set_threshold(250_000, 20, 20)  # as the command line has it; what collecting tests makes lives to the end, too
os.environ.pop("COLUMNS", None)  # lines are as long as where no terminal is; workers of pytest-xdist set 80


@pytest.fixture(scope="module", autouse=True)
def old_objects_are_not_searched() -> None:
    """What tests before have made (torch, laws, documents) lives to the end. Every trace collects garbage first, which
    took nine tenths of its time when it searched through all of that."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def verdicts_and_errors_agree() -> Iterator[None]:
    """Whatever a test checks with all rules: what exceeds has an error, and an error about memory has a verdict."""
    from preflight.engine import check as engine
    from preflight.engine import registry
    from preflight.engine.agreement import disagreements
    from preflight.vocabulary.settings import Settings

    everything = registry.enabled(Settings(), (), (), registry.rules())
    analyse = engine.analyse

    def agreeing(project: Project, asked: engine.CheckSetup) -> engine.Analysis:
        found = analyse(project, asked)
        if {rule.name for rule in asked.rules} >= everything - registry.OWN.keys():
            assert list(disagreements(found.studies, found.findings)) == []
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "analyse", agreeing)
        yield


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes files into an empty directory that is the current one, and gives the directory."""
    monkeypatch.chdir(tmp_path)

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8"))
        return tmp_path

    return write


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`preflight check` in this process, with an estimate that fits in the head."""
    from command_line import fake_engine, preflight

    fake_engine(monkeypatch)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return lambda *arguments: preflight(capsys, "check", *arguments)
