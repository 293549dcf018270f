"""`#SBATCH` directives as a Request, and what sbatch would say about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

from preflight.dialects.reading import Problem, Request
from preflight.dialects.slurm_schema import FIELDS, MEMORY_OPTIONS, Count, Directives, Gpus, memory_meant
from preflight.dialects.slurm_submission import COMMAND_LINE, ENVIRONMENT, Submission
from preflight.documents.base import Source
from preflight.plain import plain
from preflight.records import dataclass, replace
from preflight.values import Origin, Span, Unknown, Value

if TYPE_CHECKING:
    from preflight.documents.directives import Directive, Ignored

PLUGIN_PREFIXES = ("container-", "no-container-")
"""Options of pyxis, the usual container plugin: sbatch knows them where it is installed."""

SMALL_MIB = 512
"""A bare number below this, in MiB, is less than `import torch` and one CUDA context take: a unit was forgotten."""

_REQUEST = {
    "nodes": "nodes", "ntasks": "tasks", "ntasks-per-node": "tasks_per_node", "ntasks-per-gpu": "tasks_per_gpu",
    "cpus-per-task": "cpus_per_task", "cpus-per-gpu": "cpus_per_gpu", "mem": "memory", "mem-per-cpu": "memory_per_cpu",
    "mem-per-gpu": "memory_per_gpu", "gres": "gpus_per_node", "gpus": "gpus", "gpus-per-node": "gpus_per_node",
    "gpus-per-task": "gpus_per_task", "partition": "partition", "constraint": "constraint", "time": "time_minutes",
    "array": "array",
}  # fmt: skip
"""Long option -> field of Request."""

_RESOURCES = frozenset((*_REQUEST, "exclusive"))


@dataclass(frozen=True)
class _Said:
    """One option, and which text says it: the script, the environment or sbatch's command line."""

    path: str
    option: Directive

    @property
    def origin(self) -> Origin:
        place = _origin(self.path, self.option)
        return place if self.path not in (COMMAND_LINE, ENVIRONMENT) else replace(place, editable=False)


@dataclass(frozen=True)
class _Given:
    """The options that count: the last of each name, with the earlier ones."""

    path: str
    last: Mapping[str, _Said]
    all: tuple[_Said, ...]

    def origin(self, name: str) -> Origin:
        return self.last[name].origin

    def value(self, name: str) -> str:
        return self.last[name].option.value or ""


def _given(path: str, component: int, script: tuple[Directive, ...], submission: Submission | None) -> _Given:
    """Script, environment, command line; the command line's last component speaks for those that it has none for."""
    said = [_Said(path, one) for one in script if one.component == component]
    if submission is not None:
        said += [_Said(ENVIRONMENT, one) for one in submission.environment_directives()]
        command = submission.command_directives()[0]
        mine = min(component, submission.components - 1)
        said += [_Said(COMMAND_LINE, one) for one in command if one.component == mine]
    last = {one.option.name: one for one in said}
    return _Given(path, _one_memory(last), tuple(said))


def _one_memory(last: dict[str, _Said]) -> dict[str, _Said]:
    """A memory option of the script or the command line sets aside those of the environment."""
    memory = [name for name in MEMORY_OPTIONS if name in last]
    stated = [name for name in memory if last[name].path != ENVIRONMENT]
    return {name: one for name, one in last.items() if name not in memory or not stated or name in stated}


def _origin(path: str, directive: Directive) -> Origin:
    """The place of a directive's value; what holds more than the value ("gpu:a100:4") is not to be edited."""
    whole = (
        directive.name in ("gres", "gpus", "gpus-per-node", "gpus-per-task") and not (directive.value or "").isdigit()
    )
    return Origin(path, directive.value_span or directive.span, editable=directive.value_span is not None and not whole)


def read_request(
    source: Source, directives: tuple[Directive, ...], submission: Submission | None = None
) -> tuple[Request, tuple[Problem, ...]]:
    """The request that a script makes as it is submitted; a heterogeneous job's further ones are its `components`.

    Problems are values that sbatch refuses or that contradict each other.
    """
    count = max((one.component for one in directives), default=0) + 1
    count = max(count, submission.components if submission is not None else 1)
    first, *others = (_component(source, directives, submission, index) for index in range(count))
    problems = tuple(dict.fromkeys(problem for _, found in (first, *others) for problem in found))
    return replace(first[0], components=tuple(request for request, _ in others)), problems


def _component(
    source: Source, directives: tuple[Directive, ...], submission: Submission | None, component: int
) -> tuple[Request, tuple[Problem, ...]]:
    first = tuple(one for one in directives if one.component == component)
    given = _given(source.path, component, directives, submission)
    values, problems = _validated(given)
    fields: dict[str, Value] = {}
    origins: dict[str, Origin] = {}
    for name, value in values.items():
        field = _REQUEST[name]
        if name == "gres" and value is None:
            continue  # other resources than GPUs
        fields[field] = _plain(value)
        origins[field] = given.origin(name)
        if isinstance(value, Gpus) and value.type is not None:
            fields["gpu_type"], origins["gpu_type"] = value.type, given.origin(name)
    if "exclusive" in given.last:
        origins["exclusive"] = given.origin("exclusive")
    at = _insert_at(source, first or directives)
    request = Request(
        **fields,
        exclusive="exclusive" in given.last and not given.value("exclusive"),  # =user, =mcs share with some
        origins=origins,
        insert_at=Origin(source.path, Span(at, at)),
        directives=tuple((one.option.name, one.option.value, one.origin) for one in given.all),
        components=(),
    )
    return request, (*problems, *_contradictions(given), *_unknown_options(given))


