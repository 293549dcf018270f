"""torchtune's recipes (0.6): `_component_` names what is built, everything has the one `dtype`.

Read from recipes/{full,lora}_finetune_{single_device,distributed}.py and torchtune/modules/loss.
"""

from __future__ import annotations

from preflight.frameworks.arguments import Arguments
from preflight.frameworks.litgpt import table, targets
from preflight.frameworks.shared import Found
from preflight.program.bindings import bind, when
from preflight.vocabulary.reading import Rank
from preflight.vocabulary.spelling import DTYPES, IMPLEMENTATIONS, OPTIMIZERS, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown, Value

_PARTS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "output_proj": "projection"}
_CHUNKED = ("CEWithChunkedOutputLoss", "LinearCrossEntropyLoss")
_PAIRS = ("DPOLoss", "RSOLoss", "IPOLoss", "SimPOLoss")
_DISTRIBUTED = ("fsdp_cpu_offload", "fsdp_reshard_after_forward", "custom_sharded_layers", "fsdp_sharding_strategy",
                "memory_efficient_fsdp_wrap", "tensor_parallel_dim", "data_parallel_shard_dim")  # fmt: skip
"""Settings that only the recipes for several GPUs have."""


def torchtune(args: Arguments) -> Found:
    """A recipe's file, with what the command line puts over it."""
    found = Found()
    found.default("software.torchtune", "unstated")
    _model(args.inner("model"), args, found)
    _batches(args, found)
    _optimizer(args, found)
    found.add("train.precision", spelled(args.get("dtype", "bf16"), DTYPES))
    found.add("train.gradient_checkpointing", args.get("enable_activation_checkpointing", False))
    found.add("train.activation_offload", args.get("enable_activation_offloading"))
    compiled = args.value("compile")
    found.add("train.compile", Const(bool(compiled) if not isinstance(compiled, Unknown) else compiled,
                                     args.origin("compile")))  # fmt: skip
    _loss(args.inner("loss"), found)
    _parallel(args, found)
    return found


def _model(model: Arguments, args: Arguments, found: Found) -> None:
    """The model by its builder's name; adapters and quantisation by the builder's name and arguments."""
    builder = _component(model)
    adapted = builder.startswith(("lora_", "qlora_", "dora_", "qdora_"))
    plain = builder.partition("_")[2] if adapted else builder
    place = model.origin("_component_")
    name = table()["torchtune"].get(plain)
    known = {key: model.get(key) for key in table()["dimensions"] if key in model}
    if name is not None:
        found.add("model.name", Const(name, place))
    elif "embed_dim" in known:
        found.add("model.architecture", Const("qwen2" if plain.startswith("qwen2") else "llama", place))
        for key, expr in known.items():
            found.add(f"model.config.{table()['dimensions'][key]}", expr)
    elif builder:
        found.add(
            "model.name",
            Const(Unknown(f"torchtune's {builder} is not a model that preflight knows", Cause.model_unknown), place),
        )
    found.default("task", "causal-lm")
    if adapted or "lora_rank" in model:
        _adapters(model, plain, builder.startswith(("dora_", "qdora_")), found)
        found.add("train.peft.dtype", spelled(args.get("dtype", "bf16"), DTYPES))
    if builder.startswith(("qlora_", "qdora_")) or model.value("quantize_base") is True:
        stated = model.origin("quantize_base") if "quantize_base" in model else place
        found.add("train.quantization.type", Const("nf4", stated))
        found.add("train.quantization.double_quant", Const(True, stated))  # torchao quantises the scales, too
        found.add("train.quantization.compute_dtype", spelled(args.get("dtype", "bf16"), DTYPES))
        found.add("train.quantization.upcast_rest", Const(False, stated))


def _adapters(model: Arguments, plain: str, dora: bool, found: Found) -> None:
    dora = dora or model.value("use_dora") is True
    found.add("train.peft.method", Const("dora" if dora else "lora", model.origin("_component_")))
    found.add("train.peft.r", model.get("lora_rank", 8))
    found.add("train.peft.dropout", model.get("lora_dropout", 0.0))
    given = model.value("lora_attn_modules")
    if isinstance(given, tuple):
        parts = [_PARTS[str(one)] for one in given if str(one) in _PARTS]
        parts += ["mlp"] if model.value("apply_lora_to_mlp") is True else []
        parts += ["head"] if model.value("apply_lora_to_output") is True else []
        found.add("train.peft.targets", Const(targets(plain, parts), model.origin("lora_attn_modules")))


