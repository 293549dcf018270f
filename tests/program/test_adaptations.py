"""What programs do to keep less: fused losses, optimizers in backward, offloaded activations, several GPUs at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import facts, read_program, text_at, values

from preflight.vocabulary.values import Value

LOOP = """
import torch
{head}
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
for batch in loader:
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
"""
HOOKS = """
import torch
optimizers = {p: torch.optim.Adam([p], foreach=False) for p in model.parameters()}

def hook(parameter):
    %s

for p in model.parameters():
    p.register_post_accumulate_grad_hook(hook)
for batch in loader:
    model(batch).sum().backward()
"""
LIGER = "from liger_kernel.transformers import {0}\n{0}({1})"


@pytest.mark.parametrize(
    ("head", "loss"),
    [
        (LIGER.format("apply_liger_kernel_to_llama", ""), "fused"),
        (LIGER.format("apply_liger_kernel_to_qwen2", "rope=True, fused_linear_cross_entropy=False"), "full"),
        (LIGER.format("LigerFusedLinearCrossEntropyLoss", ""), "fused"),
        ("from liger_kernel.transformers import AutoLigerKernelForCausalLM\n"
         "m = AutoLigerKernelForCausalLM.from_pretrained('gpt2')", "fused"),
        ("from cut_cross_entropy import linear_cross_entropy\nx = linear_cross_entropy(h, w, y)", "fused"),
        ("from torchtune.modules.loss import CEWithChunkedOutputLoss\nl = CEWithChunkedOutputLoss()", "chunked-output"),
        (LIGER.format("LigerRMSNorm", "64"), None),
        ("from mine import linear_cross_entropy\nx = linear_cross_entropy(h, w, y)", None),
    ],
)  # fmt: skip
def test_losses_without_whole_logits(head: str, loss: str | None, tmp_path: Path) -> None:
    assert values(read_program(LOOP.format(head=head), tmp_path)).get("train.loss") == loss


@pytest.mark.parametrize(
    ("head", "kernels"),
    [
        (LIGER.format("apply_liger_kernel_to_llama", ""), ("liger", "norm", "rope", "mlp")),
        (LIGER.format("apply_liger_kernel_to_gemma", "rope=False, geglu=False"), ("liger", "norm")),
        (LIGER.format("LigerRMSNorm", "64"), None),
    ],
)
def test_what_liger_replaces(head: str, kernels: tuple[str, ...] | None, tmp_path: Path) -> None:
    assert values(read_program(LOOP.format(head=head), tmp_path)).get("train.fused_kernels") == kernels


def test_a_loss_of_the_evaluation_says_nothing(tmp_path: Path) -> None:
    head = (
        "from cut_cross_entropy import linear_cross_entropy\nwith torch.no_grad():\n    linear_cross_entropy(h, w, y)"
    )
    assert "train.loss" not in values(read_program(LOOP.format(head=head), tmp_path))


@pytest.mark.parametrize(
    ("body", "found"), [("optimizers[parameter].step()", True), ("norms.append(parameter.grad.norm())", None)]
)
def test_a_hook_that_steps_is_an_optimizer_in_backward(body: str, found: bool | None, tmp_path: Path) -> None:
    reading = read_program(HOOKS % body, tmp_path)
    assert values(reading).get("train.optimizer_in_backward") is found
    if found:
        assert text_at(reading, "train.optimizer_in_backward", tmp_path).startswith("p.register_post_accumulate")


def test_lomo(tmp_path: Path) -> None:
    found = values(read_program(LOOP.format(head="from lomo_optim import AdaLomo\no = AdaLomo(m, lr=1)"), tmp_path))
    assert found["train.optimizer_in_backward"] is True


def test_activations_that_wait_in_host_memory(tmp_path: Path) -> None:
    text = LOOP.replace("    loss = model(batch).sum()", "    with torch.autograd.graph.save_on_cpu(pin_memory=True):\n"
                        "        loss = model(batch).sum()")  # fmt: skip
    reading = read_program(text.format(head=""), tmp_path)
    assert values(reading)["train.activation_offload"] is True
    assert "save_on_cpu" in text_at(reading, "train.activation_offload", tmp_path)


@pytest.mark.parametrize(
    ("call", "optimizer"),
    [
        ("bnb.optim.PagedLion8bit(p)", "paged-lion-8bit"), ("bnb.optim.LAMB(p)", "other"),
        ("bnb.optim.PagedAdamW32bit(p)", "paged-adamw"), ("torch.optim.RMSprop(p)", "rmsprop"),
        ("torch.optim.RMSprop(p, momentum=0.9)", "rmsprop-momentum"),
        ("torch.optim.RMSprop(p, momentum=0.9, centered=True)", "other"),
        ("torch.optim.RMSprop(p, momentum=0)", "rmsprop"),
        ("torch.optim.AdamW(p, amsgrad=True)", "adamw-amsgrad"),
        ("galore_torch.GaLoreAdamW8bit(p)", "galore-adamw-8bit"),
    ],
)  # fmt: skip
def test_optimizers_by_what_they_keep(call: str, optimizer: str, tmp_path: Path) -> None:
    text = f"import bitsandbytes as bnb\nimport galore_torch\nimport torch\nopt = {call}\nloss.backward()\n"
    assert values(read_program(text, tmp_path))["train.optimizer"] == optimizer


@pytest.mark.parametrize(
    ("head", "fact", "gpus"),
    [
        ("model = torch.nn.DataParallel(model, device_ids=[0, 1, 2])", None, 3),
        ("from transformers import AutoModel\nm = AutoModel.from_pretrained('gpt2', device_map='auto')",
         "device_map='auto'", None),
        ("from transformers import AutoModel\nm = AutoModel.from_pretrained('gpt2', device_map={'': 0})", None, None),
    ],
)  # fmt: skip
def test_one_process_on_several_gpus(head: str, fact: Value, gpus: Value, tmp_path: Path) -> None:
    reading = read_program(LOOP.format(head=head), tmp_path)
    assert facts(reading).get("one_process") == fact
    assert values(reading).get("parallel.gpus_per_node") == gpus


def test_checkpointing_by_hand(tmp_path: Path) -> None:
    head = "from torch.utils.checkpoint import checkpoint\nx = checkpoint(block, x, use_reentrant=False)"
    assert values(read_program(LOOP.format(head=head), tmp_path))["train.gradient_checkpointing"] is True
