"""Rules about settings that contradict each other, the model, or their own schema."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.findings import Change, Confidence, Finding, Proposal, Safety, Severity
from preflight.vocabulary.job import Job
from preflight.vocabulary.records import dataclass
from preflight.vocabulary.rule import Case, Rule
from preflight.vocabulary.study import Box
from preflight.vocabulary.values import Axis, Choices, Const, Origin, Range, Value, evaluate, names
from preflight.vocabulary.verdicts import BoxVerdict
from preflight_rules import config_examples
from preflight_rules.batches import mismatches
from preflight_rules.common import from_problems, model_name, related_of, several
from preflight_rules.positions import Positions, positions_of
from preflight_rules.unknowns import FitsOnlyIf


class InvalidConfig(Rule):
    """A file says something that the tool it is written for does not accept.

    A value of the wrong type, an unknown key in a schema that allows none, two options that exclude each other: the
    finding points at the value. The rest of the file is still read.

    Where exactly one repair exists it is offered as a fix.
    """

    name = "invalid-config"
    summary = "A file says something that its own tool does not accept"
    examples = config_examples.INVALID

    def check(self, case: Case) -> Iterator[Finding]:
        yield from from_problems(case, self.name)


class LengthExceedsPositions(Rule):
    """Sequences are longer than the positions that the model has.

    A model with a table of learned positions (BERT, GPT-2, RoBERTa) fails with an index error, on a GPU with a
    device-side assert that names something else. A model with rotary positions runs, outside the lengths it was trained
    for: that is a warning. RoBERTa's table has two entries more than it has positions.

    The fix sets the length to the number of positions, in a search drops the longer ones. It is another run, hence
    unsafe.
    """

    name = "length-exceeds-positions"
    summary = "Sequences are longer than the model's positions"
    examples = config_examples.POSITIONS

    def check(self, case: Case) -> Iterator[Finding]:
        seen: set[Origin | None] = set()
        for verdict in case.space.boxes:
            longest = _longest(case, verdict.box)
            known = [(p, job) for job in _models(case, verdict) if (p := positions_of(job)) is not None]
            if longest is None or not known:
                continue
            positions, job = min(known, key=lambda pair: pair[0].usable)
            if longest.value > positions.usable and longest.origin not in seen:
                seen.add(longest.origin)
                yield self._finding(case, job, longest, positions)

    def _finding(self, case: Case, job: Job, longest: _Longest, positions: Positions) -> Finding:
        what = "fails with an index error" if positions.learned else "leaves the lengths it was trained for"
        return Finding(
            rule=self.name,
            severity=Severity.error if positions.learned else Severity.warning,
            confidence=Confidence.high,
            message=(
                f"length {longest.value:,} exceeds the {positions.usable:,} positions of {model_name(job)}: it {what}"
            ),
            origin=longest.origin,
            settings=("train.seq_len", "model.name"),
            related=related_of(case, longest.origin, ("model.name", model_name(job))),
            label=f"at most {positions.usable:,}",
            proposals=_shorten(case, longest, positions.usable),
        )


@dataclass(frozen=True, slots=True)
class _Longest:
    """The longest `train.seq_len` of a box, and the axis it comes from, if any."""

    value: int
    origin: Origin | None
    axis: Axis | None = None


def _longest(case: Case, box: Box) -> _Longest | None:
    bound = box.fields.get("train.seq_len")
    if bound is None or bound.default:
        return None
    used = set(names(bound.expr))
    axes = [axis for axis in box.axes if axis.name in used]
    env = {name: Const(value) for name, value in box.fixed.items()}
    if not axes:
        value = evaluate(bound.expr, env)
        return _Longest(value, bound.origin) if isinstance(value, int) else None
    if len(axes) > 1 or used - {axes[0].name} - set(env):
        return None
    axis, found = axes[0], []
    for value, origin in _ends(axis):
        length = evaluate(bound.expr, {**env, axis.name: Const(value)})
        if isinstance(length, (int, float)):
            found.append(_Longest(int(length), origin or axis.origin or bound.origin, axis))
    return max(found, key=lambda one: one.value, default=None)


def _ends(axis: Axis) -> list[tuple[Value, Origin | None]]:
    domain = axis.domain
    if isinstance(domain, Choices):
        origins = domain.origins or (None,) * len(domain.values)
        return list(zip(domain.values, origins, strict=True))
    if isinstance(domain, Range):
        return [(domain.low, domain.low_origin), (domain.high, domain.high_origin)]
    return []


def _models(case: Case, verdict: BoxVerdict) -> list[Job]:
    """The models of a box: the worst combination's job with each value of the axis that names the model."""
    values = [one.value for one in verdict.by_model if isinstance(one.value, str)]
    return [with_fields(verdict.worst.job, {"model.name": value}) for value in values] or [verdict.worst.job]


def _shorten(case: Case, longest: _Longest, usable: int) -> tuple[Proposal, ...]:
    reason = "longer samples are cut"
    if longest.axis is None:
        change = Change("train.seq_len", usable)
        return (Proposal(f"length {longest.value} -> {usable}", (change,), Safety.unsafe, reason),)
    domain = longest.axis.domain
    keep: tuple[Value, ...] = ()
    if isinstance(domain, Choices) and all(isinstance(value, int) for value in domain.values):
        keep = tuple(value for value in domain.values if isinstance(value, int) and value <= usable)
    elif isinstance(domain, Range) and domain.low <= usable:
        step = domain.step or 1
        keep = (domain.low, domain.low + (usable - domain.low) // step * step)
    if not keep:
        return ()
    title = f"keep {longest.axis.name} up to {usable}"
    return (Proposal(title, (Change(longest.axis.name, keep=keep),), Safety.unsafe, reason),)


class BatchSizeMismatch(Rule):
    """The batch that a file states is not micro-batch x accumulation x ranks.

    DeepSpeed refuses to start when `train_batch_size` is not the product of `train_micro_batch_size_per_gpu`,
    `gradient_accumulation_steps` and the number of ranks; the Hugging Face integration refuses a value that differs
    from its own arguments. Elsewhere a stated effective batch that is not the product misleads whoever reads it.

    There is no fix: which of the numbers is meant is for you to say.
    """

    name = "batch-size-mismatch"
    summary = "The stated batch is not micro-batch x accumulation x ranks"
    examples = config_examples.MISMATCH

    def check(self, case: Case) -> Iterator[Finding]:
        yield from from_problems(case, self.name)
        if several(case):
            return
        for mismatch in mismatches(case):
            batch, accumulation = case.job.train.batch_size, case.job.train.grad_accum
            yield Finding(
                rule=self.name,
                severity=Severity.error if mismatch.refused else Severity.warning,
                confidence=Confidence.high if mismatch.refused else Confidence.medium,
                message=mismatch.message,
                origin=mismatch.origin,
                settings=("train.batch_size", "train.grad_accum"),
                related=related_of(
                    case,
                    mismatch.origin,
                    ("train.batch_size", f"batch {batch}"),
                    ("train.grad_accum", f"accumulation {accumulation}"),
                ),
            )


RULES: tuple[type[Rule], ...] = (InvalidConfig, LengthExceedsPositions, BatchSizeMismatch, FitsOnlyIf)
