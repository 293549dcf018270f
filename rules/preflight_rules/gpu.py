"""Rules about the memory of one GPU."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from preflight.engine.steady_states import states
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.findings import Confidence, Finding, Proposal, Safety, Severity
from preflight.vocabulary.rule import Case, Options, Rule
from preflight.vocabulary.values import Origin
from preflight_rules import gpu_examples, remedies, resumed
from preflight_rules.common import (
    bounds,
    describe,
    device_of,
    gib,
    gpu_name,
    largest,
    parts_of,
    related_of,
    several,
    severity_of,
    sum_of,
)

FIELDS = ("train.batch_size", "train.seq_len", "train.image_size", "model.name", "train.optimizer", "train.precision")


def states_of(case: Case, device: DeviceEstimate) -> dict[str, int]:
    """Bytes of weights, gradients and optimizer states when all three are there."""
    return states(case.job, device, case.estimate)


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
    """The line with most leverage: the evaluation batch where evaluation makes the peak, else the batch."""
    evaluated = ("validation.batch_size", "validation.samples") if device.phase in remedies.EVALUATION else ()
    first: tuple[str, ...] = {"resume": (resumed.FIELD,), "save": ("train.saves",)}.get(device.phase, evaluated)
    vocabulary = ("train.vocab_size",) if fills_with_logits(device) else ()
    return case.origin(*first, *vocabulary, *FIELDS)


def _advice(case: Case, device: DeviceEstimate) -> tuple[str, ...]:
    advice = []
    if device.phase in remedies.EVALUATION and case.job.validation.generates and case.job.task == "diffusion":
        return ("generate the images in a run of their own, from what this one saves",)
    if device.phase in remedies.EVALUATION:
        advice.append("evaluation keeps no activations for backward: a smaller evaluation batch gives the same figures")
        if case.job.validation.accumulates_logits:
            advice.append("logits of the whole set are kept: eval_accumulation_steps moves them to the host in between")
        return tuple(advice)
    if device.largest_batch_size == 0:
        advice.append("not even a batch of 1 fits")
    elif device.largest_batch_size is not None:
        advice.append(f"the largest batch that fits is {device.largest_batch_size}")
    hazard = remedies.accumulation_hazard(case)
    if hazard:
        advice.append(f"accumulation is not the same run here: {hazard}")
    elif case.fact("nominal_batch") is None and device.largest_batch_size != 0 and (case.job.train.batch_size or 1) > 1:
        advice.append("take a smaller batch and raise accumulation by the same factor: the run stays the same")
    if not case.job.train.gradient_checkpointing:
        advice.append("gradient checkpointing recomputes activations instead of keeping them")
    return tuple(advice)


def _evaluated(case: Case, device: DeviceEstimate) -> str:
    """The numbers that evaluation's peak hangs on: " (batch 64, logits of 2,000 samples kept)"."""
    validation = case.job.validation
    if device.phase not in remedies.EVALUATION:
        return ""
    words = [] if validation.batch_size is None else [f"batch {validation.batch_size}"]
    if validation.accumulates_logits and validation.samples is not None:
        words.append(f"logits of {validation.samples:,} samples kept")
    return f" ({', '.join(words)})" if words else ""


def _need(case: Case, device: DeviceEstimate) -> str:
    low, expected, high = bounds(device.process)
    capacity = gib(device.capacity or 0)
    return (
        f"{describe(case.job)} needs {gib(expected)} ({gib(low)} to {gib(high)}) of the {capacity} that "
        f"{gpu_name(case)} gives, at {device.phase}{_evaluated(case, device)}"
    )


def _finding(
    case: Case, device: DeviceEstimate, rule: str, message: str, proposals: tuple[Proposal, ...], label: str
) -> Finding:
    severity, confidence = severity_of(device.process, device.capacity) or (Severity.warning, Confidence.low)
    origin = blame(case, device)
    words = [(field, f"{field.split('.')[-1]} {case.job.get(field)}") for field in FIELDS]
    return Finding(
        rule=rule,
        severity=severity,
        confidence=confidence,
        message=message,
        origin=origin,
        settings=FIELDS,
        related=related_of(case, origin, *words),
        label=label,
        notes=evidence(case, device),
        help=_advice(case, device),
        parts=parts_of(device.breakdown),
        interval=bounds(device.process),
        capacity=device.capacity,
        tier="device",
        proposals=proposals,
    )


