"""`preflight dry-run`: the memory of any training command, from a run of it with CUDA faked."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.commands.options import STATED, parse_bytes
from preflight.reports import streams

if TYPE_CHECKING:
    from preflight.dryrun.answer import DryRunResult
    from preflight.dryrun.process import Asked


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": False},
    options_metavar="[OPTIONS] --",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND")
@click.option("--gpu", type=STATED, metavar="NAME", help='The GPU the job runs on, as in "RTX 4090" or a100-80gb.')
@click.option("--gpus", type=click.IntRange(1, 1024), metavar="N", help="GPUs of the node, if COMMAND does not say.")
@click.option("--save", type=STATED, metavar="FILE", help="Keep what was seen, so that check can use it.")
@click.option(
    "--allow-program", "programs", multiple=True, type=STATED, metavar="NAME",
    help="A program that the command may start. Repeatable.",
)  # fmt: skip
@click.option(
    "--time-limit", type=click.FloatRange(min=1), default=600.0, show_default=True, metavar="SECONDS",
    help="End the program after this time, with what was seen by then.",
)  # fmt: skip
@click.option("--memory-limit", type=STATED, default="16GiB", show_default=True, metavar="SIZE",
              help="The most host memory of a process of the program.")  # fmt: skip
@click.option("--disk-limit", type=STATED, default="4GiB", show_default=True, metavar="SIZE",
              help="The most that the program may write; it is deleted at the end.")  # fmt: skip
@click.option("--no-isolation", is_flag=True, help="Do not ask the kernel for namespaces: Python's own layer alone.")
@click.option("--show-output", is_flag=True, help="Show what the program writes, on standard error.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the answer is printed.",
)
def command(
    words: tuple[str, ...],
    gpu: str | None,
    gpus: int | None,
    save: str | None,
    programs: tuple[str, ...],
    time_limit: float,
    memory_limit: str,
    disk_limit: str,
    no_isolation: bool,
    show_output: bool,
    output_format: str,
) -> None:
    """Run a training command for two steps with CUDA faked, and say what it would need on a GPU.

    This executes your program, on this computer, without a GPU. It writes nothing outside a scratch directory, has no
    network, and starts no other programs. Put the command after --, as in: preflight dry-run -- torchrun train.py
    """
    from preflight.dryrun.answer import dry_run
    from preflight.dryrun.command import started_by
    from preflight.dryrun.process import Asked, Limits
    from preflight.dryrun.text import WARNING, document, render
    from preflight.engine.check import smallest
    from preflight.engine.target import gpu_named
    from preflight.reports import plain
    from preflight.reports.style import look_for

    found_gpu = gpu_named(gpu, "--gpu") if gpu is not None else None
    limits = Limits(time_limit, parse_bytes(memory_limit), parse_bytes(disk_limit))
    program = started_by(words, gpus)
    streams.complain(WARNING.format(command=shlex.join(words)))
    asked = Asked(program, limits, not no_isolation, {"programs": list(programs)}, _shown if show_output else None)
    found = dry_run(words, asked, found_gpu, gpus)
    if save is not None:
        found = _saved(Path(save), found, asked)
    if output_format == "json":
        streams.show(plain.written(document(found)), "json")
        return
    card = smallest(found.found.estimates.device, None)
    streams.show(render(found, card.name if card is not None else "", look_for(sys.stdout)))


def _saved(path: Path, found: DryRunResult, asked: Asked) -> DryRunResult:
    """Write the file; the result, with the largest batch where a law is known and a GPU was named."""
    from preflight.dryrun.answer import report_of
    from preflight.dryrun.batch_law import NoLaw
    from preflight.dryrun.saved import document, law_of, with_largest_batch
    from preflight.reports import plain
    from preflight.reports.outputs import write_output

    known, why_not = None, ""
    try:
        known = law_of(found, lambda own, batch: report_of(asked, found.gpu, {"batches": [own, batch]}))
    except NoLaw as error:
        why_not = str(error)
        streams.complain(f"note: no law over the batch: {why_not}")
    if known is not None and found.gpu is not None:
        found = with_largest_batch(found, known, found.found.job, found.gpu)
    write_output(path, plain.written(document(found, known, why_not)))
    return found


def _shown(data: bytes) -> None:
    streams.show(data.decode("utf-8", "replace"), err=True)
