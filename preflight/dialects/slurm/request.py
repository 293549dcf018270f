"""Makes a Request from `#SBATCH` directives, the environment and sbatch's command line, and finds refused values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from preflight.dialects.slurm.schema import (
    FIELDS,
    MEMORY_OPTIONS,
    REQUEST_FIELDS,
    WORDS,
    Count,
    Gpus,
    TaskLayout,
    memory_meant,
    read_value,
    said_of,
    words_taken,
)
from preflight.documents.directives import (
    PLACEHOLDER,
    Directive,
    Ignored,
    read_arguments,
    read_directives,
    takes_no_value,
)
from preflight.vocabulary.budgets import IGNORED_DIRECTIVES
from preflight.vocabulary.project import BOM, COMMAND_LINE, ENVIRONMENT, VARIABLES, Submission
from preflight.vocabulary.reading import Problem, ProblemSeverity, Request
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Origin, Span, Unknown, Value

PLUGIN_PREFIXES = ("container-", "no-container-")
"""Options of pyxis, the usual container plugin. sbatch knows them if it is installed."""

SMALL_MIB = 512
"""MiB. `import torch` and one CUDA context need more, so the unit of a smaller number was probably forgotten."""

_RESOURCES = frozenset((*REQUEST_FIELDS, "exclusive"))


class GivenOption(Struct, frozen=True):
    """One option and its source: the script, the environment or sbatch's command line."""

    path: str
    option: Directive
    place: Origin | None = None
    """Where a word of a script's command line is written."""

    @property
    def origin(self) -> Origin:
        place = _origin(self.path, self.option) if self.place is None else self.place
        return place if self.path not in (COMMAND_LINE, ENVIRONMENT) else replace(place, editable=False)


class _PartOptions(Struct, frozen=True):
    """The options for one part of a job: the last one of each name counts."""

    last: Mapping[str, GivenOption]
    all: tuple[GivenOption, ...]
    from_environment: frozenset[str]
    """Options that sbatch treats as given by the environment. Options of its own command line are among them until it
    reads the part of the job that they stand for."""

    def origin(self, name: str) -> Origin:
        return self.last[name].origin

    def value(self, name: str) -> str:
        return self.last[name].option.value or ""

    def unread(self, name: str) -> Unknown | None:
        """Why the value of an option is not known."""
        return self.last[name].option.unread if name in self.last else None

    def stated(self, name: str) -> bool:
        """Whether the script or the command line gives the option."""
        return name in self.last and name not in self.from_environment


_KEPT = frozenset(
    re.findall(
        r"\S+",
        "account array begin comment deadline dependency error exclude export hold input job-name mem no-kill "
        "no-requeue open-mode output prefer profile qos requeue reservation signal time time-min wait wckey",
    )
)
"""Options that a later part of a heterogeneous job inherits; sbatch resets all other options (reset_each_pass in
src/common/slurm_opt.c)."""


def _parts(
    path: str, script: tuple[Directive, ...], submission: Submission | None, words: tuple[GivenOption, ...]
) -> Iterator[_PartOptions]:
    """The options of each part of the job. The last part on the command line is also used for all later parts.

    sbatch first reads the whole command line once (process_options_first_pass) and keeps the options that it does not
    reset. Then it reads script, environment and command line for each part.
    """
    command = read_arguments(submission.arguments)[0] if submission is not None else ()
    environment = _environment_directives(submission) if submission is not None else ()
    count = max((one.component for one in script), default=0) + 1
    segments = submission.components if submission is not None else 1
    kept = {one.name: GivenOption(COMMAND_LINE, one) for one in command if one.name in _KEPT}
    marked = {one.name for one in command}
    for component in range(max(count, segments)):
        said = [GivenOption(path, one) for one in script if one.component == component]
        marked -= {one.option.name for one in said}
        marked |= {one.name for one in environment}
        said += [GivenOption(ENVIRONMENT, one) for one in environment]
        mine = [one for one in command if one.component == min(component, segments - 1)]
        marked -= {one.name for one in mine}
        said += [GivenOption(COMMAND_LINE, one) for one in mine]
        marked -= {one.option.name for one in words}
        said += words
        last = {**kept, **{one.option.name: one for one in said}}
        stated = [name for name in MEMORY_OPTIONS if name in last and name not in marked]
        if len(stated) == 1:  # it replaces the memory options of the environment
            last = {name: one for name, one in last.items() if name not in MEMORY_OPTIONS or name in stated}
            marked -= set(MEMORY_OPTIONS)
        yield _PartOptions(last, tuple(said), frozenset(marked))
        kept = {name: one for name, one in last.items() if name in _KEPT}


