"""Unsloth's loaders and adapters: their own defaults, checkpoints that wait in host memory, kernels of their own.

Read from unsloth/models/loader.py and llama.py (2025): weights are loaded in 4 bits unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.program.bindings import bind, constant, first_origin, under, when
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.spelling import DTYPES, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_SUFFIXES = ("-unsloth-bnb-4bit", "-bnb-4bit")
_LOSS = Unknown("Unsloth's own kernels compute the loss: whole logits are taken, which is too high", Cause.not_modelled)
LENGTH = 2048
"""max_seq_length of FastLanguageModel.from_pretrained."""


def unsloth_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """Bindings of FastLanguageModel.from_pretrained and .get_peft_model (and their like for other models)."""
    found: list[Binding] = []
    for record in records:
        if record.name.startswith("unsloth"):
            if record.method == "from_pretrained":
                found += under(record.conditions, _loaded(record))
            elif record.method == "get_peft_model":
                found += under(record.conditions, _adapted(record))
    return found


def _loaded(record: CallRecord) -> list[Binding]:
    four: Expr = record.argument("load_in_4bit", 3) or Const(True)
    eight: Expr = record.argument("load_in_8bit", 4) or Const(False)
    kind = when(four, Const("nf4"), when(eight, Const("int8"), Const("none")))
    full = record.argument("full_finetuning")
    if full is not None:
        kind = when(full, Const("none"), kind)
    name = record.argument("model_name", 0)
    found = [bind("train.quantization.type", kind, None, first_origin(four) or record.origin)]
    if name is not None:
        found.append(bind("model.name", _plain(name)))
        if str(constant(name)).endswith(_SUFFIXES):
            found.append(bind("train.quantization.type", Const("nf4", first_origin(name))))
    dtype = record.argument("dtype", 2)
    stored = Const("bf16") if dtype is None or constant(dtype) is None else spelled(dtype, DTYPES)
    rank = None if first_origin(stored) is not None else Rank.default
    found += [bind(field, stored, rank) for field in ("train.weights_dtype", "train.quantization.compute_dtype")]
    length = record.argument("max_seq_length", 1)
    return [
        *found,
        bind("train.quantization.double_quant", Const(True), Rank.default),
        bind("train.quantization.upcast_rest", Const(False), Rank.default),
        bind("train.seq_len", length or Const(LENGTH), None if length is not None else Rank.default),
        bind("train.loss", Const(_LOSS, record.origin), Rank.read),
        bind("task", Const("causal-lm"), Rank.default),
    ]


def _plain(name: Expr) -> Expr:
    """Unsloth's copies of a model are that model: `unsloth/Llama-3.2-3B-bnb-4bit`."""
    value = constant(name)
    if not isinstance(value, str) or not value.lower().startswith("unsloth/"):
        return name
    plain = value.partition("/")[2]
    for suffix in _SUFFIXES:
        plain = plain.removesuffix(suffix)
    return Const(plain, first_origin(name))


def _adapted(record: CallRecord) -> list[Binding]:
    checkpointing = record.argument("use_gradient_checkpointing") or Const("unsloth", record.origin)
    found = [bind("train.peft.method", Const("lora", record.origin), None, record.origin)]
    for name, field, default in (
        ("r", "train.peft.r", 16),
        ("lora_dropout", "train.peft.dropout", 0.0),
        ("target_modules", "train.peft.targets", _TARGETS),
    ):
        expr = record.argument(name)
        given = expr is not None and constant(expr) is not None
        found.append(bind(field, expr) if given and expr is not None else bind(field, Const(default), Rank.default))
    smart = _is(checkpointing, "unsloth")
    return [
        *found,
        bind("train.gradient_checkpointing", when(smart, Const(True, first_origin(checkpointing)), checkpointing)),
        bind("train.activation_offload", when(smart, Const(True, first_origin(checkpointing)), Const(False))),
    ]


def _is(expr: Expr, value: str) -> Expr:
    known = constant(expr)
    return Op("==", (expr, Const(value)), expr.origin) if isinstance(known, Unknown) else Const(known == value)
