"""Programs of a job that no study judges: what they take is not known, beside what is judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra_program import write

from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings

TRAIN = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 8).cuda()
opt = torch.optim.AdamW(model.parameters())
for x in DataLoader(data, batch_size=4):
    model(x).sum().backward()
    opt.step()
"""
HEAD = "#!/bin/bash\n#SBATCH --mem=900G\n#SBATCH --gres=gpu:1\n"


def unread(lines: str, root: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    files = {"job.sh": HEAD + lines, "train.py": TRAIN, "prepare.py": "print(1)\n", "more.sh": "./inner\n"}
    write(files, root)
    [found] = build(("job.sh",), Project(root, Settings()))[0]
    return found.unread_programs, found.unread_beside


@pytest.mark.parametrize(
    ("lines", "programs", "beside"),
    [
        ("./a.out --big\npython train.py\n", ("./a.out",), ()),
        ("srun --mem=0 ./a.out\nsrun python train.py\n", ("./a.out",), ()),
        ("./server &\npython train.py\n", ("./server",), ("./server",)),
        ("./server &\nwait\npython train.py\n", ("./server",), ()),
        ("python prepare.py\npython train.py\n", ("prepare.py",), ()),
        ("python gone.py\npython train.py\n", ("gone.py",), ()),
        ("python -m tool.prepare\npython train.py\n", ("tool.prepare",), ()),
        ("bash more.sh\npython train.py\n", ("more.sh",), ()),
        ("python train.py\njulia sim.jl\n", ("julia",), ()),
        # what starts others may train
        ("wandb agent me/project/x1 &\npython train.py\n", ("wandb",), ("wandb",)),
        ("srun wandb launch-agent -q queue\npython train.py\n", ("wandb",), ()),
        ("pyenv exec ./server &\npython train.py\n", ("./server",), ("./server",)),
        ("pyenv exec python gone.py\npyenv exec python train.py\n", ("gone.py",), ()),
        # a container, or a timer, is no program of its own
        ("apptainer exec --nv x.sif ./a.out\ntime python train.py\n", ("./a.out",), ()),
    ],
)
def test_what_is_not_judged(lines: str, programs: tuple[str, ...], beside: tuple[str, ...], tmp_path: Path) -> None:
    assert unread(lines, tmp_path) == (programs, beside)


@pytest.mark.parametrize(
    "lines",
    [
        "module load cuda\nsource ~/.bashrc\nconda activate x\nmkdir -p out && cd .\npython train.py\n",
        "nvidia-smi -l 1 > log &\ntensorboard --logdir out &\npython train.py 2>&1 | tee log\n",
        "cp -r /data $TMPDIR; tar xf $TMPDIR/data.tar; python -m pip install -e .\nsrun python train.py\n",
        "wandb login $KEY\nwandb offline\npyenv activate x\npyenv shell 3.11\npython train.py\n",
        "hostname\nsrun nvidia-smi\npython train.py\nsbatch next.sh\n",
    ],
)
def test_what_takes_hardly_any_memory(lines: str, tmp_path: Path) -> None:
    assert unread(lines, tmp_path) == ((), ())
