"""From the bindings of a chain to the bounds of one box, in passes. Each works on the result of those before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.program.names import binding_for, of_a_device
from preflight.slurm.resources import resources
from preflight.study.follow import LAUNCHES, Chain, ChainStep, branch_scope
from preflight.study.scope import MARK, Scope, fix_axes, references, unmark
from preflight.vocabulary.reading import (
    DATA_PARALLEL,
    GPUS_SEEN,
    ONE_PROCESS,
    VISIBLE,
    Binding,
    Branch,
    Problem,
    Rank,
    Reading,
    Request,
)
from preflight.vocabulary.spelling import checked
from preflight.vocabulary.study import Bound, Box, Source, table_defaults
from preflight.vocabulary.values import (
    Axis,
    Cause,
    Choices,
    Const,
    Expr,
    Op,
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
"""Fields that a name suggests even if something else reads it. `--seq_len` may size the positions of a model; it is the
length of the samples, too, if nothing else says how long they are."""


class Candidate(Struct, frozen=True):
    """A binding that a Job field may obey; its expression is over marked axes."""

    rank: Rank
    order: int
    expr: Expr
    origin: Origin | None
    source: Source
    where: str = ""
    setting: str = ""
    others: tuple[Value, ...] = ()
    perhaps: bool = False


class Draft(Struct):
    """An unfinished box: its launch, and the results of the passes so far."""

    chain: Chain
    branch: Branch
    request: Request | None
    settings: Settings
    overrides: Mapping[str, Value]
    candidates: dict[str, list[Candidate]] = field(default_factory=dict)
    """For each Job field, all bindings for it."""
    constants: dict[str, Expr] = field(default_factory=dict)
    """The value of every setting, by its own name."""
    bounds: dict[str, Bound] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    axes: tuple[Axis, ...] = ()

    @property
    def fixed_axes(self) -> dict[str, Const]:
        """The axes that have one value in this branch."""
        return {name: Const(value) for name, value in self.branch.fixed.items()}

    def add(
        self, binding: Binding, source: Source, where: str = "", scope: Scope | None = None, setting: str = ""
    ) -> None:
        """A candidate for the binding's field."""
        found = self.candidates.setdefault(binding.field, [])
        expr = (scope or Scope()).resolve(binding.expr)
        read = Candidate(binding.rank, len(found), expr, binding.origin, source, where, setting)
        found.append(replace(read, others=binding.others, perhaps=binding.perhaps))


def box_of(draft: Draft) -> Box:
    """The box of a draft after all passes."""
    for one in PASSES:
        one(draft)
    constants = {name: unmark(fix_axes(expr, draft.fixed_axes)) for name, expr in draft.constants.items()}
    return Box(draft.bounds, draft.axes, dict(draft.branch.fixed), constants)


# Passes that gather candidates.


def gather_files(draft: Draft) -> None:
    """The bindings of every file of the chain, and those that names of settings suggest."""
    consumed = _consumed(draft.chain, draft.branch)
    for step in draft.chain:
        parts = [(config.reading, config.scope) for config in step.configs]
        for reading, scope in [*parts, (step.reading, step.scope)]:
            own = draft.branch if any(one.axes or one.bindings for one in reading.branches) else None
            seen = branch_scope(scope, own) if own is not None else scope
            _by_name(step, reading, seen, consumed, draft)
            for binding in (*reading.bindings, *(own.bindings if own is not None else ())):
                draft.add(binding, Source.file, reading.path, seen)


def _consumed(chain: Chain, branch: Branch) -> frozenset[str]:
    """Names that a binding of the chain reads. Their meaning is known, so their spelling is no hint."""
    found: set[str] = set()
    for step in chain:
        exprs = [binding.expr for reading in step.readings for binding in reading.bindings]
        found.update(references(exprs, step.scope.local))
        found.update(references([binding.expr for binding in branch.bindings], step.scope.local))
    return frozenset(found)


def _by_name(step: ChainStep, reading: Reading, scope: Scope, consumed: frozenset[str], draft: Draft) -> None:
    kinds = {parameter.name: parameter.kind for parameter in reading.parameters}
    own = [*scope.local, *scope.axes, *(scope.given if reading is step.reading else ())]
    for name in dict.fromkeys(own):
        expr = scope.resolve(Ref(name))
        draft.constants[name] = expr
        suggested = binding_for(name, expr, kinds.get(name, reading.dialect))
        if suggested is None or _empty(suggested.expr):
            continue
        if name in consumed:
            if suggested.field not in ALSO_BY_NAME:
                continue
            suggested = replace(suggested, rank=Rank.hint)
        path = next((o.path for o in origins(expr)), reading.path)
        draft.add(suggested, Source.file, path, scope, name)


