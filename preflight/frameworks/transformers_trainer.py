"""transformers' TrainingArguments and TRL's configurations -> bindings, wherever their values were written.

The same function reads keyword arguments of a Python call, a JSON or YAML file of arguments, and the flags that
`HfArgumentParser` adds: all of them are a mapping of argument names to expressions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from preflight.frameworks.deepspeed import deepspeed_config
from preflight.frameworks.fsdp import fsdp_settings
from preflight.frameworks.library_defaults import (
    ANY,
    FP32,
    NO,
    Argument,
    InUse,
    Use,
    Used,
    arguments_at,
    differing,
    in_use,
    library_arguments,
    model_config_at,
    older_names,
    truth,
)
from preflight.frameworks.table import read
from preflight.frameworks.trl import keeps_reference, liger_loss, sequences, trl
from preflight.program.adaptations import LIGER_PARTS, dtype_and_attention
from preflight.program.arguments import Arguments
from preflight.program.bindings import bind, constant, either, first_origin, fold, is_constant, when
from preflight.program.rows import FoundSettings
from preflight.python.objects import CallRecord
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.reading import Binding, Parameter, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Ref, Unknown, Value

__all__ = ["ARGUMENT_CLASSES", "FP32", "NO", "Use", "from_command_line", "parameters", "training_arguments"]

ARGUMENT_CLASSES: Mapping[str, str] = {
    "TrainingArguments": "transformers", "Seq2SeqTrainingArguments": "transformers",
    "SFTConfig": "sft", "DPOConfig": "dpo", "GRPOConfig": "grpo", "RewardConfig": "reward", "KTOConfig": "kto",
    "SentenceTransformerTrainingArguments": "transformers", "CrossEncoderTrainingArguments": "transformers",
    "SparseEncoderTrainingArguments": "transformers",
    "ORPOConfig": "orpo", "CPOConfig": "cpo", "RLOOConfig": "rloo", "PPOConfig": "ppo",
}  # fmt: skip
"""Class of arguments -> flavour: transformers' own, or a trainer of TRL."""

SOFTWARE = "software."
"""Before the name of a package: a release that the project pins, among the arguments of a file or a command."""
BOUNDS = "bounds."
"""Before the name of a package: the releases between which the project wants it."""
_LANGUAGE = (None, "causal-lm")
_KEEP_NO_LOGITS = ("prediction_loss_only", "batch_eval_metrics", "predict_with_generate")


def training_arguments(
    values: Mapping[str, Expr],
    flavour: str = "transformers",
    use: Use = ANY,
    version: str | None = None,
    trl_version: str | None = None,
    used: Used = frozenset(),
) -> list[Binding]:
    """Bindings of every memory-relevant argument, defaults of the library's version included (rank 1).

    `version` and `trl_version` are stated; where they are not, `used` tells which releases may be in use.
    """
    may = in_use(version, trl_version, used)
    keeps = keeps_reference(may.trl)
    found = _arguments(values, flavour, use, may.told("transformers"), may.told("trl"), keeps)
    by_default = {one.field for one in found if one.rank == Rank.default}
    others: dict[str, dict[Value, str]] = {}
    for library, one in _other_releases(flavour, may):
        versions = (one, may.told("trl")) if library == "transformers" else (may.told("transformers"), one)
        for binding in _arguments(values, flavour, use, versions[0], versions[1], keeps):
            value = binding.expr.value if isinstance(binding.expr, Const) else None
            if binding.field in by_default and isinstance(value, (bool, int, float, str)):
                others.setdefault(binding.field, {}).setdefault(value, f"{library} {one}")
    return [_with_others(binding, others.get(binding.field, {})) for binding in found]


def _other_releases(flavour: str, may: InUse) -> Iterator[tuple[str, str]]:
    """(library, release) of releases that may be in use, and have other defaults than those before."""
    for one in differing("transformers", "transformers", may.transformers):
        yield "transformers", one
    for one in differing("trl", flavour, may.trl) if flavour != "transformers" else ():
        yield "TRL", one


_DECISIVE = (
    "train.gradient_checkpointing", "train.precision", "train.batch_size", "train.seq_len", "train.copies.reference",
)  # fmt: skip
"""Fields that make another job of it: a default that depends on the release is not taken for any of them."""


