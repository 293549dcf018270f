from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, Proposal, Rule, Value, device_of, several
from preflight_rules.shared import remedies
from preflight_rules.shared.gpu import (
    doubted,
    gpu_finding,
    is_doubted,
    logits_fill,
    proposals_of,
    states_alone,
)
from preflight_rules.shared.programs import LOOP, UNDIVIDED


class GpuMemoryExceeded(Rule):
    """The job needs more memory than its GPU can give, so it will stop with `CUDA out of memory`.

    The estimate is the highest moment of the run: loading, forward, backward, optimizer step, validation, generation
    or saving, plus the CUDA context. The message names the settings that decide the figure, the need with its interval,
    and the memory that the GPU really gives (less than its nameplate). The notes name the phase and the module of the
    peak, the size of the optimizer states, and the largest single allocation.

    Such a run often stops late: Adam creates its states in the first optimizer step, and evaluation follows the first
    epoch.

    If one tensor of logits takes a quarter of the GPU, `logits-exceed-gpu` reports the job instead, and if the states
    alone exceed it, `states-exceed-gpu`.

    A need that no GPU has, of a job that would fit with a small batch or a short length, is a warning. Probably the
    value is not what one GPU gets at a time, but a global batch, say, or a length in characters. The message names the
    field. The need of a model that the program builds itself, and that is estimated as the family it resembles, is a
    warning as well, and only where its whole interval is above the GPU.

    So is a need of samples that are cut at a length and padded to the longest of their batch, if the job would fit with
    an eighth of that length, or with 512 tokens. Nobody read how long the samples are. A length of 4,096 is often the
    context of the model, and longer than every sample.

    The first fix is a smaller micro-batch with more accumulation steps, so that their product stays the same. It is
    safe if the run stays the same. It is unsafe, and the finding says why, if the model has batch normalisation, the
    model is unknown, the loss is contrastive, the batch size is swept, a hand-written loop averages the loss over
    tokens, or the scheduler steps once per micro-batch. A loop that adds up losses without dividing them gets the
    division with it; if it adds up several already, the fix is unsafe.

    The next fix is gradient checkpointing. In a hand-written loop, `del outputs` before the backward pass and
    `torch.cuda.empty_cache()` after each step are fixes where they are enough, and the title says what each saves. The
    last ones are unsafe: a shorter length, a lower precision, an 8-bit optimizer.
    """

    name = "gpu-memory-exceeded"
    summary = "The job needs more memory than its GPU can give"
    tags = ("gpu-memory",)
    examples = (
        Example(
            "BERT in fp32 at batch 64 x 512 on 16 GB",
            {"train.py": LOOP},
            fixed={"train.py": LOOP.replace("default=64", "default=32").replace("default=1)", "default=2)")},
            says=("bert-base-uncased", "batch 64 x 512", "fp32", "adamw"),
            options={"gpu": "T4"},
        ),
        Example(
            "A loop that adds up losses: they are divided by their number first",
            {"train.py": UNDIVIDED},
            fixed={"train.py": LOOP.replace("default=64", "default=32").replace("default=1)", "default=2)")},
            says=("batch 64 x 512",),
            options={"gpu": "T4"},
        ),
        Example(
            "A batch that no GPU has the memory for",
            {"train.py": LOOP.replace("default=64", "default=1_000_000")},
            says=("is not plausible", "train.batch_size = 1000000"),
            options={"gpu": "T4"},
        ),
        Example("The same on 80 GB", {"train.py": LOOP}, finds=0, options={"gpu": "A100-80GB"}),
        Example("No GPU is stated: the report says what is needed", {"train.py": LOOP}, finds=0),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        device = device_of(case)
        if device is None or several(case):
            return
        if is_doubted(device):
            yield doubted(self, case, device)
        if device.verdict != "exceeds" or states_alone(case, device):
            return
        if logits_fill(device):
            return  # logits-exceed-gpu names the cause
        yield gpu_finding(self, case, device, proposals_of(case, device), "does not fit")

    def proposals_for(self, case: Case, field: str, value: Value) -> Iterator[Proposal]:
        if field == "train.batch_size" and isinstance(value, int):
            yield from remedies.solved_batch(case, value)
        elif field == "train.grad_accum" and isinstance(value, int):
            batch, steps = case.job.train.batch_size, case.job.train.grad_accum
            if batch is not None and steps is not None:
                yield from remedies.solved_batch(case, batch * steps // value)
        elif field == "validation.batch_size" and isinstance(value, int):
            yield from remedies.solved_evaluation(case, value)
