"""`preflight check`: reads job files, prints findings, and writes fixes if asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import click
from msgspec import Struct

from preflight.commands.completion import complete_files, complete_gpus, complete_rules
from preflight.commands.options import (
    STATED,
    calibration_option,
    parse_set,
    progress_of,
    set_option,
    time_limit_option,
    trust_option,
)
from preflight.engine import result_cache as kept
from preflight.engine.baseline import Baseline, record
from preflight.engine.check import CheckOptions, check, outcome_of, setup
from preflight.engine.files import Batch, batches
from preflight.reports import FORMATS, PEOPLE, automatic, kind_of, render, streams
from preflight.reports.outputs import write_output
from preflight.reports.style import Detail, Look, look_for
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.findings import Safety, Severity
from preflight.vocabulary.outcome import Outcome, Report
from preflight.vocabulary.words import plural

RECOGNISED = "W&B sweeps, Hydra configs, SLURM scripts, Optuna studies and Python training programs"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, type=STATED, shell_complete=complete_files)
@click.option("--fix", is_flag=True, help="Write the safe fixes, which keep the run the same.")
@click.option("--unsafe-fixes", is_flag=True, help="Write all fixes, also those that change the run.")
@click.option(
    "--diff", is_flag=True, help="Show what --fix would write, and write nothing. Exit status 1 if there are changes."
)
@click.option("--explain", is_flag=True, help="List every Job field with its value and where it comes from.")
@click.option(
    "--output-format",
    "-f",
    type=click.Choice(["auto", *FORMATS]),
    default="auto",
    show_default=True,
    help="How findings are printed.",
)
@click.option(
    "--output", type=STATED, multiple=True, metavar="FORMAT=FILE", help="Also write a report to a file. Repeatable."
)
@click.option(
    "--gpu",
    type=STATED,
    metavar="NAME",
    shell_complete=complete_gpus,
    help='The GPU the jobs run on, as in "RTX 4090" or a100-80gb.',
)
@click.option(
    "--machine",
    type=STATED,
    metavar="NAME|FILE",
    shell_complete=complete_files,
    help="The cluster or workstation the jobs run on.",
)
@set_option
@click.option(
    "--select",
    type=STATED,
    multiple=True,
    metavar="RULE",
    shell_complete=complete_rules,
    help="Run only these rules. Repeatable, or separated by commas.",
)
@click.option(
    "--ignore",
    type=STATED,
    multiple=True,
    metavar="RULE",
    shell_complete=complete_rules,
    help="Do not run these rules. Repeatable, or separated by commas.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info"]),
    default="error",
    show_default=True,
    help="End with status 1 from this severity on.",
)
@click.option("--exit-zero", is_flag=True, help="Exit with status 0 even if there are findings.")
@click.option("--baseline", type=STATED, metavar="FILE", help="Leave out the findings listed in FILE.")
@click.option("--write-baseline", type=STATED, metavar="FILE", help="Write the findings of this run to FILE.")
@click.option("--stdin-filename", type=STATED, metavar="NAME", help="The file that standard input (`-`) is checked as.")
@click.option("--statistics", is_flag=True, help="Count the findings of each rule instead of showing them.")
@click.option("--add-ignore", is_flag=True, help="Write a comment beside each finding that ignores it.")
@click.option("--show-settings", is_flag=True, help="Show each setting with where it comes from, and check nothing.")
@click.option("--from-hook", is_flag=True, help="Skip files that are not recognised, without an error.")
@click.option("--no-cache", is_flag=True, help="Check everything again, and keep no result.")
@click.option("--ask", is_flag=True, help="Ask at the terminal what no file states, and write it to the settings.")
@click.option("--verbose", "-v", is_flag=True, help="Show all the evidence of each finding, and each note.")
@click.option("--quiet", "-q", is_flag=True, help="Show the findings alone, a line each, and no progress.")
@time_limit_option
@calibration_option
@trust_option
def command(
    paths: tuple[str, ...],
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    explain: bool,
    output_format: str,
    output: tuple[str, ...],
    gpu: str | None,
    machine: str | None,
    assignments: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str,
    exit_zero: bool,
    baseline: str | None,
    write_baseline: str | None,
    stdin_filename: str | None,
    statistics: bool,
    add_ignore: bool,
    show_settings: bool,
    from_hook: bool,
    no_cache: bool,
    ask: bool,
    verbose: bool,
    quiet: bool,
    time_limit: float | None,
    calibration: bool,
    trust: tuple[str, ...],
) -> int:
    """Check job files: which jobs will run out of GPU or host memory.

    PATHS are files or directories (default: the current one), or `-`: W&B sweeps, Hydra configs, SLURM scripts, Optuna
    studies, training programs. Settings come from [tool.preflight] in the closest pyproject.toml, or preflight.toml.
    """
    files = _outputs(output)
    writing = fix or unsafe_fixes or add_ignore
    if add_ignore and (fix or unsafe_fixes):
        raise UsageError("--add-ignore: write the fixes first, without it; what they repair needs no comment")
    if verbose and quiet:
        raise UsageError("-v and -q: one shows everything, the other the findings alone; give one of them")
    detail: Detail = "all" if verbose else "line" if quiet else "short"
    if ask:
        from preflight.commands import ask as questions

        questions.need_terminal()
    if writing or ask or output or write_baseline is not None:
        kept.only("files are written")
    if verbose and kept.refused() and not no_cache:
        streams.complain(f"preflight: no result is kept: {kept.refused()}")
    cwd = Path.cwd()
    progress = progress_of(time_limit, quiet)
    options = CheckOptions(
        gpu, machine, parse_set(assignments), _names(select), _names(ignore), trust, progress, calibration
    )
    from preflight.commands import standard_input

    given = standard_input.given(paths, stdin_filename, cwd)
    if given is not None and writing and not diff:
        raise UsageError("-: standard input is no file that could be written; --diff shows the changes")
    if show_settings:
        from preflight.commands import show_settings as effective

        stated = effective.Stated(gpu, machine, options.set, options.select, options.ignore, trust)
        found = [given.batch] if given is not None else batches(paths or (".",), cwd, from_hook)
        effective.show(found, stated, cwd, output_format == "json")
        return 0
    old = Baseline.of(baseline, cwd) if baseline is not None else None
    view = old.new if old is not None else _same
    asked = Writing("diff" if diff else "write" if writing else "", unsafe_fixes, add_ignore)
    with progress.shown("preflight"):
        with progress.shown("looking for files"):
            found = [given.batch] if given is not None else batches(paths or (".",), cwd, from_hook)
        texts = given.texts if given is not None else {}
        runs = [_run(batch, options, cwd, view, asked, texts) for batch in found]
    reports = [report for report, _ in runs]
    late = next((report.incomplete for report in reports if report.incomplete), "")
    if write_baseline is not None:
        if late:
            raise UsageError(f"--write-baseline: {late}; a baseline of a part would hide nothing of the rest")
        reports = record(reports, Path(write_baseline), cwd)
    outcome = outcome_of(reports, cwd, old.notes() if old is not None and not late else ())
    for name, path in files:
        with progress.shown("preflight"), progress.shown(f"writing {path}"):
            write_output(path, render(name, outcome, Look(detail=detail)), kind_of(name))
    status = max(_status(outcome, Severity(fail_on), exit_zero), _refuse(reports))
    if diff:
        changes = "".join(text for _, text in runs)
        streams.show(changes, "patch")
        _say_unsafe(outcome, unsafe_fixes)
        kept.said_all()
        return 2 if status == 2 else int(bool(changes))
    shown = _Shown(output_format, explain, from_hook, statistics)
    _print(outcome, shown, look_for(sys.stdout, detail=detail))
    if ask:
        questions.ask(outcome.questions, len(list(outcome.studies())), found[0].root if found else cwd)
    kept.said_all()
    return status


def _names(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def _outputs(values: Sequence[str]) -> list[tuple[str, Path]]:
    """(format, file) pairs of `--output`. Raises UsageError."""
    found = []
    for value in values:
        name, equals, path = value.partition("=")
        if not equals or name not in FORMATS or not path:
            raise UsageError(f"--output {value}: write FORMAT=FILE with one of {', '.join(FORMATS)}")
        found.append((name, Path(path)))
    return found


def _same(report: Report) -> Report:
    return report


class Writing(Struct, frozen=True):
    """What is written: nothing, a diff or the files; with unsafe fixes; comments that ignore findings, and no fixes."""

    how: Literal["", "diff", "write"]
    unsafe: bool
    ignores: bool


def _run(
    batch: Batch,
    options: CheckOptions,
    cwd: Path,
    view: Callable[[Report], Report],
    asked: Writing,
    texts: Mapping[str, str],
) -> tuple[Report, str]:
    """The report of one project after its changes; with `diff`, the report before them and the diff. `texts` are in the
    place of files."""
    if asked.how == "write" and not asked.ignores:
        from preflight.engine.rounds import written

        return written(batch, options, cwd, asked.unsafe, view), ""
    project, setting = setup(batch, options, cwd)
    project.overlay.update(texts)
    if not asked.how:
        return view(check(project, setting)), ""
    from preflight.engine import rounds

    if asked.ignores:
        from preflight.engine import add_ignore

        result = add_ignore.ignored(project, setting, view)
        if asked.how == "write":
            return add_ignore.write(result), ""
    else:
        result = rounds.fixed(project, setting, asked.unsafe, view)
    return result.before, rounds.diff(result, cwd)


class _Shown(Struct, frozen=True):
    """What is printed: the format, with the fields of each study, nothing for a hook without a reason, counts alone."""

    format: str
    explain: bool
    from_hook: bool
    statistics: bool


def _print(outcome: Outcome, shown: _Shown, look: Look) -> None:
    """Print the report; from a hook, nothing if there are no studies and no findings. With `statistics`, people get the
    counts of the rules in the place of the findings."""
    chosen = automatic(os.environ) if shown.format == "auto" else shown.format
    if shown.from_hook and chosen in PEOPLE and not any(outcome.studies()) and not any(outcome.findings()):
        return
    people = chosen in ("full", "concise")
    if shown.explain and people:
        from preflight.reports.explain import explained

        streams.show(explained(outcome, look))
    if shown.statistics and people:
        from preflight.reports.statistics import rendered

        streams.show(rendered(outcome, look))
        return
    streams.show(render(chosen, outcome, look), kind_of(chosen))
    if chosen == "full" and look.detail != "line":
        from preflight.reports.questions import after

        streams.show(after(outcome, look))


def _say_unsafe(outcome: Outcome, unsafe: bool) -> None:
    """What --unsafe-fixes would add to a diff. Standard output has the patch alone."""
    more = 0 if unsafe else sum(fix.safety is Safety.unsafe for fix in outcome.fixes())
    if more:
        they = "it changes" if more == 1 else "they change"
        streams.complain(f"preflight: {plural(more, 'fix')} not shown, because {they} the run: --diff --unsafe-fixes")


def internal_error(outcome: Outcome) -> bool:
    """Whether a rule or an estimate failed."""
    return any(finding.rule == "internal-error" for _, finding in outcome.findings())


def _status(outcome: Outcome, fail_on: Severity, exit_zero: bool) -> int:
    """2 for an internal error, 1 for findings at or above `fail_on`, else 0."""
    findings = [finding for _, finding in outcome.findings()]
    if internal_error(outcome):
        return 2
    return int(not exit_zero and any(finding.severity.rank >= fail_on.rank for finding in findings))


def _refuse(reports: Sequence[Report]) -> int:
    """2, with a line for each file that was named and that no dialect recognises; else 0."""
    refused = [path for report in reports for path in report.refused]
    for path in refused:
        streams.complain(f"preflight: error: {path} is not recognised; preflight reads {RECOGNISED}")
    return 2 if refused else 0