def _environment_directives(submission: Submission) -> tuple[Directive, ...]:
    """The submitter's SBATCH_* variables as options, in the order in which sbatch reads them."""
    found, at = [], 0
    for number, (name, value) in enumerate(submission.variables(), 1):
        start, end = at + len(name) + 1, at + len(name) + 1 + len(value)
        whole = Span(at, end)
        found.append(Directive(VARIABLES[name], value, whole, Span(at, start - 1), Span(start, end), number))
        at = end + 1
    return tuple(found)


def _origin(path: str, directive: Directive) -> Origin:
    """The place of a directive's value. It is not editable if the text is more than the value ("gpu:a100:4")."""
    whole = (
        directive.name in ("gres", "gpus", "gpus-per-node", "gpus-per-task") and not (directive.value or "").isdecimal()
    )
    return Origin(path, directive.value_span or directive.span, editable=directive.value_span is not None and not whole)


def read_request(
    source: Source,
    directives: tuple[Directive, ...],
    submission: Submission | None = None,
    words: tuple[GivenOption, ...] = (),
) -> tuple[Request, tuple[Problem, ...]]:
    """The request of a script, and its problems: values that sbatch refuses, or that contradict each other.

    The later parts of a heterogeneous job are the request's `components`. `words` are the options with which another
    script submits this one.
    """
    first, *later = (
        _component(source, directives, given, index)
        for index, given in enumerate(_parts(source.path, directives, submission, words))
    )
    problems = tuple(dict.fromkeys(problem for _, found in (first, *later) for problem in found))
    return replace(first[0], components=tuple(request for request, _ in later)), problems


def _component(
    source: Source, directives: tuple[Directive, ...], given: _PartOptions, component: int
) -> tuple[Request, tuple[Problem, ...]]:
    first = tuple(one for one in directives if one.component == component)
    values, problems = _validated(given)
    fields: dict[str, Value] = {}
    origins: dict[str, Origin] = {}
    for name, value in values.items():
        field = REQUEST_FIELDS.get(name)
        if field is None or value is None:
            continue  # not part of Request, or a resource other than GPUs
        if isinstance(value, Count):
            fields["min_nodes"], fields["max_nodes"] = value.low, max(value.high, 0)
        fields[field] = _plain(value)
        origins[field] = given.origin(name)
        if isinstance(value, Gpus) and value.type is not None:
            fields["gpu_type"], origins["gpu_type"] = value.type, given.origin(name)
    layout = values.get("extra-node-info")
    if isinstance(layout, TaskLayout):
        for field, number in zip(("sockets_per_node", "cores_per_socket", "threads_per_core"), layout, strict=True):
            if number is not None and field not in fields:
                fields[field], origins[field] = number, given.origin("extra-node-info")
    fields.update(_hinted(given))
    if "exclusive" in given.last:
        origins["exclusive"] = given.origin("exclusive")
    at = _insert_at(source, first or directives)
    request = Request(
        **fields,
        exclusive=values.get("exclusive") in ("", "exclusive"),  # =user, =mcs share with some
        shared_with=str(values["exclusive"]) if values.get("exclusive") in ("user", "mcs") else None,
        overcommit="overcommit" in given.last,
        contiguous="contiguous" in given.last,
        tasks_of_layout="extra-node-info" in given.last,
        gres=_gres_texts(given),
        origins=origins,
        insert_at=Origin(source.path, Span(at, at)),
        directives=tuple((one.option.name, one.option.value, one.origin) for one in given.all),
        components=(),
    )
    return request, (*problems, *_contradictions(given), *_unknown_options(given))