def proposals_of(case: Case, device: DeviceEstimate) -> tuple[Proposal, ...]:
    """Remedies, the safe ones first; a smaller vocabulary before a smaller batch where the vocabulary is the cause."""
    loaded = case.origin(resumed.FIELD) if resumed.decides(case) else None
    if loaded is not None:
        return tuple(resumed.by_host(case, loaded))
    found, capped = remedies.device_proposals(case), tuple(remedies.cap_vocabulary(case))
    safe = tuple(proposal for proposal in found if proposal.safety is Safety.safe)
    unsafe = tuple(proposal for proposal in found if proposal.safety is Safety.unsafe)
    return (*safe, *capped, *unsafe) if fills_with_logits(device) else (*safe, *unsafe, *capped)


def fills_with_logits(device: DeviceEstimate) -> bool:
    """Whether a tensor over the vocabulary is the largest of all."""
    largest = device.largest_allocation
    return largest is not None and is_logits(largest.where, largest.product)


class GpuMemoryExceeded(Rule):
    """The job needs more memory than its GPU can give, so it will stop with `CUDA out of memory`.

    The estimate is the highest moment of the run: loading, forward, backward, optimizer step, validation, generation
    or saving, plus the CUDA context. The message has the bound values, the need with its interval, and what the GPU
    really gives (less than its nameplate); the notes say at which phase and module the peak sits, what the states of
    the optimizer take, and which single allocation is the largest.

    It matters because such a run often dies late: the states of Adam appear at the first optimizer step, evaluation
    comes after the first epoch.

    The fix that keeps the run the same is a smaller micro-batch with accumulation raised so that their product stays
    exactly what it was. Where that is another run (batch normalisation, a contrastive loss, a swept batch, a mean over
    tokens in a hand-written loop, a scheduler stepped per micro-batch) it is offered as unsafe, with the reason.
    Gradient checkpointing comes next; then, unsafe, a shorter length, a lower precision, an 8-bit optimizer.
    """

    name = "gpu-memory-exceeded"
    summary = "The job needs more memory than its GPU can give"
    examples = gpu_examples.EXCEEDED

    def check(self, case: Case) -> Iterator[Finding]:
        device = device_of(case)
        if device is None or device.verdict != "exceeds" or several(case) or _states_alone(case, device):
            return
        yield _finding(case, device, self.name, _need(case, device), proposals_of(case, device), "does not fit")


class GpuMemoryTight(Rule):
    """The job is expected to fit, but the high end of the estimate lies above what the GPU can give.

    Nine runs of ten lie within the interval: this one may stop with `CUDA out of memory`, most likely through
    fragmentation of the caching allocator, late in the run.

    It is repaired as `gpu-memory-exceeded` is; `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` often suffices.
    """

    name = "gpu-memory-tight"
    summary = "The job may or may not fit its GPU"
    examples = gpu_examples.TIGHT

    def check(self, case: Case) -> Iterator[Finding]:
        device = device_of(case)
        if device is None or device.verdict != "at-risk" or several(case):
            return
        finding = _finding(case, device, self.name, _need(case, device), remedies.device_proposals(case), "may not fit")
        yield finding


def _states_alone(case: Case, device: DeviceEstimate) -> bool:
    if device.capacity is None or device.verdict == "fits":  # what fits with its activations fits without
        return False
    return sum(states_of(case, device).values()) > device.capacity