def _empty(expr: Expr) -> bool:
    if not isinstance(expr, Const) or expr.value is None:
        return isinstance(expr, Const)
    return isinstance(expr.value, Unknown) and expr.value.cause is not Cause.not_modelled


def gather_resources(draft: Draft) -> None:
    """The processes, nodes and memory of the launch and the request."""
    for binding, source in resources(draft.chain[-1].launch, draft.request):
        draft.add(binding, source)


def gather_statements(draft: Draft) -> None:
    """Job fields that the user sets, in settings and on the command line."""
    for name, job_field in draft.settings.map.items():
        if name in draft.constants:
            draft.add(Binding(job_field, draft.constants[name], Rank.mapped), Source.map)
    for job_field, value in draft.settings.set.items():
        draft.add(Binding(job_field, Const(value), Rank.settings), Source.settings)
    for job_field, value in draft.overrides.items():
        draft.add(Binding(job_field, Const(value), Rank.command_line), Source.command_line)


# Passes over the bounds.


def choose_winners(draft: Draft) -> None:
    """Choose the binding that each field obeys. A value that its field cannot have becomes unknown, with a problem."""
    fixed_axes = draft.fixed_axes
    for name, candidates in draft.candidates.items():
        bound = winner(name, candidates, fixed_axes)
        if bound is None:
            continue
        draft.bounds[name], problem = checked(bound)
        if problem is not None:
            draft.problems.append(problem)


def drop_guessed_dimensions(draft: Draft) -> None:
    """A model that the program names has its own dimensions. A `hidden_dim` that nothing reads is not one."""
    bounds = draft.bounds
    named = [bounds.get(f"model.{name}") for name in ("name", "path", "target", "law")]
    if any(bound is not None and not bound.setting for bound in named):
        for name in [one for one, bound in bounds.items() if one.startswith("model.config.") and bound.setting]:
            del bounds[name]


def share_vocabulary(draft: Draft) -> None:
    """A model described by its dimensions is trained with its own vocabulary."""
    described = draft.bounds.get("model.config.vocab_size")
    if described is not None and "train.vocab_size" not in draft.bounds:
        draft.bounds["train.vocab_size"] = replace(described, field="train.vocab_size")


def keep_stated_mappings_whole(draft: Draft) -> None:
    """The keys of a mapping that the user sets (`parallel.options`) are the user's, whatever files say."""
    bounds = draft.bounds
    for name in list(bounds):
        whole = bounds.get(name.rpartition(".")[0])
        value = evaluate(whole.expr) if whole is not None and whole.stated_by_user else None
        if isinstance(value, Mapping) and name.rpartition(".")[2] in value:
            del bounds[name]


GPUS, RANKS, STRATEGY = "parallel.gpus_per_node", "parallel.ranks_per_node", "parallel.strategy"
COUNTING = ("torchrun", "accelerate", "deepspeed")
"""Launchers that count the GPUs before the program says which of them it sees."""
SPLIT = ("train.batch_size", "validation.batch_size")
"""What DataParallel splits over its GPUs."""
MOST_VISIBLE = 8
"""GPUs that a process sees at the most, where no file says how many: those of a node of a cluster."""
LIKE_DATA_PARALLEL = "ddp"
"""GPU 0 adds up the gradients of all GPUs in a second copy (`ReduceAddCoalesced`), which DDP keeps in its buckets."""


