"""The command line: finds the command, and turns every error into one line and an exit status.

0: no findings. 1: findings at or above --fail-on. 2: an error in the command line or settings, or an internal error.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence

# Nothing of pydantic's is extended here; looking for its plugins reads the metadata of every installed package.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

import click

from preflight import __version__

COMMANDS = {
    "check": "Check job files: which jobs will run out of GPU or host memory.",
    "estimate": "Estimate the memory of one job: phases, parts, the largest batch that fits.",
    "fit": "Solve for what fits: the largest batch, the longest length, the smallest card, or one field.",
    "batch": "Judge a table of jobs: a verdict for each row.",
    "serve": "Serve verdicts on jobs by HTTP, for clusters' admission.",
    "init": "Write the settings, the pre-commit hook and the CI job of a project.",
    "dry-run": "Run a training command without a GPU, and say what memory it would need. Executes your code.",
    "run": "Run a training command as it is, record its memory, and say why it died.",
    "runs": "List recorded runs, show one beside its law, export and import them.",
    "usage": "Say what recorded runs used of what they asked for, and whether forecasts held.",
    "postmortem": "Explain from its logs why a job died: the limit, the time, and what to change.",
    "sbatch": "Check a job and submit it with sbatch, or say why it would be killed.",
    "lsp": "Serve an editor: findings, fixes and needs beside the text.",
    "rule": "List the rules, or show one with its examples.",
    "model": "List models that are known by name, and show their memory laws.",
    "machine": "List GPUs and clusters, and import a SLURM cluster.",
    "cache": "Show the results of checks that are kept, and delete them.",
}

COMPLETION = "_PREFLIGHT_COMPLETE"
"""The variable by which a shell asks click for its script, or for completions."""

_NO_COMMAND = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""What click raises for a group without a command. Before click 8.2 it printed the help itself."""

_ELSEWHERE = {errno.ENOENT: "the current directory is gone", errno.ENOSPC: "standard output cannot be written"}
"""System errors that name no file: from os.getcwd, and from text that click writes itself (--help)."""


class LazyGroup(click.Group):
    """Commands by name and help text. A command is imported when it is called, so `--help` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        from importlib import import_module

        command: click.Command = import_module(f"preflight.commands.{cmd_name.replace('-', '_')}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="preflight", message="%(prog)s %(version)s")
def cli() -> None:
    """Finds training jobs that will run out of GPU or host memory before you submit them, and fixes the line.

    Reads W&B sweeps, Hydra configs, SLURM scripts, Optuna studies and the programs that they start. Runs none of your
    code, and needs no GPU, no weights and no network.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, and return its exit status. Every error ends here, as one line on stderr."""
    from preflight.reports.streams import complain
    from preflight.vocabulary.errors import PreflightError, ReaderGone, debugging, too_much

    try:
        status = cli.main(args=arguments, prog_name="preflight", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        _usage(error)
        return 2
    except (click.Abort, KeyboardInterrupt):
        complain("preflight: interrupted")
        return 130
    except PreflightError as error:
        if debugging():
            raise
        complain(f"preflight: error: {error}")
        return 2
    except (ReaderGone, SystemExit) as end:  # the reader of our output has seen enough; click ends with SystemExit then
        if isinstance(end, SystemExit) and COMPLETION in os.environ:  # click has written what the shell asked for
            return _completed(end.code == 0)
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except BaseException as error:  # SystemExit too: trusted code may exit, and that is not a clean check
        if debugging():
            raise
        if why := too_much(error):
            complain(f"preflight: error: the input {why}")
            return 2
        if isinstance(error, OSError) and error.filename is None and error.errno in _ELSEWHERE:
            complain(f"preflight: error: {_ELSEWHERE[error.errno]}: {error.strerror}")
            return 2
        first = str(error).splitlines()[0] if str(error) else ""
        complain(
            f"preflight: internal error: {type(error).__name__}: {first} - please report it with the command and the "
            "files; PREFLIGHT_DEBUG=1 shows where it happened"
        )
        return 2


def _completed(known: bool) -> int:
    """The exit status after completion, with a message if click does not know what the shell asks for."""
    from preflight.reports.streams import complain

    if not known:
        complain(f"preflight: error: {COMPLETION}: write bash_source, zsh_source or fish_source")
    return 0 if known else 2


def _usage(error: click.ClickException) -> None:
    """The message of click about a wrong command line, without control characters of the user's words."""
    from preflight.reports.streams import complain

    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None and isinstance(error, _NO_COMMAND):  # its message is the help of the group, line by line
        for line in context.get_help().splitlines():
            complain(line)
        return
    if context is not None:
        for line in context.get_usage().splitlines():
            complain(line)
        names = context.command.get_help_option_names(context)
        if names:
            complain(f"Try '{context.command_path} {max(names, key=len)}' for help.")
        complain("")
    complain(f"Error: {error.format_message()}")


def main(at_end: Callable[[int], None] | None = None) -> None:
    """The console script. `at_end` gets the exit status when all is written.

    Nearly all objects of a check live to its end. So the process ends without freeing them one by one.
    """
    from preflight.reports.streams import hold_standard_descriptors

    hold_standard_descriptors()
    status = run()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:  # a server closes the streams of its client
                stream.flush()
        except OSError:  # the reader closed the pipe, or the disk is full
            status = status or 2
    if at_end is not None:
        at_end(status)
    os._exit(status)


if __name__ == "__main__":
    main()
