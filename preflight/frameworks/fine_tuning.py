"""LLaMA-Factory, ms-swift, axolotl, Unsloth and transformers' example scripts: what their tables cannot express.

The first two and the last pass transformers' own arguments on, with defaults and rules of their own.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from preflight.frameworks.fsdp import fsdp_settings
from preflight.frameworks.transformers_trainer import SOFTWARE, Use, training_arguments
from preflight.frameworks.trl import of_pairs
from preflight.program.arguments import Arguments
from preflight.program.bindings import bind, constant, first_origin, fold, when
from preflight.program.rows import FoundSettings
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.spelling import DTYPES, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_DEFAULTS: dict[str, Expr] = {"per_device_train_batch_size": Const(1), "per_device_eval_batch_size": Const(1),
                              "gradient_checkpointing": Const(True), "dataloader_num_workers": Const(1)}  # fmt: skip
_EFFECTIVE = 16
"""gradient_accumulation_steps, where it is not set, makes the whole batch at least this."""
_PAIRS = ("dpo", "orpo", "cpo", "simpo", "rm")
_OWN = ("bf16", "fp16")
"""Arguments of transformers that ms-swift sets by itself, as `swift_precision` says."""
_UNSLOTH_SUFFIXES = ("-unsloth-bnb-4bit", "-bnb-4bit")
UNSLOTH_SHARE = 0.5
"""`gpu_memory_utilization` of FastLanguageModel.from_pretrained (unsloth 2025.11, models/loader.py)."""
UNSLOTH_LENGTH = 2048
"""max_seq_length of FastLanguageModel.from_pretrained; None is the model's own."""


def llamafactory_trainer(args: Arguments, found: FoundSettings) -> None:
    """Checkpointing unless it is switched off; preferences: chosen and rejected go through together."""
    values = dict(args.given)
    disabled = args.get("disable_gradient_checkpointing", False)
    values["gradient_checkpointing"] = fold(Op("not", (disabled,)), first_origin(disabled))
    if "enable_liger_kernel" in args:
        values["use_liger_kernel"] = args.get("enable_liger_kernel")
    evaluates = args.some("val_size") or "eval_dataset" in args
    release = args.value(f"{SOFTWARE}transformers")
    version = release if isinstance(release, str) else None
    bindings = training_arguments(values, "transformers", Use(evaluates=evaluates), version)
    if args.value("finetuning_type") in _ADAPTED:
        bindings = [_in_its_own_type(binding) for binding in bindings]
    if not args.some("do_train") and any(args.some(name) for name in ("do_eval", "do_predict")):
        idle = Const(
            Unknown("do_train is not set: the run trains no model", Cause.not_set), args.origin("model_name_or_path")
        )
        bindings.append(bind("model.name", idle, Rank.literal))  # train/*/workflow.py, `if training_args.do_train`
    found.bindings += bindings
    pairs(args, found, "stage", ("dpo", "orpo", "rm"))  # orpo: a stage of its own up to 0.7
    if not any(args.some(name) for name in ("bf16", "fp16", "pure_bf16")):
        own = replace(bind("train.weights_dtype", Const("bf16"), Rank.default), others=("fp16",))
        found.bindings += [own] if args.value("finetuning_type") in _ADAPTED else []


def pairs(args: Arguments, found: FoundSettings, key: str, kinds: Collection[str]) -> None:
    """A trainer of preferences, whose batch counts pairs, where the setting `key` chooses one of these."""
    kind = args.value(key)
    if isinstance(kind, Unknown):
        found.add("train.sequences_per_sample", args.get(key))
    elif kind in kinds:
        found.bindings.append(of_pairs(args.origin(key)))


_ADAPTED = (None, "lora", "oft")
"""Values of `finetuning_type`, lora if it is not given. Of these the model stays in the type that it is loaded in: only
weights that train are made fp32 (model/adapter.py)."""


def _in_its_own_type(binding: Binding) -> Binding:
    """Without bf16 and fp16 the model is loaded, and runs, in bf16 if its checkpoint is, and else in fp16: on a GPU
    never in fp32 (extras/misc.py, `infer_optim_dtype`)."""
    if binding.field != "train.precision" or binding.rank != Rank.default:
        return binding
    return replace(binding, expr=Const("bf16"), others=("fp16",))


def swift_trainer(args: Arguments, found: FoundSettings) -> None:
    """transformers' arguments with ms-swift's defaults; `swift_precision` reads the precision."""
    values = {**_DEFAULTS, **{name: expr for name, expr in args.given.items() if name not in _OWN}}
    validates = "val_dataset" in args or args.some("split_dataset_ratio")
    bindings = [
        binding if binding.origin is not None else replace(binding, rank=Rank.default)
        for binding in training_arguments(values, "transformers", Use(evaluates=validates))
        if binding.field != "train.precision"
    ]
    found.bindings += bindings
    pairs(args, found, "rlhf_type", _PAIRS)


