"""The plan of a Hydra composition: overrides without a sweep, axes of swept values, and swept groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.dialects.hydra.compose import Composition
from preflight.dialects.hydra.launcher import search_space, sweeper, sweeper_params
from preflight.dialects.hydra.overrides import GivenOverride, domain
from preflight.dialects.hydra.repository import Repository
from preflight.vocabulary.reading import Call, Problem
from preflight.vocabulary.values import Axis, Choices, Const, Expr, Op, Ref, Unbounded, Value


class CompositionPlan(Struct):
    """The overrides to compose with: those without a sweep, axes of swept values, and swept groups."""

    fixed: list[GivenOverride] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    groups: list[tuple[GivenOverride, Ref, tuple[str, ...], Axis | None]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def condition(self, fixed: Mapping[str, Value]) -> Expr:
        """The condition that the swept groups have the options of one composition."""
        tests = [Op("==", (ref, Const(fixed[ref.name]))) for _, ref, _, _ in self.groups]
        return tests[0] if len(tests) == 1 else Op("and", tuple(tests))


def sort_overrides(
    overrides: Sequence[GivenOverride],
    repository: Repository,
    plan: CompositionPlan,
    multirun: bool,
    call: Call | None,
    optuna: bool = False,
) -> None:
    """Sorts overrides into fixed values, swept values and swept groups. The last override of a key counts."""
    for given in overrides:
        group = repository.group_exists(given.key)
        if not given.sweeps:
            if given.expr is not None and group and not isinstance(given.expr, Const):
                _outer_group(given, repository.get_group_options(given.key), plan)
            else:
                plan.fixed.append(given)
            continue
        options = repository.get_group_options(given.key) if group else []
        found = domain(given, options, inclusive=optuna)
        if found is None or given.origin is None:
            continue
        if not multirun and call is not None and given.value_origin is not None:
            said = f"{given.key} has several values; Hydra needs --multirun for them"
            plan.problems.append(Problem("invalid-config", said, given.origin))
        if isinstance(found, Unbounded):
            said = f"the sweep of {given.key} is {found.kind}: none of its values is checked"
            plan.problems.append(Problem("invalid-config", said, given.origin, "warning"))
        axis = Axis(given.key, found, given.value_origin)
        if group and isinstance(found, Choices):
            names = tuple(str(value) for value in found.values)
            if names:
                plan.groups.append((given, Ref(axis.name, given.value_origin), names, axis))
            continue
        plan.axes = [one for one in plan.axes if one.name != axis.name] + [axis]
        plan.fixed.append(replace(given, override=None, expr=Ref(axis.name, given.value_origin)))


def _outer_group(given: GivenOverride, options: Sequence[str], plan: CompositionPlan) -> None:
    """A group whose option comes from an outer sweep: every option of the group is possible."""
    refs = list(_references(given.expr))
    if len(refs) == 1 and isinstance(given.expr, Ref) and options:
        plan.groups.append((given, refs[0], tuple(options), None))
    elif given.origin is not None:
        said = f"the option of {given.key} that a run uses is unknown"
        plan.problems.append(Problem("invalid-config", said, given.origin, "info"))


def _references(expr: Expr | None) -> Iterator[Ref]:
    if isinstance(expr, Ref):
        yield expr
    elif isinstance(expr, Op):
        for operand in expr.operands:
            yield from _references(operand)


def add_sweeper(found: Composition, repository: Repository, plan: CompositionPlan) -> None:
    """Adds the axes of `hydra.sweeper.params` and Optuna's `search_space`. The command line has precedence."""
    taken = {given.key for given in plan.fixed} | {given.key for given, _, _, _ in plan.groups}
    params = [given for given in sweeper_params(found, plan.problems) if given.key not in taken]
    sort_overrides(params, repository, plan, True, None, optuna=sweeper(found) == "optuna")
    for key, values, origin in search_space(found):
        if key not in taken:
            plan.axes.append(Axis(key, values, origin))
            plan.fixed.append(GivenOverride(key, origin, None, Ref(key, origin), origin))