class StatesExceedGpu(Rule):
    """Weights, gradients and optimizer states alone are larger than the GPU: no batch is small enough.

    With Adam in fp32, 16 bytes per trained parameter: weights 4, gradients 4, two moments of 4 each. Halving the batch
    does nothing here: such runs die at the very same allocation after it.

    What helps: sharding the states over GPUs (ZeRO, FSDP), training an adapter (LoRA) instead of all weights, an 8-bit
    optimizer, offloading, a smaller model. The fix offered is the one of these that the files can express; it is
    another run, hence unsafe.
    """

    name = "states-exceed-gpu"
    summary = "Weights, gradients and optimizer states alone exceed the GPU"
    examples = gpu_examples.STATES

    def check(self, case: Case) -> Iterator[Finding]:
        device = device_of(case)
        if device is None or several(case) or not _states_alone(case, device):
            return
        parts = states_of(case, device)
        at_least = "at least " if device.lower_bound else ""
        message = (
            f"{describe(case.job)}: weights, gradients and optimizer states alone take {at_least}"
            f"{gib(sum(parts.values()))} ({sum_of(parts)}) of the {gib(device.capacity or 0)} that {gpu_name(case)} "
            "gives; no smaller batch helps"
        )
        proposals = (*remedies.device_proposals(case, batch=False), *remedies.cap_vocabulary(case))
        origin = case.origin("model.name", "model.parameters", "train.vocab_size", "train.optimizer", *FIELDS)
        yield Finding(
            rule=self.name,
            severity=Severity.error,
            confidence=Confidence.high,
            message=message,
            origin=origin,
            settings=("model.name", "train.optimizer", "train.precision", "parallel.strategy"),
            label="its states alone do not fit",
            notes=evidence(case, device)[:1] + device.notes,
            help=_states_advice(case),
            parts=parts_of(device.breakdown),
            interval=bounds(device.process),
            capacity=device.capacity,
            tier="device",
            proposals=proposals,
        )


def _states_advice(case: Case) -> tuple[str, ...]:
    advice, train = [], case.job.train
    if case.job.parallel.strategy in ("none", "ddp", None):
        advice.append("shard the states over several GPUs (FSDP or ZeRO), or keep optimizer states in host memory")
    if train.peft.method:
        if (
            train.quantization.type == "none"
            and train.weights_dtype in (None, "fp32")
            and train.precision not in ("bf16", "fp16")
        ):
            advice.append("the frozen weights are kept in fp32: load them in bf16 (dtype=torch.bfloat16) or in 4 bits")
        return tuple(advice)
    advice.append("train an adapter (LoRA): gradients and optimizer states shrink to the adapter's")
    if train.optimizer in ("adamw", "adam"):
        advice.append("an 8-bit optimizer keeps 2 bytes of states per parameter instead of 8")
    return tuple(advice)


class LogitsOptions(Options):
    share: float = Field(0.25, gt=0, le=1, description="Share of the GPU above which one logits tensor is reported.")


class LogitsExceedGpu(Rule):
    """One tensor of logits (samples x length x vocabulary x bytes) is what fills the GPU.

    The output of a language model has a row as long as the vocabulary for each token. In fp32 it takes batch x length
    x vocabulary x 4 bytes, and the loss makes up to three copies of it: a tensor above a quarter of the GPU (option
    `share`) will not fit with its copies. It is the single allocation that most messages `Tried to allocate ...` name.

    What helps: a smaller micro-batch with accumulation (same run), a fused or chunked loss, evaluation in batches,
    moving evaluation logits to the host, a smaller vocabulary (another run; never below what your constraints state).
    """

    name = "logits-exceed-gpu"
    summary = "One tensor of logits is what fills the GPU"
    options = LogitsOptions
    examples = gpu_examples.LOGITS

    def check(self, case: Case) -> Iterator[Finding]:
        device = device_of(case)
        largest = None if device is None else device.largest_allocation
        if device is None or largest is None or device.capacity is None or device.verdict != "exceeds":
            return
        if several(case) and case.space.counts.fits:
            return
        share = case.options.share if isinstance(case.options, LogitsOptions) else LogitsOptions().share  # type: ignore[call-arg]
        if not is_logits(largest.where, largest.product) or largest.bytes < share * device.capacity:
            return
        message = (
            f"the largest single allocation is a tensor of logits: {largest.product} = {gib(largest.bytes)} of the "
            f"{gib(device.capacity)} that {gpu_name(case)} gives ({describe(case.job)})"
        )
        proposals = proposals_of(case, device)
        origin = case.origin("train.vocab_size", "validation.batch_size", *FIELDS)
        yield Finding(
            rule=self.name,
            severity=Severity.error,
            confidence=Confidence.high if largest.bytes > device.capacity else Confidence.medium,
            message=message,
            origin=origin,
            settings=("train.vocab_size", "train.batch_size", "train.seq_len"),
            label=f"{gib(largest.bytes)} at once",
            notes=evidence(case, device),
            help=("compute the loss in chunks (a fused linear cross-entropy), or evaluate in batches",),
            parts=parts_of(device.breakdown),
            interval=bounds(device.process),
            capacity=device.capacity,
            tier="device",
            proposals=proposals,
        )


