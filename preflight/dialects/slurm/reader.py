"""Reader of job scripts: SLURM's directives become a request, the programs that the shell would start become links.

A shell script without directives is read in the same way, without a request, if it starts a program of the project.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from msgspec.structs import replace

from preflight.dialects.slurm.array_jobs import ARRAY_INDEX, axis_of_lines, exprs_of, stated_axis, with_lines
from preflight.vocabulary.caches import CacheKind, regex
from preflight.vocabulary.project import COMMAND_LINE, Project, Submission, UnreadableFile
from preflight.vocabulary.reading import Binding, Call, Link, Problem, Rank, Reading, Request, Unread, Word
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import (
    Cause,
    Choices,
    Const,
    Expr,
    Op,
    Origin,
    Ref,
    Span,
    Unknown,
    Value,
    names,
    unknown,
)

if TYPE_CHECKING:
    from preflight.dialects.shell.links import LinksOfScript
    from preflight.dialects.slurm.request import GivenOption
    from preflight.documents.bash import BashDocument

NAME = "slurm"
_READ: CacheKind[Reading] = CacheKind("a script read without a call")

MAX_SCRIPTS = 4
"""Scripts that start scripts, until one of them starts a program."""

_DIRECTIVE = regex(r"^\ufeff?#SBATCH[ \t]", re.MULTILINE)
_LAUNCH = regex(
    r"^[^#\n]*\b(python[\d.]*|torchrun|accelerate\s+launch|deepspeed|wandb\s+sweep|srun|axolotl|llamafactory-cli|"
    r"swift|litgpt|tune|trl|yolo|sbatch|bash|sh)\b",
    re.MULTILINE,
)

_AT_RUN_TIME = (
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_PROCID", "SLURM_LOCALID",
    "SLURM_NODEID", "SLURM_ARRAY_JOB_ID", "SLURM_TMPDIR", "SLURMD_NODENAME", "SLURM_STEP_ID",
    "SLURM_LAUNCH_NODE_IPADDR", "SLURM_CPUS_ON_NODE", "SLURM_JOB_PARTITION",
)  # fmt: skip
"""Variables whose value is known only when the job runs (sbatch(1), OUTPUT ENVIRONMENT VARIABLES)."""

_FROM_REQUEST = {
    "SLURM_NNODES": "nodes", "SLURM_JOB_NUM_NODES": "nodes", "SLURM_NTASKS": "tasks", "SLURM_NPROCS": "tasks",
    "SLURM_NTASKS_PER_NODE": "tasks_per_node", "SLURM_TASKS_PER_NODE": "tasks_per_node",
    "SLURM_CPUS_PER_TASK": "cpus_per_task", "SLURM_CPUS_PER_GPU": "cpus_per_gpu", "SLURM_GPUS": "gpus",
    "SLURM_GPUS_ON_NODE": "gpus_per_node", "SLURM_GPUS_PER_NODE": "gpus_per_node",
    "SLURM_GPUS_PER_TASK": "gpus_per_task",
}  # fmt: skip
"""Variables that repeat directives (the same section) -> fields of Request."""
_OF_GPUS = {"gres": "gpus_per_node", "gpus-per-node": "gpus_per_node", "gpus": "gpus", "gpus-per-task": "gpus_per_task"}
"""Options that ask for GPUs -> fields of Request."""


def recognises(source: Source, project: Project) -> bool:
    """Whether a script has a directive at the start of a line, or starts a program of the project."""
    return _recognises(source, project, ())


def _recognises(source: Source, project: Project, above: tuple[str, ...]) -> bool:
    if _DIRECTIVE.search(source.text) is not None or source.path in project.submissions:
        return True
    if source.path in above or len(above) >= MAX_SCRIPTS:
        return False
    if _LAUNCH.search(source.text) is None and not _starts_command(source, project):
        return False
    try:
        reading = read(source, None, project)
        return any(_leads_on(link, project, (*above, source.path)) for link in reading.links)
    except (DocumentError, UnreadableFile):
        return False


def _starts_command(source: Source, project: Project) -> bool:
    from preflight.dialects.shell.console_scripts import named_in

    return bool(source.text) and named_in(source.text, posixpath.dirname(source.path), project)


def _leads_on(link: Link, project: Project, above: tuple[str, ...]) -> bool:
    from preflight.dialects.shell.links import starts_program

    if link.kind == "job":
        call = Call(link.target, link.words, {}, link.launch, link.directory, link.submitted)
        job = _read(project.source(link.target), call, project)
        return any(_leads_on(one, project, above) for one in job.links)
    if link.kind == "script":
        return _recognises(project.source(link.target), project, above)
    return starts_program(link, project)


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """The request, links to the programs that the script starts, and directives that sbatch would refuse or ignore."""
    if call is not None:
        return _read(source, call, project)
    return project.remembered.get(_READ, lambda: _read(source, None, project), source.path)


def _read(source: Source, call: Call | None, project: Project) -> Reading:
    from preflight.dialects.shell.interpreter import Shell
    from preflight.dialects.shell.links import links_of
    from preflight.dialects.shell.outputs import Outputs
    from preflight.dialects.shell.places import file_of_text
    from preflight.documents.bash import parse_bash, reparse

    given = call.submitted if call is not None else None
    inside = None if given is None else given.script
    document = parse_bash(source) if inside is None else reparse(source, inside)
    submission = project.submissions.get(source.path) if inside is None else None
    request, problems = _requested(source, document, submission, call)
    reads: list[str] = []

    def sourced(name: str) -> BashDocument | None:
        for path in (name, f"{PurePosixPath(source.path).parent}/{name}"):
            plain = PurePosixPath(path).as_posix()
            if not name.startswith("/") and project.exists(plain):
                try:
                    reads.append(plain)
                    return parse_bash(project.source(plain))
                except (UnreadableFile, DocumentError):
                    return None  # the check of that file reports it
        return None

    axis = stated_axis(request)
    start = dict(_variables(request, source.path))
    outer = {} if call is None else dict(call.launch.environment)
    words = call.words if call is not None else None
    if call is None and submission is not None and request is not None:
        outer, words = _exported(submission, _last(request, "export")), _arguments(submission)
    symbols = frozenset(name for expr in outer.values() for name in names(expr))

    def followed(symbolic: bool) -> Shell:
        """The script, with the index of an array job as a symbol."""
        variables = (
            {**start, ARRAY_INDEX: Ref(ARRAY_INDEX, axis.origin if axis is not None else None)} if symbolic else start
        )
        axes = symbols | ({ARRAY_INDEX} if symbolic else frozenset())
        shell = Shell(source, {**outer, **variables}, words, axes, sourced, exported=set(outer))

        def named(name: str) -> Source | None:
            path = file_of_text(name, shell.directory, source.path, project)
            if path is None:
                return None
            reads.append(path)
            try:
                return project.source(path)
            except UnreadableFile:
                return None

        stated = axis.domain.values if axis is not None and isinstance(axis.domain, Choices) else None
        shell.outputs = Outputs(named, {ARRAY_INDEX: stated} if symbolic else {})
        if call is None and submission is not None:
            shell.directory = submission.directory
        elif (call is None or given is not None) and request is not None and _directory(request):
            shell.directory = _directory(request)
        elif call is not None and inside is not None:
            shell.directory = call.directory
        shell.exported |= {name for name in start if name.startswith("SLURM_")} - set(_AT_RUN_TIME)
        shell.follow(document)
        return shell

    shell = followed(axis is not None)
    found = links_of(shell, project, request)
    if axis is not None:
        axis = with_lines(axis, found.links)
    elif ARRAY_INDEX in document.text.text and ARRAY_INDEX not in outer:
        by_line = followed(True)
        more = links_of(by_line, project, request)
        axis = axis_of_lines(more.links)
        if axis is not None or by_line.unrolled:
            shell, found = by_line, more
            axis = with_lines(axis, found.links) if axis is not None else None
    used = {name for link in found.links for expr in exprs_of(link) for name in names(expr)}
    # an option that a word which is not known might be has no text
    asks_gpus = request is not None and any(
        getattr(request, _OF_GPUS[name]) is not None
        for name, text, _ in request.directives
        if name in _OF_GPUS and text is not None
    )
    return Reading(
        path=source.path,
        dialect=NAME,
        bindings=_of_missing(found, source.path),
        axes=(axis,) if axis is not None and axis.name in used else (),
        links=found.links,
        request=request,
        problems=problems,
        reads=tuple(dict.fromkeys(reads)),
        trains=request is not None and not found.interactive and (asks_gpus or found.external),
        started=found.started,
        unread=None if shell.cut is None else Unread.beyond(shell.cut, Origin(source.path, Span(0, 0))),
    )


def _of_missing(found: LinksOfScript, path: str) -> tuple[Binding, ...]:
    """Why the model of a script is not known whose programs are not in the project."""
    if found.links or not found.missing:
        return ()
    names = list(dict.fromkeys(str(one.value) for one in found.missing))
    what = f"{names[0]}, which {path} starts, is" if len(names) == 1 else f"what {path} starts ({', '.join(names)}) is"
    why = Unknown(f"{what} not in the project", Cause.file_not_found)
    origin = found.missing[0].origin
    return (Binding("model.name", Const(why, origin), Rank.default, origin),)


def _requested(
    source: Source, document: BashDocument, submission: Submission | None, call: Call | None
) -> tuple[Request | None, tuple[Problem, ...]]:
    """The request of a job, and its problems; None if the script is no job."""
    from preflight.dialects.slurm.request import ignored_problems, read_request, script_problems
    from preflight.dialects.slurm.submitted import directives_in, given_options

    given = call.submitted if call is not None else None
    inside = given is not None and given.script is not None
    directives = directives_in(document.text) if inside else document.directives
    words: tuple[GivenOption, ...] = ()
    if call is not None and given is not None:
        words = tuple(given_options(given.options, call.caller, directives))
    ignored = () if inside else document.ignored_directives
    if not (directives or ignored or words) and submission is None:
        return None, ()
    request, problems = read_request(source, directives, submission, words)
    if inside:  # its text has variables of the script around it: nothing is inserted there
        return replace(request, insert_at=None), tuple(problems)
    return request, (*script_problems(source), *problems, *ignored_problems(source, ignored, directives))


def _directory(request: Request) -> str | None:
    """Where a job starts: in the directory of its container (pyxis, README: `--container-workdir`), or of `--chdir`."""
    return _last(request, "container-workdir") or _last(request, "chdir")


def _last(request: Request, option: str) -> str | None:
    """The last value of an option, which is the one that counts."""
    return next((value for name, value, _ in reversed(request.directives) if name == option), None)


def _variables(request: Request | None, path: str) -> Iterator[tuple[str, Expr]]:
    """The variables of a job before its script starts."""
    yield "PWD", Const(".")
    yield "SLURM_SUBMIT_DIR", Const(".")
    yield "0", Const(f"/{path}")
    yield "BASH_SOURCE", Op("tuple", (Const(f"/{path}"),))
    if request is None:
        return
    for name in _AT_RUN_TIME:
        yield name, unknown(f"SLURM sets {name} when the job runs", cause=Cause.run_time)
    for name, field in _FROM_REQUEST.items():
        value, origin = _implied(request, field)
        if value is not None:
            yield name, Const(str(value) if isinstance(value, int) else value, origin)
    yield ARRAY_INDEX, unknown("--array sets it for each task", request.origins.get("array"), Cause.run_time)


def _implied(request: Request, field: str) -> tuple[Value, Origin | None]:
    value: Value = getattr(request, field)
    if value is not None:
        return value, request.origins.get(field)
    if field == "nodes" and request.tasks is None:
        return 1, None
    if field == "tasks":
        nodes, per_node = request.nodes if request.nodes is not None else 1, request.tasks_per_node
        if isinstance(nodes, int) and isinstance(per_node, int):
            return nodes * per_node, request.origins.get("tasks_per_node")
        return (Unknown("--nodes is unknown", Cause.run_time), None) if isinstance(nodes, Unknown) else (None, None)
    return None, None


# --- what the submission gives ---------------------------------------------------------------------------------------

_OF_JOBS = ("SLURM_", "SBATCH_", "SRUN_", "PREFLIGHT_", "CUDA_VISIBLE_DEVICES")


def _arguments(submission: Submission) -> tuple[Word, ...]:
    """The script's `$1`, `$2`, ... with their places on the command line."""
    from preflight.dialects.shell.values import literal_word

    found, at = [], len(shlex.join(submission.arguments)) + bool(submission.arguments)
    for text in submission.words:
        end = at + len(shlex.quote(text))
        found.append(literal_word(text, Origin(COMMAND_LINE, Span(at, end), editable=False)))
        at = end + 1
    return tuple(found[1:])


def _exported(submission: Submission, export: str | None) -> dict[str, Expr]:
    """The submitter's variables that `--export` hands to the job (sbatch(1); None: all of them).

    Variables of sbatch, and of a job from which this job is submitted, are left out: the job has its own.
    """
    words = export.split(",") if export else ["ALL"]
    taken: dict[str, str] = dict(submission.environment) if "ALL" in (word.upper() for word in words) else {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            taken[name] = value
        elif name in submission.environment:
            taken[name] = submission.environment[name]
    return {name: Const(value) for name, value in taken.items() if not name.startswith(_OF_JOBS)}