def _with_others(binding: Binding, values: Mapping[Value, str]) -> Binding:
    """A default with its values in other releases; unknown if it decides too much to be taken for the newest's."""
    if binding.rank != Rank.default or not isinstance(binding.expr, Const):
        return binding
    own = binding.expr.value
    others = {value: where for value, where in values.items() if value != own}
    if not others:
        return binding
    if binding.field not in _DECISIVE or isinstance(own, Unknown):
        return replace(binding, others=tuple(others))
    value, where = next(iter(others.items()))
    words = f"it is {_plain(value)} in {where} and {_plain(own)} in newer releases, and no file states the release"
    return replace(binding, expr=Const(Unknown(words, Cause.not_set)))


def _plain(value: Value) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _arguments(
    values: Mapping[str, Expr],
    flavour: str,
    use: Use,
    version: str | None,
    trl_version: str | None,
    keeps: bool | None,
) -> list[Binding]:
    args = library_arguments(values, flavour, version, trl_version)
    evaluated = _evaluation(args, use)
    switches = {"evaluates": Const(True)} if evaluated else {}
    if (release(version) or NEWEST) >= _PREPARES:
        switches["prepares"] = Const(True)
    found = [
        args.bind("train.batch_size", "per_device_train_batch_size"),
        *sequences(args, flavour, trl_version),
        _precision(args, flavour, use),
        *read("trainer", args.completed(switches)).bindings,
        *evaluated,
        *_liger(args),
        *_loss(values, args, flavour, use, trl_version),
        *parallel(args, version),
    ]
    if flavour != "transformers":
        found += trl(args, flavour, use, trl_version, keeps)
    return found


_PREPARES = (4, 30)
"""From this release on accelerate prepares the model for mixed precision (trainer.py, `accelerator.prepare`); until
then the Trainer had autocast of its own."""


def trainer(args: Arguments, found: FoundSettings) -> None:
    """transformers' and TRL's arguments of a file or a command."""
    flavour = _flavour(args)
    if "max_seq_length" in args and "packing" not in args:
        flavour = "transformers"
        found.add("train.seq_len", args.get("max_seq_length"))
    use = Use(peft=truth(args["use_peft"]) if "use_peft" in args else NO)
    found.bindings += training_arguments(
        args.given, flavour, use, _stated(args, "transformers"), _stated(args, "trl"), _signs(args, flavour)
    )
    if flavour != "transformers":
        found.default("task", "causal-lm")


def _stated(args: Arguments, package: str) -> str | None:
    """The release of a package that the project pins."""
    value = args.value(f"{SOFTWARE}{package}")
    return value if isinstance(value, str) else None


def _signs(args: Arguments, flavour: str) -> Used:
    """Keys that not every release has. Those of TRL count in files of its own commands: a script may have its own."""
    names = ["TrainingArguments"]
    if isinstance(args.value("method"), str):
        names += [name for name, one in ARGUMENT_CLASSES.items() if one == flavour != "transformers"]
    packages = [name for name in ("transformers", "trl") if f"{BOUNDS}{name}" in args]
    bounded = {(name, str(args.value(f"{BOUNDS}{name}"))) for name in packages}
    return frozenset({(name, key) for name in names for key in args.given} | bounded)


def _flavour(args: Arguments) -> str:
    """Which of TRL's trainers the file is for, by the command that reads it (`method`) or by its keys."""
    method = args.value("method")
    if isinstance(method, str):
        return method
    if "num_generations" in args or "max_completion_length" in args:
        return "grpo"
    if "max_length" in args or "packing" in args or ("dataset_name" in args and "model_name_or_path" in args):
        return "dpo" if "beta" in args else "sft"
    return "transformers"


def _liger(args: Arguments) -> list[Binding]:
    """`use_liger_kernel` replaces parts of any model whose type Liger knows (transformers, integrations/liger.py)."""
    if "use_liger_kernel" not in args:
        return []
    chosen = args.inner("liger_kernel_config")
    kept = [part for part, keys in LIGER_PARTS.items() if all(chosen.value(key) is not False for key in keys)]
    some = when(truth(args["use_liger_kernel"]), Const(("liger", *kept)), Const(()))
    return [args.bind("train.fused_kernels", "use_liger_kernel", some)]