def _plain(value: object) -> Value:
    if isinstance(value, Count):
        return value.low if value.low == value.high else Unknown(f"{value.low} to {value.high} nodes")
    return value.number if isinstance(value, Gpus) else value  # type: ignore[return-value]


def _insert_at(source: Source, directives: tuple[Directive, ...]) -> int:
    """The start of the line after the last directive, or after the shebang."""
    line = directives[-1].line if directives else 1 if source.text.startswith("#!") else 0
    end = source.text.find("\n", source.offset(line, 1)) if line else -1
    return end + 1 if line == 0 or end >= 0 else len(source.text)


def _validated(given: _Given) -> tuple[dict[str, object], list[Problem]]:
    """Every directive's value by the schema: an Unknown where it is refused, with the problem."""
    texts = {name: given.value(name) for name in given.last if name in FIELDS}
    wrong: dict[str, str] = {}
    try:
        read = plain(Directives, texts) or Directives.model_validate(texts)
    except ValidationError as error:
        wrong = {str(item["loc"][0]): str(item["msg"]) for item in error.errors(include_url=False)}
        read = Directives.model_validate({name: text for name, text in texts.items() if name not in wrong})
    values: dict[str, object] = {}
    problems = []
    for name, text in texts.items():
        if name in wrong:
            values[name] = Unknown(f"sbatch refuses --{name}={text}")
            problems.append(_refused(given, name, text, wrong[name]))
            continue
        values[name] = getattr(read, FIELDS[name])
        if name == "mem" and text.isdigit() and 0 < int(text) < SMALL_MIB:
            message = f"--mem={text} asks for {text} MiB: a bare number is MiB"
            problems.append(Problem("slurm-memory-invalid", message, given.origin(name), "warning", f"{text}G"))
    return values, problems


def _refused(given: _Given, name: str, text: str, why: str) -> Problem:
    if name in MEMORY_OPTIONS:
        meant = memory_meant(text)
        message = f"sbatch refuses --{name}={text} (error: Invalid --{name} specification): {why}"
        return Problem("slurm-memory-invalid", message, given.origin(name), "error", meant, meant is not None)
    return Problem("invalid-config", f"sbatch refuses --{name}={text}: {why}", given.origin(name))


def _contradictions(given: _Given) -> Iterator[Problem]:
    """Options that exclude each other, also from separate directives."""
    memory = [name for name in MEMORY_OPTIONS if name in given.last]
    if len(memory) > 1:
        memory.sort(key=lambda name: given.all.index(given.last[name]))
        others = tuple((given.origin(name), f"--{name} is given here") for name in memory[:-1])
        message = (
            f"{' and '.join(f'--{name}' for name in memory)} are both given: sbatch refuses the job "
            "(fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.)"
        )
        yield Problem("slurm-memory-invalid", message, given.origin(memory[-1]), related=others)
    if "gres" in given.last and "gpus-per-node" in given.last and "gpu" in given.value("gres"):
        message = (
            "--gres=gpu and --gpus-per-node are both given: sbatch refuses the job (fatal: they exclude each other)"
        )
        related = ((given.origin("gres"), "--gres is given here"),)
        yield Problem("slurm-request-impossible", message, given.origin("gpus-per-node"), related=related)


def _unknown_options(given: _Given) -> Iterator[Problem]:
    from difflib import get_close_matches

    names = {said.option.name for said in given.all if said.option.known} | _RESOURCES
    for said in given.all:
        one = said.option
        if one.known:
            if one.value is None and one.name in FIELDS:
                yield Problem("invalid-config", f"--{one.name} needs a value", Origin(said.path, one.span))
            continue
        if one.name.startswith(PLUGIN_PREFIXES):
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
    """Lines that were meant as directives and have no effect."""
    active = {one.name for one in directives}
    for one in ignored:
        names = _names(one.text)
        if one.reason == "double-hash" and (not names & _RESOURCES or names <= active):
            continue  # the usual way to switch a directive off
        severity = "error" if one.reason in ("after-command", "quote") and names & _RESOURCES else "warning"
        if one.reason == "double-hash":
            severity = "info"
        fix = f"#SBATCH {one.text}" if one.reason in ("space", "indented", "case") else None
        message = f"sbatch ignores this directive: {one.message}"
        if one.reason in ("quote", "after-word"):
            message = one.message
        yield Problem("slurm-directive-ignored", message, Origin(source.path, one.span), severity, fix)


def _names(text: str) -> set[str]:
    from preflight.documents.directives import read_directives

    return {one.name for one in read_directives(f"#SBATCH {text}\n")[0]}


def script_problems(source: Source) -> Iterator[Problem]:
    """What makes sbatch refuse the file as a whole."""
    if not source.text.startswith("#!"):
        message = "sbatch refuses a script whose first line is not #! and an interpreter"
        yield Problem("invalid-config", message, Origin(source.path, Span(0, 0)), "error", "#!/bin/bash\n", True)
    at = source.text.find("\r\n")
    if at >= 0:
        message = "sbatch refuses a script with DOS line breaks (\\r\\n instead of \\n)"
        yield Problem("invalid-config", message, Origin(source.path, Span(at, at + 2), editable=False))