def _hinted(given: _PartOptions) -> Iterator[tuple[str, Value]]:
    """The layout that --hint implies (verify_hint) unless one is given explicitly (validate_hint_option), and the size
    of a plane."""
    plane = re.fullmatch(r"plane=(\d+)", given.value("distribution").lower()) if "distribution" in given.last else None
    if plane is not None:
        yield "plane_size", int(plane[1])
    explicit = ("ntasks-per-core", "threads-per-core", "extra-node-info")
    if "hint" not in given.last or any(given.stated(name) for name in explicit):
        return
    hint = given.value("hint").lower()
    if hint in ("nomultithread", "compute_bound", "memory_bound"):
        yield "threads_per_core", 1
    names = [said.option.name for said in given.all]
    for option, field, value in (
        ("sockets-per-node", "sockets_per_node", {"compute_bound": None}),
        ("cores-per-socket", "cores_per_socket", {"compute_bound": None, "memory_bound": 1}),
    ):
        if hint in value and _last_of(names, option) < _last_of(names, "hint"):
            yield field, value[hint]


def _last_of(names: list[str], name: str) -> int:
    return max((index for index, one in enumerate(names) if one == name), default=-1)


def _plain(value: object) -> Value:
    if isinstance(value, Count):
        return value.low if value.low == value.high else Unknown(f"{value.low} to {value.high} nodes", Cause.run_time)
    return value.number if isinstance(value, Gpus) else value  # type: ignore[return-value]


_SCOPES = {
    "gpus": "job",
    "gpus-per-node": "node",
    "gres": "node",
    "gpus-per-socket": "socket",
    "gpus-per-task": "task",
}
"""Options for GPUs -> the unit of each number (node, task, ...)."""


def _gres_texts(given: _PartOptions) -> tuple[tuple[str, str], ...]:
    """The requested generic resources in SLURM's own form: `--gpus=a100:2` is `gpu:a100:2` for the job."""
    found = []
    for name, scope in _SCOPES.items():
        text = given.value(name) if name in given.last else ""
        if "$" in text or PLACEHOLDER.search(text) or given.unread(name) is not None:
            continue  # reported elsewhere; the value is not known
        if name == "gres" and name in given.last:
            if text.lower() != "none":
                found.append((scope, text))
        elif text:
            found.append((scope, ",".join(f"gpu:{part}" for part in text.split(",") if part)))
    return tuple(found)


def _insert_at(source: Source, directives: tuple[Directive, ...]) -> int:
    """The start of the line after the last directive, or after the shebang."""
    marked = len(BOM) if source.text.startswith(BOM) else 0
    line = directives[-1].line if directives else 1 if source.text.startswith("#!", marked) else 0
    end = source.text.find("\n", source.offset(line, 1)) if line else -1
    if line == 0:
        return marked
    return end + 1 if end >= 0 else len(source.text)


def _validated(given: _PartOptions) -> tuple[dict[str, object], list[Problem]]:
    """The value of every directive, by the schema. A refused value is Unknown and a problem."""
    known = [name for name in given.last if name in FIELDS]
    unread = {name: why for name in known if (why := given.unread(name)) is not None}
    texts = {name: given.value(name) for name in known if name not in unread}
    values: dict[str, object] = {**unread}
    problems = [
        problem for said in given.all if said is not given.last.get(said.option.name) for problem in _earlier(said)
    ]
    for name, text in texts.items():
        try:
            values[name] = read_value(name, text)
        except ValueError as error:
            if PLACEHOLDER.search(text):
                values[name] = Unknown(f"the script is a template: {text} is replaced later", Cause.not_set)
                continue
            values[name] = Unknown(f"sbatch refuses --{name}={text}", Cause.invalid)
            problems.append(_refused(given.origin(name), name, text, str(error)))
            continue
        if name == "mem" and text.isdecimal() and 0 < int(text) < SMALL_MIB:
            message = f"--mem={text} asks for {text} MiB: a bare number is MiB"
            problems.append(Problem("slurm-memory-invalid", message, given.origin(name), "warning", f"{text}G"))
    return values, problems


