"""The only place where the golden dumps touch the product: everything else here works on plain data.

Modules may move (their imports are rewritten with them) and attributes be renamed: then this file is changed, and the
dumps must come out as they were. It says everything in the words of the contract: Job fields, names of facts and of
SLURM's options, rules, paths, lines and columns. It never hands on a class's name, a module's path or a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from preflight.engine import check as engine
from preflight.engine import registry
from preflight.engine.check import outcome_of
from preflight.engine.files import Batch, batches
from preflight.engine.job_by_hand import completed
from preflight.memory.device.law import catalogue, store
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import resolve
from preflight.reports import json_format
from preflight.reports import plain as as_json
from preflight.space.jobs import JobMaker
from preflight.study import build as studies
from preflight.vocabulary.errors import PreflightError
from preflight.vocabulary.job import Job
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import Request
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Bound, Box, Skipped, Study
from preflight.vocabulary.tracing import SHIPPED_ONLY
from preflight.vocabulary.values import Axis, Choices, Const, Op, Origin, Range, Ref, Unknown

Plain = dict[str, Any]
UNKNOWN = "?"


# --- readings ---------------------------------------------------------------------------------------------------------


def reading(root: Path, named: Sequence[str], settings: Mapping[str, object], overrides: Mapping[str, object]) -> Plain:
    """What the files of a project say when these are named: studies, and files that make none."""
    project = Project(root, Settings(**{**settings, "trace": False}))
    try:
        found, skipped = studies.build(list(named), project, dict(overrides))  # type: ignore[arg-type]
    except PreflightError:
        return {"refused": True}
    places = _Places(project)
    return {
        "studies": named_apart((study.paths[0], _study(study, places)) for study in found),
        "skipped": {one.path: _skipped(one, places) for one in skipped},
    }


def named_apart(items: Iterable[tuple[str, Plain]]) -> Plain:
    """A mapping in which the second of a name is `name#2`: so that one more does not shift all that follow."""
    found: Plain = {}
    for name, item in items:
        number = 1
        key = name
        while key in found:
            number += 1
            key = f"{name}#{number}"
        found[key] = item
    return found


class _Places:
    """Origins as `path:line:column`."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def __call__(self, origin: Origin | None) -> str | None:
        if origin is None:
            return None
        try:
            place = self.project.source(origin.path).place(origin.span)
        except UnreadableFile:
            return origin.path
        fixed = "" if origin.editable else " (not editable)"
        return f"{origin.path}:{place.line}:{place.column}-{place.end_line}:{place.end_column}{fixed}"

    def with_via(self, origin: Origin | None) -> Plain:
        if origin is None:
            return {}
        via = [self(one) for one in origin.via]
        return {"at": self(origin), **({"via": via} if via else {})}


def _study(study: Study, places: _Places) -> Plain:
    launch = study.launch
    return {
        "paths": list(study.paths),
        "dialects": list(study.dialects),
        "program": study.program,
        "launch": {
            "launcher": launch.launcher,
            **{
                name: text(value)
                for name in ("nodes", "ranks_per_node", "total_ranks", "trials_per_gpu")
                if (value := getattr(launch, name)) is not None
            },
            **({"multirun": True} if launch.multirun else {}),
            **({"environment": sorted(launch.environment)} if launch.environment else {}),
        },
        "group": study.group,
        "concurrent_with": list(study.concurrent_with),
        "combinations": study.combinations,
        "is_search": study.is_search,
        "boxes": [_box(box, places) for box in study.boxes],
        "request": None if study.request is None else _request(study.request, places),
        "facts": {
            name: {"value": plain(fact.value), **places.with_via(fact.origin)} for name, fact in study.facts.items()
        },
        "problems": named_apart(_problems(study.problems, places)),
        "links": named_apart(
            (f"{link.kind} {link.target}", {"at": places(link.origin), "words": len(link.words), "group": link.group})
            for link in study.links
        ),
    }


def _problems(problems: Iterable[Any], places: _Places) -> Iterator[tuple[str, Plain]]:
    for one in problems:
        at = places(one.origin)
        yield (
            f"{one.rule} {one.origin.path}",
            {
                "at": at,
                "severity": one.severity,
                "safe": one.safe,
                "fix": one.fix,
                "related": [places(origin) for origin, _ in one.related],
            },
        )


