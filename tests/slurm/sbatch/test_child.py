from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
from processes import HANGS

from preflight.slurm.sbatch.child import Plain, Unfinished, in_child
from preflight.vocabulary.errors import SettingsError


def test_what_work_gives_comes_back() -> None:
    assert in_child(lambda: {"text": "é" * 200_000, "stop": True}, HANGS) == {"text": "é" * 200_000, "stop": True}


def raises(error: BaseException) -> Callable[[], Plain]:
    def work() -> Plain:
        raise error

    return work


def dies() -> Plain:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def hangs() -> Plain:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


@pytest.mark.parametrize(
    ("work", "seconds", "says"),
    [
        (raises(SettingsError("preflight.toml: wrong")), HANGS, "preflight.toml: wrong"),
        (raises(ZeroDivisionError("x\ny")), HANGS, "internal error: ZeroDivisionError: x"),
        (raises(SystemExit(3)), HANGS, "internal error: SystemExit: 3"),
        (dies, HANGS, "the check ended without a result"),
        (hangs, 0.2, "the check took more than 0.2 s"),
    ],
)
def test_whatever_becomes_of_it_there_is_an_end(work: Callable[[], Plain], seconds: float, says: str) -> None:
    with pytest.raises(Unfinished) as caught:
        in_child(work, seconds)
    assert str(caught.value) == says


def test_what_it_prints_is_not_seen(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> Plain:
        os.write(1, b"on standard output")
        os.write(2, b"on standard error")
        return {"input": len(os.read(0, 10)) == 0}

    assert in_child(work, HANGS) == {"input": True}
    assert capfd.readouterr() == ("", "")
