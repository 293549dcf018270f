"""Shared by the rules about search spaces: a limit for each model, where one box would drop what most models can do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from preflight.api import BoxVerdict, Case, Change, Choices, KeptBy, ModelVerdict, Proposal, Range, Safety, Value
from preflight_rules.shared.texts import text_of

Kept = tuple[Value, ...]

BYPASSES = ("GridSampler", "PartialFixedSampler", "enqueue_trial")
"""What gives a trial values of its own: Optuna takes them although they are outside the bounds that the trial names
(https://optuna.readthedocs.io/en/stable/reference/samplers/generated/optuna.samplers.GridSampler.html)."""


def by_model(case: Case) -> Iterator[tuple[int, Proposal]]:
    """How many combinations stay, and the limits for each model: only in a program that suggests its values one by one.

    None if it is not known what fits of a model, or if a box with unsafe combinations has one model and no axis for it.
    """
    name = next((model.axis for verdict in case.space.boxes for model in verdict.by_model), None)
    if case.fact("search") != "optuna" or name is None:
        return
    kept: dict[str, dict[Value, Kept]] = {}
    limited: dict[str, None] = {}
    fits: list[Value] = []
    gone = count = 0
    for verdict in case.space.boxes:
        models = _models(verdict, name)
        if models is None or any(not isinstance(model.value, str) or _is_unclear(model) for model in models):
            return
        whole = _whole(verdict, name)
        for model in models:
            some = _kept(model, whole)
            if some is None:
                gone += 1
                continue
            fits.append(model.value)
            count += model.counts.fitting if model.safe is None or some == whole else model.safe.combinations
            for axis, values in some.items():
                limited |= {axis: None} if values != whole[axis] else {}
                if kept.setdefault(axis, {}).setdefault(model.value, values) != values:
                    return  # two branches of one model, with limits of their own
    changes = [_change(axis, name, kept[axis]) for axis in limited]
    if gone and (len(case.space.boxes) > 1 or not fits):
        return
    if gone:
        changes.append(Change(name, keep=tuple(fits)))
    if not limited or _given_elsewhere(case, limited):
        return
    title = f"limit {' and '.join(limited)} for each {name}: {count:,} combinations stay"
    yield count, Proposal(title, tuple(changes), Safety.unsafe, reason(case, changes))


def reason(case: Case, changes: Iterable[Change]) -> str:
    """Why a smaller search is unsafe, and what becomes of one that is under way."""
    words = "the search has fewer combinations"
    axes = [axis for verdict in case.space.boxes for axis in verdict.box.axes]
    kept = {change.field: change.keep for change in changes}
    listed = any(isinstance(a.domain, Choices) and kept.get(a.name, a.domain.values) != a.domain.values for a in axes)
    if case.fact("search") == "optuna" and listed:
        return f"{words}; a study that is stored refuses other choices: give it a new name"
    return words


def _models(verdict: BoxVerdict, name: str) -> tuple[ModelVerdict, ...] | None:
    if verdict.by_model:
        return verdict.by_model
    if name in verdict.box.fixed:
        return (ModelVerdict(name, verdict.box.fixed[name], verdict.counts, verdict.safe),)
    return None if verdict.counts.unsafe else ()


def _whole(verdict: BoxVerdict, name: str) -> dict[str, Kept]:
    """All values of each axis, or its two bounds."""
    found: dict[str, Kept] = {}
    for axis in verdict.box.memory_axes:
        domain = axis.domain
        if isinstance(domain, Choices) and axis.name != name:
            found[axis.name] = domain.values
        elif isinstance(domain, Range):
            found[axis.name] = (domain.low, domain.high)
    return found


def _is_unclear(model: ModelVerdict) -> bool:
    return bool(model.counts.unsafe and model.counts.unknown)


def _kept(model: ModelVerdict, whole: dict[str, Kept]) -> dict[str, Kept] | None:
    """What stays of each axis for one model; None if nothing of it fits."""
    if not model.counts.unsafe:
        return whole
    if model.safe is None:
        return None
    return {axis: model.safe.keep[axis] if axis in model.safe.dropped else values for axis, values in whole.items()}


def _change(axis: str, name: str, values: dict[Value, Kept]) -> Change:
    return Change(axis, keep=max(values.values(), key=len), by=KeptBy(name, tuple(values.items())))


def bypassed(case: Case) -> bool:
    """Whether a program of Optuna's gives trials values of its own."""
    return case.fact("search") == "optuna" and any(word in text_of(case) for word in BYPASSES)


def _given_elsewhere(case: Case, limited: Iterable[str]) -> bool:
    """Whether the program gives values of the axes in another place, or the user's constraints name the axes."""
    constraints = " ".join(case.settings.constraints.values())
    return bypassed(case) or any(axis in constraints for axis in limited)
