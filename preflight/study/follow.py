"""From a file to the launches it leads to: readings joined by links, each with the names that it can use.

A chain starts with the file that starts everything and ends with the program that trains. Configurations that a program
composes belong to its step and are no steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from preflight.dialects import Dialect, load, only_evaluates, recognise, started
from preflight.study.scope import Scope
from preflight.vocabulary.argv import behind_unread_words, bind, unread_words
from preflight.vocabulary.budgets import LAUNCHED, OverBudget, ReadingTime
from preflight.vocabulary.errors import too_much
from preflight.vocabulary.extensions import ExtensionError
from preflight.vocabulary.progress import QUIET, Progress, TimeOver
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import (
    Branch,
    Call,
    Launch,
    Link,
    Problem,
    Reading,
    Submitted,
    Unread,
    Word,
    cannot_be_parsed,
)
from preflight.vocabulary.study import Skipped
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Axis, Const, Expr, Op, Origin, Span, names
from preflight.vocabulary.written import Relocation, Written

MAX_DEPTH = 8
"""Scripts that start scripts. A longer chain has files that start each other."""


Result = TypeVar("Result")

LAUNCHES = ("program", "module", "sweep", "script", "command", "job")
INSIDE = ("command", "job")
"""Links to a part of the file that has them."""


class ChainStep(Struct, frozen=True):
    """One file of a chain: its reading, how it was started, and the values of its names."""

    reading: Reading
    link: Link | None
    scope: Scope
    launch: Launch
    configs: tuple[ChainStep, ...] = ()

    @property
    def readings(self) -> Iterator[Reading]:
        """Its own reading, then those of the configurations it composes."""
        yield self.reading
        for config in self.configs:
            yield from config.readings


Chain = tuple[ChainStep, ...]


class Follower:
    """Reads files through their dialects, each with its call once, and follows their links."""

    def __init__(self, project: Project, progress: Progress = QUIET) -> None:
        self.project = project
        self.skipped: dict[str, Skipped] = {}
        self._dialects: dict[str, Dialect | None] = {}
        self._plain: dict[str, Reading | None] = {}
        self._time = ReadingTime(progress)

    def dialect(self, path: str) -> Dialect | None:
        """The dialect of a file; None, and the reason in `skipped`, if there is none."""
        if path not in self._dialects:
            self._dialects[path] = self._recognise(path)
        return self._dialects[path]

    def _recognise(self, path: str) -> Dialect | None:
        found = self._tried(path, lambda source: recognise(source, self.project))
        if found is None:
            self.skipped.setdefault(path, Skipped(path, "unrecognised", "its format is not recognised"))
        return found

    def _tried(self, path: str, action: Callable[[Source], Result], project: Project | None = None) -> Result | None:
        """What `action` returns for a file; None, and the reason in `skipped`, for a file that cannot be read."""
        try:
            with self._time.of_a_file():
                return action((project or self.project).source(path))
        except UnreadableFile as error:
            self.skipped[path] = Skipped(path, "unreadable", str(error))
        except DocumentError as error:
            self.skipped[path] = _malformed(path, error)
        except (ExtensionError, TimeOver):
            raise
        except Exception as error:
            self.skipped[path] = crashed(path, error)
        return None

    def read(self, path: str, call: Call | None, composed: bool = False) -> Reading | None:
        """The reading of a file that `call` starts; None, and the reason in `skipped`, if it cannot be read.

        A file that a program says it composes is a Hydra configuration, even if it does not look like one by itself.
        """
        if call is None and path in self._plain:
            return self._plain[path]
        if call is not None and path in call.launch.written:
            return self._written(path, call)
        dialect, reading = self.dialect(path), None
        if dialect is None and composed and self._only_unrecognised(path):
            dialect = self._composed(path)
        if dialect is None and call is not None and self._only_unrecognised(path):
            dialect = self._started(path, call)
        if dialect is not None:
            known, project = dialect, self._seen_by(call)
            reading = self._tried(path, lambda source: read_within(known, source, call, project))
            if reading is not None and call is not None:
                reading = relocated(reading, call.launch.written, call.caller)
        if call is None:
            self._plain[path] = reading
        return reading

    def _seen_by(self, call: Call | None) -> Project:
        """The project with the files that were written before a call."""
        return self.project if call is None else self.project.with_written(call.launch.written)

    def _written(self, path: str, call: Call) -> Reading | None:
        """The reading of a configuration that the script wrote; None if its text is not known."""
        project = self._seen_by(call)

        def read(source: Source) -> Reading | None:
            dialect = recognise(source, project)
            return None if dialect is None else read_within(dialect, source, call, project)

        found = self._tried(path, read, project)
        return None if found is None else relocated(found, call.launch.written, call.caller)

    def _composed(self, path: str) -> Dialect | None:
        """The dialect of a configuration that a program names: a tool's file of any name, else Hydra's."""
        tools = load("transformers_args")
        if self._tried(path, lambda source: tools.recognises(source, self.project)):
            return tools
        return load("hydra") if path.endswith((".yaml", ".yml")) else None

    def _started(self, path: str, call: Call) -> Dialect | None:
        """The dialect of a file that a command starts: a Python file is a program, whatever its name."""
        return self._tried(path, lambda source: started(source, call, self.project))

    def _command(self, path: str, call: Call) -> Reading:
        """The reading of a command in a script that starts no file of the project."""
        reading = read_within(load("commands"), self.project.source(path), call, self._seen_by(call))
        return relocated(reading, call.launch.written, call.caller)

    def _job(self, path: str, call: Call) -> Reading | None:
        """The reading of a job whose script stands in a file: `sbatch --wrap "..."`."""
        return self._tried(path, lambda source: read_within(load("slurm"), source, call, self.project))

    def _only_unrecognised(self, path: str) -> bool:
        return path in self.skipped and self.skipped[path].kind == "unrecognised"

    def chains(self, path: str) -> list[Chain]:
        """Every launch that a file leads to, in the order of its links; none if no dialect reads the file."""
        reading = self.read(path, None)
        if reading is None:
            return []
        found = list(islice(self._extend(self._step(reading, None, None, Launch()), ()), LAUNCHED + 1))
        if len(found) > LAUNCHED:
            more = Unread.beyond(LAUNCHED, Origin(path, Span(0, 0)))
            found[LAUNCHED:] = [(_unread_part(self._step(reading, None, None, Launch()), more),)]
        return found

    def _step(self, reading: Reading, link: Link | None, call: Call | None, launch: Launch) -> ChainStep:
        configs = tuple(self._configs(reading, call))
        bound = bind(reading.parameters, call.words if call else ())
        settings = dict(call.settings) if call else {}
        given: dict[str, Expr] = {}
        for config in configs:
            given.update({name: config.scope.resolve(expr) for name, expr in config.scope.local.items()})
        given.update({name: expr for name, expr in settings.items() if name not in given})
        local = _local(reading)
        for parameter in reading.parameters:
            if parameter.kind == "wandb" and parameter.name in settings:
                given[parameter.name] = settings[parameter.name]
            elif parameter.kind not in ("wandb", "hydra"):
                given.pop(parameter.name, None)  # only the command line sets it
        composed = {name for config in configs for name in config.scope.local}
        given.update({name: expr for name, expr in bound.values.items() if name not in composed})
        axes = frozenset(axis.name for axis in _axes(reading))
        return ChainStep(reading, link, Scope(axes, given, local), launch, configs)

    def _configs(self, reading: Reading, call: Call | None, above: frozenset[str] = frozenset()) -> Iterator[ChainStep]:
        """The configurations that a file composes, and those that they name (accelerate's file names DeepSpeed's)."""
        above |= {reading.path}
        for link in reading.links:
            if link.kind != "config" or not link.target or link.target in above or len(above) > MAX_DEPTH:
                continue
            words = link.words or (call.words if call else ())
            settings = {**(call.settings if call else {}), **link.settings}
            inner = Call(
                reading.path, words, settings, call.launch if call else Launch(), call.directory if call else None
            )
            config = self.read(link.target, inner, composed=True)
            if config is not None:
                config, kept = _as_far_as_known(config, words)
                axes = frozenset(axis.name for axis in _axes(config) if kept is None or axis.name in kept)
                yield ChainStep(config, link, Scope(axes, {}, _local(config)), Launch())
                yield from self._configs(config, inner, above)

    def _extend(self, step: ChainStep, above: Chain) -> Iterator[Chain]:
        chain = (*above, step)
        trail = {one.reading.path for one in chain}
        found = False
        start = (*above, _starting(step)) if step.reading.trains_itself else chain
        links = [*step.reading.links, *(link for config in step.configs for link in config.reading.links)]
        for link in links:
            target = self._target(link, step.launch) if link.kind in LAUNCHES else None
            if target is None or (target in trail and link.kind not in INSIDE) or len(chain) >= MAX_DEPTH:
                continue
            for longer in self._launch(link, target, step, start):
                found = True
                yield longer
        if not found and self._only_evaluates(step, links):
            return
        if not found or step.reading.trains_itself:
            yield (*above, _training(step)) if found else chain
        if found and step.reading.unread is not None:
            yield (*above, _unread_part(step, step.reading.unread))

    def _only_evaluates(self, step: ChainStep, links: Sequence[Link]) -> bool:
        """Whether a job starts programs of the project that use a model, and nothing else that is read."""
        launches = [link for link in links if link.kind in LAUNCHES]
        targets = [self._target(link, step.launch) if link.kind in ("program", "module") else None for link in launches]
        known = {target for target in targets if target is not None}
        if not targets or None in targets or step.reading.unread is not None:
            return False
        places = {link.origin for link in launches}
        if any(not places & set(one.links) for one in step.reading.started):
            return False
        return all(self._tried(path, lambda source: only_evaluates(source, self.project)) for path in sorted(known))

    def _launch(self, link: Link, target: str, step: ChainStep, chain: Chain) -> Iterator[Chain]:
        scope = step.scope
        words = tuple(_resolved(item, scope) for item in link.words)
        settings = {name: scope.resolve(expr) for name, expr in link.settings.items()}
        launch = _merge(step.launch, with_expressions(link.launch, scope.resolve))
        call = Call(step.reading.path, words, settings, launch, link.directory, _submitted(link, scope))
        if link.kind == "command":
            reading: Reading | None = self._command(target, call)
        else:
            reading = self._job(target, call) if link.kind == "job" else self.read(target, call)
        if reading is None or not (reading.trains or any(one.kind in LAUNCHES for one in reading.links)):
            return
        yield from self._extend(self._step(reading, replace(link, target=target), call, launch), chain)

    def _target(self, link: Link, outer: Launch) -> str | None:
        """The file that a link leads to; None if it is not in the project."""
        project = self.project.with_written({**outer.written, **link.launch.written})
        names = [link.target]
        if link.kind == "module":
            stem = link.target.replace(".", "/")
            names = [f"{base}{stem}{end}" for base in ("", "src/") for end in (".py", "/__main__.py")]
        for name in names:
            if name and project.exists(name):
                return PurePosixPath(name).as_posix()
        return None


def read_within(dialect: Dialect, source: Source, call: Call | None, project: Project) -> Reading:
    """The reading of a file by its dialect: an unread one where a budget ended it. Raises DocumentError."""
    try:
        return dialect.read(source, call, project)
    except OverBudget as error:
        return Reading.over(error.budget, source.path, dialect.NAME)


def relocated(reading: Reading, written: Mapping[str, Written], script: str) -> Reading:
    """The same reading with its places in the script at `script`, where that wrote the files it was read from."""
    if not any(one is not None for one in written.values()):
        return reading
    found = Relocation(written).of(reading)
    reads = tuple(dict.fromkeys(script if written.get(path) is not None else path for path in reading.reads))
    return replace(found, path=script if written.get(reading.path) is not None else reading.path, reads=reads)


def _unread_part(step: ChainStep, more: Unread) -> ChainStep:
    """A step that stands for what a file starts beyond a budget."""
    return replace(step, reading=replace(step.reading, links=(), unread=more), configs=())


def _starting(step: ChainStep) -> ChainStep:
    """A step that trains itself, as the start of another program: only its machine is the same."""
    reading = step.reading
    machine = tuple(one for one in reading.bindings if one.field.startswith("machine."))
    bare = Reading(reading.path, reading.dialect, bindings=machine, problems=reading.problems, trains=False)
    return replace(step, reading=bare, configs=())


def _training(step: ChainStep) -> ChainStep:
    """A step that trains itself, without what it starts beside."""
    own = tuple(link for link in step.reading.links if link.kind not in LAUNCHES)
    return replace(step, reading=replace(step.reading, links=own))


def _axes(reading: Reading) -> Iterator[Axis]:
    yield from reading.axes
    for branch in reading.branches:
        yield from branch.axes


def _local(reading: Reading) -> dict[str, Expr]:
    """The file's own values of names: the setting of the highest rank (the last of equal ranks), else the default."""
    local = {parameter.name: parameter.default for parameter in reading.parameters}
    for setting in sorted(reading.settings, key=lambda setting: setting.rank):
        local[setting.key] = setting.expr
    return local


