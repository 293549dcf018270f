"""FSDP's settings, as accelerate's YAML, its flags and TrainingArguments(fsdp_config=...) spell them -> parallel.*.

All three end in accelerate's FullyShardedDataParallelPlugin (1.15, utils/dataclasses.py), whose defaults these are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.program.arguments import Arguments
from preflight.program.bindings import bind, constant, first_origin
from preflight.program.rows import FoundSettings
from preflight.python.objects import CallRecord, Instance
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.spelling import DTYPES, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Scalar, Unknown, Value

TRUTHS: Mapping[str, Scalar] = {
    "true": True, "yes": True, "y": True, "t": True, "on": True, "1": True,
    "false": False, "no": False, "n": False, "f": False, "off": False, "0": False, "none": False,
}  # fmt: skip
"""accelerate.utils.str_to_bool; an absent value counts as no."""
_RESHARDS: Mapping[str, Scalar] = {
    **TRUTHS, "full_shard": True, "hybrid_shard": True, "4": True, "shard_grad_op": False, "2": False,
    "hybrid_shard_zero2": False, "_hybrid_shard_zero2": False, "5": False,
}  # fmt: skip
"""FSDP 1's ShardingStrategy by name or number, FSDP 2's yes or no."""
_WHOLE = frozenset({"no_shard", "3"})
_HYBRID = frozenset({"hybrid_shard", "4", "hybrid_shard_zero2", "_hybrid_shard_zero2", "5"})
_PREFETCH: Mapping[str, Scalar] = {
    "backward_pre": "backward_pre", "1": "backward_pre", "backward_post": "backward_post", "2": "backward_post",
    "no_prefetch": "none", "3": "none", "none": "none",
}  # fmt: skip
_MIXED: Mapping[str, Scalar] = {"bf16": "bf16", "fp16": "fp16", "fp8": "bf16", "bf16-mixed": "bf16",
                                "fp16-mixed": "fp16"}  # fmt: skip


def truth(expr: Expr) -> Expr:
    """Yes or no, from the texts that accelerate accepts."""
    return spelled(expr, TRUTHS)


def fsdp_settings(
    values: Mapping[str, Expr], version: int | None = 1, mixed: Expr | None = None, per_node: Expr | None = None
) -> list[Binding]:
    """Bindings of FSDP's settings, keys with or without `fsdp_` in front.

    `version` is what the reader takes where none is given (None: whatever its installed version does), `mixed` the
    mixed precision of the run, `per_node` the ranks of a node, which hybrid sharding shards over.
    """
    given = {name.lower().removeprefix("fsdp_"): expr for name, expr in values.items()}
    return [*_strategy(given, per_node), *_schedule(given, version), *_precision(mixed), *_checkpointing(given)]


def fsdp_details(
    values: Mapping[str, Expr], version: int | None, mixed: Expr | None = None, per_node: Expr | None = None
) -> list[Binding]:
    """The same without the strategy, for a place where FSDP is named already; NO_SHARD makes it DDP even there."""
    found = fsdp_settings(values, version, mixed, per_node)
    return [one for one in found if one.field != "parallel.strategy" or constant(one.expr) != "fsdp"]


def _strategy(given: Mapping[str, Expr], per_node: Expr | None) -> Iterator[Binding]:
    said = _stated(given, "sharding_strategy") or _stated(given, "reshard_after_forward")
    kind = str(constant(said)).lower() if said is not None else ""
    strategy = "ddp" if kind in _WHOLE else "fsdp"
    yield bind("parallel.strategy", Const(strategy, first_origin(said)), Rank.read)
    if said is not None and kind not in _WHOLE:
        yield bind("parallel.options.reshard_after_forward", spelled(said, _RESHARDS))
    if kind in _HYBRID:
        reason = "hybrid sharding shards over the ranks of a node: their number is not stated"
        group = per_node or Const(Unknown(reason, Cause.not_set))
        yield bind("parallel.options.shard_group", group, Rank.read, first_origin(said))
    for name in ("offload_params", "cpu_offload"):
        expr = _stated(given, name)
        if expr is not None and constant(truth(expr)) is True:
            yield bind("parallel.offload", Const("parameters", first_origin(expr)), Rank.read)


def _schedule(given: Mapping[str, Expr], version: int | None) -> Iterator[Binding]:
    stated = _stated(given, "version")
    if stated is not None:
        yield bind("parallel.options.fsdp_version", spelled(stated, {"1": 1, "2": 2}))
    elif version is not None:
        yield bind("parallel.options.fsdp_version", Const(version), Rank.default)
    first = constant(stated) in (1, "1") if stated is not None else version == 1
    prefetch = _stated(given, "backward_prefetch")
    if prefetch is not None:
        yield bind("parallel.options.backward_prefetch", spelled(prefetch, _PREFETCH))
    elif first:  # the plugin hands None on, which is no prefetching
        yield bind("parallel.options.backward_prefetch", Const("none"), Rank.default)
    for name in ("forward_prefetch", "limit_all_gathers"):
        expr = _stated(given, name)
        if expr is not None:
            yield bind(f"parallel.options.{name}", truth(expr))


def _precision(mixed: Expr | None) -> Iterator[Binding]:
    """The plugin gathers and reduces in the type of the mixed precision (`set_mixed_precision`)."""
    if mixed is None or str(constant(mixed)) not in _MIXED:
        return
    for name in ("param_dtype", "reduce_dtype"):
        yield bind(f"parallel.options.{name}", Const(_MIXED[str(constant(mixed))]), Rank.default)


def _checkpointing(given: Mapping[str, Expr]) -> Iterator[Binding]:
    """FSDP's own checkpointing adds to the Trainer's: a "no" here does not switch that off."""
    for name, field in (
        ("activation_checkpointing", "train.gradient_checkpointing"),
        ("activation_checkpointing_offload", "train.activation_offload"),
    ):
        expr = _stated(given, name)
        if expr is not None and constant(truth(expr)) is True:
            yield bind(field, Const(True, first_origin(expr)))


def is_fsdp(top: Mapping[str, Value]) -> bool:
    """Whether a file says which layers are sharded apart, with or without `fsdp_` in front."""
    return any(key.endswith("transformer_layer_cls_to_wrap") for key in top)


def fsdp_file(args: Arguments, found: FoundSettings) -> None:
    """FSDP's settings in a separate file."""
    found.bindings += fsdp_details(args.given, None)


