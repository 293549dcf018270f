from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, Rule, device_of, several
from preflight_rules.shared.gpu import gpu_finding, proposals_of, states_alone
from preflight_rules.shared.programs import LOOP


class GpuMemoryExceeded(Rule):
    """The job needs more memory than its GPU can give, so it will stop with `CUDA out of memory`.

    The estimate is the highest moment of the run: loading, forward, backward, optimizer step, validation, generation
    or saving, plus the CUDA context. The message has the bound values, the need with its interval, and what the GPU
    really gives (less than its nameplate); the notes say at which phase and module the peak sits, what the states of
    the optimizer take, and which single allocation is the largest.

    It matters because such a run often dies late: the states of Adam appear at the first optimizer step, evaluation
    comes after the first epoch.

    The fix that keeps the run the same is a smaller micro-batch with accumulation raised so that their product stays
    exactly what it was. Where that is another run (batch normalisation, a model that nothing is known of, a contrastive
    loss, a swept batch, a mean over tokens in a hand-written loop, a scheduler stepped per micro-batch) it is offered
    as unsafe, with the reason.
    Gradient checkpointing comes next; then, unsafe, a shorter length, a lower precision, an 8-bit optimizer.
    """

    name = "gpu-memory-exceeded"
    summary = "The job needs more memory than its GPU can give"
    examples = (
        Example(
            "BERT in fp32 at batch 64 x 512 on 16 GB",
            {"train.py": LOOP},
            fixed={"train.py": LOOP.replace("default=64", "default=32").replace("default=1)", "default=2)")},
            says=("bert-base-uncased", "batch 64 x 512", "fp32", "adamw"),
            options={"gpu": "T4"},
        ),
        Example("The same on 80 GB", {"train.py": LOOP}, finds=0, options={"gpu": "A100-80GB"}),
        Example("No GPU is stated: the report says what is needed", {"train.py": LOOP}, finds=0),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        device = device_of(case)
        if device is None or device.verdict != "exceeds" or several(case) or states_alone(case, device):
            return
        yield gpu_finding(self, case, device, proposals_of(case, device), "does not fit")