_SWITCHES_OF_HYDRA = ("-m", "--multirun")


def _as_far_as_known(config: Reading, words: Sequence[Word]) -> tuple[Reading, frozenset[str] | None]:
    """A composed configuration without the values that unknown words of the command line (`$OVERRIDES`) may replace.

    And the keys that the words behind them set; None if no word is unknown. A file of another tool has no overrides.
    """
    unread, behind = behind_unread_words(words, _SWITCHES_OF_HYDRA) if config.dialect == "hydra" else (None, ())
    if unread is None:
        return config, None
    doubt = unread_words(unread)
    kept = frozenset(one.prefix.rstrip("=") for one in behind if one.prefix.endswith("="))
    settings = tuple(one if one.key in kept else replace(one, expr=doubt) for one in config.settings)
    parameters = tuple(one if one.name in kept else replace(one, default=doubt) for one in config.parameters)
    bindings = tuple(one if any(True for _ in names(one.expr)) else replace(one, expr=doubt) for one in config.bindings)
    return replace(config, settings=settings, parameters=parameters, bindings=bindings, branches=()), kept


def branch_scope(scope: Scope, branch: Branch) -> Scope:
    """The names of a scope in one branch of a conditional search space."""
    fixed: dict[str, Expr] = {name: Const(value) for name, value in branch.fixed.items()}
    local = {**scope.local, **{setting.key: setting.expr for setting in branch.settings}}
    own = frozenset(axis.name for axis in branch.axes)
    return Scope((scope.axes | own) - fixed.keys(), {**scope.given, **fixed}, local)


