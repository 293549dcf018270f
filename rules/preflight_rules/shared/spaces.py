"""Shared by the rules about search spaces: counts, the worst combination, the combinations that a fix keeps."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.api import (
    Axis,
    BoxVerdict,
    Case,
    Change,
    Choices,
    Confidence,
    DeviceEstimate,
    Finding,
    HostEstimate,
    ModelVerdict,
    Origin,
    Proposal,
    Range,
    Rule,
    SafeBox,
    Safety,
    Severity,
    Value,
    assignment_text,
    describe,
    gib,
    possible,
    values_text,
)
from preflight_rules.shared import gpu, loaders, remedies
from preflight_rules.shared.model_limits import by_model, bypassed, reason
from preflight_rules.shared.vocabulary_size import cap_vocabulary


def counts_text(case: Case) -> str:
    """ "21 of 96 combinations do not fit (15 exceed, 6 are at risk)"."""
    counts, total = case.space.counts, case.space.combinations
    words = [
        f"{counts.exceeds:,} exceed" if counts.exceeds else "",
        f"{counts.at_risk:,} at risk" if counts.at_risk else "",
    ]
    details = ", ".join(word for word in words if word)
    of = "an unbounded number of" if total is None else f"{total:,}"
    unknown = f", {counts.unknown:,} unknown" if counts.unknown else ""
    about = "" if counts.exact else "at least "
    return f"{about}{counts.unsafe:,} of {of} combinations do not fit ({details}{unknown})"


def worst_text(case: Case) -> str:
    """The worst combination with its need and the capacity, as text."""
    estimates = case.estimates
    picked = assignment_text({name: case.worst.assignment[name] for name in memory_names(case)})
    needs = []
    if estimates.device is not None:
        at_least = "at least " if estimates.device.lower_bound else ""
        need = f"{at_least}{gib(estimates.device.process.expected)}"
        needs.append(f"{need} of {gib(estimates.device.capacity or 0)} GPU memory")
    if estimates.host is not None and estimates.host.verdict in ("exceeds", "at-risk"):
        needs.append(f"{gib(estimates.host.per_node.expected)} of {gib(estimates.host.limit or 0)} host memory")
    return f"the worst, {picked} ({describe(case.job)}), needs {' and '.join(needs)}"


def memory_names(case: Case) -> list[str]:
    """Names of the worst combination's axes that feed a Job field."""
    box = case.worst_box
    known = {axis.name for axis in box.memory_axes} | set(box.fixed)
    return [name for name in case.worst.assignment if name in known]


def dropped(verdict: BoxVerdict) -> Iterator[tuple[Axis, tuple[Value, ...]]]:
    """Axes of a box that its safe sub-space narrows, with the values that they lose."""
    if verdict.safe is None:
        return
    for axis in verdict.box.axes:
        lost = verdict.safe.dropped.get(axis.name, ())
        if lost:
            yield axis, lost


def place_of(axis: Axis, lost: tuple[Value, ...]) -> Origin | None:
    """The place of the first value that is dropped; the place of the axis if its values have no places."""
    domain = axis.domain
    if isinstance(domain, Choices):
        for value, origin in zip(domain.values, domain.origins, strict=False):
            if value in lost and origin is not None:
                return origin
    if isinstance(domain, Range):
        return domain.high_origin or axis.origin
    return axis.origin


def kept_text(verdict: BoxVerdict, safe: SafeBox) -> str:
    """The safe combinations of one box: "84 combinations are safe: batch_size in 16, 32; max_len in 128 to 384"."""
    words = [f"{axis.name} in {values_text(safe.keep.get(axis.name, ()), axis.domain)}" for axis, _ in dropped(verdict)]
    branch = f" with {assignment_text(verdict.box.fixed)}" if verdict.box.fixed else ""
    return f"{safe.combinations:,} combinations are safe{branch}: {'; '.join(words)}"


def model_text(verdict: BoxVerdict, model: ModelVerdict) -> str:
    """The combinations of one model: "gpt2: 480 of 546 combinations fit; all fit with batch in 8, 16"."""
    counts = model.counts
    total = counts.fitting + counts.unsafe + counts.unknown
    words = f"{model.value}: {counts.fitting:,} of {total:,} combinations fit"
    if model.safe is None or not counts.unsafe:
        return words
    domains = {axis.name: axis.domain for axis in verdict.box.axes}
    kept = [f"{name} in {values_text(model.safe.keep[name], domains.get(name))}" for name in model.safe.dropped]
    return f"{words}; all fit with {'; '.join(kept)}" if kept else words


def safe_notes(case: Case) -> tuple[str, ...]:
    """The largest safe sub-space of every box, and of every model if an axis chooses the model, as text."""
    notes = [model_text(verdict, model) for verdict in case.space.boxes for model in verdict.by_model]
    notes += [kept_text(verdict, verdict.safe) for verdict in case.space.boxes if verdict.safe is not None]
    for verdict in case.space.boxes:
        if verdict.counts.unsafe and verdict.safe is None and verdict.box.fixed:
            notes.append(f"no combination fits with {assignment_text(verdict.box.fixed)}")
    return tuple(notes)


def narrowing(case: Case) -> list[Proposal]:
    """Smaller searches of which all combinations fit, the one that keeps the most first."""
    found = [*by_model(case), *_one_box(case)]
    return [proposal for _, proposal in sorted(found, key=lambda one: -one[0])]


