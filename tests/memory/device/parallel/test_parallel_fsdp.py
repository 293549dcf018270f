"""One rank's tape against torch's own FSDPMemTracker: what a small decoder gathers, reduces and keeps, layer by layer.

The process group is a fake one, the tensors are real and small; the tracker counts storages as the device would.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from preflight.memory.device.law.expand import expand
from preflight.memory.device.parallel import DeviceRank
from preflight.memory.device.prepare import prepare
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.values import Unknown

torch = pytest.importorskip("torch")

LAYERS, BATCH, LENGTH = 6, 2, 32
CONFIG = {
    "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 224,
    "vocab_size": 384, "num_hidden_layers": LAYERS, "use_cache": False,
}  # fmt: skip
KINDS = {"unsharded weights": "whole", "all-gather": "gathered", "reduce-scatter": "reduced"}


def job(ranks: int, config: dict[str, Any], **options: object) -> Job:
    return build({
        "model.architecture": "llama", "model.config": config, "task": "causal-lm", "train.batch_size": BATCH,
        "train.seq_len": LENGTH, "train.sequences": "exact", "parallel.strategy": "fsdp",
        "parallel.gpus_per_node": ranks, "parallel.ranks_per_node": ranks,
        "parallel.options": {"fsdp_version": 2, "no_sync": False, **options},
    })  # fmt: skip


def ranked(wanted: Job) -> DeviceRank:
    ready = prepare(wanted)
    assert not isinstance(ready, Unknown), ready
    return ready.rank


def blocks(rank: DeviceRank) -> Iterator[tuple[str, int, dict[str, int], dict[str, int]]]:
    """(phase, layer or -1, bytes by kind at the block's end, the most within it); kept and raw are gradients."""
    tape, dims = rank.laws.made.tape, rank.dims
    values, events = tape.values(dims), expand(tape, dims)
    live = dict.fromkeys([*KINDS.values(), "kept", "raw"], 0)
    born: dict[int, tuple[str, int]] = {}
    at = 0
    for item in tape.items:
        layers = dims["L"] if item.stack else 1
        for layer in range(layers - 1, -1, -1) if item.down else range(layers):
            block = _block(item, layer, layers)
            most = dict(live)
            for token, (kind, birth, size, mark, _) in zip(block, events[at : at + len(block)], strict=True):
                if kind == "b":
                    name = KINDS.get(tape.modules[token.where], "")
                    name = "kept" if name == "reduced" and "g" in mark else name or ("raw" if "g" in mark else "")
                    if name:
                        born[birth] = (name, values[size])
                        live[name] += values[size]
                elif kind == "d" and birth in born:
                    name, nbytes = born.pop(birth)
                    live[name] -= nbytes
                most = {name: max(most[name], live[name]) for name in live}
            at += len(block)
            yield item.phase, layer if item.stack else -1, dict(live), most


def _block(item: Any, layer: int, layers: int) -> Any:
    from preflight.memory.device.law.tape import block_of

    return item.blocks[block_of(layer, layers) if item.stack else 0]


def tracked(
    ranks: int, config: dict[str, Any], policy: Any, reshard: bool = True, apart: bool = False
) -> dict[str, dict[str, Any]]:
    """The tracker's snapshots: unit -> state -> bytes by category, of a second iteration."""
    import torch.distributed as dist
    import transformers
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (ranks,))
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model("llama", **config))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
        if apart:
            fully_shard(model.model.embed_tokens, mesh=mesh, mp_policy=policy)
            fully_shard([model.model.norm, model.lm_head], mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        ids = torch.zeros(BATCH, LENGTH, dtype=torch.int64)
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((ids,))
        with tracker:
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
        device = torch.device("cpu")
        found = {"end": {"": _plain(tracker.get_tracker_snapshot()[device])}}
        for stats in tracker.memory_tracking.values():
            name = stats.mod_fqn.partition(".")[2]
            found[name] = {s.value: _plain(shots[-1][device]) for s, shots in stats.snapshots.items()}
        return found
    finally:
        dist.destroy_process_group()


def _plain(shot: Any) -> dict[str, int]:
    return {str(getattr(key, "value", key)): value for key, value in shot.items()}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("mixed", [False, True])
def test_every_layer_is_gathered_and_reduced_as_the_tracker_says(ranks: int, mixed: bool) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    config = CONFIG | ({"num_key_value_heads": 3, "intermediate_size": 225} if ranks == 3 else {})
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if mixed else MixedPrecisionPolicy()
    seen = tracked(ranks, config, policy)
    options = {"param_dtype": "bf16", "reduce_dtype": "fp32"} if mixed else {}
    rank = ranked(job(ranks, config, **options))
    for phase, layer, end, most in blocks(rank):
        if layer < 0:
            continue
        shots = seen[f"model.layers.{layer}"]
        if phase == "forward":
            after = shots["After Post-Forward"]
            assert (end["whole"], end["gathered"]) == (after["Unsharded Param"], after["All Gather"]), layer
            assert most["whole"] == shots["After Pre-Forward"]["Unsharded Param"], layer
        elif phase == "backward":
            there, before = shots["After Pre-Backward"], shots["Before Post-Backward"]
            after = shots["After Post-Backward"]
            assert most["whole"] == there["Unsharded Param"], layer
            assert most["raw"] >= before["Unsharded Grad"], layer
            assert most["reduced"] >= after["Reduce Scatter"], layer
            assert (end["whole"], end["kept"]) == (after["Unsharded Param"], after["Sharded Grad"]), layer
            assert end["gathered"] == after["All Gather"], layer
        else:
            raise AssertionError(phase)
    root = seen[""]
    last = list(blocks(rank))[-1]
    assert last[2]["whole"] == last[2]["gathered"] == 0
    assert last[2]["kept"] == root["After Post-Backward"]["Sharded Grad"]
    assert last[3]["reduced"] >= root["After Post-Backward"]["Reduce Scatter"]
    states = seen["end"][""]
    assert rank.weights == states["Sharded Param"]
    assert rank.gradients == states["Sharded Grad"]
    steps = 4 * sum(1 for _, _, trains in rank.rows if trains)  # Adam's step counters, one float32 each
    stepped = rank.stepped("adamw", "foreach")
    assert stepped is not None
    assert sum(stepped.states) == states["OptState"] - steps


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True])
def test_embedding_and_head_as_units_of_their_own(mixed: bool) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if mixed else MixedPrecisionPolicy()
    seen = tracked(4, CONFIG, policy, apart=True)
    options = {"param_dtype": "bf16", "reduce_dtype": "fp32"} if mixed else {}
    rank = ranked(job(4, CONFIG, custom_sharded_layers=["tok_embeddings", "output"], **options))
    for phase, layer, end, most in blocks(rank):
        if layer < 0:
            continue
        shots = seen[f"model.layers.{layer}"]
        if phase == "forward":
            after = shots["After Post-Forward"]
            assert (end["whole"], end["gathered"]) == (after["Unsharded Param"], after["All Gather"]), layer
        else:
            after = shots["After Post-Backward"]
            assert most["whole"] == shots["After Pre-Backward"]["Unsharded Param"], layer
            assert (end["whole"], end["kept"]) == (after["Unsharded Param"], after["Sharded Grad"]), layer
            assert end["gathered"] == after["All Gather"], layer
    last = list(blocks(rank))[-1]
    assert last[2]["whole"] == last[2]["gathered"] == 0
    assert last[2]["kept"] == rank.gradients == seen["end"][""]["Sharded Grad"]


@pytest.mark.slow
def test_weights_that_stay_whole_after_forward() -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    seen = tracked(4, CONFIG, MixedPrecisionPolicy(), reshard=False)
    rank = ranked(job(4, CONFIG, reshard_after_forward=False))
    for phase, layer, end, _ in blocks(rank):
        if layer < 0:
            continue
        state = "After Post-Forward" if phase == "forward" else "After Post-Backward"
        if phase in ("forward", "backward"):
            assert end["whole"] == seen[f"model.layers.{layer}"][state]["Unsharded Param"], (phase, layer)


@pytest.mark.slow
def test_padding_of_rows_is_what_elements_alone_cannot_say() -> None:
    """331 rows of a vocabulary over 4 ranks: torch pads each table by a row and a fraction at most."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    config = {**CONFIG, "vocab_size": 331}
    seen = tracked(4, config, MixedPrecisionPolicy())["end"][""]["Sharded Param"]
    rank = ranked(job(4, config))
    assert rank.weights <= seen <= rank.weights + 2 * 96 * 4