def one_process_on_several_gpus(draft: Draft) -> None:
    """If one process uses several GPUs, the first of them holds neither the whole model nor an equal share.

    DataParallel splits the loader's batch over all GPUs that the process sees; a Trainer multiplies it first. GPU 0
    has its share of the batch and the outputs of all of it, which is less than the whole batch.
    """
    bounds, where = draft.bounds, draft.chain[-1].reading.path
    visible = bounds.pop(VISIBLE, None)
    counts = draft.chain[-1].launch.launcher in COUNTING
    for name in (GPUS, RANKS) if visible is not None and not counts else ():
        if name in bounds and visible is not None and isinstance(evaluate(bounds[name].expr), Unknown):
            bounds[name] = replace(visible, field=name)  # all that the process sees
    maker, place = _one_process(draft, bounds.pop(ONE_PROCESS, None))
    ranks, stated = evaluate(bounds[RANKS].expr) if RANKS in bounds else 1, bounds.get(STRATEGY)
    if not maker or ranks != 1 or (stated and (stated.stated_by_user or evaluate(stated.expr) not in (None, "none"))):
        return
    gpus = bounds.get(GPUS)
    if visible is not None and (gpus is None or gpus.source is not Source.file) and not (gpus and gpus.stated_by_user):
        gpus = bounds[GPUS] = replace(visible, field=GPUS)
    count = evaluate(gpus.expr) if gpus is not None else None
    several = count if isinstance(count, int) and count > 1 else None
    splits = maker == DATA_PARALLEL
    if several is None and (isinstance(count, int) or not splits):
        return
    if several is not None:
        words = f"{maker} makes one process use {several} GPUs; the memory of each is not modelled"
        why = Unknown(words, Cause.not_modelled)
    else:
        words = f"{maker} uses all GPUs that the process sees, and no file says how many"
        why = Unknown(words, Cause.run_time, (GPUS,))
        gpus = bounds[GPUS] = Bound(GPUS, Const(why, place), place, where=where)
    bounds[STRATEGY] = Bound(STRATEGY, Const(why, place), place, where=where)
    shares = [bounds[name] for name in SPLIT if name in bounds and not bounds[name].stated_by_user]
    if splits and all(map(_is_fixed, shares)):
        words = f"{maker} brings all outputs to the first of {several} GPUs" if several is not None else words
        like = Bound(STRATEGY, Const("none", place), place, where=where)
        bounds[STRATEGY] = replace(like, others=(LIKE_DATA_PARALLEL,), why_others=words)
        shares = [_between(one, several, words) for one in shares]
    elif splits and gpus is not None:
        shares = [_shared(one, gpus) for one in shares]
    bounds.update((one.field, one) for one in shares)


def _is_fixed(batch: Bound) -> bool:
    """Whether no axis of the search decides it."""
    return not any(True for _ in names(batch.expr))


