"""Functions that rows of calls.toml name (adapters, quantisation, compilation), and Liger's patches."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from preflight.program.arguments import Arguments
from preflight.program.bindings import (
    bind,
    constant,
    decides,
    first_origin,
    fold,
    is_constant,
    under,
    unless_unset,
    when,
)
from preflight.program.call_site import evaluates, words
from preflight.program.checkpoints import makes_model
from preflight.program.rows import FoundSettings
from preflight.python.objects import CallRecord, Container, to_expr
from preflight.vocabulary.notation import release
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.spelling import ATTENTION_IMPLEMENTATIONS, DTYPES, spelled
from preflight.vocabulary.standing import AS_SAVED
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

VLLM_SHARE = 0.9
"""`gpu_memory_utilization` (vllm, config/cache.py)."""
AUTO_DTYPE = (5,)
_OPTIONS = ("use_dora", "use_rslora", "modules_to_save", "bias")
_KEPT = "fused_linear_cross_entropy"
LIGER_PARTS = {"norm": ("rms_norm",), "rope": ("rope",), "mlp": ("swiglu", "geglu")}
"""Parts of `train.fused_kernels`, and what switches them off: parameters of Liger's patches, keys of its settings."""
_ENCODERS = ("bert", "roberta", "vit", "clip")
"""Parts of the names of Liger's patches for models that have no loss over a vocabulary."""


def quantization(args: Arguments, found: FoundSettings) -> None:
    """4-bit values are fp4 unless their type is given."""
    kind = when(args["load_in_8bit"], Const("int8"), Const("none")) if "load_in_8bit" in args else Const("none")
    if "load_in_4bit" in args:
        kind = when(args["load_in_4bit"], args.get("bnb_4bit_quant_type", "fp4"), kind)
    found.bindings.append(bind("train.quantization.type", kind, None, first_origin(kind) or args.origin("")))


def lora_options(args: Arguments, found: FoundSettings) -> None:
    """Further options of LoRA that are switched on."""
    options = {key: args.value(key) for key in _OPTIONS}
    given = {
        key: value for key, value in options.items() if not isinstance(value, Unknown) and value not in (None, False)
    }
    if given:
        found.bindings.append(bind("train.peft.options", Const(given)))


def compiled(args: Arguments, found: FoundSettings) -> None:
    """torch.compile(model), model.compile()."""
    record = args.call
    if record is not None and (record.name == "torch.compile" or words(record.name) & {"model", "net"}):
        found.add("train.compile", Const(True, record.origin))


def vllm(args: Arguments, found: FoundSettings) -> None:
    """`LLM(model, gpu_memory_utilization=0.9)`: training has what is left, unless the engine sleeps meanwhile."""
    if args.value("enable_sleep_mode") not in (None, False):
        return
    share = args.get("gpu_memory_utilization", VLLM_SHARE)
    left = fold(Op("round", (Op("-", (Const(1), share)), Const(6))), first_origin(share))
    found.bindings.append(bind("train.allocator.per_process_fraction", left, Rank.literal, args.origin("")))


def checkpointed(args: Arguments, found: FoundSettings) -> None:
    """`torch.utils.checkpoint.checkpoint(block, x)` in a model's forward. Behind a switch of the model that is not
    known, it is unknown: the call alone does not say that it is made."""
    record = args.call
    if record is None:
        return
    switched = any(isinstance(constant(one), Unknown) and not decides(one) for one in record.conditions)
    reason = Unknown("a switch of the model decides, which is not known", Cause.run_time)
    found.bindings.append(bind("train.gradient_checkpointing", Const(reason if switched else True, record.origin)))


def init_kwargs(args: Arguments, found: FoundSettings) -> None:
    """`model_init_kwargs={...}`: arguments of from_pretrained."""
    given = args.call.object("model_init_kwargs") if args.call is not None else None
    if isinstance(given, Container):
        found.bindings += dtype_and_attention({str(key): to_expr(value) for key, value in given.items.items()})


def dtype_and_attention(given: Mapping[str, Expr]) -> list[Binding]:
    """Type of the weights and attention, from arguments of from_pretrained."""
    found: list[Binding] = []
    dtype = given.get("dtype") or given.get("torch_dtype")
    if dtype is not None and constant(dtype) == "auto":
        found.append(
            Binding("train.weights_dtype", Const(AS_SAVED, first_origin(dtype)), Rank.read, first_origin(dtype))
        )
    elif dtype is not None and constant(dtype) is not None:
        auto = Op("==", (dtype, Const("auto")))
        expr = unless_unset(dtype, spelled(dtype, DTYPES))
        expr = expr if is_constant(dtype) else Op("if", (auto, Const(AS_SAVED), expr), dtype.origin)
        found.append(bind("train.weights_dtype", expr))
    attention = given.get("attn_implementation")
    if attention is not None and constant(attention) is not None:
        found.append(bind("train.attention", unless_unset(attention, spelled(attention, ATTENTION_IMPLEMENTATIONS))))
    return found


def loaded_as_saved(records: Sequence[CallRecord], version: str | None) -> list[Binding]:
    """train.weights_dtype is unknown if the release that is stated loads weights as they were saved, and no call says
    another type. Where no release is stated, whoever judges the job takes both."""
    stated = release(version)
    if stated is None or stated < AUTO_DTYPE:
        return []
    loading = [record for record in records if record.method == "from_pretrained" and makes_model(record)]
    silent = [record for record in loading if record.complete and not {"dtype", "torch_dtype"} & set(record.kwargs)]
    return [Binding("train.weights_dtype", Const(AS_SAVED, one.origin), Rank.default, one.origin) for one in silent]


def sentence_model(name: Expr) -> Expr:
    """The hub id; a name without an owner is a model of `sentence-transformers`."""
    value = constant(name)
    if not isinstance(value, str) or "/" in value:
        return name
    return Const(f"sentence-transformers/{value}", first_origin(name))


def hook(args: Arguments, found: FoundSettings) -> None:
    """`p.register_post_accumulate_grad_hook(step)`, if the function calls some `.step()`; one that cannot be seen does
    not count."""
    record = args.call
    if record is None:
        return
    node = getattr(record.object("hook", 0), "node", None)
    if node is None and isinstance(record.node, ast.Call) and record.node.args:
        node = record.node.args[0]
    attributes = (one.func for one in ast.walk(node) if isinstance(one, ast.Call)) if isinstance(node, ast.AST) else ()
    if any(isinstance(one, ast.Attribute) and one.attr == "step" for one in attributes):
        found.add("train.optimizer_in_backward", Const(True, record.origin))


def _is_off(record: CallRecord, names: Sequence[str]) -> bool:
    return any(constant(record.argument(name)) is False for name in names)


def liger_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """`apply_liger_kernel_to_llama()` and similar calls; `AutoLigerKernelForCausalLM.from_pretrained(...)`."""
    found: list[Binding] = []
    for record in records:
        patches = record.method.startswith(("apply_liger_kernel_to_", "_apply_liger_kernel_to_instance"))
        patches = patches and not any(name in record.method for name in _ENCODERS)
        loads = "AutoLigerKernelForCausalLM" in record.name and record.method == "from_pretrained"
        if (patches or loads) and not evaluates(record):
            whole = patches and constant(record.argument(_KEPT)) is False
            loss = bind("train.loss", Const("full" if whole else "fused", record.origin))
            parts = [part for part, names in LIGER_PARTS.items() if not (patches and _is_off(record, names))]
            kernels = bind("train.fused_kernels", Const(("liger", *parts), record.origin))
            found += under(record.conditions, [loss, kernels])
    return found
