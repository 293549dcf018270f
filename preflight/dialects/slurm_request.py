"""`#SBATCH` directives as a Request, and what sbatch would say about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

from preflight.dialects.reading import Problem, Request
from preflight.dialects.slurm_schema import FIELDS, MEMORY_OPTIONS, Count, Directives, Gpus, memory_meant
from preflight.documents.base import Source
from preflight.plain import plain
from preflight.records import dataclass
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
class _Given:
    """The directives that count: the last of each name, with the earlier ones."""

    path: str
    last: Mapping[str, Directive]
    all: tuple[Directive, ...]

    def origin(self, name: str) -> Origin:
        return _origin(self.path, self.last[name])


def _origin(path: str, directive: Directive) -> Origin:
    """The place of a directive's value; what holds more than the value ("gpu:a100:4") is not to be edited."""
    whole = (
        directive.name in ("gres", "gpus", "gpus-per-node", "gpus-per-task") and not (directive.value or "").isdigit()
    )
    return Origin(path, directive.value_span or directive.span, editable=directive.value_span is not None and not whole)


def read_request(source: Source, directives: tuple[Directive, ...]) -> tuple[Request, tuple[Problem, ...]]:
    """The request that the directives make; problems are values that sbatch refuses or that contradict each other."""
    first = tuple(one for one in directives if one.component == 0)
    given = _Given(source.path, {one.name: one for one in first}, first)
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
    at = _insert_at(source, first)
    request = Request(
        **fields,
        exclusive="exclusive" in given.last and not given.last["exclusive"].value,  # =user, =mcs share with some
        origins=origins,
        insert_at=Origin(source.path, Span(at, at)),
        directives=tuple((one.name, one.value, _origin(source.path, one)) for one in first),
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
    texts = {name: one.value or "" for name, one in given.last.items() if name in FIELDS}
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
        memory.sort(key=lambda name: given.last[name].span.start)
        others = tuple((given.origin(name), f"--{name} is given here") for name in memory[:-1])
        message = (
            f"{' and '.join(f'--{name}' for name in memory)} are both given: sbatch refuses the job "
            "(fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.)"
        )
        yield Problem("slurm-memory-invalid", message, given.origin(memory[-1]), related=others)
    gres = given.last.get("gres")
    if gres is not None and "gpus-per-node" in given.last and "gpu" in (gres.value or ""):
        message = (
            "--gres=gpu and --gpus-per-node are both given: sbatch refuses the job (fatal: they exclude each other)"
        )
        related = ((given.origin("gres"), "--gres is given here"),)
        yield Problem("slurm-request-impossible", message, given.origin("gpus-per-node"), related=related)


def _unknown_options(given: _Given) -> Iterator[Problem]:
    from difflib import get_close_matches

    names = {one.name for one in given.all if one.known} | _RESOURCES
    for one in given.all:
        if one.known:
            if one.value is None and one.name in FIELDS:
                yield Problem("invalid-config", f"--{one.name} needs a value", Origin(given.path, one.span))
            continue
        if one.name.startswith(PLUGIN_PREFIXES):
            continue
        close = get_close_matches(one.name.replace("_", "-").lower(), sorted(names), n=1, cutoff=0.8)
        dashes = "--" if len(one.name) > 1 else "-"
        if close:
            message = f"sbatch has no option {dashes}{one.name} and refuses the job; did you mean --{close[0]}?"
            yield Problem("invalid-config", message, Origin(given.path, one.name_span), "error", f"--{close[0]}")
        else:
            message = f"sbatch has no option {dashes}{one.name}, unless a plugin of the site adds it"
            yield Problem("invalid-config", message, Origin(given.path, one.name_span), "warning")


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
