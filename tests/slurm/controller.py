"""A real `slurmctld` on the loopback address: no database, no daemons on nodes, 7 MB, ready within a second.

    with started(CONF, tmp_path) as controller:
        controller.test_only(["--mem=250G"])

Nodes are `State=CLOUD`, powered down: a node whose slurmd never registered would reject every request.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import HANGS

GLOBALS = """\
ClusterName=pf
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmctldPort={port}
ProctrackType=proctrack/pgid
CommunicationParameters=NoCtldInAddrAny
PrivateData=cloud
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=-1
ResumeTimeout=65000
"""
"""What every cluster here needs; nodes, partitions and how they are selected are the test's."""

UNSIGNED = "AuthType=auth/none\nCredType=cred/none\n"
"""Messages that nobody signs: enough where nothing but requests is judged."""


def require_slurm() -> None:
    """Skip where there is no slurmctld; fail instead where PREFLIGHT_REQUIRE_SLURM=1 promises one."""
    missing = [name for name in ("slurmctld", "sbatch", "scontrol") if find(name) is None]
    if not missing:
        return
    message = f"no {', '.join(missing)} here (Debian: apt-get install slurm-wlm slurm-wlm-basic-plugins)"
    if os.environ.get("PREFLIGHT_REQUIRE_SLURM") == "1":
        pytest.fail(message)
    pytest.skip(message)


def find(name: str) -> str | None:
    """A program of SLURM; the daemons are in /usr/sbin, which a user's PATH may lack."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True)
class Answer:
    """What a command of SLURM said."""

    code: int
    text: str

    @property
    def accepted(self) -> bool:
        return self.code == 0


@dataclass(frozen=True)
class Controller:
    """A running slurmctld; `conf` is its slurm.conf, `environment` what a client needs to find it."""

    directory: Path
    conf: Path
    environment: Mapping[str, str]

    def ask(self, *command: str, text: str | None = None, **variables: str) -> Answer:
        """The answer of a client program; stdout and stderr together."""
        program = find(command[0])
        assert program is not None
        found = subprocess.run(
            [program, *command[1:]],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HANGS,
            check=False,
            cwd=self.directory,
            env={**self.environment, **variables},
        )
        return Answer(found.returncode, found.stdout)

    def test_only(self, options: Sequence[str], script: str = "#!/bin/sh\nhostname\n", **variables: str) -> Answer:
        """`sbatch --test-only` of a script on standard input: nothing is submitted."""
        return self.ask("sbatch", "--test-only", *options, text=script, **variables)


@contextmanager
def started(
    conf: str, directory: Path, files: Mapping[str, str] | None = None, auth: str = UNSIGNED
) -> Iterator[Controller]:
    """A controller of the cluster that `conf` describes (added to GLOBALS); `files` go beside slurm.conf."""
    require_slurm()
    (directory / "state").mkdir(parents=True, exist_ok=True)
    path = directory / "slurm.conf"
    port = free_port()
    user = os.environ.get("USER", "root") if os.getuid() else "root"
    path.write_text(GLOBALS.format(directory=directory, port=port, user=user) + auth + conf)
    for name, text in (files or {}).items():
        (directory / name).write_text(text)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_", "SRUN_"))}
    controller = Controller(directory, path, {**clean, "SLURM_CONF": str(path), "TZ": "UTC"})
    daemon = find("slurmctld")
    assert daemon is not None
    with (directory / "daemon.out").open("w") as out:
        process = subprocess.Popen(
            [daemon, "-c", "-D"], stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=dict(controller.environment)
        )
    try:
        _wait(controller, process)
        yield controller
    finally:
        process.terminate()
        try:
            process.wait(HANGS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(controller: Controller, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + HANGS
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        if controller.ask("scontrol", "ping").text.find("is UP") >= 0:
            return
        time.sleep(0.05)
    said = (controller.directory / "daemon.out").read_text()[-2000:]
    pytest.fail(f"slurmctld did not start: {said}")


def free_port() -> int:
    """A port of the loopback address that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
