"""Reader of Hydra configurations: they are composed as by the application, and every value keeps its place.

Overrides come from the command line of the launch. Sweeps (`-m`, `hydra.sweeper.params`) are axes; a sweep over a group
is one composition per option. Nothing of the application is imported: `_target_` is text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from msgspec.structs import replace

from preflight.dialects.hydra.find import Application, application, config_folder, selection
from preflight.program.hydra_main import resolved
from preflight.vocabulary.budgets import COMPOSITIONS, SWEPT_COMPOSITIONS
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import Binding, Branch, Call, Fact, Link, Problem, Reading, Request, Setting, Word
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Span, Value, unknown
from preflight.vocabulary.words import plural

if TYPE_CHECKING:
    from preflight.dialects.hydra.compose import Composition
    from preflight.dialects.hydra.interpolation import Resolver
    from preflight.dialects.hydra.overrides import HydraCommandLine
    from preflight.dialects.hydra.plan import CompositionPlan
    from preflight.dialects.hydra.repository import Repository
    from preflight.dialects.hydra.tree import Path
    from preflight.documents.yaml import YamlDocument

NAME = "hydra"


def recognises(source: Source, project: Project) -> bool:
    """Whether a file is a primary configuration, or in a group that a configuration with a program (or a root) uses."""
    return source.path.endswith(".yaml") and application(source.path, project) is not None


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """The composed configuration with the overrides of its launch, or with its defaults if no launch is known."""
    if call is not None:
        folder, name = config_folder(source.path, project)
        return _read(source.path, Application(folder, name), call, project)
    found = application(source.path, project)
    if found is None:
        folder, name = config_folder(source.path, project)
        found = Application(folder, name)
    reading = _read(source.path, found, None, project)
    if not found.programs:
        return reading
    # the link of the program composes the same tree again, with its branches
    links = tuple(Link("program", path, _chosen(path, found, project)) for path in found.programs)
    return replace(reading, branches=(), links=links)


def _chosen(path: str, found: Application, project: Project) -> tuple[Word, ...]:
    """The word that selects a file of a group, if the primary configuration does not select it."""
    chosen = selection(found, project)
    if chosen is None:
        return ()
    sign, group, option = chosen
    origin = Origin(path, Span(0, 0), None, (), False)
    return (Word(f"{group}=", Const(option, origin), origin, sign),)


def _read(path: str, found: Application, call: Call | None, project: Project) -> Reading:
    from preflight.dialects.hydra.overrides import command_line
    from preflight.dialects.hydra.plan import CompositionPlan, add_sweeper, sort_overrides
    from preflight.dialects.hydra.repository import Repository

    words = _overrides(call, project) if call is not None else _chosen(path, found, project)
    line = command_line(words)
    folder, name = _place(found, line, call)
    problems = list(line.problems)
    document, own = _own(folder, name, project)
    folders = [folder, *(one for one in line.config_dirs if project.is_dir(one))]
    folders += _search_path(document, own, line, project, problems)
    repository = Repository(project, tuple(dict.fromkeys(folders)))
    if repository.file(name) is None:
        return Reading(path, NAME, problems=tuple(_no_primary(path, name, repository)))
    plan = CompositionPlan(problems=problems)
    multirun = _multirun(line, own, call)
    sort_overrides(line.overrides, repository, plan, multirun, call)
    base = _composed(plan, repository, name, [options[0] for _, _, options, _ in plan.groups])
    sweeping = multirun or call is None or not call.words  # the launch is unknown: read it with its sweep
    if sweeping:
        before = len(plan.fixed), len(plan.groups)
        add_sweeper(base[0], repository, plan)
        if (len(plan.fixed), len(plan.groups)) != before:
            base = _composed(plan, repository, name, [options[0] for _, _, options, _ in plan.groups])
    reading = _reading(path, plan, repository, name, base, call, sweeping)
    return reading if call is not None or found.certain else replace(reading, problems=_doubtful(reading, base[0]))


def _overrides(call: Call, project: Project) -> tuple[Word, ...]:
    """The words of a launch that may be overrides. A program that does not use Hydra has words of its own, like another
    file's name (`train.py configs/train.yaml`)."""
    try:
        if not call.caller.endswith(".py") or "hydra" in project.source(call.caller).text:
            return call.words
    except (DocumentError, UnreadableFile):
        return call.words
    return tuple(word for word in call.words if word.prefix or "=" in str(getattr(word.value, "value", "=")))


