"""From a chain of readings to a Study: bindings ranked, expressions over axes alone, one Box per branch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from preflight.study.follow import Chain, Step, branch_scope
from preflight.study.scope import MARK, Scope, fixed, references, unmark
from preflight.vocabulary.defaults import table_defaults
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Branch, Fact, Problem, Reading, Request
from preflight.vocabulary.records import dataclass, field, replace
from preflight.vocabulary.spelling import checked
from preflight.vocabulary.study import Bound, Box, Study
from preflight.vocabulary.values import (
    Axis,
    Choices,
    Const,
    Expr,
    Origin,
    Ref,
    Unknown,
    Value,
    evaluate,
    names,
    origins,
)

if TYPE_CHECKING:
    from preflight.vocabulary.settings import Settings

ALSO_BY_NAME = ("train.seq_len",)
"""Fields that a name is a hint at even if something else was seen to read it: `--seq_len` that sizes the positions of a
model is the length of its samples, too, where nothing else says how long they are."""


def assemble(chain: Chain, project: Project, overrides: Mapping[str, Value]) -> Study:
    """The Study of one launch."""
    readings = [reading for step in chain for reading in step.readings]
    request, launch = _request(readings), chain[-1].launch
    if request is not None and request.components:
        from preflight.slurm.allocation import part_of

        request = part_of(request, launch)
    problems: list[Problem] = [problem for reading in readings for problem in reading.problems]
    boxes = []
    for branch in _branches(readings):
        box, found = _box(chain, branch, project.settings, overrides, request)
        boxes.append(box)
        problems += [problem for problem in found if problem not in problems]
    leaf = chain[-1].reading
    shown = replace(
        launch,
        nodes=_shown(launch.nodes),
        ranks_per_node=_shown(launch.ranks_per_node),
        total_ranks=_shown(launch.total_ranks),
        trials_per_gpu=_shown(launch.trials_per_gpu),
        environment={name: unmark(expr) for name, expr in launch.environment.items()},
    )
    return Study(
        paths=tuple(dict.fromkeys(path for reading in readings for path in (reading.path, *reading.reads))),
        dialects=tuple(dict.fromkeys(reading.dialect for reading in readings)),
        boxes=tuple(boxes),
        request=request,
        facts=_facts(readings, chain),
        problems=tuple(dict.fromkeys(problems)) if _hashable(problems) else tuple(problems),
        launch=shown,
        group=next((step.link.group for step in chain[1:2] if step.link is not None), 0),
        program=leaf.path if leaf.path.endswith(".py") else None,
        readings=tuple(readings),
        links=tuple(step.link for step in chain if step.link is not None),
    )


def _hashable(problems: list[Problem]) -> bool:
    try:
        hash(tuple(problems))
    except TypeError:
        return False
    return True


def _shown(expr: Expr | None) -> Expr | None:
    return None if expr is None else unmark(expr)


def _request(readings: Iterable[Reading]) -> Request | None:
    """The innermost request: a job that submits another is not what the program runs in."""
    found = None
    for reading in readings:
        found = reading.request or found
    return found


def _facts(readings: Iterable[Reading], chain: Chain) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for reading in readings:
        for fact in reading.facts:
            facts[fact.name] = fact
    return facts


def _branches(readings: Iterable[Reading]) -> list[Branch]:
    """The boxes of a chain: branches of one file, or their product where several files have some (rare).

    Branches that only set values make no boxes: the reading's own settings say the same as conditions on the axis that
    chooses among them (a Hydra group), and one box can be narrowed as a whole.
    """
    boxes = [Branch()]
    for reading in readings:
        if any(branch.axes or branch.bindings for branch in reading.branches):
            boxes = [_joined(box, branch) for box in boxes for branch in reading.branches]
    return boxes


def _joined(left: Branch, right: Branch) -> Branch:
    return Branch(
        {**left.fixed, **right.fixed}, left.axes + right.axes, left.settings + right.settings,
        left.bindings + right.bindings,
    )  # fmt: skip


def _box(
    chain: Chain, branch: Branch, settings: Settings, overrides: Mapping[str, Value], request: Request | None
) -> tuple[Box, list[Problem]]:
    gathered = Gathered()
    consumed = _consumed(chain, branch)
    for step in chain:
        _gather(step, branch, consumed, gathered)
    from preflight.slurm.resources import resources

    for binding, source in resources(chain[-1].launch, request):
        gathered.add(binding, Scope(), source)
    _user_bindings(gathered, settings, overrides)
    held = {name: Const(value) for name, value in branch.fixed.items()}
    bounds, problems = {}, []
    for name, candidates in gathered.candidates.items():
        bound = winner(name, candidates, held)
        if bound is None:
            continue
        bound, problem = checked(bound)
        bounds[name] = bound
        if problem is not None:
            problems.append(problem)
    _without_guessed_dimensions(bounds)
    _same_vocabulary(bounds)
    _stated_whole(bounds)
    _one_process(bounds, chain)
    bounds = {**{name: bound for name, bound in table_defaults().items() if name not in bounds}, **bounds}
    constants = {name: unmark(fixed(expr, held)) for name, expr in gathered.constants.items()}
    axes = _axes(chain, branch, bounds)
    places = {axis.name: axis.origin for axis in axes}
    for name, bound in bounds.items():
        if bound.origin is None:
            place = next((places[axis] for axis in names(bound.expr) if places.get(axis) is not None), None)
            bounds[name] = bound if place is None else replace(bound, origin=place)
    return Box(bounds, axes, dict(branch.fixed), constants), problems


def _without_guessed_dimensions(bounds: dict[str, Bound]) -> None:
    """A model that the program names has its own dimensions: a `hidden_dim` nobody was seen to read is not one."""
    named = [bounds.get(f"model.{name}") for name in ("name", "path", "target", "law")]
    if any(bound is not None and not bound.setting for bound in named):
        for name in [one for one, bound in bounds.items() if one.startswith("model.config.") and bound.setting]:
            del bounds[name]


def _same_vocabulary(bounds: dict[str, Bound]) -> None:
    """A model described by its dimensions has the vocabulary that is trained on, under both names."""
    described = bounds.get("model.config.vocab_size")
    if described is not None and "train.vocab_size" not in bounds:
        bounds["train.vocab_size"] = replace(described, field="train.vocab_size")


def _stated_whole(bounds: dict[str, Bound]) -> None:
    """A mapping that the user states (`parallel.options`) has its keys from there, whatever files say of them."""
    for name in list(bounds):
        whole = bounds.get(name.rpartition(".")[0])
        value = evaluate(whole.expr) if whole is not None and whole.source in ("--set", "the settings") else None
        if isinstance(value, Mapping) and name.rpartition(".")[2] in value:
            del bounds[name]


def _one_process(bounds: dict[str, Bound], chain: Chain) -> None:
    """One process with the model on several GPUs: none of them holds what a GPU of its own would, or a share of it."""
    fact = next((f for step in chain for r in step.readings for f in r.facts if f.name == "one_process"), None)
    count, ranks = (
        evaluate(bounds[name].expr) if name in bounds else 1
        for name in ("parallel.gpus_per_node", "parallel.ranks_per_node")
    )
    if fact is None or not isinstance(count, int) or count < 2 or ranks != 1:
        return
    stated = bounds.get("parallel.strategy")
    if stated is None or not (
        stated.source in ("--set", "the settings") or evaluate(stated.expr) not in (None, "none")
    ):
        reason = f"{fact.value} has one process use {count} GPUs: what each of them holds is not modelled"
        bounds["parallel.strategy"] = Bound(
            "parallel.strategy", Const(Unknown(reason), fact.origin), fact.origin, source=chain[-1].reading.path
        )


def _consumed(chain: Chain, branch: Branch) -> frozenset[str]:
    """Names that some binding of the chain reads: what they mean is known, whatever they are called."""
    found: set[str] = set()
    for step in chain:
        exprs = [binding.expr for reading in step.readings for binding in reading.bindings]
        found.update(references(exprs, step.scope.local))
        found.update(references([binding.expr for binding in branch.bindings], step.scope.local))
    return frozenset(found)


def _gather(step: Step, branch: Branch, consumed: frozenset[str], gathered: Gathered) -> None:
    """One step's bindings, settings by name, and the bindings that their names suggest."""
    parts: list[tuple[Reading, Scope]] = [(config.reading, config.scope) for config in step.configs]
    for reading, scope in [*parts, (step.reading, step.scope)]:
        own = branch if any(one.axes or one.bindings for one in reading.branches) else None
        seen = branch_scope(scope, own) if own is not None else scope
        bindings = (*reading.bindings, *(own.bindings if own is not None else ()))
        _by_name(step, reading, seen, consumed, gathered)
        for binding in bindings:
            gathered.add(binding, seen, reading.path)