def _one_box(case: Case) -> Iterator[tuple[int, Proposal]]:
    """Drop the values of every box that are outside its largest safe sub-space, with how many combinations stay.

    None if a box with unsafe combinations has no safe part, if it shares its axes with another box (one edit cannot
    change one branch only), or in a program whose axes are code without branches.
    """
    unsafe = [verdict for verdict in case.space.boxes if verdict.counts.unsafe]
    if not unsafe or any(verdict.safe is None for verdict in unsafe):
        return
    if (case.fact("search") == "optuna" and len(case.space.boxes) == 1) or bypassed(case):
        return
    changes: dict[Change, Axis] = {}
    for verdict in unsafe:
        for axis, _ in dropped(verdict):
            if _shared(case, verdict, axis):
                return
            assert verdict.safe is not None  # checked above
            changes[Change(axis.name, keep=verdict.safe.keep[axis.name])] = axis
    if not changes:
        return
    kept = sum(verdict.safe.combinations if verdict.safe else verdict.counts.fitting for verdict in case.space.boxes)
    words = "; ".join(f"{c.field}: {values_text(c.keep or (), axis.domain)}" for c, axis in changes.items())
    title = f"keep {kept:,} combinations that fit ({words})"
    yield kept, Proposal(title, tuple(changes), Safety.unsafe, reason(case, changes))


def _shared(case: Case, verdict: BoxVerdict, axis: Axis) -> bool:
    """Whether another box has an axis at the same place, or choices under one name in Optuna, and would keep others.
    Optuna refuses other choices under one name in one study."""
    if axis.origin is None:
        return False
    listed = case.fact("search") == "optuna" and isinstance(axis.domain, Choices)
    for other in case.space.boxes:
        for twin in other.box.axes:
            same = twin.origin == axis.origin or (listed and twin.name == axis.name)
            if other is not verdict and same:
                mine = verdict.safe.keep.get(axis.name) if verdict.safe else None
                theirs = other.safe.keep.get(twin.name) if other.safe else None
                if mine != theirs:
                    return True
    return False


def space_proposals(case: Case) -> tuple[Proposal, ...]:
    """Settings outside the search after which all of it fits, then a smaller search, then other runs."""
    found: list[Proposal] = []
    narrower = narrowing(case)
    enough = any(possible(case, proposal.changes) for proposal in narrower)
    host, device = case.estimates.host, case.estimates.device
    if device is not None and device.verdict in ("exceeds", "at-risk"):
        found += remedies.device_proposals(case, others=not enough)
    elif host is not None and host.verdict in ("exceeds", "at-risk"):
        found += loaders.loader_proposals(case)
    safe = [proposal for proposal in found if proposal.safety is Safety.safe]
    unsafe = [proposal for proposal in found if proposal.safety is Safety.unsafe]
    capped = [] if enough else list(cap_vocabulary(case))
    return (*safe, *narrower, *capped, *unsafe)


def binding(case: Case) -> DeviceEstimate | HostEstimate | None:
    """The estimate of the worst combination that does not fit: one that exceeds first, and the GPU before the host."""
    sides = [side for side in (case.estimates.device, case.estimates.host) if side is not None]
    for verdict in ("exceeds", "at-risk"):
        for side in sides:
            if side.verdict == verdict:
                return side
    return None


def all_unsafe(case: Case) -> bool:
    """Whether every combination is counted, and none fits or is unknown."""
    counts = case.space.counts
    return case.space.combinations is not None and bool(counts.unsafe) and not counts.fitting + counts.unknown


def axis_places(case: Case) -> list[tuple[Origin, str]]:
    """Places of the values that are dropped, the box of the worst combination first."""
    ordered = sorted(case.space.boxes, key=lambda verdict: verdict.worst is not case.space.worst)
    found: list[tuple[Origin, str]] = []
    for verdict in ordered:
        for axis, lost in dropped(verdict):
            origin = place_of(axis, lost)
            if origin is not None and all(origin != place for place, _ in found):
                kept = verdict.safe.keep.get(axis.name, ()) if verdict.safe is not None else ()
                ranged = isinstance(axis.domain, Range)
                words = f"keeps {values_text(kept, axis.domain)}" if ranged else f"loses {values_text(lost)}"
                found.append((origin, f"{axis.name} {words}"))
    if not found:
        box = ordered[0].box
        found = [(axis.origin, f"{axis.name} is swept") for axis in box.memory_axes if axis.origin is not None]
    return found


def space_finding(
    rule: Rule, case: Case, counted: str, worst: str, places: list[tuple[Origin, str]], severity: Severity
) -> Finding:
    """A finding about a space, with the evidence of its worst combination. `counted`: how many combinations do not fit,
    `worst`: the worst of them, with its figures."""
    estimate = binding(case)
    return rule.finding(
        f"{counted}; {worst}",
        places[0][0] if places else case.origin(*gpu.FIELDS),
        severity,
        Confidence.medium if estimate is None else None,
        estimate=estimate,
        settings=gpu.FIELDS,
        related=tuple(places[1:]),
        headline=f"{counted}; the worst is {gpu.in_brief(case.job)}",
        label="some of these do not fit" if case.space.counts.fitting else "none of these fit",
        notes=(*safe_notes(case), *(gpu.evidence(case, estimate) if isinstance(estimate, DeviceEstimate) else ())),
        proposals=space_proposals(case),
    )