def swift_accumulation(args: Arguments, found: FoundSettings) -> None:
    """As many steps as make the whole batch 16."""
    batch, ranks = args.get("per_device_train_batch_size", 1), args.get("nproc_per_node", 1)
    steps = Op("ceil", (Op("/", (Const(_EFFECTIVE), Op("*", (Op("int", (batch,)), Op("int", (ranks,)))))),))
    found.bindings = [b for b in found.bindings if b.field != "train.grad_accum"]
    found.add("train.grad_accum", steps if constant(steps) is None else Const(constant(steps)))


def swift_precision(args: Arguments, found: FoundSettings) -> None:
    """Mixed precision in the type of the weights; if `torch_dtype` is not set, in the type of the checkpoint."""
    if "torch_dtype" not in args:
        reason = "ms-swift takes the type from the model's config.json: --torch_dtype is not set"
        found.add("train.precision", Const(Unknown(reason, Cause.not_set)))
        return
    dtype = spelled(args.get("torch_dtype"), DTYPES)
    found.add("train.weights_dtype", dtype)
    mixed = {"bf16": "bf16-mixed", "fp16": "fp16-mixed", "fp32": "fp16-mixed"}  # fp32 weights run under fp16 autocast
    found.add("train.precision", spelled(dtype, mixed))


def axolotl_preferences(args: Arguments, found: FoundSettings) -> None:
    """Pairs, by TRL's trainers. DPO and IPO compare with a frozen copy. Adapters make it unnecessary, unless it is
    asked for (axolotl, train.py, `setup_reference_model`)."""
    pairs(args, found, "rl", ("dpo", "ipo", "orpo", "simpo"))
    if args.value("rl") in ("dpo", "ipo"):
        whole = args.value("adapter") is None
        asked = args.get("rl_adapter_ref_model", False)
        found.add("train.copies.reference", Const(1, args.origin("rl")) if whole else when(asked, Const(1), Const(0)))


def axolotl_whole_batch(args: Arguments, found: FoundSettings) -> None:
    """`batch_size`, which newer files leave out: the samples of all micro-batches of a step, where no number of them
    is stated (utils/config.py, normalize_config)."""
    if args.value("gradient_accumulation_steps") is None:
        whole = args.get("batch_size")
        found.add("train.grad_accum", fold(Op("//", (whole, args.get("micro_batch_size", 1))), first_origin(whole)))


def axolotl_sequences(args: Arguments, found: FoundSettings) -> None:
    """Sequences are packed, or padded to one length, or as long as the samples."""
    packed, padded = args.get("sample_packing", False), args.get("pad_to_sequence_len", False)
    found.add("train.sequences", when(packed, Const("packed"), when(padded, Const("exact"), Const("bound"))))


def axolotl_precision(args: Arguments, found: FoundSettings) -> None:
    """Precision and type of the weights by the switches; bf16 is "auto" unless it is set."""
    for name, value in (("fp16", "fp16-mixed"), ("bf16", "bf16-mixed"), ("bfloat16", "bf16"), ("float16", "fp16")):
        given = args.value(name)
        if given is True or given in ("true", "full"):
            found.add("train.precision", Const("bf16" if given == "full" else value, args.origin(name)))
            found.add("train.weights_dtype", Const(value[:4], args.origin(name)))
    if not found.has("train.precision") and args.value("bf16") in (None, "auto"):
        found.default("train.precision", "bf16-mixed")
        found.default("train.weights_dtype", "bf16")


def axolotl_sharded(args: Arguments, found: FoundSettings) -> None:
    """FSDP in the version that `fsdp_version` states."""
    stated = "fsdp" if args.some("fsdp") else "fsdp_config"
    found.add("parallel.strategy", Const("fsdp", args.origin(stated)))
    version = {"version": args.get("fsdp_version")} if "fsdp_version" in args else {}
    settings = fsdp_settings({**args.inner("fsdp_config").given, **version}, 1)
    found.bindings += [b for b in settings if b.field != "parallel.strategy"]
    if "offload" in str(args.value("fsdp")):
        found.add("parallel.offload", Const("parameters", args.origin("fsdp")))


_LIGER_KEYS = {"norm": "liger_rms_norm", "rope": "liger_rope", "mlp": "liger_glu_activation"}


def axolotl_liger(args: Arguments, found: FoundSettings) -> None:
    """`liger_*`: each part of a model is replaced on its own, if Liger knows the type of the model."""
    parts = [part for part, key in _LIGER_KEYS.items() if args.value(key) is True]
    stated = next((key for key in (*_LIGER_KEYS.values(), "liger_fused_linear_cross_entropy") if args.some(key)), None)
    if stated is not None:
        found.add("train.fused_kernels", Const(("liger", *parts), args.origin(stated)))


def axolotl_plugins(args: Arguments, found: FoundSettings) -> None:
    """CutCrossEntropyPlugin: `cut_cross_entropy` is true by default."""
    named = args.value("plugins")
    if isinstance(named, tuple) and any("CutCrossEntropyPlugin" in str(one) for one in named):
        found.add("train.loss", Const("fused", args.origin("plugins")))


