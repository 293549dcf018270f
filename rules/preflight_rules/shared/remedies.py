"""Fixes for too much GPU memory: settings that keep the run the same first, then the others.

Values are found by bisection over estimates, so a proposal fits by the same arithmetic as the finding.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

from preflight.api import (
    Case,
    Change,
    Edit,
    Job,
    Origin,
    Proposal,
    Safety,
    Span,
    changed,
    divisors,
    gib,
    largest,
    possible,
    settable,
    written,
)
from preflight_rules.shared.same_run import accumulation_hazard, checkpointing_hazard, division, statistics_hazard

EVALUATION = ("validation", "generation")
"""Phases whose memory the validation settings decide."""
LENGTH_STEP = 64
"""Sequence lengths are proposed in multiples of this: tensor cores want multiples of 8 in half precision, and of 64 on
an A100 (NVIDIA, Matrix Multiplication Background User's Guide)."""
RESUMES = "train.resumes"
"""The Job field for how the checkpoint is loaded that training resumes from."""

Changes = Mapping[str, object]


def fits(case: Case, changes: Changes) -> bool:
    """Whether the whole interval of the device estimate is below the capacity after `changes`."""
    job = changed(case, changes)
    if case.may_fit(job) is False:
        return False
    device = case.estimate(job).device
    return device is not None and device.fitting


def largest_that_fits(case: Case, values: Sequence[int], changes: Callable[[int], Changes]) -> int | None:
    """The largest of ascending `values` with whose changes the job fits."""
    return largest(values, lambda n: fits(case, changes(n)), lambda n: case.may_fit(changed(case, changes(n))))


LARGEST_MULTIPLE = 2**16
"""Above this, only powers of two are proposed as batch sizes."""


def usual_batches(limit: int) -> list[int]:
    """Batch sizes below a limit that people use: powers of two and multiples of 8."""
    powers = {2**n for n in range(limit.bit_length()) if 2**n < limit}
    return sorted(powers | set(range(8, min(limit, LARGEST_MULTIPLE), 8)))


def device_proposals(case: Case, batch: bool = True, others: bool = True) -> tuple[Proposal, ...]:
    """Proposals for the worst combination, the best first; `batch=False` if the states alone are too large.

    Each costs estimates (and a trace if no law is shipped for its setup), so the search stops at the first one that can
    be written: the safe ones first, then, if `others`, those that change the run.
    """
    base = evaluation_changes(case)
    found = []
    if base and fits(case, base):
        found.append(Proposal(f"evaluate with {_text(case.job, base)}", changes_of(base), Safety.safe))
    for proposal in _training(case, base, batch):
        found.append(proposal)
        if proposal.safety is Safety.safe and possible(case, proposal.changes):
            return tuple(sorted(found, key=_rank))
    written_already = any(possible(case, proposal.changes) for proposal in found)
    for proposal in _other_runs(case, base, batch) if others and not written_already else ():
        found.append(proposal)
        if possible(case, proposal.changes):
            break
    return tuple(sorted(found, key=_rank))


def _rank(proposal: Proposal) -> int:
    return 0 if proposal.safety is Safety.safe else 1


def changes_of(changes: Changes) -> tuple[Change, ...]:
    """Job fields with their new values as Changes."""
    return tuple(Change(field, value) for field, value in changes.items())  # type: ignore[arg-type]


def _text(job: Job, changes: Changes) -> str:
    words = []
    for field, value in changes.items():
        name = field.split(".")[-1] if not field.startswith("validation.") else field
        words.append(f"{name} {job.get(field)} -> {value}")
    return ", ".join(words)


def unsaved(case: Case) -> str:
    """What is lost where the validation does not fit, to end a message with; "" where that is not known."""
    return "; no checkpoint is written before the first validation" if case.fact("saves_late") is True else ""


def evaluation_changes(case: Case) -> Changes:
    """Changes that lower the peak of the evaluation: a smaller batch, else logits that move to the host more often."""
    device = case.estimates.device
    if device is None or device.phase not in EVALUATION or device.fitting:
        return {}
    if case.fact("eval_unbatched") is True:  # the batch is the set: less of it would evaluate fewer samples
        return {}

    def quiet(changes: Changes) -> bool:
        after = case.estimate(changed(case, changes)).device
        return after is not None and (after.fitting or after.phase not in EVALUATION)

    batch = case.job.validation.batch_size
    sizes: list[int] = []
    if batch is not None and settable(case, "validation.batch_size"):
        sizes = [2**n for n in range(batch.bit_length()) if 2**n < batch]
    found = largest(sizes, lambda size: quiet({"validation.batch_size": size}))
    if found is not None:
        return {"validation.batch_size": found}
    if case.job.validation.accumulates_logits and settable(case, "validation.eval_accumulation"):
        steps = [1, 2, 4, 8, 16, 32]
        found = largest(steps, lambda n: quiet({"validation.eval_accumulation": n}))
        if found is not None:
            return {"validation.eval_accumulation": found}
        both = [{"validation.batch_size": size, "validation.eval_accumulation": 1} for size in sizes]
        return largest(both, quiet) or {}
    return {}


def _training(case: Case, base: Changes, batch: bool) -> Iterator[Proposal]:
    """Outputs that are not kept; a smaller micro-batch at the same effective batch, gradient checkpointing, both; a
    leaner optimizer step; a cache that is emptied."""
    names = str(case.fact("kept_outputs") or "").replace(" ", ", ")
    deleted: Changes = {"train.outputs_kept": "no"} if names else {}
    before = f"delete {names} before the backward pass"
    if deleted and not possible(case, changes_of(deleted)):
        deleted = {}
    if deleted:
        yield from _in_loop(case, {**base, **deleted}, before)
    if batch:
        yield from smaller_batch(case, base)
    if not case.job.train.gradient_checkpointing and settable(case, "train.gradient_checkpointing"):
        yield from _checkpointing(case, base, batch)
    device = case.estimates.device
    if device is not None and device.phase.startswith("optimizer") and case.job.train.optimizer_impl == "foreach":
        changes = {**base, "train.optimizer_impl": "fused"}
        if settable(case, "train.optimizer_impl") and fits(case, changes):
            yield Proposal(
                "use the fused optimizer, which makes no copies of the parameters", changes_of(changes), Safety.safe
            )
    if case.job.train.empty_cache_every is None:
        title = "empty the cache after each step, which takes some time"
        yield from _in_loop(case, {**base, EMPTIED: 1}, title)
        if deleted:
            yield from _in_loop(case, {**base, **deleted, EMPTIED: 1}, f"{before}, and {title}")


EMPTIED = "train.empty_cache_every"


def _in_loop(case: Case, changes: Changes, title: str) -> Iterator[Proposal]:
    """A change of the loop that leaves the run as it is, with what it saves."""
    if not fits(case, changes):
        return
    before, after = case.estimates.device, case.estimate(changed(case, changes)).device
    if before is not None and after is not None:
        saved = max(before.process.expected - after.process.expected, before.process.high - after.process.high)
        yield Proposal(f"{title}: up to {gib(saved)} less", changes_of(changes), Safety.safe)


def _checkpointing(case: Case, base: Changes, batch: bool) -> Iterator[Proposal]:
    changes = {**base, "train.gradient_checkpointing": True}
    if fits(case, changes):
        hazard = checkpointing_hazard(case)
        safety = Safety.unsafe if hazard else Safety.safe
        yield Proposal("turn gradient checkpointing on", changes_of(changes), safety, hazard)
    elif batch:
        yield from smaller_batch(case, changes)


def smaller_batch(case: Case, base: Changes) -> Iterator[Proposal]:
    """The largest micro-batch that fits, with accumulation raised so that the product stays exactly the same."""
    batch, accumulation = case.job.train.batch_size, case.job.train.grad_accum
    if batch is None or accumulation is None or not settable(case, "train.batch_size"):
        return
    nominal = case.fact("nominal_batch")
    if isinstance(nominal, int) and nominal % batch == 0:
        yield from _nominal_batch(case, base, batch, nominal, [n for n in divisors(nominal) if n < batch])
        return
    total = batch * accumulation

    def same_run(size: int) -> Changes:
        return _same_run(case, base, size, total)

    accumulates = settable(case, "train.grad_accum") or case.fact("accumulation_supported") is True
    words = f"batch {batch} -> "
    if accumulates:
        size = largest_that_fits(case, [n for n in divisors(total) if n < batch], same_run)
        hazard = accumulation_hazard(case)
        if size is not None:
            title = f"{words}{size}, accumulation {accumulation} -> {total // size}: the effective batch stays {total}"
            safety = Safety.unsafe if hazard else Safety.safe
            changes = (*changes_of(same_run(size)), *division(case))
            yield Proposal(_with_base(title, base), changes, safety, hazard)
            return
    size = largest_that_fits(case, usual_batches(batch), lambda n: {**base, "train.batch_size": n})
    if size is not None:
        reason = f"the effective batch falls from {total} to {size * accumulation}"
        alone = {**base, "train.batch_size": size}
        yield Proposal(_with_base(f"{words}{size}", base), changes_of(alone), Safety.unsafe, reason)


def solved_batch(case: Case, most: int) -> Iterator[Proposal]:
    """The largest micro-batch up to `most` that keeps the effective batch, then `most` itself with another one."""
    batch, accumulation = case.job.train.batch_size, case.job.train.grad_accum
    if batch is None or accumulation is None or not settable(case, "train.batch_size"):
        return
    nominal = case.fact("nominal_batch")
    total = batch * accumulation
    if isinstance(nominal, int) and nominal % batch == 0:
        sizes = [n for n in (*divisors(nominal), nominal) if (batch < n if most > batch else n < batch) and n <= most]
        yield from _nominal_batch(case, {}, batch, nominal, sizes)
    elif settable(case, "train.grad_accum") or case.fact("accumulation_supported") is True:
        sizes = [n for n in (*divisors(total), total) if n <= most]
        judged = case.estimates.device is not None and case.estimates.device.verdict != "unknown"
        if judged:
            size = largest_that_fits(case, sizes, lambda n: _same_run(case, {}, n, total))
        else:  # nothing is known of what fits: the caller knows why it asks for no more than this
            size = sizes[-1] if sizes else None
        if size == batch:
            return  # the largest that keeps the effective batch is written already
        if size is not None:
            hazard = accumulation_hazard(case)
            title = (
                f"batch {batch} -> {size}, accumulation {accumulation} -> {total // size}: "
                f"the effective batch stays {total}"
            )
            safety = Safety.unsafe if hazard else Safety.safe
            yield Proposal(title, (*changes_of(_same_run(case, {}, size, total)), *division(case)), safety, hazard)
    reason = f"the effective batch changes from {total} to {most * accumulation}"
    yield Proposal(f"batch {batch} -> {most}", changes_of({"train.batch_size": most}), reason=reason)


def solved_evaluation(case: Case, most: int) -> Iterator[Proposal]:
    """Another batch of the evaluation, whose results stay the same."""
    if settable(case, "validation.batch_size"):
        changes = {"validation.batch_size": most}
        yield Proposal(f"evaluate with {_text(case.job, changes)}", changes_of(changes), Safety.safe)


def _same_run(case: Case, base: Changes, size: int, total: int) -> Changes:
    """A batch with the accumulation that keeps the product, or the batch alone if the program computes the accumulation
    (`accumulation = total // batch`)."""
    alone: dict[str, object] = {**base, "train.batch_size": size}
    if changed(case, alone).train.grad_accum == total // size:
        return alone
    return {**alone, "train.grad_accum": total // size}


def _nominal_batch(case: Case, base: Changes, batch: int, nominal: int, sizes: Sequence[int]) -> Iterator[Proposal]:
    """Another batch of `sizes` for a framework that accumulates to its nominal batch. The run stays the same if it
    divides that batch and no layer has batch statistics."""
    size = largest_that_fits(case, sizes, lambda n: {**base, "train.batch_size": n})
    if size is not None:
        title = f"batch {batch} -> {size}: the framework accumulates to {nominal} by itself"
        changes = {**base, "train.batch_size": size}
        hazard = statistics_hazard(case)
        safety = Safety.unsafe if hazard else Safety.safe
        yield Proposal(_with_base(title, base), changes_of(changes), safety, hazard)


def _with_base(title: str, base: Changes) -> str:
    extra = [f"{field.split('.', 1)[1]} {value}" for field, value in base.items()]
    return ", ".join([title, *extra])


def _other_runs(case: Case, base: Changes, batch: bool) -> Iterator[Proposal]:
    """Changes that fit and make another run: length, precision, optimizer."""
    train = case.job.train
    if batch and train.seq_len is not None and written(case, "train.seq_len"):
        lengths = range(LENGTH_STEP, train.seq_len, LENGTH_STEP)
        found = largest_that_fits(case, lengths, lambda n: {**base, "train.seq_len": n})
        if found is not None:
            changes: dict[str, object] = {**base, "train.seq_len": found}
            title = f"length {train.seq_len} -> {found}"
            yield Proposal(_with_base(title, base), changes_of(changes), reason="longer samples are cut")
    half = "bf16-mixed" if case.gpu is None or case.gpu.compute_capability >= (8, 0) else "fp16-mixed"
    if train.precision == "fp32" and settable(case, "train.precision"):
        changes = {**base, "train.precision": half}
        if fits(case, changes):
            title = _with_base(f"precision fp32 -> {half}", base)
            yield Proposal(title, changes_of(changes), reason="the arithmetic is less precise")
    if train.optimizer == "adamw" and settable(case, "train.optimizer"):
        changes = {**base, "train.optimizer": "adamw-8bit"}
        if fits(case, changes):
            title = _with_base("optimizer adamw -> adamw-8bit", base)
            yield Proposal(title, changes_of(changes), reason="the optimizer states are kept in 8 bits")


def checkpoint_decides(case: Case) -> bool:
    """Whether the job fits if its checkpoint is loaded to the host."""
    if case.job.train.resumes not in ("device", "kept"):
        return False
    device = case.estimate(changed(case, {RESUMES: "host"})).device
    return device is not None and device.fitting


def load_by_host(case: Case, origin: Origin) -> Iterator[Proposal]:
    """`map_location="cpu"` in the call that loads the checkpoint."""
    text = case.project.source(origin.path).text[origin.span.start : origin.span.end]
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        return
    if not origin.editable or not isinstance(call, ast.Call) or "\n" in text:
        return
    given = next((one.value for one in call.keywords if one.arg == "map_location"), None)
    given = given if given is not None or len(call.args) < 2 else call.args[1]
    start = origin.span.start
    if given is None:
        end = start + len(text) - 1
        edit = Edit(origin.path, Span(end, end), ', map_location="cpu"')
    else:
        # Columns are bytes of UTF-8; a call that has others is left alone.
        if not text.isascii() or given.end_col_offset is None:
            return
        edit = Edit(origin.path, Span(start + given.col_offset, start + given.end_col_offset), '"cpu"')
    yield Proposal('map_location="cpu"', safety=Safety.safe, edits=(edit,))
