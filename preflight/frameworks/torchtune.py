"""torchtune: rules that tables/torchtune.toml cannot express: models and adapters by builders, kinds of losses."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.frameworks.litgpt import table, targets
from preflight.program.arguments import Arguments
from preflight.program.bindings import constant, first_origin
from preflight.program.rows import FoundSettings
from preflight.vocabulary.spelling import DTYPES, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Unknown, Value

_PARTS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "output_proj": "projection"}
_CHUNKED = ("CEWithChunkedOutputLoss", "LinearCrossEntropyLoss")
_DISTRIBUTED = ("fsdp_cpu_offload", "fsdp_reshard_after_forward", "custom_sharded_layers", "fsdp_sharding_strategy",
                "memory_efficient_fsdp_wrap", "tensor_parallel_dim", "data_parallel_shard_dim")  # fmt: skip
"""Settings that only the recipes for several GPUs have."""


def is_recipe(top: Mapping[str, Value]) -> bool:
    """Recipes build a model and an optimizer by `_component_`; torchtune's other files generate or evaluate."""
    model, optimizer = top.get("model"), top.get("optimizer")
    if not isinstance(model, Mapping) or not isinstance(optimizer, Mapping):
        return False
    return str(model.get("_component_", "")).startswith("torchtune.") and "_component_" in optimizer


def completed(args: Arguments) -> Arguments:
    """The last names of what is built, and whether the recipe is one for several GPUs: by its own name, or by settings
    that only those have."""
    found: dict[str, Expr] = {}
    for part, name in (("model", "builder"), ("loss", "loss_name"), ("optimizer", "optimizer_name")):
        key = f"{part}._component_"
        kind = args.value(key)
        if isinstance(kind, str):
            found[name] = Const(kind.rpartition(".")[2], args.origin(key))
    stated = next((key for key in _DISTRIBUTED if key in args), None)
    if stated is not None or "distributed" in str(args.value("method")):
        found["distributed"] = Const(True, args.origin(stated or "method"))
    if "dataset_val" in args and "run_val_every_n_steps" in args:
        found["validates"] = Const(True)
    return args.completed(found)


def model(args: Arguments, found: FoundSettings) -> None:
    """The model by its builder's name; adapters and quantisation by the builder's name and arguments."""
    builder, place, model = str(args.value("builder") or ""), args.origin("builder"), args.inner("model")
    adapted = builder.startswith(("lora_", "qlora_", "dora_", "qdora_"))
    plain = builder.partition("_")[2] if adapted else builder
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
    if adapted or "lora_rank" in model:
        _adapters(model, plain, builder.startswith(("dora_", "qdora_")), found)
        found.add("train.peft.dtype", spelled(args.get("dtype", "bf16"), DTYPES))
    if builder.startswith(("qlora_", "qdora_")) or model.value("quantize_base") is True:
        stated = model.origin("quantize_base") if "quantize_base" in model else place
        found.add("train.quantization.type", Const("nf4", stated))
        found.add("train.quantization.double_quant", Const(True, stated))  # torchao quantises the scales, too
        found.add("train.quantization.compute_dtype", spelled(args.get("dtype", "bf16"), DTYPES))
        found.add("train.quantization.upcast_rest", Const(False, stated))


def _adapters(model: Arguments, plain: str, dora: bool, found: FoundSettings) -> None:
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


def reference(args: Arguments, found: FoundSettings) -> None:
    """A frozen copy of a model that is trained whole."""
    if "lora" not in str(args.value("builder")):
        found.add("train.copies.reference", Const(1, args.origin("loss_name")))


def loss(name: Expr) -> Expr:
    """chunked-output: 16-bit logits that are made fp32 chunk by chunk; fused: Liger's; else full."""
    kind = str(constant(name))
    return Const("fused" if "Liger" in kind else "chunked-output" if kind in _CHUNKED else "full", first_origin(name))


def both_ends(layers: Expr) -> Expr:
    """Whether the embeddings and the head are sharded apart from the blocks."""
    apart = constant(layers)
    ends = {"tok_embeddings", "output"} <= {*apart} if isinstance(apart, tuple) else False
    return Const(ends, first_origin(layers))
