"""A real cluster of one machine: slurmctld and a slurmd on the loopback address, which run real jobs.

    with running(tmp_path) as cluster:
        cluster.run(["sbatch", "job.sh"], folder)

Its node claims 8 CPUs, 64 GB and two RTX 4090 whatever the machine has (SlurmdParameters=config_overrides); the GPUs
are two empty files. Messages are signed by a munged of its own, with a new key and a socket that only its user reaches;
all of it listens on the loopback address, for the time of a test.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import HANGS
from slurm.controller import Controller, find, free_port, require_slurm, started

CONF = """\
SlurmdUser={user}
SlurmdSpoolDir={directory}/spool
SlurmdPidFile={directory}/slurmd.pid
SlurmdLogFile={directory}/slurmd.log
SlurmdParameters=config_overrides
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,batch_sched_delay=0
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=64000 Gres=gpu:rtx_4090:2
PartitionName=gpu Nodes=n1 Default=YES MaxTime=10
"""


@dataclass(frozen=True)
class Ran:
    """What a command did, its streams as bytes."""

    code: int
    out: bytes
    err: str


@dataclass(frozen=True)
class Cluster:
    controller: Controller

    def run(self, words: Sequence[str | bytes], folder: Path, text: bytes | None = None, **variables: str) -> Ran:
        """A command in a folder, in the environment of a user of this cluster."""
        found = subprocess.run(
            list(words),
            cwd=folder,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            timeout=HANGS,
            check=False,
            env={**self.controller.environment, **variables},
        )
        return Ran(found.returncode, found.stdout, found.stderr.decode(errors="replace"))

    def jobs(self) -> dict[str, Mapping[str, str]]:
        """Every job the controller remembers, by its id: the fields of `scontrol show job -o`."""
        text = self.controller.ask("scontrol", "show", "job", "-o").text
        found = {}
        for line in text.splitlines():
            fields = dict(word.partition("=")[::2] for word in line.split(" ") if "=" in word)
            if "JobId" in fields:
                found[fields["JobId"]] = fields
        return found

    def wait(self, path: Path, ending: str = "done\n") -> str:
        """The output of a job, once it has written its last line."""
        end = time.monotonic() + HANGS
        while time.monotonic() < end:
            if path.is_file() and (text := path.read_text()).endswith(ending):
                return text
            time.sleep(0.05)
        pytest.fail(f"{path.name} was not written: {self.states()} {self._log()}")

    def states(self) -> list[str]:
        return [f"{job}: {fields['JobState']} {fields['Reason']}" for job, fields in self.jobs().items()]

    def _log(self) -> str:
        log = self.controller.directory / "slurmd.log"
        return log.read_text()[-2000:] if log.is_file() else "no log of slurmd"


@contextmanager
def running(directory: Path) -> Iterator[Cluster]:
    """A cluster in `directory`, its daemons ended and its jobs cancelled afterwards."""
    require_slurm()
    daemon = find("slurmd")
    if daemon is None:
        (pytest.fail if os.environ.get("PREFLIGHT_REQUIRE_SLURM") == "1" else pytest.skip)("there is no slurmd here")
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("gpu0", "gpu1"):
        (directory / name).touch()
    user = os.environ.get("USER", "root") if os.getuid() else "root"
    host = socket.gethostname().partition(".")[0]
    conf = CONF.format(directory=directory, user=user, host=host, port=free_port())
    gres = f"NodeName=n1 Name=gpu Type=rtx_4090 File={directory}/gpu[0-1]\n"
    with (
        signed() as auth,
        started(conf, directory, {"gres.conf": gres}, auth) as controller,
        (directory / "slurmd.out").open("w") as out,
    ):
        process = subprocess.Popen(
            [daemon, "-D", "-N", "n1"], stdout=out, stderr=out, stdin=subprocess.DEVNULL,
            env=dict(controller.environment),
        )  # fmt: skip
        try:
            _ready(controller, process)
            yield Cluster(controller)
            controller.ask("scancel", "--full", "--user", user)
        finally:
            _end(process)


@contextmanager
def signed() -> Iterator[str]:
    """A munged with a key of its own, as any user; what slurm.conf says of it."""
    daemon = find("munged")
    if daemon is None:
        (pytest.fail if os.environ.get("PREFLIGHT_REQUIRE_SLURM") == "1" else pytest.skip)("there is no munged here")
    # a socket's path has at most 107 characters, more than a test's directory leaves
    with tempfile.TemporaryDirectory(prefix="munge-") as name:
        folder = Path(name)
        key, socket_path = folder / "key", folder / "socket"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        places = {"socket": socket_path, "key-file": key, "pid-file": folder / "pid", "seed-file": folder / "seed",
                  "log-file": folder / "log"}  # fmt: skip
        process = subprocess.Popen(
            [daemon, "--foreground", "--force", *(f"--{option}={path}" for option, path in places.items())],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            end = time.monotonic() + HANGS
            while not socket_path.exists():
                if process.poll() is not None or time.monotonic() > end:
                    pytest.fail(f"munged did not start: {places['log-file'].read_text()[-1000:]}")
                time.sleep(0.05)
            yield f"AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket={socket_path}\n"
        finally:
            _end(process)


def _ready(controller: Controller, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + HANGS
    state = ""
    while time.monotonic() < end and process.poll() is None:
        state = controller.ask("sinfo", "--noheader", "--format=%T").text.strip()
        if state == "idle":
            return
        time.sleep(0.1)
    said = (controller.directory / "slurmd.out").read_text()[-2000:]
    pytest.fail(f"the node is not ready ({state}): {said}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(HANGS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
