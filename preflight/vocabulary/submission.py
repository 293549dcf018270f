"""How a script is submitted: sbatch's command line and the SBATCH_* environment, beside the script's directives.

sbatch reads the script's directives first, then the environment, then its command line; what comes later wins
(sbatch(1), INPUT ENVIRONMENT VARIABLES; src/sbatch/opt.c, process_options_second_pass). Both are texts here like a
file's, so that a finding can point into them; no fix edits them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

COMMAND_LINE = "sbatch command line"
ENVIRONMENT = "sbatch environment"
"""Names of the two texts, in the place of a path."""

VARIABLES = {
    "SBATCH_ACCOUNT": "account", "SBATCH_ARRAY_INX": "array", "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_CORE_SPEC": "core-spec", "SBATCH_CPUS_PER_GPU": "cpus-per-gpu", "SBATCH_DISTRIBUTION": "distribution",
    "SBATCH_EXCLUSIVE": "exclusive", "SBATCH_GRES": "gres", "SBATCH_GRES_FLAGS": "gres-flags", "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node", "SBATCH_GPUS_PER_SOCKET": "gpus-per-socket",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task", "SLURM_HINT": "hint", "SBATCH_HINT": "hint",
    "SBATCH_JOB_NAME": "job-name", "SBATCH_MEM_PER_CPU": "mem-per-cpu", "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_MEM_PER_NODE": "mem", "SBATCH_OVERCOMMIT": "overcommit", "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos", "SBATCH_REQUEUE": "requeue", "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_RESERVATION": "reservation", "SBATCH_SIGNAL": "signal", "SBATCH_SPREAD_JOB": "spread-job",
    "SBATCH_THREAD_SPEC": "thread-spec", "SBATCH_THREADS_PER_CORE": "threads-per-core", "SBATCH_TIMELIMIT": "time",
    "SBATCH_USE_MIN_NODES": "use-min-nodes", "SBATCH_OUTPUT": "output", "SBATCH_ERROR": "error",
}  # fmt: skip
"""Variable -> long option, in the order sbatch reads them (22.05; those that say nothing about resources left out)."""


@dataclass(frozen=True)
class Submission:
    """`sbatch ARGUMENTS script` in an environment. `arguments` are sbatch's own words, up to the script's name."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    """The script's name and the words that are passed to it."""
    directory: str = "."
    """Where the job starts, with a leading `/` that stands for the project's root; ".": not known."""

    def texts(self) -> dict[str, str]:
        """The command line and the environment as texts that origins point into, by the names above."""
        given = "".join(f"{name}={value}\n" for name, value in self.variables())
        return {COMMAND_LINE: shlex.join((*self.arguments, *self.words)), ENVIRONMENT: given}

    def variables(self) -> list[tuple[str, str]]:
        """What the environment has of the variables that sbatch reads, in the order it reads them."""
        return [(name, self.environment[name]) for name in VARIABLES if name in self.environment]

    @property
    def components(self) -> int:
        """How many parts of a heterogeneous job the command line speaks of."""
        return 1 + sum(word == ":" for word in self.arguments)