def _doubtful(reading: Reading, found: Composition) -> tuple[Problem, ...]:
    """The problems where no program is known that composes the files so. What is wrong in one file stays an error."""
    return tuple(
        problem if problem in found.broken or problem.severity != "error" else replace(problem, severity="info")
        for problem in reading.problems
    )


def _place(found: Application, line: HydraCommandLine, call: Call | None) -> tuple[str, str]:
    """Folder and name of the primary configuration, which flags on the command line may change."""
    folder = found.folder
    if line.config_path is not None and call is not None:
        folder = resolved(call.caller, line.config_path) or folder
    return folder, line.config_name or found.name


def _own(folder: str, name: str, project: Project) -> tuple[YamlDocument | None, Mapping[str, Value]]:
    """The settings for Hydra itself in the primary configuration, before composition."""
    from preflight.dialects.hydra.repository import parsed

    path = f"{folder}/{name}.yaml" if folder else f"{name}.yaml"
    try:
        document = parsed(path, project)
    except (DocumentError, UnreadableFile):
        return None, {}
    top = document.value()
    hydra = top.get("hydra") if isinstance(top, Mapping) else None
    return document, hydra if isinstance(hydra, Mapping) else {}


def _multirun(line: HydraCommandLine, own: Mapping[str, Value], call: Call | None) -> bool:
    """`-m`, or `hydra.mode=MULTIRUN` on the command line or in the primary configuration."""
    modes = [given.override.value() for given in line.overrides if given.key == "hydra.mode" and given.override]
    mode = modes[-1] if modes else own.get("mode")
    return line.multirun or (call is not None and call.launch.multirun) or str(mode).upper() == "MULTIRUN"


def _search_path(
    document: YamlDocument | None,
    own: Mapping[str, Value],
    line: HydraCommandLine,
    project: Project,
    problems: list[Problem],
) -> Iterator[str]:
    """Folders of the project in `hydra.searchpath` (relative to the root, where programs are started)."""
    listed: object = own.get("searchpath")
    for given in line.overrides:
        if given.key == "hydra.searchpath" and given.override is not None:
            listed, document = given.override.value(), None
    for index, entry in enumerate(listed if isinstance(listed, (list, tuple)) else ()):
        inside = str(entry).removeprefix("file://")
        if "://" not in inside and not PurePosixPath(inside).is_absolute() and project.is_dir(inside):
            yield PurePosixPath(inside).as_posix()
        elif document is not None:
            said = f"the search path {entry} is outside the project, so its configurations are unknown"
            origin = document.origin(("hydra", "searchpath", index))
            problems.append(Problem("invalid-config", said, origin, "info"))


def _no_primary(path: str, name: str, repository: Repository) -> Iterator[Problem]:
    for message, origin in repository.broken.values():
        yield Problem("invalid-config", message, origin)
    if not repository.broken:
        said = f"the configuration {name}.yaml is not among the project's files"
        yield Problem("invalid-config", said, Origin(path, Span(0, 0), None, (), False), "info")


# --- compositions and what they say ----------------------------------------------------------------------------------