def _skipped(one: Skipped, places: _Places) -> Plain:
    return {"kind": one.kind, "problems": named_apart(_problems(one.problems, places))}


def _box(box: Box, places: _Places) -> Plain:
    found: Plain = {
        "fields": {name: _bound(bound, places) for name, bound in box.fields.items()},
        "axes": {axis.name: _axis(axis, places) for axis in box.axes},
        "fixed": {name: plain(value) for name, value in box.fixed.items()},
        "settings": {name: text(expr) for name, expr in box.constants.items()},
        "combinations": box.combinations,
    }
    maker = JobMaker(box)
    for which in ("first", "last") if box.axes else ("only",):
        made = maker.at({axis.name: value for axis in box.axes if (value := _end(axis, which)) is not None})
        found[f"job ({which})"] = {**stated(made.job), **dict.fromkeys(made.unknown, UNKNOWN)}
    return found


def _end(axis: Axis, which: str) -> Any:
    domain = axis.domain
    if isinstance(domain, Choices):
        return domain.values[0 if which == "first" else -1] if domain.values else None
    if isinstance(domain, Range):
        return domain.low if which == "first" else domain.high
    return None


def _bound(bound: Bound, places: _Places) -> Plain:
    return {
        "value": text(bound.expr),
        **places.with_via(bound.origin),
        **({"losers": [places(one) for one in bound.losers]} if bound.losers else {}),
        **({"default": True} if bound.default else {}),
        **({"setting": bound.setting} if bound.setting else {}),
    }


def _axis(axis: Axis, places: _Places) -> Plain:
    domain = axis.domain
    said: Plain
    if isinstance(domain, Choices):
        said = {
            "choices": [plain(value) for value in domain.values],
            "origins": [places(one) for one in domain.origins],
        }
    elif isinstance(domain, Range):
        said = {
            "range": [domain.low, domain.high, domain.step],
            "kind": ("integer" if domain.integer else "real") + (" log" if domain.log else ""),
            "origins": [places(domain.low_origin), places(domain.high_origin)],
        }
    else:
        said = {"unbounded": domain.kind}
    return {**said, "at": places(axis.origin), "fields": list(axis.fields)}


def _request(request: Request, places: _Places) -> Plain:
    """Everything that differs from a request that asks for nothing, and where it is written."""
    usual = Request()
    found: Plain = {}
    for member in request.__struct_fields__:
        value = getattr(request, member)
        if value == getattr(usual, member):
            continue
        if member == "origins":
            found["origins"] = {name: places(origin) for name, origin in value.items()}
        elif member == "insert_at":
            found["insert_at"] = places(value)
        elif member == "directives":
            found["directives"] = [[name, given, places(origin)] for name, given, origin in value]
        elif member == "components":
            found["components"] = [_request(one, places) for one in value]
        else:
            found[member] = plain(value)
    return found


def stated(job: Job) -> Plain:
    """The dotted fields of a Job that are not as they are in one that says nothing."""
    found: Plain = {}

    def walk(now: Any, usual: Any, name: str) -> None:
        if isinstance(now, dict) and isinstance(usual, dict) and name.count(".") < 3 and usual:
            for key in now:
                walk(now[key], usual.get(key), f"{name}.{key}" if name else key)
        elif now != usual:
            found[name] = now

    walk(job.model_dump(mode="json", warnings=False), Job().model_dump(mode="json"), "")
    return found


def usual_job() -> Plain:
    """A Job that says nothing, as JSON."""
    return Job().model_dump(mode="json")


def plain(value: Any) -> Any:
    """A value of a setting as JSON has it."""
    if isinstance(value, Unknown):
        return UNKNOWN
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def text(expr: Any) -> Any:
    """An expression: a constant as its value, anything else as a formula."""
    if isinstance(expr, Const):
        return plain(expr.value)
    return "= " + _formula(expr)


def _formula(expr: Any) -> str:
    if isinstance(expr, Const):
        return json.dumps(plain(expr.value), sort_keys=True, default=str)
    if isinstance(expr, Ref):
        return expr.name
    assert isinstance(expr, Op)
    return f"{expr.operator}({', '.join(_formula(one) for one in expr.operands)})"


# --- findings ---------------------------------------------------------------------------------------------------------


def check(root: Path, named: Sequence[str], settings: Mapping[str, object]) -> Plain:
    """`preflight check --output-format json` of these files, with shipped laws alone."""
    return _checked([Batch(root, Settings(**{**settings, "trace": False}), None, tuple(named), ())], root)