def _loss(
    values: Mapping[str, Expr], args: Arguments, flavour: str, use: Use, trl_version: str | None
) -> list[Binding]:
    """Liger's kernels never hold all logits, unless `liger_kernel_config` keeps the usual loss."""
    if flavour == "reward" or use.task not in _LANGUAGE:
        return []
    if flavour not in ("transformers", "sft"):
        own = liger_loss(values, flavour, trl_version, trl_version is not None)
        return [] if own is None else [own]
    if "use_liger_kernel" not in args:
        return []
    kept = args.inner("liger_kernel_config").value("fused_linear_cross_entropy") is False
    expr = when(truth(args["use_liger_kernel"]), Const("full" if kept else "fused"), Const(None))
    return [args.bind("train.loss", "use_liger_kernel", expr)]


def _precision(args: Arguments, flavour: str, use: Use) -> Binding:
    bf16, fp16 = args["bf16"], args["fp16"]
    if flavour != "transformers":  # TRL: bf16 unless it is stated, or fp16 is requested
        bf16 = when(fold(Op("is", (bf16, Const(None)))), fold(Op("not", (truth(fp16),))), bf16)
    expr = when(bf16, Const("bf16-mixed"), when(fp16, Const("fp16-mixed"), use.base))
    return args.bind("train.precision", "bf16" if "bf16" in args else "fp16", expr)


def prefetch(factor: Expr) -> Expr:
    """torch's default if it is None."""
    return when(fold(Op("is", (factor, Const(None)))), Const(2), factor)


def _evaluation(args: Arguments, use: Use) -> list[Binding]:
    strategy = args["eval_strategy"]
    evaluates = Const(True) if use.evaluates else fold(Op("!=", (fold(Op("str", (strategy,))), Const("no"))))
    if "do_eval" in args:
        evaluates = either(evaluates, args["do_eval"])
    known = constant(evaluates)
    if not isinstance(known, Unknown) and not known:
        return []
    if is_constant(evaluates):  # a strategy that cannot be read is given to evaluate
        evaluates = Const(True)
    fields = {
        "validation.batch_size": "per_device_eval_batch_size",
        "data.validation_workers": "dataloader_num_workers",
    }
    found = [args.bind(field, name, when(evaluates, args[name], Const(None))) for field, name in fields.items()]
    overlaps = fold(Op("==", (fold(Op("str", (strategy,))), Const("steps"))))
    if "eval_strategy" in args and not isinstance(constant(overlaps), Unknown):
        found.append(bind("data.validation_overlaps", overlaps, None, first_origin(strategy)))
    if not use.reduces_logits:
        without = [fold(Op("not", (truth(args[name]),))) for name in _KEEP_NO_LOGITS]
        keeps = fold(Op("bool", (Op("and", (evaluates, use.compute_metrics, *without)),)))
        place = first_origin(use.compute_metrics)
        found.append(bind("validation.accumulates_logits", keeps, None, place))
    return found


def from_command_line(record: CallRecord) -> bool:
    """Whether the arguments object is made by `HfArgumentParser`, which gives every field a flag."""
    return isinstance(record.node, ast.Call) and "parse" in ast.unparse(record.node.func).rpartition(".")[2]


_FILE_PARSERS = ("parse_json_file", "parse_yaml_file", "parse_args_and_config")


