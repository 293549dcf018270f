"""How a script is submitted: sbatch's command line and the SBATCH_* environment, beside the script's directives.

sbatch reads the script's directives first, then the environment, then its command line; what comes later wins
(sbatch(1), INPUT ENVIRONMENT VARIABLES; src/sbatch/opt.c, process_options_second_pass). Both are texts here like a
file's, so that a finding can point into them; no fix edits them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from preflight.vocabulary.records import dataclass, field

if TYPE_CHECKING:
    from preflight.documents.directives import Directive, Ignored
    from preflight.vocabulary.reading import Word
    from preflight.vocabulary.values import Expr

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

_OF_JOBS = ("SLURM_", "SBATCH_", "SRUN_", "PREFLIGHT_", "CUDA_VISIBLE_DEVICES")


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
        given = "".join(f"{name}={value}\n" for name, value in self._variables())
        return {COMMAND_LINE: shlex.join((*self.arguments, *self.words)), ENVIRONMENT: given}

    def _variables(self) -> list[tuple[str, str]]:
        return [(name, self.environment[name]) for name in VARIABLES if name in self.environment]

    def positional(self) -> tuple[Word, ...]:
        """The script's `$1`, `$2`, ... with their places on the command line."""
        from preflight.dialects.shell.values import literal_word
        from preflight.vocabulary.values import Origin, Span

        found, at = [], len(shlex.join(self.arguments)) + bool(self.arguments)
        for text in self.words:
            end = at + len(shlex.quote(text))
            found.append(literal_word(text, Origin(COMMAND_LINE, Span(at, end), editable=False)))
            at = end + 1
        return tuple(found[1:])

    def exported(self, export: str | None) -> dict[str, Expr]:
        """What the job's environment has of the submitter's, by the value of `--export` (sbatch(1); None: all of it).

        Variables of sbatch and of a job that this is submitted from are left out: the job has its own.
        """
        from preflight.vocabulary.values import Const

        words = export.split(",") if export else ["ALL"]
        taken: dict[str, str] = dict(self.environment) if "ALL" in (word.upper() for word in words) else {}
        for word in words:
            name, equals, value = word.partition("=")
            if equals:
                taken[name] = value
            elif name in self.environment:
                taken[name] = self.environment[name]
        return {name: Const(value) for name, value in taken.items() if not name.startswith(_OF_JOBS)}

    def environment_directives(self) -> tuple[Directive, ...]:
        """The variables as options, in the order they are read."""
        from preflight.documents.directives import Directive
        from preflight.vocabulary.values import Span

        found, at = [], 0
        for number, (name, value) in enumerate(self._variables(), 1):
            start, end = at + len(name) + 1, at + len(name) + 1 + len(value)
            whole = Span(at, end)
            found.append(Directive(VARIABLES[name], value, whole, Span(at, start - 1), Span(start, end), number))
            at = end + 1
        return tuple(found)

    @property
    def components(self) -> int:
        """How many parts of a heterogeneous job the command line speaks of."""
        return 1 + sum(word == ":" for word in self.arguments)

    def command_directives(self) -> tuple[tuple[Directive, ...], tuple[Ignored, ...]]:
        """The command line's options; `:` starts the next component of a heterogeneous job."""
        from preflight.documents.directives import read_arguments

        return read_arguments(self.arguments)


@dataclass(frozen=True)
class CommandLine:
    """sbatch's command line taken apart; `script` is None where none is named (standard input, or `--wrap`)."""

    options: tuple[str, ...]
    script: str | None
    arguments: tuple[str, ...]


def split_command_line(words: Sequence[str]) -> CommandLine:
    """sbatch's own options, the script, and the words that are passed to the script."""
    from preflight.documents.directives import options_end

    end = options_end(words)
    script = words[end] if end < len(words) else None
    options = tuple(words[:end])
    return CommandLine(options[:-1] if options[-1:] == ("--",) else options, script, tuple(words[end + 1 :]))