def _earlier(said: GivenOption) -> Iterator[Problem]:
    """Problems of an option that a later one replaces: sbatch reads it too, and a wrong value ends sbatch."""
    name, text = said.option.name, said.option.value or ""
    if name not in FIELDS or PLACEHOLDER.search(text) or said.option.unread is not None:
        return
    try:
        read_value(name, text)
    except ValueError as error:
        yield _refused(said.origin, name, text, str(error))


def _refused(origin: Origin, name: str, text: str, why: str) -> Problem:
    said = said_of(name, text)
    message = f"sbatch refuses --{name}={text}{f' (error: {said})' if said else ''}: {why}"
    if name in MEMORY_OPTIONS:
        meant = memory_meant(text)
        return Problem("slurm-memory-invalid", message, origin, "error", meant, meant is not None)
    return Problem("invalid-config", message, origin)


def _contradictions(given: _PartOptions) -> Iterator[Problem]:
    """Options that exclude each other, in one directive or in several (_validate_memory_options)."""
    memory = [name for name in MEMORY_OPTIONS if given.stated(name)]
    where = ""
    if not memory:
        memory = [name for name in MEMORY_OPTIONS if name in given.from_environment]
        where = " before this part of the job"
    if len(memory) > 1:
        at = {said.option.name: index for index, said in enumerate(given.all)}
        memory.sort(key=lambda name: at.get(name, -1))
        related = tuple((given.origin(name), f"--{name} is given here") for name in memory[:-1] if name in given.last)
        message = (
            f"{' and '.join(f'--{name}' for name in memory)} are both given{where}: sbatch refuses the job "
            "(fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.)"
        )
        last = memory[-1]
        origin = given.origin(last) if last in given.last else Origin(COMMAND_LINE, Span(0, 0), editable=False)
        yield Problem("slurm-memory-invalid", message, origin, related=related)
    yield from _tasks_per_gpu(given)


def _tasks_per_gpu(given: _PartOptions) -> Iterator[Problem]:
    """Options that --ntasks-per-gpu excludes (_validate_ntasks_per_gpu)."""
    if "ntasks-per-gpu" not in given.last and "ntasks-per-gpu" not in given.from_environment:
        return
    for name in ("gpus-per-task", "gpus-per-socket", "ntasks-per-node"):
        if given.stated(name) or name in given.from_environment:
            first = "ntasks-per-gpu" if "ntasks-per-gpu" in given.last else name
            if first in given.last:
                message = f"--ntasks-per-gpu and --{name} exclude each other: sbatch refuses the job"
                related = ((given.origin(name), f"--{name} is given here"),) if name in given.last else ()
                yield Problem("slurm-request-impossible", message, given.origin(first), related=related)
            return