def unsloth_quantization(args: Arguments, found: FoundSettings) -> None:
    """Weights in 4 bits by default, and if the name of the model says so."""
    sixteen = any(args.some(name) for name in ("load_in_16bit", "load_in_fp8"))  # of releases since 2026
    four, eight = args.given.get("load_in_4bit", Const(not sixteen)), args.get("load_in_8bit", False)
    kind = when(four, Const("nf4"), when(eight, Const("int8"), Const("none")))
    if "full_finetuning" in args:
        kind = when(args["full_finetuning"], Const("none"), kind)
    found.bindings.append(bind("train.quantization.type", kind, None, args.origin("load_in_4bit")))
    if str(args.value("model_name")).endswith(_UNSLOTH_SUFFIXES):
        found.bindings.append(bind("train.quantization.type", Const("nf4", args.origin("model_name"))))


def unsloth_original(name: Expr) -> Expr:
    """The model that `unsloth/Llama-3.2-3B-bnb-4bit` is a copy of."""
    value = constant(name)
    if not isinstance(value, str) or not value.lower().startswith("unsloth/"):
        return name
    plain = value.partition("/")[2]
    for suffix in _UNSLOTH_SUFFIXES:
        plain = plain.removesuffix(suffix)
    return Const(plain, first_origin(name))


def unsloth_vllm(args: Arguments, found: FoundSettings) -> None:
    """`fast_inference=True`: vLLM in the same process takes its share of the GPU, and training has what is left."""
    fast = args.value("fast_inference")
    if fast in (None, False):
        return
    share = args.get("gpu_memory_utilization", UNSLOTH_SHARE)
    left = fold(Op("round", (Op("-", (Const(1), share)), Const(6))), first_origin(share))
    reason = Const(Unknown("whether vLLM is in the same process is not known", Cause.run_time))
    field = "train.allocator.per_process_fraction"
    found.bindings.append(bind(field, reason if isinstance(fast, Unknown) else left, Rank.literal))


def unsloth_length(args: Arguments, found: FoundSettings) -> None:
    """max_seq_length, or Unsloth's default."""
    if "max_seq_length" in args:
        found.add("train.seq_len", args["max_seq_length"], given=True)
    elif "max_seq_length" not in args.empty:
        found.default("train.seq_len", UNSLOTH_LENGTH)


def unsloth_checkpointing(args: Arguments, found: FoundSettings) -> None:
    """`use_gradient_checkpointing="unsloth"`, which is the default: checkpoints wait in host memory."""
    said = args.given.get("use_gradient_checkpointing", Const("unsloth", args.origin("use_gradient_checkpointing")))
    value = constant(said)
    smart = Op("==", (said, Const("unsloth")), said.origin) if isinstance(value, Unknown) else Const(value == "unsloth")
    yes = Const(True, first_origin(said))
    found.bindings.append(bind("train.gradient_checkpointing", when(smart, yes, said)))
    if "use_gradient_checkpointing" in args:
        found.bindings.append(bind("train.activation_offload", when(smart, yes, Const(False))))
    else:  # True in releases before 2025
        found.bindings.append(replace(bind("train.activation_offload", yes, Rank.default), others=(False,)))


_EXAMPLE_MARKS = ("do_train", "do_eval", "do_predict")
"""Flags of TrainingArguments that the library itself never reads: its example scripts do."""
_EXAMPLE_TASKS = {
    "run_clm": "causal-lm",
    "run_mlm": "masked-lm",
    "run_summarization": "seq2seq-lm",
    "run_translation": "seq2seq-lm",
}
_KEEP_LOGITS = ("run_glue", "run_classification", "run_xnli", "run_ner", "run_qa", "run_image_classification")
"""Scripts that measure with all logits of the evaluation; run_clm and run_mlm keep an argmax of them."""


def own_example(args: Arguments) -> Arguments:
    """The arguments, and whether they are those of transformers' own script."""
    own = any(name in args for name in _EXAMPLE_MARKS) and "output_dir" in args
    return args.completed({"own_script": Const(own)})


def example_trainer(args: Arguments, found: FoundSettings) -> None:
    """transformers' TrainingArguments. Without --do_train the script trains nothing."""
    method, release = str(args.value("method")), args.value(f"{SOFTWARE}transformers")
    use = Use(
        compute_metrics=Const(True),
        reduces_logits=method not in _KEEP_LOGITS,
        task=_EXAMPLE_TASKS.get(method),
    )
    found.bindings += training_arguments(args.given, "transformers", use, release if isinstance(release, str) else None)
    if not args.some("do_train"):
        why = Unknown("do_train is not set: the run trains no model", Cause.not_set)
        found.bindings.append(bind("model.name", Const(why, args.origin("model_name_or_path")), Rank.literal))
