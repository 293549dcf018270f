"""Two ranks over gloo, of which one has a small card: both halve together, and nobody waits for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from processes import HANGS

from preflight.guard.ranks import Leaving, Ranks

PROGRAM = """
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from preflight import guard
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
plain = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
plain.load_state_dict(module.state_dict())
models = DistributedDataParallel(module), DistributedDataParallel(plain)
optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in models]
loss = lambda model: lambda part: torch.nn.functional.cross_entropy(model(part[0]), part[1])
with guard.SmallCard("5MiB" if rank == 1 else None) as card:
    card.hold(module)
    for number in range(3):
        made = torch.Generator().manual_seed(10 * number + rank)
        batch = torch.randn(2048, 64, generator=made), torch.randint(0, 10, (2048,), generator=made)
        optimizers[0].zero_grad()
        guard.step(loss(models[0]), batch, models[0], optimizers[0])
        optimizers[0].step()
        card.budget, budget = None, card.budget
        optimizers[1].zero_grad()
        loss(models[1])(batch).backward()
        optimizers[1].step()
        card.budget = budget
difference = max(float((one - other).abs().max()) for one, other in zip(module.parameters(), plain.parameters()))
print("difference", difference < 2e-6, difference, flush=True)
dist.barrier()
os._exit(0)  # threads of gloo and of autograd sometimes end a process that ends by itself ("terminate called")
"""


def test_one_process_asks_nobody() -> None:
    ranks = Ranks(torch.nn.Linear(2, 2))
    assert not ranks.several
    assert ranks.any_failed(True)
    assert not ranks.any_failed(False)


def test_sharded_models_leave_and_start_again() -> None:
    class FullyShardedDataParallel(torch.nn.Module):
        pass

    assert "start again" in Ranks(FullyShardedDataParallel()).refusal


@pytest.mark.slow
def test_both_halve_together_and_stay_equal_to_plain_ranks(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [sys.executable, "program.py"]
    pipe, meet = subprocess.PIPE, str(tmp_path / "meet")
    ranks = [
        subprocess.Popen([*words, str(rank), meet], cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)
        for rank in (0, 1)
    ]
    for one in ranks:
        out, err = one.communicate(timeout=HANGS)
        assert one.returncode == 0, err
        assert "difference True" in out
        assert "in 2 parts" in err


LEAVES = """
import os, sys, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from preflight import guard
rank = int(sys.argv[1])
os.environ.update(RANK=str(rank), WORLD_SIZE="2")
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def loss(part):
    if rank == 1 and steps == 1:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    return model(part).mean()
for steps in range(3):
    optimizer.zero_grad()
    guard.step(loss, torch.ones(4, 8), model, optimizer)
    optimizer.step()
    print("step", steps, flush=True)
"""


@pytest.mark.slow
def test_ranks_of_a_sharded_model_end_together(tmp_path: Path) -> None:
    """Rank 0 waits for rank 1 in the middle of its forward pass. Nobody waits for a timeout of minutes."""
    (tmp_path / "program.py").write_text(LEAVES)
    pipe, meet = subprocess.PIPE, str(tmp_path / "meet")
    ranks = [
        subprocess.Popen(
            [sys.executable, "program.py", str(rank), meet], cwd=tmp_path, stdout=pipe, stderr=pipe, text=True
        )
        for rank in (0, 1)
    ]
    for rank, one in enumerate(ranks):
        out, err = one.communicate(timeout=HANGS)
        assert out.splitlines() == ["step 0"], err
        assert one.returncode == Leaving.STATUS, err
        assert ("another rank ran out of memory" if rank == 0 else "all ranks end") in err
