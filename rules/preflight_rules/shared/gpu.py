"""Shared by the rules about one GPU: the evidence of an estimate, the line to blame, the finding."""

from __future__ import annotations

from msgspec.structs import replace

from preflight.api import (
    Case,
    Confidence,
    DeviceEstimate,
    Doubt,
    Finding,
    Job,
    Origin,
    Proposal,
    Rule,
    Safety,
    Severity,
    assumed,
    batch_text,
    describe,
    doubt_of,
    gib,
    gpu_name,
    model_name,
    related_of,
    steady_states,
    sum_of,
    with_fields,
)
from preflight_rules.shared import remedies
from preflight_rules.shared.same_run import accumulation_hazard
from preflight_rules.shared.vocabulary_size import cap_vocabulary

FIELDS = ("train.batch_size", "train.seq_len", "train.image_size", "model.name", "train.optimizer", "train.precision")


def states_of(case: Case, device: DeviceEstimate) -> dict[str, int]:
    """Bytes of weights, gradients and optimizer states while all three exist."""
    return steady_states(case.job, device, case.estimate)


def states_alone(case: Case, device: DeviceEstimate) -> bool:
    """Whether weights, gradients and optimizer states alone exceed the GPU: then `states-exceed-gpu` reports it.

    A batch of 1 has to exceed as well: its verdict knows of values that are not certain, as the type of the weights.
    """
    if device.capacity is None or device.verdict != "exceeds":  # what fits with its activations fits without
        return False
    if sum(states_of(case, device).values()) <= device.capacity:
        return False
    one = case.estimate(with_fields(case.job, {"train.batch_size": 1})).device
    return one is None or one.verdict == "exceeds"


def evidence(case: Case, device: DeviceEstimate) -> tuple[str, ...]:
    """Notes that prove a device figure: where the peak sits, the states, the largest allocation, the tiers."""
    notes = [f"the peak sits in {device.phase}" + (f" at {device.where}" if device.where else "")]
    states = states_of(case, device)
    notes.append(f"weights, gradients and optimizer states: {gib(sum(states.values()))} ({sum_of(states)})")
    largest = device.largest_allocation
    if largest is not None:
        notes.append(f"largest single allocation: {gib(largest.bytes)} = {largest.product}, at {largest.where}")
    if not device.lower_bound:
        tiers = [("requested", device.requested), ("allocated", device.allocated), ("reserved", device.reserved)]
        notes.append(", ".join(f"{name} {gib(tier.expected)}" for name, tier in tiers))
    return (*notes, *device.notes)


def blame(case: Case, device: DeviceEstimate) -> Origin | None:
    """The line that changes the peak most: the evaluation batch if evaluation makes the peak, else the batch."""
    evaluated = ("validation.batch_size", "validation.samples") if device.phase in remedies.EVALUATION else ()
    first: tuple[str, ...] = {"resume": (remedies.RESUMES,), "save": ("train.saves",)}.get(device.phase, evaluated)
    vocabulary = ("train.vocab_size",) if fills_with_logits(device) else ()
    return case.origin(*first, *vocabulary, *FIELDS)


def _advice(case: Case, device: DeviceEstimate) -> tuple[str, ...]:
    advice = []
    if device.phase in remedies.EVALUATION and case.job.validation.generates and case.job.task == "diffusion":
        return ("generate the images in a separate run, from the saved model",)
    if device.phase in remedies.EVALUATION:
        advice.append("use a smaller evaluation batch: the results of the evaluation stay the same")
        if case.job.validation.accumulates_logits:
            advice.append("the logits of the whole set stay on the GPU: eval_accumulation_steps moves them to the host")
        return tuple(advice)
    if device.largest_batch_size == 0:
        advice.append(
            "not even a batch of 1 fits" if device.verdict == "exceeds" else "a batch of 1 may not fit either"
        )
    elif device.largest_batch_size is not None:
        surely = "" if device.verdict == "exceeds" else " surely"
        advice.append(f"the largest batch that{surely} fits is {device.largest_batch_size}")
    hazard = accumulation_hazard(case)
    if hazard:
        advice.append(f"more accumulation steps would change the run: {hazard}")
    elif case.fact("nominal_batch") is None and device.largest_batch_size != 0 and (case.job.train.batch_size or 1) > 1:
        advice.append("use a smaller batch and raise the accumulation by the same factor: the run stays the same")
    if not case.job.train.gradient_checkpointing:
        advice.append("gradient checkpointing recomputes activations instead of keeping them")
    return tuple(advice)


def _evaluated(case: Case, device: DeviceEstimate) -> str:
    """The numbers that decide the peak of the evaluation: " (batch 64, logits of 2,000 samples kept)". And what is
    lost if it fails."""
    validation = case.job.validation
    if device.phase not in remedies.EVALUATION:
        return ""
    words = [] if validation.batch_size is None else [f"batch {validation.batch_size}"]
    if validation.accumulates_logits and validation.samples is not None:
        words.append(f"logits of {validation.samples:,} samples kept")
    others = max((need for phase, need in device.phases.items() if phase not in remedies.EVALUATION), default=0)
    lost = remedies.unsaved(case) if others <= (device.capacity or 0) else ""
    return (f" ({', '.join(words)})" if words else "") + lost


