"""`preflight dry-run`: the memory of any training command, from a run of it with CUDA faked."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.commands.options import STATED, format_option, parse_bytes
from preflight.reports import streams
from preflight.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from preflight.dryrun.process import Asked
    from preflight.vocabulary.machine import Gpu

OWN = ""
"""The value of --save without a file: the user's own directory."""


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": False},
    options_metavar="[OPTIONS] --",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND | STUDY")
@click.option("--gpu", type=STATED, metavar="NAME", help='The GPU the job runs on, as in "RTX 4090" or a100-80gb.')
@click.option("--gpus", type=click.IntRange(1, 1024), metavar="N", help="GPUs of the node, if COMMAND does not say.")
@click.option("--save", is_flag=False, flag_value=OWN, default=None, metavar="[FILE.json]",
              help="Keep what was seen for check, with a law over batch and length.")  # fmt: skip
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
@click.option("--array", "arrays", multiple=True, type=STATED, metavar="FILE[:NAME]=SHAPE[:TYPE]",
              help="The shape of an array in a file that is not there, as in x.npy=1000x64. Repeatable.")  # fmt: skip
@click.option("--no-isolation", is_flag=True, help="Do not ask the kernel for namespaces: Python's own layer alone.")
@click.option("--show-output", is_flag=True, help="Show what the program writes, on standard error.")
@format_option
def command(
    words: tuple[str, ...],
    gpu: str | None,
    gpus: int | None,
    save: str | None,
    programs: tuple[str, ...],
    time_limit: float,
    memory_limit: str,
    disk_limit: str,
    arrays: tuple[str, ...],
    no_isolation: bool,
    show_output: bool,
    output_format: str,
) -> None:
    """Run a training command for two steps with CUDA faked, and say what it would need on a GPU.

    This executes your program, on this computer, without a GPU. It writes nothing outside a scratch directory, has no
    network, and starts no other programs. Put the command after --, as in: preflight dry-run -- torchrun train.py
    STUDY is a sweep, an array job, a Hydra or an Optuna study: the corners of its space are run.
    """
    from preflight.dryrun.command import array_of, started_by
    from preflight.dryrun.process import Asked, Limits
    from preflight.engine.target import gpu_named

    found_gpu = gpu_named(gpu, "--gpu") if gpu is not None else None
    limits = Limits(time_limit, parse_bytes(memory_limit), parse_bytes(disk_limit))
    if save and not save.endswith(".json"):
        raise UsageError(f"--save: {save} does not end with .json (put the command after --)")

    def asked(command: Sequence[str]) -> Asked:
        settings: dict[str, object] = {"programs": list(programs)}
        if arrays:
            settings["arrays"] = [array_of(one) for one in arrays]
        return Asked(started_by(command, gpus), limits, not no_isolation, settings, _shown if show_output else None)

    if _is_study(words):
        _study(Path(words[0]), asked, found_gpu, gpus, save, output_format)
        return
    _run(words, asked(words), found_gpu, gpus, save, output_format)


def _is_study(words: Sequence[str]) -> bool:
    """Whether a file stands where a command would: it is read, and its launches are run."""
    from preflight.dryrun.command import is_program

    return len(words) == 1 and os.path.isfile(words[0]) and not is_program(words[0])


def _study(
    path: Path, asked: Callable[[Sequence[str]], Asked], gpu: Gpu | None, gpus: int | None, save: str | None, kind: str
) -> None:
    """Run the corners of a study, and print one table."""
    from preflight.commands.subject import EstimateRequest, analysis_of
    from preflight.dryrun.study import run_study, study_document, study_table
    from preflight.reports import plain
    from preflight.reports.style import look_for
    from preflight.vocabulary.progress import QUIET

    if save:
        raise UsageError("--save: a study has several runs; without a file they are kept for check")
    found, _ = analysis_of(path, EstimateRequest({}, gpu.name if gpu is not None else None, (), QUIET))
    studies = [result.study for result in found.studies]
    rows, note = run_study(path, studies, found.project.root, asked, gpu, gpus, save is not None)
    if kind == "json":
        streams.show(plain.written(study_document(rows, note)), "json")
    else:
        streams.show(study_table(rows, note, look_for(sys.stdout)))


def _run(
    words: tuple[str, ...], asked: Asked, gpu: Gpu | None, gpus: int | None, save: str | None, output_format: str
) -> None:
    from preflight.dryrun.answer import dry_run
    from preflight.dryrun.keeping import findings_of, keep, run_of
    from preflight.dryrun.saved import hashes_of, with_largest_batch
    from preflight.dryrun.text import WARNING, document, render
    from preflight.engine.check import smallest
    from preflight.reports import plain
    from preflight.reports.style import look_for

    streams.complain(WARNING.format(command=shlex.join(words)))
    hashes = hashes_of(asked.program)
    found = dry_run(words, asked, gpu, gpus)
    run = run_of(found, asked, hashes, laws=save is not None)
    found = with_largest_batch(found, run)
    findings = findings_of(run, Path.cwd(), gpu)
    if save is not None:
        keep(run, found, hashes, save)
    if output_format == "json":
        streams.show(plain.written(document(found, findings)), "json")
        return
    card = smallest(found.found.estimates.device, None)
    streams.show(render(found, card.name if card is not None else "", look_for(sys.stdout), findings))


def _shown(data: bytes) -> None:
    streams.show(data.decode("utf-8", "replace"), err=True)