def _between(batch: Bound, gpus: int | None, words: str) -> Bound:
    """The samples of the first of several GPUs: its share, and with the outputs of the others at most all of them.
    Where nobody knows how many GPUs, it is all samples of one GPU. The others are the least and the most that it may
    be: a program may load more for more GPUs."""
    every = [batch.expr] if gpus else [_seen(batch.expr, count) for count in range(1, MOST_VISIBLE + 1)]
    whole = [size for size in map(evaluate, every) if isinstance(size, int) and not isinstance(size, bool)]
    if len(whole) < len(every):
        return batch
    if gpus:
        return replace(_shared(batch, Bound(GPUS, Const(gpus))), others=(whole[0],), why_others=words)
    shares = [-(-size // count) for count, size in enumerate(whole, 1)]
    others = tuple(one for one in dict.fromkeys((min(shares), max(whole))) if one != whole[0])
    return replace(batch, expr=every[0], others=others, why_others=words)


def _seen(expr: Expr, gpus: int) -> Expr:
    """An expression on a machine of which the process sees so many GPUs."""
    if isinstance(expr, Op):
        return Op(expr.operator, tuple(_seen(one, gpus) for one in expr.operands), expr.origin)
    return Const(gpus, expr.origin) if isinstance(expr, Const) and expr.value == GPUS_SEEN else expr


def _one_process(draft: Draft, wrapped: Bound | None) -> tuple[Value, Origin | None]:
    """What makes one process use all GPUs that it sees, and where; None if nothing does."""
    said = evaluate(wrapped.expr) if wrapped is not None else None
    if wrapped is not None and (isinstance(said, Unknown) or said):
        return DATA_PARALLEL if isinstance(said, Unknown) else said, wrapped.origin
    facts = (fact for step in draft.chain for reading in step.readings for fact in reading.facts)
    fact = next((one for one in facts if one.name == "one_process"), None)
    return (fact.value, fact.origin) if fact is not None else (None, None)


def _shared(batch: Bound, gpus: Bound) -> Bound:
    """The samples of the first of several GPUs, which takes the largest part."""
    return replace(batch, expr=Op("ceil", (Op("/", (batch.expr, gpus.expr)),), batch.expr.origin))


_SET_BY_PROGRAMS = (
    "train.optimizer", "train.precision", "train.grad_accum", "train.gradient_checkpointing", "parallel.strategy",
    "data.workers",
)  # fmt: skip
"""What every program decides, by its text or by the trainer that it uses."""


def unread_program(draft: Draft) -> None:
    """A chain that ends with a launch has a program that was not read: its defaults are not those of the Job. What the
    user states is of a program that the user knows."""
    last = draft.chain[-1].reading
    link = next((one for one in last.links if one.kind in LAUNCHES), None)
    if link is None or any(bound.stated_by_user for bound in draft.bounds.values()):
        return
    for name in _SET_BY_PROGRAMS:
        if name not in draft.bounds:
            why = Unknown(f"{link.target or 'the program'} decides it, and was not read", Cause.not_read, (name,))
            draft.bounds[name] = Bound(name, Const(why, link.origin), link.origin, where=last.path)


def add_defaults(draft: Draft) -> None:
    """Defaults of the Job, for fields without a binding."""
    bounds = draft.bounds
    draft.bounds = {**{name: one for name, one in table_defaults().items() if name not in bounds}, **bounds}


def find_axes(draft: Draft) -> None:
    """The axes of the box, with the Job fields that each feeds. A field without a place gets the place of its axis."""
    draft.axes = _axes(draft.chain, draft.branch, draft.bounds)
    places = {axis.name: axis.origin for axis in draft.axes}
    for name, bound in draft.bounds.items():
        if bound.origin is None:
            place = next((places[axis] for axis in names(bound.expr) if places.get(axis) is not None), None)
            draft.bounds[name] = bound if place is None else replace(bound, origin=place)


def _axes(chain: Chain, branch: Branch, bounds: Mapping[str, Bound]) -> tuple[Axis, ...]:
    """Every axis of the box, with the Job fields that it feeds."""
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


PASSES: tuple[Callable[[Draft], None], ...] = (
    gather_files,
    gather_resources,
    gather_statements,
    choose_winners,
    drop_guessed_dimensions,
    share_vocabulary,
    keep_stated_mappings_whole,
    one_process_on_several_gpus,
    unread_program,
    add_defaults,
    find_axes,
)
"""In this order: of candidates with equal rank, the one added later wins."""


# Which of several candidates a Job field obeys.


def winner(name: str, candidates: list[Candidate], fixed_axes: Mapping[str, Const]) -> Bound | None:
    """The candidate that the program obeys; None if all of them leave the field at the default.

    An argument that cannot be followed excludes a library's default. If the winner uses a name that is set nowhere, a
    setting whose name suggests the field is preferred.
    """
    here = [_as_default(_at_its_origin(one, fix_axes(one.expr, fixed_axes))) for one in candidates]
    ordered = sorted(here, key=lambda one: (one.rank, of_a_device(one.setting), one.order), reverse=True)
    if any(one.rank == Rank.not_followed for one in ordered):
        ordered = [one for one in ordered if one.rank != Rank.default]
    stated = [one for one in ordered if not (isinstance(one.expr, Const) and one.expr.value is None)]
    if ordered and ordered[0].rank >= Rank.settings:
        stated = ordered
    if not stated:
        return None
    best = stated[0]
    if _is_set_nowhere(best.expr):
        best = next((one for one in stated if one.rank == Rank.by_name and not _is_set_nowhere(one.expr)), best)
    losers = tuple(dict.fromkeys(o.origin for o in stated if o is not best and o.origin not in (None, best.origin)))
    expr = unmark(best.expr)
    default = best.rank == Rank.default
    return Bound(
        name,
        expr,
        best.origin,
        tuple(o for o in losers if o is not None),
        default,
        Source.library if default else best.source,
        best.where,
        best.setting,
        best.others if default else (),
        perhaps=best.perhaps,
    )


def _at_its_origin(candidate: Candidate, expr: Expr) -> Candidate:
    """The candidate with this expression, in the place where its value is written."""
    origin = next(origins(expr), None) or candidate.origin
    if expr is candidate.expr and origin is candidate.origin:
        return candidate
    return replace(candidate, expr=expr, origin=origin)


def _as_default(candidate: Candidate) -> Candidate:
    """A value that no file states is a library's default, even if the program reads it (a flag that is not given)."""
    written = candidate.origin is not None or any(True for _ in names(candidate.expr))
    if written or candidate.rank != Rank.read or _is_set_nowhere(candidate.expr):
        return candidate
    return replace(candidate, rank=Rank.default)


def _is_set_nowhere(expr: Expr) -> bool:
    if isinstance(expr, Const):
        # what is read, and is not modelled, is no setting that a name could replace
        return isinstance(expr.value, Unknown) and expr.value.cause is not Cause.not_modelled
    return any(not name.startswith(MARK) for name in names(expr))
