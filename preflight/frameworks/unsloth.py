"""What tables/unsloth.toml cannot say in rows: bits of weights, copies of models, checkpoints in host memory."""

from __future__ import annotations

from preflight.program.arguments import Arguments
from preflight.program.bindings import bind, constant, first_origin, when
from preflight.program.rows import Found
from preflight.vocabulary.values import Const, Expr, Op, Unknown

_SUFFIXES = ("-unsloth-bnb-4bit", "-bnb-4bit")
LENGTH = 2048
"""max_seq_length of FastLanguageModel.from_pretrained; None is the model's own."""


def quantization(args: Arguments, found: Found) -> None:
    """4 bits by default, and of models whose names say so."""
    four, eight = args.given.get("load_in_4bit", Const(True)), args.get("load_in_8bit", False)
    kind = when(four, Const("nf4"), when(eight, Const("int8"), Const("none")))
    if "full_finetuning" in args:
        kind = when(args["full_finetuning"], Const("none"), kind)
    found.bindings.append(bind("train.quantization.type", kind, None, args.origin("load_in_4bit")))
    if str(args.value("model_name")).endswith(_SUFFIXES):
        found.bindings.append(bind("train.quantization.type", Const("nf4", args.origin("model_name"))))


def original(name: Expr) -> Expr:
    """The model that `unsloth/Llama-3.2-3B-bnb-4bit` is a copy of."""
    value = constant(name)
    if not isinstance(value, str) or not value.lower().startswith("unsloth/"):
        return name
    plain = value.partition("/")[2]
    for suffix in _SUFFIXES:
        plain = plain.removesuffix(suffix)
    return Const(plain, first_origin(name))


def length(args: Arguments, found: Found) -> None:
    """max_seq_length, or Unsloth's default."""
    if "max_seq_length" in args:
        found.add("train.seq_len", args["max_seq_length"], given=True)
    elif "max_seq_length" not in args.empty:
        found.default("train.seq_len", LENGTH)


def checkpointing(args: Arguments, found: Found) -> None:
    """`use_gradient_checkpointing="unsloth"`, which is the default: checkpoints wait in host memory."""
    said = args.given.get("use_gradient_checkpointing", Const("unsloth", args.origin("use_gradient_checkpointing")))
    value = constant(said)
    smart = Op("==", (said, Const("unsloth")), said.origin) if isinstance(value, Unknown) else Const(value == "unsloth")
    yes = Const(True, first_origin(said))
    found.bindings.append(bind("train.gradient_checkpointing", when(smart, yes, said)))
    found.bindings.append(bind("train.activation_offload", when(smart, yes, Const(False))))
