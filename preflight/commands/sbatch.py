"""`preflight sbatch`: sbatch with a check before it. All of it is in `preflight.slurm.sbatch`."""

from __future__ import annotations

import click


class Passing(click.Command):
    """A command that leaves every word after its name as it is, `--` and `--help` too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["words"] = tuple(args)
        return []


@click.command(cls=Passing, add_help_option=False)
def command(words: tuple[str, ...]) -> int:
    """Check a job script as it is submitted, then hand it over to sbatch untouched, or stop it."""
    from preflight.slurm.sbatch.gate import main

    return main(words)
