"""Laws of models of images and text against direct traces at their full depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from small_pictures import CONFIGS

from preflight.memory.device.law.law import Laws
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import resolve
from preflight.memory.device.workloads import vision_language as pictures
from preflight.vocabulary.job import build

pytest.importorskip("transformers")
BASE: dict[str, object] = {"train.batch_size": 3, "train.seq_len": 352, "train.precision": "bf16-mixed",
                           "train.sequences": "exact"}  # fmt: skip
LORA = {"train.peft.method": "lora", "train.peft.targets": ["q_proj", "v_proj"], "train.peft.dropout": 0.05}
CHECKPOINTED = {"train.gradient_checkpointing": True}
SETUPS: dict[str, dict[str, object]] = {
    "full": {},
    "frozen tower": {"train.frozen": ["vision_tower"], **CHECKPOINTED},
    "lora": {**LORA, **CHECKPOINTED},
    "qlora": {**LORA, "train.quantization.type": "nf4", "train.quantization.compute_dtype": "bf16",
              "train.peft.targets": "all-linear"},
    "padded fp16": {"train.sequences": "bound", "train.precision": "fp16-mixed", "train.weights_dtype": "fp16"},
    "two images": {"train.images": 2, "train.seq_len": 480},
    "text alone": {"train.images": 0, "train.precision": "bf16"},
    "flash": {"train.attention": "flash", "train.weights_dtype": "bf16"},
    "eager": {"train.attention": "eager", "train.frozen": ["vision", "projector"]},
}  # fmt: skip


def resolved(architecture: str, **changes: object) -> Resolved:
    config, side = CONFIGS[architecture]
    named = {"model.architecture": architecture, "model.config": config, "train.image_size": side}
    found = resolve(build({**BASE, **named, **changes}))
    assert isinstance(found, Resolved), found
    return found


def run(requests: Any) -> list[dict[str, Any]]:
    from preflight.tracer import steps

    return [steps.trace(one) for one in requests]


def direct(asked: Resolved, kind: str = "train") -> dict[str, Any]:
    """A trace of the job itself."""
    (reply,) = run([asked.request(kind).at(asked.lengths)])
    return reply


def peak(reply: dict[str, Any]) -> int:
    live = most = 0
    for value, _ in reply["events"]:
        live += value if value >= 0 else -reply["events"][-1 - value][0]
        most = max(most, live)
    return most


CHECKED = {("llava", setup) for setup in SETUPS} | {("qwen2_vl", "full"), ("qwen2_5_vl", "lora"), ("paligemma", "lora")}
"""What every run of all checks traces; the others take half an hour."""


def law_is_the_trace(asked: Resolved, free: Sequence[str] = pictures.FREE) -> None:
    law, reply, dims = Laws.of(asked.workload.make(asked, "train", run, free), False), direct(asked), asked.all_dims
    assert law.plain.peak(dims).bytes == peak(reply)
    sizes = law.made.parameters.sizes(law.made.tape.depths, dims)
    assert sum(n for n, _, _ in sizes) == sum(row[2] for row in reply["parameters"])
    assert sum(n for n, _, trains in sizes if trains) == sum(row[2] for row in reply["parameters"] if row[3])


@pytest.mark.slow
def test_a_law_is_the_trace_of_the_whole_model() -> None:
    law_is_the_trace(resolved("llava", **SETUPS["lora"]), ("b",))


@pytest.mark.parametrize(
    ("architecture", "setup"),
    [
        pytest.param(
            architecture, setup, marks=pytest.mark.slow if CHECKED & {(architecture, setup)} else pytest.mark.exhaustive
        )
        for architecture in CONFIGS
        for setup in SETUPS
    ],
)
def test_every_architecture(architecture: str, setup: str) -> None:
    law_is_the_trace(resolved(architecture, **SETUPS[setup]))


@pytest.mark.slow
def test_adapters_stand_where_peft_puts_them() -> None:
    """`get_nb_trainable_parameters()` as smollm's notebook prints it (finetuning/Smol_VLM_FT.ipynb): layers of these
    names are in the tower as well."""
    from preflight.tracer import models

    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    stated = {"train.peft.method": "lora", "train.peft.r": 8, "train.peft.targets": targets, "train.seq_len": 2048}
    asked = resolve(build({**BASE, **stated, "model.name": "HuggingFaceTB/SmolVLM-Base"}))
    assert isinstance(asked, Resolved), asked
    parameters = list(models.build(asked.workload.wire(), asked.setup.wire({"r": 8})).parameters())
    assert sum(p.numel() for p in parameters if p.requires_grad) == 10_536_960
    assert sum(p.numel() for p in parameters) == 2_256_809_840