def check_folder(folder: Path) -> Plain:
    """The same of a project as it stands, with its own settings."""
    found = batches((str(folder),), folder, False)
    return _checked([_untraced(batch) for batch in found], folder)


def _untraced(batch: Batch) -> Batch:
    settings = batch.settings.model_copy(update={"trace": False})
    return Batch(batch.root, settings, batch.settings_file, batch.named, batch.walked)


def _checked(asked: Sequence[Batch], cwd: Path) -> Plain:
    try:
        reports = [engine.check(*engine.setup(batch, engine.CheckOptions(), cwd)) for batch in asked]
    except PreflightError:
        return {"refused": True}
    document: Plain = json.loads(as_json.written(json_format.document(outcome_of(reports, cwd))))
    document["refused_files"] = sorted(path for report in reports for path in report.refused)
    return document


def rule_examples() -> Iterator[tuple[str, Mapping[str, str], Mapping[str, object]]]:
    """(rule and title, files of which the first is checked, settings) of every rule's examples."""
    for name, rule in registry.rules().items():
        for example in rule.examples:
            yield f"{name}: {example.title}", example.files, example.options


# --- laws -------------------------------------------------------------------------------------------------------------


def models() -> tuple[tuple[str, str, str], ...]:
    """(name, architecture or target, task) of every model known by name."""
    found = (catalogue.find(name) for name in catalogue.names())
    return tuple((one.name, one.architecture, one.task) for one in found if one is not None)


def job_of(values: Mapping[str, object]) -> Job:
    """The Job of dotted fields, as `preflight estimate NAME --set FIELD=VALUE` makes it."""
    from preflight.vocabulary.job import build

    return build(completed(values))


def law_of(values: Mapping[str, object], kind: str = "train") -> str:
    """What a job's law is filed under, and whether it ships: `shipped FAMILY: KEY`, or `unknown: FIELD`."""
    resolved = resolve(job_of(values), tracing=SHIPPED_ONLY)
    if not isinstance(resolved, Resolved):
        first = resolved.words.split(" ", 1)[0]
        return f"unknown: {first}" if first.partition(".")[0] in Job.model_fields else "unknown"
    key = store.key_of(resolved, kind)
    shipped = key.text in _keys(key.family)
    return f"{'shipped' if shipped else 'not shipped'} {key.family}: {key.text}"


_KEYS: dict[str, frozenset[str]] = {}


def _keys(family: str) -> frozenset[str]:
    if family not in _KEYS:
        _KEYS[family] = frozenset(store.keys(family))
    return _KEYS[family]


def process(values: Mapping[str, object]) -> list[int] | str:
    """[low, expected, high] bytes of the process, by shipped laws alone; the fields that it lacks, or `unknown`."""
    from preflight.engine.estimator import Estimator

    found = Estimator(None, SHIPPED_ONLY).full(job_of(values))
    if found.device is None:
        return " ".join(("unknown", *found.unknown))
    each = found.device.process
    return [each.low, each.expected, each.high]


# --- the projects that tests write ------------------------------------------------------------------------------------


def root_and_settings(project: Any) -> tuple[Path, Plain | None]:
    """A project's root, and those of its settings that are not usual; None: it is not as its files say."""
    if project.overlay or project.submissions:
        return project.root, None
    return project.root, project.settings.model_dump(mode="json", exclude_defaults=True, by_alias=True)


def listen(remember: Callable[[Any, tuple[str, ...], Plain], None]) -> None:
    """Calls `remember` with every project that is read, the paths that are asked about and the overrides."""
    whole, one = studies.build, Project.source
    inside: list[bool] = []
    met: set[int] = set()
    kept: list[Project] = []

    def build(paths: Sequence[str], project: Project, overrides: Mapping[str, Any] | None = None) -> Any:
        remember(project, tuple(paths), dict(overrides or {}))
        inside.append(True)
        try:
            return whole(paths, project, overrides)
        finally:
            inside.pop()

    def source(self: Project, path: str) -> Any:
        if not inside and id(self) not in met:
            met.add(id(self))
            kept.append(self)  # its id stays its own
            remember(self, (path,), {})
        return one(self, path)

    studies.build = build  # type: ignore[assignment]
    Project.source = source  # type: ignore[method-assign]