def parses_file(record: CallRecord) -> bool:
    """Whether a file gives the arguments object its fields (`parse_json_file`)."""
    func = record.node.func if isinstance(record.node, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr in _FILE_PARSERS


def parameters(
    flavour: str = "transformers", version: str | None = None, trl: str | None = None, used: Used = frozenset()
) -> list[Parameter]:
    """The flags that `HfArgumentParser` adds for an arguments class, as far as they decide memory or what is run."""
    may = in_use(version, trl, used)
    own = {**arguments_at(flavour, may.told("transformers"), may.told("trl")), **_OTHERS}
    found = [_agreed(one, flavour, may) if one.name in _DECIDING else one for one in _flags(own)]
    # also of releases that the arguments rule out: `from_flags` asks for these
    others = older_names(flavour, in_use(version, trl))
    older = _flags({name: own[new] for name, new in others.items() if new in own}, None)
    unsaid = Const(Unknown("no command line that was read says which parts of the program run", Cause.not_set))
    parts = _flags({name: Argument("bool", None) for name in PARTS})
    return [*found, *older, *(replace(one, default=unsaid) for one in parts)]


_OTHERS = {"resume_from_checkpoint": Argument("str", None)}
"""Arguments of every release that decide no memory, and that programs hand on."""
PARTS = ("do_train", "do_predict")
"""Arguments that the library only keeps: its example scripts, and those written after them, ask for them."""
_DECIDING = ("gradient_checkpointing", "bf16", "max_length", "beta", "per_device_train_batch_size")
"""Arguments whose default makes another job of it."""


def _agreed(one: Parameter, flavour: str, may: InUse) -> Parameter:
    """A flag with its default, if every release that may be in use has it."""
    told = may.told("transformers"), may.told("trl")
    values: set[object] = set()
    for library, number in _other_releases(flavour, may):
        pair = (number, told[1]) if library == "transformers" else (told[0], number)
        given = arguments_at(flavour, *pair).get(one.name)
        default = given.default if given is not None else None
        values.add(bool(default) if one.name == "gradient_checkpointing" else default)
    if len(values) < 2 or (one.name == "max_length" and flavour == "sft"):  # None was 1,024 then
        return one
    words = f"the default of {one.name} depends on the release of the library, and no file states it"
    return replace(one, default=Const(Unknown(words, Cause.not_set)))


def from_flags(flavour: str, version: str | None = None, trl: str | None = None) -> dict[str, Expr]:
    """The arguments of a class whose fields are flags: an older name that is given counts."""
    found: dict[str, Expr] = {one.name: Ref(one.name) for one in parameters(flavour, version, trl)}
    for old, new in older_names(flavour, in_use(version, trl)).items():
        if old in found and new in found:
            given = found.pop(old)
            found[new] = Op("if", (Op("is", (given, Const(None))), found[new], given))
    return found


def model_config_parameters(trl: str | None = None) -> list[Parameter]:
    """The flags that `TrlParser` adds for trl.ModelConfig."""
    found = _flags(model_config_at(trl))
    return [
        replace(one, type="list") if one.name in ("lora_target_modules", "lora_modules_to_save") else one
        for one in found
    ]


_SAME: object = object()


def _flags(arguments: Mapping[str, Argument], default: object = _SAME) -> list[Parameter]:
    found: list[Parameter] = []
    for name, one in arguments.items():
        flags = tuple(dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}")))
        found.append(Parameter(name, Const(one.default if default is _SAME else None), flags, "dataclass", one.kind))
    return found


def adapters_of_model_config(trl: str | None) -> list[Binding]:
    """Bindings of trl.ModelConfig's flags, as `get_peft_config` uses them."""
    dora = Op("if", (Ref("use_dora"), Const("dora"), Const("lora")))
    method = dora if "use_dora" in model_config_at(trl) else Const("lora")
    on, targets = Ref("use_peft"), Ref("lora_target_modules")
    every = Op("==", (targets, Const(("all-linear",))))
    named = Op("if", (every, Const("all-linear"), targets))
    return [
        Binding("train.peft.method", Op("if", (on, method, Const(None)))),
        Binding("train.peft.r", Ref("lora_r")),
        Binding("train.peft.dropout", Ref("lora_dropout")),
        Binding("train.peft.targets", Op("if", (on, named, Const(None)))),
    ]


_LOADING = ("dtype", "torch_dtype", "attn_implementation")


def loading_of_model_config(trl: str | None) -> list[Binding]:
    """Bindings of its flags that say how the model is loaded. The program passes them on, in one of many ways."""
    given: dict[str, Expr] = {name: Ref(name) for name in _LOADING if name in model_config_at(trl)}
    types = [given.pop(name) for name in ("dtype", "torch_dtype") if name in given]
    given["dtype"] = Op("or", tuple(types)) if len(types) > 1 else types[0]
    return [replace(one, rank=Rank.by_name) for one in dtype_and_attention(given)]


def quantization_of_model_config() -> list[Binding]:
    """Bindings of its flags, as `get_quantization_config` uses them."""
    four, eight = Ref("load_in_4bit"), Ref("load_in_8bit")
    quantized = Op("if", (four, Ref("bnb_4bit_quant_type"), Op("if", (eight, Const("int8"), Const("none")))))
    return [
        Binding("train.quantization.type", quantized),
        Binding("train.quantization.double_quant", Op("if", (four, Ref("use_bnb_nested_quant"), Const(None)))),
    ]


# TrainingArguments(fsdp=..., fsdp_config=..., deepspeed={...}) -> parallel.*.

_FIRST, _SECOND = (5,), (5, 13)
"""Before 5.0 `fsdp` meant FSDP 1; from 5.13 on it means 2 (transformers' documentation of both; training_args.py of
5.23). In between, and if no release is stated, the version is not known."""
_WORDS = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")


_STREAMED = (4, 31)
"""From this release on accelerate writes FSDP's checkpoints, by way of the host. Until then Trainer.save_model asked
`self.model.state_dict()`, which FSDP answers with every parameter whole on each GPU (transformers, trainer.py)."""


def parallel(args: Arguments, version: str | None) -> list[Binding]:
    """Bindings of the Trainer's settings for sharding; empty if there are none."""
    sharded = _fsdp(args, version)
    if sharded and (release(version) or NEWEST) < _STREAMED:
        sharded.append(bind("train.saves", Const("gathered", first_origin(args["fsdp"]))))
    return [*sharded, *_deepspeed(args)]


def _fsdp(args: Arguments, version: str | None) -> list[Binding]:
    if "fsdp" not in args or constant(args["fsdp"]) in (None, False, "", "false", "False"):
        return []
    fsdp = args["fsdp"]
    said = constant(fsdp)
    known = isinstance(said, (str, tuple, bool))
    config: dict[str, Expr] = {name: expr for name, expr in args.inner("fsdp_config").given.items() if name != "xla"}
    words = said.split() if isinstance(said, str) else [str(word) for word in said] if isinstance(said, tuple) else []
    place = first_origin(fsdp)
    stated = {name.removeprefix("fsdp_") for name in config}
    for word in words:
        if word.lower() in _WORDS and not stated & {"reshard_after_forward", "sharding_strategy"}:
            config["sharding_strategy"] = Const(word.lower(), place)
        elif word.lower() == "offload":
            config["cpu_offload"] = Const(True, place)
    found = fsdp_settings(config, _version(version), _mixed(args))
    if not known:  # a parameter, or something that cannot be followed
        return _if_sharded(fsdp, found)
    bare = [b for b in found if b.field == "parallel.strategy" and b.origin is None]
    return [replace(b, origin=place, expr=Const(constant(b.expr), place)) if b in bare else b for b in found]


_DECIDED_BY_CONFIG = ("train.gradient_checkpointing", "train.activation_offload", "parallel.offload")
"""What `fsdp_config` may say beside how parameters are sharded."""


def _if_sharded(fsdp: Expr, found: Sequence[Binding]) -> list[Binding]:
    """The bindings of settings whose `fsdp` is given elsewhere: as one text, `full_shard auto_wrap offload`."""
    text = Op("str", (fsdp,))
    kind = when(Op("in", (Const("no_shard"), text)), Const("ddp"), Const("fsdp"))
    offload = when(Op("in", (Const("offload"), text)), Const("parameters"), Const(None))
    stated = [replace(b, expr=when(fsdp, b.expr, Const(None))) for b in found if b.field in _DECIDED_BY_CONFIG]
    return [
        replace(found[0], expr=when(fsdp, kind, Const(None))),
        replace(found[0], field="parallel.offload", expr=when(fsdp, offload, Const(None))),
        *stated,
    ]


def _version(transformers: str | None) -> int | None:
    numbers = release(transformers)
    if numbers is None or _FIRST <= numbers < _SECOND:
        return None
    return 1 if numbers < _FIRST else 2


def _mixed(args: Arguments) -> Expr | None:
    """The mixed precision that the Trainer passes to accelerate, if it is a plain yes."""
    asked = [name for name in ("bf16", "fp16") if args.value(name) is True]
    return Const(asked[0], args.origin(asked[0])) if asked else None


def _deepspeed(args: Arguments) -> list[Binding]:
    """A configuration written in place: `deepspeed={...}`, or a mapping in a file of arguments."""
    config = args.inner("deepspeed")
    return deepspeed_config(config) if config.given else []
