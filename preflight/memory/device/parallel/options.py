"""`parallel.options`: settings of DDP, FSDP and DeepSpeed by their own names, with the libraries' defaults.

Sources of the defaults: torch/nn/parallel/distributed.py (DistributedDataParallel), torch/distributed/fsdp
(fully_shard, FullyShardedDataParallel), deepspeed/runtime/zero/config.py (DeepSpeedZeroConfig, 0.19).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

FLAGS: dict[str, bool | None] = {
    "gradient_as_bucket_view": False,
    "static_graph": False,
    "find_unused_parameters": False,
    "reshard_after_forward": True,
    "forward_prefetch": False,
    "limit_all_gathers": True,
    "no_sync": None,
    "contiguous_gradients": True,
    "overlap_comm": None,
    "sequence_parallel": None,
    "loss_parallel": None,
    "custom_sharded_layers": False,
    "zero3_init_flag": None,
}
"""Yes or no; None: what the library does depends on something else, or is not known. static_graph,
find_unused_parameters, limit_all_gathers and forward_prefetch change when something is sent, and are only checked.
custom_sharded_layers, a list of names in torchtune: whether embedding and head are units of their own.
zero3_init_flag, accelerate's: whether parameters are cut as they are made (deepspeed.zero.Init)."""

COUNTS: dict[str, int | None] = {
    "fsdp_version": None,
    "shard_group": None,
    "bucket_cap_mb": None,
    "reduce_bucket_size": 500_000_000,
    "allgather_bucket_size": 500_000_000,
    "stage3_prefetch_bucket_size": 50_000_000,
    "stage3_max_live_parameters": 1_000_000_000,
    "stage3_max_reuse_distance": 1_000_000_000,
    "stage3_param_persistence_threshold": 100_000,
    "sub_group_size": 1_000_000_000,
}
"""Whole numbers: versions, ranks, MiB, and elements in DeepSpeed's."""

DTYPES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2}
"""Bytes per element of the names that `param_dtype` and `reduce_dtype` may have."""
DTYPE_OPTIONS = ("param_dtype", "reduce_dtype")
PREFETCH = ("backward_pre", "backward_post", "none")
AUTO = "auto"
"""Options that Hugging Face's integration computes from the model (transformers, integrations/deepspeed.py)."""


class WrongOption(ValueError):
    """An option whose value the library would not take; the message names it."""


class ShardingOptions(Struct, frozen=True):
    """The checked options of one job, with the library's defaults."""

    given: Mapping[str, object]

    def __post_init__(self) -> None:
        for name, value in self.given.items():
            if not _fine(name, value):
                raise WrongOption(f"parallel.options has {name}: {value!r}")

    def states(self, name: str) -> bool:
        """Whether the job states the option."""
        return self.given.get(name) is not None

    def flag(self, name: str) -> bool | None:
        value = self.given.get(name)
        return FLAGS[name] if value is None else bool(value)

    def count(self, name: str) -> int | None:
        value = self.given.get(name)
        return COUNTS[name] if value is None or value == AUTO else int(float(str(value)))

    def automatic(self, name: str) -> bool:
        """Whether the integration computes it from the model."""
        return self.given.get(name) == AUTO

    def dtype(self, name: str) -> int | None:
        """Bytes per element; None if it is not stated."""
        value = self.given.get(name)
        return None if value is None else DTYPES[str(value)]

    def prefetch(self) -> str:
        return str(self.given.get("backward_prefetch") or "backward_pre").lower()


def _fine(name: str, value: object) -> bool:
    if value is None:
        return name in FLAGS or name in COUNTS or name in DTYPE_OPTIONS or name == "backward_prefetch"
    if name == "custom_sharded_layers" and isinstance(value, (list, tuple)):
        return all(isinstance(one, str) for one in value)
    if name in FLAGS:
        return isinstance(value, bool)
    if name in DTYPE_OPTIONS:
        return isinstance(value, str) and value in DTYPES
    if name == "backward_prefetch":
        return isinstance(value, str) and value.lower() in PREFETCH
    if name not in COUNTS:
        return False
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
    return number or (value == AUTO and name.startswith(("reduce", "stage3")))