def _resolved(item: Word, scope: Scope) -> Word:
    return item if item.value is None else replace(item, value=scope.resolve(item.value))


def _submitted(link: Link, scope: Scope) -> Submitted | None:
    given = link.submitted
    if given is None:
        return None
    script = None if given.script is None else scope.resolve(given.script)
    return Submitted(tuple(_resolved(item, scope) for item in given.options), script)


def with_expressions(launch: Launch, change: Callable[[Expr], Expr]) -> Launch:
    """A launch with each of its expressions changed."""

    def changed(expr: Expr | None) -> Expr | None:
        return None if expr is None else change(expr)

    return replace(
        launch,
        nodes=changed(launch.nodes),
        ranks_per_node=changed(launch.ranks_per_node),
        total_ranks=changed(launch.total_ranks),
        trials_per_gpu=changed(launch.trials_per_gpu),
        environment={name: change(expr) for name, expr in launch.environment.items()},
    )


def _merge(outer: Launch, inner: Launch) -> Launch:
    """The combined launch: processes as the inner one states them, else as the outer one."""
    trials = inner.trials_per_gpu
    if trials is None:
        trials = outer.trials_per_gpu
    elif outer.trials_per_gpu is not None:
        trials = Op("*", (outer.trials_per_gpu, trials))
    return Launch(
        inner.launcher if inner.launcher != "python" else outer.launcher,
        inner.nodes if inner.nodes is not None else outer.nodes,
        inner.ranks_per_node if inner.ranks_per_node is not None else outer.ranks_per_node,
        inner.total_ranks if inner.total_ranks is not None else outer.total_ranks,
        trials,
        {**outer.environment, **inner.environment},
        outer.multirun or inner.multirun,
        {**outer.written, **inner.written},
    )


def _malformed(path: str, error: DocumentError) -> Skipped:
    return Skipped(path, "malformed", error.message, (cannot_be_parsed(path, error),))


def crashed(path: str, error: Exception) -> Skipped:
    """A file that a reader failed on, by an error of ours or because it is too large for Python or for the budget."""
    if isinstance(error, OverBudget):  # whether it is of a format was not found out
        words = f"it is {error.budget.over}"
        problem = Problem("invalid-config", f"not read: {words}", Origin(path, Span(0, 0)), "info")
        return Skipped(path, "malformed", words, (problem,))
    if why := too_much(error):
        problem = Problem("invalid-config", f"{path} {why}", Origin(path, Span(0, 0)))
        return Skipped(path, "malformed", f"it {why}", (problem,))
    return Skipped(path, "crashed", f"internal error while reading it: {type(error).__name__}: {error}")