def _by_name(step: Step, reading: Reading, scope: Scope, consumed: frozenset[str], gathered: Gathered) -> None:
    from preflight.program.names import binding_for

    kinds = {parameter.name: parameter.kind for parameter in reading.parameters}
    own: dict[str, Expr] = {}
    for name in scope.local:
        own[name] = Ref(name)
    for name in scope.axes:
        own[name] = Ref(name)
    if reading is step.reading:
        own |= {name: Ref(name) for name in scope.given}
    for name, ref in own.items():
        expr = scope.resolve(ref)
        gathered.constants[name] = expr
        suggested = binding_for(name, expr, kinds.get(name, reading.dialect))
        if suggested is None or _empty(suggested.expr):
            continue
        rank = suggested.rank
        if name in consumed:
            if suggested.field not in ALSO_BY_NAME:
                continue
            rank = LAST_RANK
        source = next((o.path for o in origins(expr)), reading.path)
        gathered.add(suggested, scope, source, rank, setting=name)


def _empty(expr: Expr) -> bool:
    return isinstance(expr, Const) and (expr.value is None or isinstance(expr.value, Unknown))


def _user_bindings(gathered: Gathered, settings: Settings, overrides: Mapping[str, Value]) -> None:
    """What the user says about the project, in settings and on the command line."""
    for name, job_field in settings.map.items():
        if name in gathered.constants:
            gathered.add(Binding(job_field, gathered.constants[name], MAP_RANK), Scope(), "the settings' map")
    for job_field, value in settings.set.items():
        gathered.add(Binding(job_field, Const(value), SET_RANK), Scope(), "the settings")
    for job_field, value in overrides.items():
        gathered.add(Binding(job_field, Const(value), OVERRIDE_RANK), Scope(), "--set")