def member(expr: Expr) -> Expr:
    """A member of an enumeration by its own name: `ShardingStrategy.SHARD_GRAD_OP`."""
    value = constant(expr)
    if not isinstance(value, str) or "." not in value:
        return expr
    return Const(value.rpartition(".")[2], first_origin(expr))


def fsdp_objects(record: CallRecord) -> list[Binding]:
    """Objects that a wrapper, a plugin or a strategy gets: CPUOffload(...), MixedPrecision(...), policies, and
    members of torch's enumerations."""
    names = ("sharding_strategy", "backward_prefetch", "fsdp_version", "activation_checkpointing")
    given = {name: member(expr) for name in names if (expr := record.argument(name)) is not None}
    found = fsdp_details(given, None)
    offload = _made(record, "cpu_offload", "offload_policy")
    if offload is not None:
        moved = offload.argument("offload_params", 0) if offload.method == "CPUOffload" else Const(True)
        if moved is not None and constant(moved) is True:
            found.append(bind("parallel.offload", Const("parameters", offload.origin), Rank.read))
    elif constant(record.argument("cpu_offload")) is True:
        found.append(
            bind("parallel.offload", Const("parameters", first_origin(record.argument("cpu_offload"))), Rank.read)
        )
    mixed = _made(record, "mixed_precision", "mp_policy", "mixed_precision_policy")
    for name in ("param_dtype", "reduce_dtype"):
        dtype = mixed.argument(name) if mixed is not None else None
        if dtype is not None and constant(dtype) is not None:
            found.append(bind(f"parallel.options.{name}", spelled(dtype, DTYPES)))
    return found


def _made(record: CallRecord, *names: str) -> CallRecord | None:
    """The call that made an argument; None if no call made it."""
    for name in names:
        made = record.object(name)
        if isinstance(made, Instance) and made.record is not None:
            return made.record
    return None


def _stated(given: Mapping[str, Expr], name: str) -> Expr | None:
    expr = given.get(name)
    return None if expr is None or constant(expr) is None else expr
