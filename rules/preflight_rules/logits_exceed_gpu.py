from __future__ import annotations

from collections.abc import Iterator

from preflight.api import (
    Case,
    Confidence,
    Example,
    Finding,
    Rule,
    Severity,
    device_of,
    gib,
    gpu_name,
    several,
)
from preflight_rules.shared.gpu import blame, evidence, logits_fill, need_text, proposals_of, states_alone
from preflight_rules.shared.programs import LANGUAGE, LOOP


class LogitsExceedGpu(Rule):
    """One tensor of logits (samples x length x vocabulary x bytes) fills the GPU.

    A language model computes one value per entry of the vocabulary for each token. In fp32 this takes batch x length x
    vocabulary x 4 bytes, and the loss makes up to three copies of the tensor. A tensor above a quarter of the GPU
    therefore does not fit with its copies. The message `Tried to allocate ...` usually names this
    allocation.

    What helps: a smaller micro-batch with more accumulation steps (same run), a fused or chunked loss, evaluation in
    batches, moving the logits of the evaluation to the host, or a smaller vocabulary (another run, and never below what
    your constraints state).
    """

    name = "logits-exceed-gpu"
    summary = "One tensor of logits fills the GPU"
    tags = ("gpu-memory",)
    examples = (
        Example(
            "2,048 tokens x 16 samples x a vocabulary of 151,936",
            {"train.py": LANGUAGE},
            says=("tensor of logits", "151,936"),
            options={"gpu": "RTX 4090"},
        ),
        Example(
            "A classifier has none",
            {"train.py": LOOP.replace("64", "256")},
            finds=0,
            options={"gpu": "RTX 4090"},
        ),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        device = device_of(case)
        largest = None if device is None else device.largest_allocation
        if device is None or largest is None or device.capacity is None or not logits_fill(device):
            return
        if (several(case) and case.space.counts.fitting) or states_alone(case, device):
            return
        message = (
            f"the largest single allocation is a tensor of logits: {largest.product} = {gib(largest.bytes)} of the "
            f"{gib(device.capacity)} that {gpu_name(case)} gives; {need_text(case, device)}"
        )
        proposals = proposals_of(case, device)
        origin = blame(case, device)
        yield self.finding(
            message,
            origin,
            Severity.error,
            Confidence.high,
            estimate=device,
            settings=("train.vocab_size", "train.batch_size", "train.seq_len"),
            label=f"{gib(largest.bytes)} at once",
            headline=f"the logits alone take {gib(largest.bytes)} at once: {largest.product}",
            notes=evidence(case, device),
            help=("compute the loss in chunks (a fused linear cross-entropy), or evaluate in batches",),
            proposals=proposals,
        )
