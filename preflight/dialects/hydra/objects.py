"""Facts about the job from the objects of a configuration (`_target_`), for every composition of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Fact, Setting
from preflight.vocabulary.values import Cause, Const, Expr, Op, Value, unknown

if TYPE_CHECKING:
    from preflight.dialects.hydra.plan import CompositionPlan
    from preflight.frameworks.calls import CallFacts

_TARGET = "_target_"

Composed = tuple["dict[str, Value]", "tuple[dict[str, Setting], object]"]


class Objects(Struct, frozen=True):
    """Bindings and facts of the targets; `reads` are the files of the project's own classes."""

    bindings: tuple[Binding, ...] = ()
    facts: tuple[Fact, ...] = ()
    trains: bool = False
    reads: tuple[str, ...] = ()


def read_objects(
    plan: CompositionPlan, read: Sequence[Composed], merged: Sequence[Setting], project: Project
) -> Objects:
    """The facts of the targets of all compositions. If all compositions have the same targets, they are read once."""
    if not any(key.rpartition(".")[2] == _TARGET for _, (settings, _) in read for key in settings):
        return Objects()
    from preflight.dialects.hydra.instantiate import composed

    targets = [{key: one.expr for key, one in settings.items() if key.endswith(_TARGET)} for _, (settings, _) in read]
    if all(one == targets[0] for one in targets):
        said = [composed({setting.key: setting.expr for setting in merged}, project)]
        bindings = said[0].bindings
    else:
        said = [composed({key: one.expr for key, one in settings.items()}, project) for _, (settings, _) in read]
        bindings = tuple(_joined(plan, [fixed for fixed, _ in read], said))
    own = {binding.origin.path for binding in bindings if binding.origin is not None}
    reads = tuple(sorted(path for path in own if path.endswith(".py")))
    return Objects(bindings, said[0].facts, any(one.trains for one in said), reads)


def _joined(plan: CompositionPlan, fixed: Sequence[Mapping[str, Value]], said: Sequence[CallFacts]) -> list[Binding]:
    """For each field, the value of each composition under the condition of that composition."""
    best = [_winners(one.bindings) for one in said]
    found = []
    for field in dict.fromkeys(field for one in best for field in one):
        ranked = [one.get(field) for one in best]
        first = next(one for one in ranked if one is not None)
        if all(one is not None and one.expr == first.expr for one in ranked):
            found.append(first)
            continue
        expr: Expr = unknown(f"{field} is not said for every option that is swept", cause=Cause.not_set)
        for options, one in reversed(list(zip(fixed, ranked, strict=True))):
            value = one.expr if one is not None else Const(None)
            expr = Op("if", (plan.condition(options), value, expr))
        found.append(Binding(field, expr, max(one.rank for one in ranked if one is not None), first.origin))
    return found


def _winners(bindings: Sequence[Binding]) -> dict[str, Binding]:
    found: dict[str, Binding] = {}
    for binding in bindings:
        if binding.field not in found or binding.rank >= found[binding.field].rank:
            found[binding.field] = binding
    return found
