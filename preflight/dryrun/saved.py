"""`--save`: what a dry run saw, and the law over batch and length where there is one, with what they hold for."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from preflight import __version__
from preflight.dryrun import process, text
from preflight.dryrun.answer import DryRunResult
from preflight.dryrun.batch_law import Again, FoundLaw, NoLaw, law
from preflight.dryrun.command import StartedProgram
from preflight.dryrun.facts import seen
from preflight.dryrun.report_of_process import recording
from preflight.engine.dry_runs import name_of
from preflight.memory.device import saved_run
from preflight.memory.device.saved_run import SavedProgram, SavedRun

_OWN = os.path.realpath(process.INSIDE.parents[1]) + os.sep
"""preflight's own files, of which the tracer's are imported beside the program."""


def law_of(found: DryRunResult, again: Again) -> FoundLaw:
    """The law over batch and length, from further runs. Raises NoLaw with the reason."""
    train = found.found.job.train
    if train.batch_size is None or not found.report.trained:
        raise NoLaw("no loader of a known batch size trains")
    return law(train.batch_size, train.seq_len, found.report, again, os.getcwd())


def with_largest_batch(found: DryRunResult, run: SavedRun) -> DryRunResult:
    """The result with the largest batch that fits, where a law is known and a GPU was named."""
    estimates = found.found.estimates
    if run.law is None or found.gpu is None or estimates.device is None:
        return found
    device = run.estimate(found.found.job, found.gpu)
    device = replace(estimates.device, find_largest_batch=device.find_largest_batch)
    return replace(found, found=replace(found.found, estimates=replace(estimates, device=device)))


def kept(found: DryRunResult, sources: dict[str, str], known: FoundLaw | None, why_not: str) -> SavedRun:
    """The run as it is saved. `sources`: files of the program, hashed before it ran."""
    directory = os.path.realpath(os.getcwd())
    program, device = found.program, found.found.estimates.device
    assert device is not None
    real = {os.path.realpath(path): one for path, one in found.report.sources.items()}
    hashes = {os.path.relpath(path, directory): one for path, one in real.items() if not path.startswith(_OWN)}
    target = program.target if program.module else os.path.relpath(os.path.realpath(program.target), directory)
    arguments = program.arguments
    if program.launcher == "deepspeed":  # its first argument is the launcher's own
        arguments = arguments[1:]
    return SavedRun(
        command=found.words,
        directory=directory,
        program=SavedProgram(target, program.module, arguments, program.nodes, program.ranks_per_node, program.stated),
        sources={**hashes, **sources},
        versions=dict(found.report.versions),
        values={name: value for name, value in seen(found.report, program).items() if name in saved_run.FACTS},
        tape=known.law.tape if known is not None else recording(found.report, directory),
        law=known.law if known is not None else None,
        no_law=why_not or (known.no_lengths if known is not None else ""),
        whole=not device.lower_bound,
        doubts=device.assumptions,
        stated=found.found.stated,
        capability=found.gpu.compute_capability if found.gpu is not None else (8, 0),
    )


def hashes_of(program: StartedProgram) -> dict[str, str]:
    """A hash of the file of the program itself, before it runs: its path relative to the current directory -> hash."""
    directory = os.path.realpath(os.getcwd())
    names = [program.target]
    if program.module:
        folder = program.target.replace(".", "/")
        names = [f"{folder}.py", f"{folder}/__main__.py"]
    for name in names:
        try:
            data = Path(name).read_bytes()
        except OSError:
            continue
        return {os.path.relpath(os.path.realpath(name), directory): sha256(data).hexdigest()}
    return {}


def document(run: SavedRun, found: DryRunResult) -> dict[str, object]:
    """The content of the file: the run, and the result as the report has it."""
    return {**saved_run.plain(run), "preflight": __version__, "estimate": text.document(found)}


def file_of(run: SavedRun, hashes: dict[str, str], folder: str) -> str:
    """The file of a command in the user's own directory: the same command in the same directory has the same one.
    `hashes`: of the program's own file."""
    program = os.path.realpath(os.path.join(run.directory, next(iter(hashes), run.program.target)))
    key = "\0".join((run.directory, *run.command))
    return str(Path(folder) / f"{name_of(program)}-{sha256(os.fsencode(key)).hexdigest()[:16]}.json")
