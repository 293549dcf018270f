"""TrainingArguments(fsdp=..., fsdp_config=..., deepspeed={...}) -> parallel.*."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.dialects.reading import Binding
from preflight.libraries.common import bind, constant, first_origin, version_of, when
from preflight.libraries.parallelism import deepspeed_config
from preflight.libraries.sharding import fsdp_settings
from preflight.libraries.trainer_arguments import Arguments
from preflight.records import replace
from preflight.values import Const, Expr, Value

_FIRST, _SECOND = (5,), (5, 13)
"""Before 5.0 `fsdp` meant FSDP 1; from 5.13 on it means 2 (transformers' documentation of both; training_args.py of
5.23). In between, and where nobody states a release, which one it is stays open."""
_WORDS = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")


_STREAMED = (4, 31)
"""From this release on accelerate writes FSDP's checkpoints, by way of the host. Until then Trainer.save_model asked
`self.model.state_dict()`, which FSDP answers with every parameter whole on each GPU (transformers, trainer.py)."""


def parallel(args: Arguments, version: str | None) -> list[Binding]:
    """What the Trainer's own settings say of sharding; nothing where they name no scheme."""
    sharded = _fsdp(args, version)
    if sharded and version is not None and version_of(version) < _STREAMED:
        sharded.append(bind("train.saves", Const("gathered", first_origin(args["fsdp"]))))
    return [*sharded, *_deepspeed(args)]


def _fsdp(args: Arguments, version: str | None) -> list[Binding]:
    if "fsdp" not in args or constant(args["fsdp"]) in (None, False, "", "false", "False"):
        return []
    fsdp = args["fsdp"]
    said = constant(fsdp)
    known = isinstance(said, (str, tuple, bool))
    config: dict[str, Expr] = {name: expr for name, expr in args.inner("fsdp_config").items() if name != "xla"}
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
        return [replace(found[0], expr=when(fsdp, Const("fsdp"), Const(None)))]
    return [b if b.origin is not None or b.field != "parallel.strategy" else replace(b, origin=place,
            expr=Const(constant(b.expr), place)) for b in found]  # fmt: skip


def _version(transformers: str | None) -> int | None:
    if transformers is None or _FIRST <= version_of(transformers) < _SECOND:
        return None
    return 1 if version_of(transformers) < _FIRST else 2


def _mixed(args: Arguments) -> Expr | None:
    """The mixed precision that the Trainer hands to accelerate, where it is a plain yes."""
    return next((Const(name, first_origin(args[name])) for name in ("bf16", "fp16") if constant(args[name]) is True),
                None)  # fmt: skip


def _deepspeed(args: Arguments) -> list[Binding]:
    """A configuration written in place: `deepspeed={...}`, or a mapping in a file of arguments."""
    whole = args.given.get("deepspeed")
    value = constant(whole) if whole is not None else None
    nested = args.inner("deepspeed")
    config: Mapping[str, Value] = value if isinstance(value, Mapping) else {k: constant(e) for k, e in nested.items()}

    def place(keys: tuple[str, ...]) -> Expr | None:
        return nested.get(".".join(keys)) or nested.get(keys[0]) or whole

    return deepspeed_config(config, place) if config else []