def is_logits(where: str, product: str) -> bool:
    """Whether an allocation has a row over the vocabulary for each token: an embedding has not."""
    rows = "tokens" in product or "samples" in product or "length" in product
    return "vocabulary" in product and rows


def _samples_that_fit(case: Case) -> str:
    """How many samples fit at once, by powers of two, where their number is unknown; empty where that is not known."""
    if case.estimates.device is None or case.estimates.device.capacity is None:
        return ""

    def good(samples: int) -> bool:
        device = case.estimate(with_fields(case.job, {"validation.batch_size": samples})).device
        return device is not None and device.verdict == "fits"

    found = largest([2**n for n in range(MOST_SAMPLES)], good)
    if found is None or found == 2 ** (MOST_SAMPLES - 1):  # nothing fits, or nothing here grows with the samples
        return ""
    return f": {found:,} of them fit, {2 * found:,} do not"


MOST_SAMPLES = 21
"""Powers of two that are tried: a million samples at once is a whole data set."""


class EvalUnbatched(Rule):
    """A forward or generate call takes the whole evaluation set as one batch.

    Memory then grows with the size of the data set instead of a batch size: it works on a sample of the data and dies
    on all of it, after the first epoch. The message has the number of samples and the bytes where they are known.

    It is repaired in the program: loop over the samples in batches and concatenate the results on the host. The result
    is the same.
    """

    name = "eval-unbatched"
    summary = "The whole evaluation set is evaluated in one batch"
    examples = gpu_examples.EVALUATION

    def check(self, case: Case) -> Iterator[Finding]:
        if case.fact("eval_unbatched") is not True:
            return
        device = device_of(case)
        samples = case.fact("eval_samples") or case.job.validation.samples or case.job.validation.batch_size
        number = f"all {samples:,} samples" if isinstance(samples, int) else "all samples (their number is unknown)"
        need = None if device is None else max((device.phases.get(p, 0) for p in remedies.EVALUATION), default=0)
        if device is not None and need and isinstance(samples, int) and device.capacity is not None:
            if device.verdict == "fits":
                return
            severity = Severity.error if need > device.capacity else Severity.warning
            takes = f", which takes {gib(need)} of {gib(device.capacity)}"
        else:
            severity, takes = Severity.warning, _samples_that_fit(case)
        yield Finding(
            rule=self.name,
            severity=severity,
            confidence=Confidence.high if severity is Severity.error else Confidence.medium,
            message=f"evaluation runs {number} through the model in one batch{takes}",
            origin=case.study.facts["eval_unbatched"].origin,
            settings=("validation.batch_size", "validation.samples"),
            label="the whole set at once",
            help=("evaluate in batches (256, say) and concatenate the results on the host: they are the same",),
        )


RULES: tuple[type[Rule], ...] = (
    GpuMemoryExceeded,
    GpuMemoryTight,
    StatesExceedGpu,
    LogitsExceedGpu,
    EvalUnbatched,
    resumed.CheckpointOnGpu,
)
