"""torch.distributed with one process: a fake process group, the buckets of DistributedDataParallel, mp.spawn."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from .patches import Anything, answers, replace, wrap
from .settings import Settings
from .tape import Tape


def install(settings: Settings, tape: Tape) -> None:
    """Rank 0 runs alone; its collectives return what they were given."""
    import torch.multiprocessing

    _spawn(settings, tape)
    dist = torch.distributed
    if not hasattr(dist, "init_process_group"):
        return

    def begun(real: Any, backend: Any = None, *args: Any, rank: int = -1, world_size: int = -1, **kwargs: Any) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        rank = rank if rank >= 0 else int(os.environ.get("RANK", 0))
        world = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", settings.world_size))
        tape.assume(f"torch.distributed: rank {rank} of {world} ran alone, and its collectives return their input")
        real("fake", store=FakeStore(), rank=rank, world_size=world)

    def gathered(out: Any, one: Any, *_: Any, **__: Any) -> None:
        out[:] = [one] * len(out)

    wrap(dist, "init_process_group", begun)
    replace(dist, "is_nccl_available", answers(True))
    replace(dist, "get_backend", answers("nccl"))
    replace(dist, "all_gather_object", gathered)
    for name in ("broadcast_object_list", "monitored_barrier", "barrier"):
        replace(dist, name, answers(None))
    _data_parallel()


def _data_parallel() -> None:
    """DistributedDataParallel keeps its buckets, and a hook stands for the reduction of each."""
    import torch.nn.parallel.distributed as ddp

    replace(ddp, "_verify_param_shape_across_processes", answers(True))
    whole = ddp.DistributedDataParallel
    register = whole.register_comm_hook

    def reduced(_: Any, bucket: Any) -> Any:
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    reduced.__annotations__ = {}  # DistributedDataParallel compares them with classes of its own

    def made(real: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        real(model, *args, **kwargs)
        register(model, None, reduced)
        model.logger = Anything()  # it looks for a timer of the device

    wrap(whole, "__init__", made)
    replace(whole, "register_comm_hook", answers(None))


def refuse_sharding(module: Any, refuse: Callable[[str], None]) -> None:
    """Ways to share a model that run their own collectives: what they allocate would be wrong here."""

    def sharded(_: Any, *__: Any, **___: Any) -> None:
        refuse("the program shards its model, which a dry run does not follow (preflight estimate has its layouts)")

    whole = getattr(module, "FullyShardedDataParallel", None)
    if whole is not None:
        wrap(whole, "__init__", sharded)
    for name in ("fully_shard", "initialize", "parallelize_module"):
        if callable(getattr(module, name, None)):
            wrap(module, name, sharded)


def _spawn(settings: Settings, tape: Tape) -> None:
    def first(real: Any, function: Any, args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        tape.assume(f"torch.multiprocessing.spawn of {nprocs} processes: the first alone was run")
        function(0, *args)

    wrap(torch.multiprocessing, "spawn", first)


def shapes_alone(module: Any, tape: Tape) -> None:
    """DTensor asks for the shapes of whole tensors, which are on no rank."""

    def asked(real: Any, *args: Any, **kwargs: Any) -> Any:
        before, tape.recording = tape.recording, False
        try:
            return real(*args, **kwargs)
        finally:
            tape.recording = before

    wrap(module.ShardingPropagator, "_propagate_tensor_meta_non_cached", asked)