def _axes(chain: Chain, branch: Branch, bounds: Mapping[str, Bound]) -> tuple[Axis, ...]:
    """Every axis of the box, with the Job fields it feeds."""
    feeds: dict[str, list[str]] = {}
    for name, bound in bounds.items():
        for axis_name in set(names(bound.expr)):
            feeds.setdefault(axis_name, []).append(name)
    found: dict[str, Axis] = {}
    for axis in _declared(chain, branch):
        if axis.name in branch.fixed:
            continue
        domain = axis.domain
        if isinstance(domain, Choices) and not domain.values:
            continue
        found[axis.name] = replace(axis, fields=tuple(sorted(feeds.get(axis.name, ()))))
    return tuple(found.values())


def _declared(chain: Chain, branch: Branch) -> Iterator[Axis]:
    for step in chain:
        for reading in step.readings:
            yield from reading.axes
    yield from branch.axes


# Which of several bindings a Job field obeys: the highest rank, then the last; the others stay visible.

DEFAULT_RANK, TEXT_RANK = 1, 2
MAP_RANK = 4
"""A project's own spelling, stated by its user, beats what was read from the program."""
SET_RANK = 5
OVERRIDE_RANK = 6
UNKNOWN_RANK = -1
"""As `preflight.program.bindings` has it: something is passed, nobody can say what."""
LAST_RANK = -2
"""Below everything, also below an argument that cannot be followed."""


@dataclass(frozen=True)
class Candidate:
    """A binding with its expression over marked axes."""

    rank: int
    order: int
    expr: Expr
    origin: Origin | None
    source: str
    setting: str = ""


@dataclass
class Gathered:
    """Candidates per Job field, and every setting by its own name."""

    candidates: dict[str, list[Candidate]] = field(default_factory=dict)
    constants: dict[str, Expr] = field(default_factory=dict)

    def add(self, binding: Binding, scope: Scope, source: str, rank: int | None = None, setting: str = "") -> None:
        expr = scope.resolve(binding.expr)
        found = self.candidates.setdefault(binding.field, [])
        found.append(
            Candidate(binding.rank if rank is None else rank, len(found), expr, binding.origin, source, setting)
        )


def winner(name: str, candidates: list[Candidate], held: Mapping[str, Const]) -> Bound | None:
    """The candidate that the program would obey; None where all of them leave the field to the default.

    An unknown of the lowest rank ("something is passed, nobody can say what") rules a library's default out. Where the
    winner names something that is set nowhere, a setting whose name suggests the field is the better witness.
    """
    here = [replace(one, expr=fixed(one.expr, held)) for one in candidates]
    here = [_as_default(replace(one, origin=next(origins(one.expr), None) or one.origin)) for one in here]
    ordered = sorted(here, key=lambda one: (one.rank, one.order), reverse=True)
    if any(one.rank == UNKNOWN_RANK for one in ordered):
        ordered = [one for one in ordered if one.rank != DEFAULT_RANK]
    stated = [one for one in ordered if not (isinstance(one.expr, Const) and one.expr.value is None)]
    if ordered and ordered[0].rank >= SET_RANK:
        stated = ordered
    if not stated:
        return None
    best = stated[0]
    if _nowhere(best.expr):
        best = next((one for one in stated if one.rank == 0 and not _nowhere(one.expr)), best)
    losers = tuple(dict.fromkeys(o.origin for o in stated if o is not best and o.origin not in (None, best.origin)))
    expr = unmark(best.expr)
    source = best.source if best.rank != DEFAULT_RANK else f"default of the library, as {best.source} uses it"
    return Bound(
        name,
        expr,
        best.origin,
        tuple(o for o in losers if o is not None),
        best.rank == DEFAULT_RANK,
        source,
        best.setting,
    )


def _as_default(candidate: Candidate) -> Candidate:
    """What no file says is a library's default, whatever was seen to read it (a flag left alone)."""
    written = candidate.origin is not None or any(True for _ in names(candidate.expr))
    if written or candidate.rank != TEXT_RANK or _nowhere(candidate.expr):
        return candidate
    return replace(candidate, rank=DEFAULT_RANK)


def _nowhere(expr: Expr) -> bool:
    if isinstance(expr, Const):
        return isinstance(expr.value, Unknown)
    return any(not name.startswith(MARK) for name in names(expr))
