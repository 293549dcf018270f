"""Calls that change what a step keeps: losses without whole logits, optimizers in backward, offloaded activations.

-> train.loss, train.optimizer_in_backward, train.activation_offload.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from preflight.program.bindings import bind, constant, under
from preflight.program.call_site import evaluates
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding
from preflight.vocabulary.values import Const, Expr

_FUSED = frozenset({
    "LigerFusedLinearCrossEntropyLoss", "LigerFusedLinearCrossEntropyFunction", "liger_fused_linear_cross_entropy",
    "linear_cross_entropy", "LinearCrossEntropy", "FusedLinearCrossEntropyLoss", "cce_patch",
})  # fmt: skip
"""Liger's loss and function, Apple's cut_cross_entropy, flash-linear-attention's: the head is part of the loss."""
_CHUNKED = frozenset({"CEWithChunkedOutputLoss", "chunked_cross_entropy"})
"""torchtune's and litgpt's: whole 16-bit logits, made fp32 piece by piece."""
_LIGER = ("liger_kernel.", "cut_cross_entropy", "fla.", "torchtune.", "litgpt.")
_KEPT = "fused_linear_cross_entropy"
_ENCODERS = ("bert", "roberta", "vit", "clip")
_LOMO = ("Lomo", "AdaLomo")


def offloading_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """Bindings of every such call; what belongs to an evaluation says nothing about training."""
    found: list[Binding] = []
    for record in records:
        if not evaluates(record):
            found += under(record.conditions, _loss(record) + _in_backward(record) + _offload(record))
    return found


def _loss(record: CallRecord) -> list[Binding]:
    """`apply_liger_kernel_to_llama()` and its kin; `AutoLigerKernelForCausalLM.from_pretrained(...)`; losses."""
    patches = record.method.startswith("apply_liger_kernel_to_") or record.method == "_apply_liger_kernel_to_instance"
    if patches and not any(name in record.method for name in _ENCODERS):
        asked = record.argument(_KEPT)
        return [bind("train.loss", Const("full" if asked is not None and constant(asked) is False else "fused",
                                         record.origin))]  # fmt: skip
    if "AutoLigerKernelForCausalLM" in record.name and record.method == "from_pretrained":
        return [bind("train.loss", Const("fused", record.origin))]
    if record.name.startswith(_LIGER):
        if record.method in _FUSED:
            return [bind("train.loss", Const("fused", record.origin))]
        if record.method in _CHUNKED:
            return [bind("train.loss", Const("chunked", record.origin))]
    return []


def _in_backward(record: CallRecord) -> list[Binding]:
    """`p.register_post_accumulate_grad_hook(step)`, where the hook steps an optimizer; LOMO's optimizers;
    torch's `_apply_optimizer_in_backward`."""
    hooked = record.method == "register_post_accumulate_grad_hook" and _steps(record)
    applied = record.method in ("_apply_optimizer_in_backward", "register_optim_in_bwd_hooks")
    lomo = record.method in _LOMO and record.name.startswith("lomo_optim")
    if not (hooked or applied or lomo):
        return []
    return [bind("train.optimizer_in_backward", Const(True, record.origin))]


def _steps(record: CallRecord) -> bool:
    """Whether the hook that is registered calls some `.step()`; one that cannot be seen is none."""
    callback = record.object("hook", 0)
    node = getattr(callback, "node", None)
    if node is None and isinstance(record.node, ast.Call) and record.node.args:
        node = record.node.args[0]
    return isinstance(node, ast.AST) and any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "step"
        for one in ast.walk(node)
    )


def _offload(record: CallRecord) -> list[Binding]:
    """A forward under torch.autograd.graph.save_on_cpu, torchtune's or TRL's OffloadActivations."""
    names = ("save_on_cpu", "OffloadActivations", "get_act_offloading_ctx_manager", "async_save_on_cpu")
    if record.method not in names:
        return []
    enabled: Expr | None = record.argument("enable_activation_offloading", 1)
    if record.method == "get_act_offloading_ctx_manager" and enabled is not None:
        return [bind("train.activation_offload", enabled)]
    return [bind("train.activation_offload", Const(True, record.origin))]
