"""`fit` and `postmortem` judge the jobs of a program by its saved dry run, as `check` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from saved_runs import GIB, MIB, keep, run_in

from preflight.engine.check import Analysis, CheckOptions, CheckSetup, analyse, setup
from preflight.engine.files import batches
from preflight.engine.fit.run import Wish, answered
from preflight.vocabulary.fits import Answer

Write = Callable[[dict[str, str]], Path]
FILES = {
    "run.sh": "python train.py --bs 8\n",
    "train.py": """\
import argparse
import torch
from torch.utils.data import DataLoader
from net import Net
parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=8)
args = parser.parse_args()
net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
for x, y in DataLoader(data, batch_size=args.bs):
    loss = torch.nn.functional.cross_entropy(net(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "net.py": "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        self.o = make()\n",
}


@pytest.fixture
def root(project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose model is known from a dry run alone: 2 GiB, and 1 MiB for each sample of 128 tokens."""
    home = tmp_path.with_name(tmp_path.name + "-cache")
    monkeypatch.setenv("PREFLIGHT_CACHE_DIR", str(home))
    folder = project(FILES)
    keep(home / "dry-runs", run_in(folder, "--bs", "8", sources=("train.py", "net.py")))
    return folder


def analysed(root: Path, gpu: str | None, memory: int = 0) -> tuple[Analysis, CheckSetup]:
    [batch] = batches(("run.sh",), root, from_hook=False)
    project, asked = setup(batch, CheckOptions(gpu=gpu, set={"machine.gpu_memory": memory} if memory else {}), root)
    return analyse(project, asked), asked


def solved(root: Path, field: str, gpu: str | None, memory: int = 0) -> Answer:
    found, asked = analysed(root, gpu, memory)
    [one] = answered(found, asked, Wish((field,)), root)
    [answer] = one.parts[0].answers
    return answer


def test_the_largest_batch_is_that_of_the_law(root: Path) -> None:
    answer = solved(root, "train.batch_size", "RTX 4090", 5 * GIB // 2 + 200 * MIB)
    device = answer.estimates.device if answer.estimates is not None else None
    assert device is not None
    assert isinstance(answer.value, int)
    assert 16 < answer.value < 384
    assert answer.limit == ""
    assert device.requested.expected == 2 * GIB + answer.value * MIB


def test_a_law_ends_before_the_memory_does(root: Path) -> None:
    """It speaks of batches up to 16 times the largest that was run (24)."""
    answer = solved(root, "train.batch_size", "RTX 4090")
    assert answer.value == 384
    assert answer.limit == "the law of its dry run reaches no further"


def test_the_longest_length_is_that_of_the_law(root: Path) -> None:
    """A law speaks of lengths up to twice the longest that was run."""
    answer = solved(root, "train.seq_len", "RTX 4090")
    assert answer.value == 256


def test_the_smallest_card_is_judged_by_the_run(root: Path) -> None:
    answer = solved(root, "machine.gpu", None)
    assert isinstance(answer.value, str)
    assert answer.estimates is not None
    assert answer.estimates.device is not None
    assert answer.estimates.device.requested.expected == 2 * GIB + 8 * MIB


def test_without_its_run_nothing_is_solved(root: Path) -> None:
    (root / "net.py").write_text(FILES["net.py"] + "x = 1\n")
    answer = solved(root, "train.batch_size", "RTX 4090")
    assert answer.value is None


def test_a_dead_job_is_compared_with_its_run(root: Path) -> None:
    from preflight.postmortem.configuration import judge

    _, [found], _ = judge(["run.sh"], CheckOptions(gpu="RTX 4090"), [], root)
    device = found.estimate(found.job).device
    assert device is not None
    assert device.requested.expected == 2 * GIB + 8 * MIB