def _composed(
    plan: CompositionPlan, repository: Repository, name: str, options: Sequence[str]
) -> tuple[Composition, dict[str, Value]]:
    """The composition for one option of every swept group, and these options."""
    from preflight.dialects.hydra.compose import compose
    from preflight.dialects.hydra.overrides import parse_override

    overrides, fixed = list(plan.fixed), dict[str, Value]()
    for (given, ref, _, _), option in zip(plan.groups, options, strict=True):
        package = f"@{given.package}" if given.package else ""
        chosen = parse_override(f"{given.sign}{given.key}{package}={option}", None, given.value_origin, [])
        if chosen is not None:
            overrides.append(replace(chosen, origin=given.origin))
        fixed[ref.name] = option
    return compose(repository, name, overrides), fixed


def _settings(found: Composition, call: Call | None) -> tuple[dict[str, Setting], Resolver]:
    """Every value by its dotted key, without Hydra's own settings."""
    from preflight.dialects.hydra.interpolation import Resolver
    from preflight.dialects.hydra.tree import leaves

    environment = call.launch.environment if call is not None else {}
    resolver = Resolver(found.root, found.choices, environment)
    settings: dict[str, Setting] = {}
    for path, item in leaves(found.root):
        if path and path[0] != "hydra":
            for at, expr in _expanded(item, path, resolver):
                key = ".".join(at)
                settings[key] = Setting(key, expr, item.rank)
    return settings, resolver


def _expanded(item: object, path: Path, resolver: Resolver) -> Iterator[tuple[Path, Expr]]:
    """A value by its key. An interpolation of a table gives the values of that table."""
    from preflight.dialects.hydra.tree import Leaf, Listing

    if isinstance(item, (Leaf, Listing)):
        yield from _flat(path, resolver.item(item, path))


def _flat(path: Path, expr: Expr) -> Iterator[tuple[Path, Expr]]:
    """An expression by its key, and the parts of a table by their keys."""
    yield path, expr
    if isinstance(expr, Op) and expr.operator == "dict":
        for name, value in zip(expr.operands[::2], expr.operands[1::2], strict=True):
            if isinstance(name, Const):
                yield from _flat((*path, str(name.value)), value)


def _reading(
    path: str,
    plan: CompositionPlan,
    repository: Repository,
    name: str,
    base: tuple[Composition, dict[str, Value]],
    call: Call | None,
    sweeping: bool,
) -> Reading:
    from preflight.dialects.hydra import launcher
    from preflight.dialects.hydra import objects as hydra_objects

    combinations = list(_combinations([options for _, _, options, _ in plan.groups]))
    most = _boxes_left(repository.project, len(combinations))
    boxes = [base] + [_composed(plan, repository, name, options) for options in combinations[1:most]]
    read = [(fixed, _settings(found, call)) for found, fixed in boxes]
    first, resolver = base[0], read[0][1][1]
    problems = [*plan.problems, *_too_many(plan, len(combinations), most)]
    for found, _ in boxes:
        problems += [*found.problems, *found.broken]
    problems += _loops(first, resolver)
    problems += launcher.schema_problems(first, resolver)
    request: Request | None = launcher.request(first, resolver) if sweeping else None
    trials: Binding | None = launcher.trials(first, resolver) if sweeping else None
    axes = tuple(plan.axes) + tuple(axis for _, _, _, axis in plan.groups if axis is not None)
    files = dict.fromkeys(file for found, _ in boxes for file in found.files)
    merged = tuple(_merged(plan, read, len(combinations) > len(boxes)))
    objects = hydra_objects.read_objects(plan, read, merged, repository.project)
    return Reading(
        path=path,
        dialect=NAME,
        settings=merged,
        axes=axes,
        branches=tuple(_branches(plan, read)),
        bindings=(*objects.bindings, *((trials,) if trials is not None else ())),
        facts=(*objects.facts, *((Fact("search", "hydra", axes[0].origin),) if axes else ())),
        request=request,
        problems=tuple({_identity(problem): problem for problem in problems}.values()),
        reads=tuple(dict.fromkeys((*(file for file in files if file != path), *objects.reads))),
        trains=call is not None or objects.trains or _trains(read[0][1][0]),
    )


