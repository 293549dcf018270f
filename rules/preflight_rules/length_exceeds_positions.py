from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite

from msgspec import Struct

from preflight.api import (
    Axis,
    Box,
    BoxVerdict,
    Case,
    Change,
    Choices,
    Const,
    Example,
    Finding,
    Job,
    Origin,
    Positions,
    Proposal,
    Range,
    Rule,
    Safety,
    Severity,
    Value,
    evaluate,
    model_name,
    names,
    positions_of,
    related_of,
    with_fields,
)
from preflight_rules.shared.programs import LANGUAGE, LOOP
from preflight_rules.shared.texts import text_of

LONG = LANGUAGE.replace("default=2048", "default=65536")
SCALED = LONG.replace(
    "import torch\n", 'import torch\n\nrope_scaling = {"rope_type": "yarn", "factor": 2.0}\n', 1
).replace('Qwen2.5-0.5B")', 'Qwen2.5-0.5B", rope_scaling=rope_scaling)')


class LengthExceedsPositions(Rule):
    """Sequences are longer than the number of positions of the model.

    A model with a table of learned positions (BERT, GPT-2, RoBERTa) fails with an index error; on a GPU the error is a
    device-side assert that names another operation. A model with rotary positions runs, but outside the lengths that it
    was trained for: that is a warning, unless a file scales the rotary embedding (`rope_scaling`, Unsloth). The table
    of RoBERTa has two more entries than usable positions.

    The fix sets the length to the number of positions. In a search it drops the longer lengths. It is unsafe, because
    longer samples are cut.
    """

    name = "length-exceeds-positions"
    summary = "Sequences are longer than the model's positions"
    tags = ("configuration",)
    examples = (
        Example(
            "BERT has 512 positions",
            {"train.py": LOOP.replace("default=512", "default=1024")},
            fixed={"train.py": LOOP},
            unsafe=True,
            says=("length 1,024 exceeds the 512 positions of bert-base-uncased",),
        ),
        Example("512 are enough for 512", {"train.py": LOOP}, finds=0),
        Example(
            "Beyond the positions of a model with rotary ones",
            {"train.py": LONG},
            says=("runs outside the lengths it was trained for",),
        ),
        Example("The rotary embedding is scaled", {"train.py": SCALED}, finds=0),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        seen: set[Origin | None] = set()
        for verdict in case.space.boxes:
            longest = _longest(case, verdict.box)
            known = [(p, job) for job in _models(case, verdict) if (p := positions_of(job)) is not None]
            if longest is None or not known:
                continue
            positions, job = min(known, key=lambda pair: pair[0].usable)
            if longest.value > positions.usable and longest.origin not in seen and not _extended(case, job, positions):
                seen.add(longest.origin)
                yield self._finding(case, job, longest, positions)

    def _finding(self, case: Case, job: Job, longest: _Longest, positions: Positions) -> Finding:
        what = "fails with an index error" if positions.learned else "runs outside the lengths it was trained for"
        return self.finding(
            f"length {longest.value:,} exceeds the {positions.usable:,} positions of {model_name(job)}: it {what}",
            longest.origin,
            Severity.error if positions.learned else Severity.warning,
            settings=("train.seq_len", "model.name"),
            related=related_of(case, longest.origin, ("model.name", model_name(job))),
            label=f"at most {positions.usable:,}",
            proposals=_shorten(case, longest, positions.usable),
        )


_TABLE = re.compile(r"max_position_embeddings|n_positions|ignore_mismatched_sizes")
_ROTARY = re.compile(r"rope|rotary|yarn|unsloth|FastLanguageModel|FastModel|longlora|max_position_embeddings", re.I)


def _extended(case: Case, job: Job, positions: Positions) -> bool:
    """Whether the model may take longer sequences than its configuration says.

    A scaled rotary embedding does (`rope_scaling`), which Unsloth sets by itself for a longer `max_seq_length`
    (unsloth/models/llama.py, `FastLlamaModel.from_pretrained`). A program may resize a table of positions.
    """
    config = job.model.config or {}
    if config.get("rope_scaling") is not None:
        return True
    if positions.learned and job.model.name is None:
        return False  # its own dimensions say how long the table is
    return (_TABLE if positions.learned else _ROTARY).search(text_of(case)) is not None


class _Longest(Struct, frozen=True):
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
        if isinstance(length, int) or (isinstance(length, float) and isfinite(length)):
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