def _unknown_options(given: _PartOptions) -> Iterator[Problem]:
    from difflib import get_close_matches

    names = {said.option.name for said in given.all if said.option.known} | _RESOURCES
    for said in given.all:
        one = said.option
        if one.unread is not None:
            continue
        if one.known:
            taken = words_taken(one.name, one.value) if one.name in WORDS and one.value is not None else None
            if taken is not None and one.value is not None and not PLACEHOLDER.search(one.value):
                yield _refused(said.origin, one.name, one.value, taken)
            if one.value is not None and takes_no_value(one.name):
                message = f"sbatch refuses --{one.name}={one.value} (option '--{one.name}' doesn't allow an argument)"
                yield Problem("invalid-config", message, said.origin)
            if one.value is None and one.name in FIELDS and one.name != "exclusive":
                yield Problem("invalid-config", f"--{one.name} needs a value", Origin(said.path, one.span))
            continue
        if one.name.startswith(PLUGIN_PREFIXES) or PLACEHOLDER.search(one.name):
            continue
        close = get_close_matches(one.name.replace("_", "-").lower(), sorted(names), n=1, cutoff=0.8)
        dashes = "--" if len(one.name) > 1 else "-"
        if close:
            message = f"sbatch has no option {dashes}{one.name} and refuses the job; did you mean --{close[0]}?"
            yield Problem("invalid-config", message, Origin(said.path, one.name_span), "error", f"--{close[0]}")
        else:
            message = f"sbatch has no option {dashes}{one.name}, unless a plugin of the site adds it"
            yield Problem("invalid-config", message, Origin(said.path, one.name_span), "warning")


def ignored_problems(
    source: Source, ignored: Iterable[Ignored], directives: tuple[Directive, ...]
) -> Iterator[Problem]:
    """Lines that look like directives and have no effect. The last of those within the budget says how many follow."""
    found = list(_ignored_problems(source, ignored, directives))
    if len(found) > IGNORED_DIRECTIVES:
        last, rest = found[IGNORED_DIRECTIVES - 1], len(found) - IGNORED_DIRECTIVES
        found[IGNORED_DIRECTIVES - 1 :] = [replace(last, message=f"{last.message} (and {rest:,} lines like it below)")]
    yield from found


def _ignored_problems(
    source: Source, ignored: Iterable[Ignored], directives: tuple[Directive, ...]
) -> Iterator[Problem]:
    active = {one.name for one in directives}
    for one in ignored:
        names = _names(one.text)
        if one.reason == "double-hash" and (not names & _RESOURCES or names <= active):
            continue  # the usual way to switch a directive off
        if one.reason == "space" and names <= active:
            continue  # another one
        severity: ProblemSeverity = "warning"
        if one.reason == "double-hash" or (one.reason == "space" and not names & _RESOURCES):
            severity = "info"
        elif one.reason in ("after-command", "quote") and names & _RESOURCES:
            severity = "error"
        fix = f"#SBATCH {one.text}" if one.reason in ("space", "indented", "case") else None
        message = f"sbatch ignores this directive: {one.message}"
        if one.reason in ("quote", "after-word"):
            message = one.message
        yield Problem("slurm-directive-ignored", message, Origin(source.path, one.span), severity, fix, kind=one.reason)


def _names(text: str) -> set[str]:
    return {one.name for one in read_directives(f"#SBATCH {text}\n")[0]}


def _marked(source: Source) -> Iterator[str]:
    """The lines of directives, and the first line."""
    lines = source.text.split("\n")
    return (line for number, line in enumerate(lines) if not number or line.startswith("#SBATCH"))


def script_problems(source: Source) -> Iterator[Problem]:
    """The reasons why sbatch refuses the whole file."""
    if source.text.startswith(BOM):
        message = (
            "sbatch refuses a script that starts with a byte-order mark: its first line is not #! and an interpreter"
        )
        fix = "" if source.text.startswith(f"{BOM}#!") else "#!/bin/bash\n"
        yield Problem("invalid-config", message, Origin(source.path, Span(0, len(BOM))), "error", fix, True)
    elif not source.text.startswith("#!") and not any(PLACEHOLDER.search(line) for line in _marked(source)):
        message = "sbatch refuses a script whose first line is not #! and an interpreter"
        yield Problem("invalid-config", message, Origin(source.path, Span(0, 0)), "error", "#!/bin/bash\n", True)
    at = source.text.find("\r\n")
    if at >= 0:
        message = "sbatch refuses a script with DOS line breaks (\\r\\n instead of \\n)"
        place = Origin(source.path, Span(at, at + 2), editable=False)
        yield Problem("slurm-directive-ignored", message, place, kind="line-breaks")
