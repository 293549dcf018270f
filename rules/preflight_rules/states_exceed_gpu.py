from __future__ import annotations

from collections.abc import Iterator

from preflight.api import (
    Case,
    Confidence,
    Example,
    Finding,
    Rule,
    Severity,
    describe,
    device_of,
    gib,
    gpu_name,
    several,
    sum_of,
)
from preflight_rules.shared import remedies
from preflight_rules.shared.gpu import FIELDS, evidence, in_brief, states_alone, states_of
from preflight_rules.shared.programs import LANGUAGE, LOOP
from preflight_rules.shared.vocabulary_size import cap_vocabulary

LARGE = (
    LANGUAGE.replace("Qwen/Qwen2.5-0.5B", "mistralai/Mistral-7B-v0.1")
    .replace("default=16", "default=1")
    .replace(").cuda()", ", dtype=torch.float32).cuda()")  # transformers 5 would load the 16 bits that were saved
)


class StatesExceedGpu(Rule):
    """Weights, gradients and optimizer states alone are larger than the GPU: no batch is small enough.

    Adam in fp32 takes 16 bytes per trained parameter: 4 for the weight, 4 for the gradient, and 4 for each of two
    moments. A smaller batch does not help: the run stops at the same allocation.

    What helps: sharding the states over several GPUs (ZeRO, FSDP), training an adapter (LoRA) instead of all weights,
    an 8-bit optimizer, offloading, or a smaller model. The fix is the first of these that the files can express. It is
    unsafe, because it is another run.
    """

    name = "states-exceed-gpu"
    summary = "Weights, gradients and optimizer states alone exceed the GPU"
    tags = ("gpu-memory",)
    examples = (
        Example(
            "AdamW on all of a 7 B model: 16 bytes per parameter are 108 GiB",
            {"train.py": LARGE},
            says=("mistralai/Mistral-7B-v0.1", "no smaller batch helps"),
            options={"gpu": "A100-80GB"},
        ),
        Example("A small model", {"train.py": LOOP.replace("64", "8")}, finds=0, options={"gpu": "A100-80GB"}),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        device = device_of(case)
        if device is None or several(case) or not states_alone(case, device):
            return
        parts = states_of(case, device)
        at_least = "at least " if device.lower_bound else ""
        message = (
            f"{describe(case.job)}: weights, gradients and optimizer states alone take {at_least}"
            f"{gib(sum(parts.values()))} ({sum_of(parts)}) of the {gib(device.capacity or 0)} that {gpu_name(case)} "
            "gives; no smaller batch helps"
        )
        proposals = (*remedies.device_proposals(case, batch=False), *cap_vocabulary(case))
        origin = case.origin("model.name", "model.parameters", "train.vocab_size", "train.optimizer", *FIELDS)
        yield self.finding(
            message,
            origin,
            Severity.error,
            Confidence.high,
            estimate=device,
            settings=("model.name", "train.optimizer", "train.precision", "parallel.strategy"),
            label="the states of this model alone do not fit",
            headline=f"the states of the model alone take {at_least}{gib(sum(parts.values()))} of the "
            f"{gib(device.capacity or 0)} of {gpu_name(case)}, and no smaller batch helps: {in_brief(case.job)}",
            notes=evidence(case, device)[:1] + device.notes,
            help=_states_advice(case),
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
    advice.append("train an adapter (LoRA): only its weights have gradients and optimizer states")
    if train.optimizer in ("adamw", "adam"):
        advice.append("an 8-bit optimizer keeps 2 bytes of states per parameter instead of 8")
    return tuple(advice)