def _trains(settings: Mapping[str, Setting]) -> bool:
    """Whether a configuration is for training: it has a batch, an optimizer, a learning rate or a trainer."""
    from preflight.program.names import field_for

    for key, setting in settings.items():
        if key.endswith("_target_") and isinstance(setting.expr, Const):
            target = str(setting.expr.value)
            if ".optim." in target or target.endswith("Trainer"):
                return True
        if key.rpartition(".")[2] in ("lr", "learning_rate") or (field_for(key, "hydra") or "").startswith("train."):
            return True
    return False


def _identity(problem: Problem) -> tuple[str, str, Span]:
    return problem.message, problem.origin.path, problem.origin.span


def _combinations(groups: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    yield from islice(product(*groups), 10 * COMPOSITIONS)


def _boxes_left(project: Project, wanted: int) -> int:
    """How many combinations are composed: those of one file, and those of all files, have a budget."""
    spent = project.spent.get(SWEPT_COMPOSITIONS.of, 0)
    most = max(1, min(wanted, COMPOSITIONS, SWEPT_COMPOSITIONS - spent))
    project.spent[SWEPT_COMPOSITIONS.of] = spent + most - 1
    return most


def _too_many(plan: CompositionPlan, count: int, most: int) -> Iterator[Problem]:
    if count > most:
        origin = next((given.origin for given, _, _, _ in plan.groups if given.origin is not None), None)
        if origin is not None:
            over = COMPOSITIONS if count > COMPOSITIONS else SWEPT_COMPOSITIONS
            said = f"the sweep is {over.over}: what was not read is unknown"
            yield Problem("invalid-config", said, origin, "warning")


def _loops(found: Composition, resolver: Resolver) -> Iterator[Problem]:
    from preflight.dialects.hydra.tree import select

    for path, chain in resolver.loops.items():
        item = select(found.root, path)
        if item is not None and item.origin is not None:
            said = "interpolations form a cycle: " + " -> ".join(".".join(one) for one in chain[:6])
            yield Problem("invalid-config", said, item.origin)


_Read = tuple[dict[str, Value], tuple[dict[str, Setting], "Resolver"]]


def _merged(plan: CompositionPlan, read: Sequence[_Read], more: bool) -> Iterator[Setting]:
    """The settings of all compositions. A setting that differs between them depends on the swept groups. `more`: there
    are further compositions, of which nothing is known."""
    keys = dict.fromkeys(key for _, (settings, _) in read for key in settings)
    for key in keys:
        found = [(fixed, settings.get(key)) for fixed, (settings, _) in read]
        if not more and all(setting == found[0][1] for _, setting in found):
            yield found[0][1]  # type: ignore[misc]  # a key comes from one of them, so equal ones are no None
            continue
        words = f"of further options it is not known: the sweep has more than {plural(len(read), 'combination')}"
        expr: Expr = (
            unknown(words, cause=Cause.budget)
            if more
            else unknown(f"{key} is not set for every option that is swept", cause=Cause.not_set)
        )
        for fixed, setting in reversed(found):
            value = setting.expr if setting is not None else unknown(f"{key} is not set here", cause=Cause.not_set)
            expr = Op("if", (plan.condition(fixed), value, expr))
        yield Setting(key, expr, max(setting.rank for _, setting in found if setting is not None))


_MARK = "\0"
"""Starts the name of a caller's axis (preflight.study.scope); a branch holds it by its own name."""


def _branches(plan: CompositionPlan, read: Sequence[_Read]) -> Iterator[Branch]:
    """One box per composition of swept groups, with the settings that are its own."""
    if not plan.groups:
        return
    common = {key for key in read[0][1][0] if all(s.get(key) == read[0][1][0][key] for _, (s, _) in read)}
    for fixed, (settings, _) in read:
        own = tuple(setting for key, setting in settings.items() if key not in common)
        yield Branch({name.lstrip(_MARK): value for name, value in fixed.items()}, (), own)