def need_text(case: Case, device: DeviceEstimate) -> str:
    size = device.process
    need = f"{gib(size.expected)} ({gib(size.low)} to {gib(size.high)})"
    if device.lower_bound:
        need = f"at least {gib(size.expected)}"
    return (
        f"{describe(case.job)} needs {need} of the {gib(device.capacity or 0)} that "
        f"{gpu_name(case)} gives, at {device.phase}{_evaluated(case, device)}"
    )


def in_brief(job: Job) -> str:
    """The model and the batch: "bert-large-uncased, batch 48 x 480"."""
    return f"{model_name(job)}, {batch_text(job)}"


def _headline(case: Case, device: DeviceEstimate) -> str:
    """The need without its figures; "" for a lower bound, whose figure has to be called one."""
    if device.lower_bound:
        return ""
    how = "does not fit" if device.verdict == "exceeds" else "may not fit"
    where = "" if device.phase in ("forward", "backward") else f"; the peak is in {device.phase}"
    return f"the job {how} {gpu_name(case)}: {in_brief(case.job)}{where}{_evaluated(case, device)}"


def gpu_finding(rule: Rule, case: Case, device: DeviceEstimate, proposals: tuple[Proposal, ...], label: str) -> Finding:
    """The need of a job against its GPU, as a finding of `rule`."""
    origin = blame(case, device)
    words = [(field, f"{field.split('.')[-1]} {case.job.get(field)}") for field in FIELDS]
    return rule.finding(
        need_text(case, device),
        origin,
        estimate=device,
        settings=FIELDS,
        related=related_of(case, origin, *words),
        label=label,
        headline=_headline(case, device),
        notes=evidence(case, device),
        help=_advice(case, device),
        proposals=proposals,
    )


def is_doubted(device: DeviceEstimate) -> bool:
    """Whether a need is too much with a value that is doubted (`Doubt`)."""
    return device.verdict == "at-risk" and bool(device.assumptions)


def doubted(rule: Rule, case: Case, device: DeviceEstimate) -> Finding:
    """A need that is doubted, with the field that causes it. A fix is proposed only where the value is certain."""
    fields = tuple(one.field for one in device.assumptions)
    doubt = doubt_of(device.assumptions)
    if doubt is Doubt.longest_samples:
        found = gpu_finding(rule, case, device, proposals_of(case, device), "may not fit")
        longest = f"{fields[0].split('.')[-1]} {case.job.get(fields[0])}: {device.assumptions[0].why}"
        stated = f"state the tokens of the longest sample: --set {fields[0]}=TOKENS"
        headline = (
            f"the job may not fit {gpu_name(case)} if a sample reaches {case.job.get(fields[0])} tokens: "
            f"{in_brief(case.job)}"
        )
        return replace(
            found,
            severity=Severity.warning,
            headline=headline,
            notes=(longest, *found.notes),
            help=(stated, *found.help),
        )
    need = f"the need of {gib(device.process.expected)} {doubt.value}"
    if doubt is Doubt.similar_model:
        label, advice = "an own class", "a dry run of the program tells its own need: preflight dry-run -- COMMAND"
    else:
        label = "is this what one GPU gets at a time?"
        advice = f"state what one GPU gets at a time: --set {fields[0]}=VALUE"
    return rule.finding(
        f"{need}: {assumed(device.assumptions)} ({describe(case.job)})",
        case.origin(*fields) or blame(case, device),
        Severity.warning,
        Confidence.low,
        estimate=device,
        settings=fields,
        label=label,
        notes=evidence(case, device),
        help=(advice,),
    )


def proposals_of(case: Case, device: DeviceEstimate) -> tuple[Proposal, ...]:
    """Fixes, the safe ones first; a smaller vocabulary before a smaller batch if the vocabulary is the cause."""
    loaded = case.origin(remedies.RESUMES) if remedies.checkpoint_decides(case) else None
    if loaded is not None:
        return tuple(remedies.load_by_host(case, loaded))
    found, capped = remedies.device_proposals(case), tuple(cap_vocabulary(case))
    safe = tuple(proposal for proposal in found if proposal.safety is Safety.safe)
    unsafe = tuple(proposal for proposal in found if proposal.safety is Safety.unsafe)
    return (*safe, *capped, *unsafe) if fills_with_logits(device) else (*safe, *unsafe, *capped)


def fills_with_logits(device: DeviceEstimate) -> bool:
    """Whether a tensor over the vocabulary is the largest of all."""
    largest = device.largest_allocation
    return largest is not None and is_logits(largest.where, largest.product)


LOGITS_SHARE = 0.25
"""The share of a GPU that one tensor of logits may take: the loss makes up to three copies of it."""


def logits_fill(device: DeviceEstimate) -> bool:
    """Whether a single tensor of logits is the cause of a peak that does not fit."""
    largest, capacity = device.largest_allocation, device.capacity
    if largest is None or capacity is None or device.verdict != "exceeds":
        return False
    return is_logits(largest.where, largest.product) and largest.bytes >= LOGITS_SHARE * capacity


def is_logits(where: str, product: str) -> bool:
    """Whether an allocation has one value per vocabulary entry for each token, as logits have and embeddings do not."""
    rows = "tokens" in product or "samples" in product or "length" in product
    return "vocabulary" in product and rows