def _batches(args: Arguments, found: Found) -> None:
    loss = _component(args.inner("loss"))
    batch = args.get("batch_size")
    if loss in _PAIRS:  # chosen and rejected go through together
        batch = Op("*", (batch, Const(2)), batch.origin)
        if "lora" not in _component(args.inner("model")):
            found.add("train.copies.reference", Const(1, args.inner("loss").origin("_component_")))
    found.add("train.batch_size", batch)
    found.add("train.grad_accum", args.get("gradient_accumulation_steps", 1))
    tokenizer, dataset = args.inner("tokenizer"), args.inner("dataset")
    packed = dataset.get("packed", False)
    length: Expr = tokenizer.get("max_seq_len")
    if "max_seq_len" not in tokenizer:
        length = Const(Unknown("samples are as long as the data: tokenizer.max_seq_len is not set", Cause.not_set))
    found.bindings.append(bind("train.seq_len", length, Rank.read, tokenizer.origin("max_seq_len")))
    found.add("train.sequences", when(packed, Const("packed"), Const("bound")), Rank.read)
    if "teacher_model" in args:
        teacher = Unknown("a teacher of another size is not modelled", Cause.not_modelled)
        found.add("train.copies.reference", Const(teacher, args.inner("teacher_model").origin("_component_")))
    if "dataset_val" in args and "run_val_every_n_steps" in args:
        found.add("validation.batch_size", args.get("batch_size_val") if "batch_size_val" in args else batch)


def _optimizer(args: Arguments, found: Found) -> None:
    optimizer = args.inner("optimizer")
    kind, place = _component(optimizer), optimizer.origin("_component_")
    if kind:
        name: Value = OPTIMIZERS.get(kind.lower(), "other")
        if kind == "SGD" and optimizer.value("momentum"):
            name = "sgd-momentum"
        found.add("train.optimizer", Const(name, place))
        if kind.lower() in IMPLEMENTATIONS:
            found.add("train.optimizer_impl", Const(IMPLEMENTATIONS[kind.lower()], place))
    for key, name in (("fused", "fused"), ("foreach", "foreach")):
        if optimizer.value(key) is True:
            found.add("train.optimizer_impl", Const(name, optimizer.origin(key)))
    if optimizer.value("foreach") is False and optimizer.value("fused") is not True:
        found.add("train.optimizer_impl", Const("for-loop", optimizer.origin("foreach")))
    found.add("train.optimizer_in_backward", args.get("optimizer_in_bwd"))


def _loss(loss: Arguments, found: Found) -> None:
    """Chunks of 16-bit logits, made fp32 one by one; Liger's, and nothing but the usual loss otherwise."""
    kind = _component(loss)
    if kind:
        how = "fused" if "Liger" in kind else "chunked" if kind in _CHUNKED else "full"
        found.add("train.loss", Const(how, loss.origin("_component_")))


def _parallel(args: Arguments, found: Found) -> None:
    """FSDP 2, where the recipe is one for several GPUs: by its own name, or by settings that only those have."""
    stated = next((key for key in _DISTRIBUTED if key in args), None)
    if stated is None and "distributed" not in str(args.value("method")):
        return
    found.add("parallel.strategy", Const("fsdp", args.origin(stated or "method")), Rank.read)
    found.default("parallel.options.fsdp_version", 2)
    found.add("parallel.tensor", args.get("tensor_parallel_dim"))
    found.add("parallel.options.reshard_after_forward", args.get("fsdp_reshard_after_forward"))
    if "custom_sharded_layers" in args:
        apart = args.value("custom_sharded_layers")
        ends = {"tok_embeddings", "output"} <= {*apart} if isinstance(apart, tuple) else False
        found.add("parallel.options.custom_sharded_layers", Const(ends, args.origin("custom_sharded_layers")))
    group = args.value("data_parallel_shard_dim")
    if isinstance(group, int) and group > 0:
        found.add("parallel.options.shard_group", args.get("data_parallel_shard_dim"))
    found.when_true(args, "fsdp_cpu_offload", "parallel.offload", "parameters")


def _component(part: Arguments) -> str:
    """The last name of a `_component_`; empty where there is none."""
    value = part.value("_component_")
    return value.rpartition(".")[2] if isinstance(value, str) else ""
