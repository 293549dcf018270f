"""What a controller gave a job, from `scontrol show job -d`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from slurm.controller import Controller, find

from preflight.machines.hostlist import expand


@dataclass(frozen=True, order=True)
class Part:
    """One node's part. Memory in MiB; GPUs -1 where scontrol does not show them (counted for the whole job).

    CPUs are those of the cores, also where a core's threads are given out one by one.
    """

    host: str
    cpus: int
    memory: int
    gpus: int = -1


def given(controller: Controller, options: Sequence[str]) -> tuple[list[Part], int] | None:
    """What salloc gets at once with these options, which it shares with sbatch, and how many CPUs; None: nothing.

    It is given back.
    """
    program = find("salloc")
    assert program is not None
    process = subprocess.Popen(
        [program, "--no-shell", "--immediate=1", *options],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=dict(controller.environment), cwd=controller.directory,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        job = next((found[1] for line in process.stderr if (found := re.search(r"allocation (\d+)$", line))), None)
        if job is None:
            return None
        shown = controller.ask("scontrol", "show", "job", "-d", job).text
        controller.ask("scancel", job)
        cpus = re.search(r"NumCPUs=(\d+)", shown)
        parts = sorted(_parts(shown))
        return (parts, int(cpus[1])) if parts and cpus is not None else None
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def _parts(shown: str) -> list[Part]:
    parts = []
    for line in shown.splitlines():
        found = re.match(r"\s*Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)", line)
        if found is None:
            continue
        cpus = sum(int(high or low) - int(low) + 1 for low, high in re.findall(r"(\d+)(?:-(\d+))?", found[2]))
        gpus = (
            -1
            if found[4] == "(null)"
            else sum(int(count) for count in re.findall(r"gpu(?::[^(:]+)?(?:\(CNT:|:)(\d+)", found[4]))
        )
        parts += [Part(host, cpus, int(found[3]), gpus) for host in expand(found[1])]
    return parts
