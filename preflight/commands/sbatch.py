"""`preflight sbatch`: the options; the rest is in `preflight.slurm.sbatch`."""

from __future__ import annotations

import click


class Passing(click.Command):
    """A command that passes on every word after its name, including `--` and `--help`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["words"] = tuple(args)
        return []


@click.command(cls=Passing, add_help_option=False)
def command(words: tuple[str, ...]) -> int:
    """Check a job script when it is submitted, then pass it to sbatch unchanged, or stop it."""
    from preflight.slurm.sbatch.gate import main

    return main(words)
