"""Examples of the rules about SLURM: their tests, and what their pages show."""

from __future__ import annotations

from preflight.vocabulary.rule import Example

MIB = 2**20

TRAIN = """
import argparse

import torch
from torch.utils.data import DataLoader

from data import dataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--workers", type=int, default=4)
args = parser.parse_args()

model = torch.nn.Linear(10, 10).cuda()
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
for batch in loader:
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

CLUSTER = """
[node.gpu]
memory = "256000MB"
cpus = 64
gpu = "A100-80GB"
gpu_type = "a100"
gpus = 4

[partition.gpu]
nodes = ["gpu"]
default = true
max_minutes = 1440
"""


def job(*directives: str, line: str = "srun python train.py --batch_size 64 --workers 4") -> str:
    """A job script."""
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {directive}" for directive in directives), "", line, ""])


def files(script: str) -> dict[str, str]:
    """A job script on a described cluster."""
    return {"train.sbatch": script, "train.py": TRAIN, "cluster.toml": CLUSTER}


SAMPLES = {"data.sample_bytes": 16 * MIB, "software.glibc": "2.39"}
OPTIONS = {"machine": "cluster.toml", "set": SAMPLES}

SMALL = job("--nodes=1 --ntasks-per-node=4", "--gres=gpu:a100:4", "--cpus-per-task=8", "--mem=32G")

HYDRA = """
import hydra
import torch
from torch.utils.data import DataLoader

from data import dataset


@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    model = torch.nn.Linear(10, 10).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in DataLoader(dataset, batch_size=cfg.batch_size, num_workers=cfg.workers):
        model(batch).mean().backward()
        optimizer.step()


main()
"""
SUBMITIT = """
defaults:
  - override hydra/launcher: submitit_slurm
batch_size: 32
workers: 4
hydra:
  mode: MULTIRUN
  sweeper:
    params:
      seed: 1,2
  launcher:
    cpus_per_task: 8
    mem_gb: 4
    gpus_per_node: 1
"""

UNASKED = SMALL.replace("#SBATCH --mem=32G\n", "")

TOO_LOW = (
    Example(
        "Four ranks need more than they ask for, and the node has it",
        files(SMALL),
        fixed={"train.sbatch": SMALL.replace("--mem=32G", "--mem=72G")},
        says=("--mem gives 32 GiB per node", "4 ranks per node"),
        options=OPTIONS,
    ),
    Example("The same job with enough", files(SMALL.replace("32G", "128G")), finds=0, options=OPTIONS),
    Example(
        "Nothing is asked for, and what the partition gives by default is too little",
        {**files(UNASKED), "cluster.toml": CLUSTER + "default_memory_per_cpu = 1024\n"},
        fixed={"train.sbatch": UNASKED.replace("per-task=8\n", "per-task=8\n#SBATCH --mem=72G\n")},
        says=("the default per cpu gives 32 GiB per node",),
        options=OPTIONS,
    ),
    Example(
        "A launcher that submits for Hydra counts in GiB",
        {"train.py": HYDRA, "conf/config.yaml": SUBMITIT},
        fixed={"conf/config.yaml": SUBMITIT.replace("mem_gb: 4", "mem_gb: 11")},
        unsafe=True,
        says=("--mem gives 4 GiB per node",),
        options={"set": SAMPLES},
    ),
    Example(
        "Nothing says how large a sample is", files(SMALL), finds=0, options={"machine": "cluster.toml", "set": {}}
    ),
)

SILENT = job("--nodes=1 --ntasks-per-node=4", "--gres=gpu:4", "--cpus-per-task=8")

UNSTATED = (
    Example(
        "No --mem, and no cluster that says what the default is",
        {"train.sbatch": SILENT, "train.py": TRAIN},
        says=("no memory is requested",),
        options={"set": SAMPLES},
    ),
    Example("The cluster gives whole nodes", files(SILENT), finds=0, options=OPTIONS),
)

LARGE = job("--nodes=1 --ntasks-per-node=4", "--gres=gpu:4", "--cpus-per-task=8", "--mem=256G")

IMPOSSIBLE = (
    Example(
        "256G is 262144 MiB, and the node has 256000",
        files(LARGE),
        fixed={"train.sbatch": LARGE.replace("256G", "250G")},
        says=("262144 MiB", "256000 MiB"),
        options={**OPTIONS, "set": {"data.sample_bytes": 40 * MIB}},
    ),
    Example("250G is what fits", files(LARGE.replace("256G", "250G")), finds=0, options=OPTIONS),
    Example(
        "GRES types are case-sensitive",
        files(LARGE.replace("256G", "250G").replace("gpu:4", "gpu:A100:4")),
        says=("A100",),
        options=OPTIONS,
    ),
    Example(
        "A time limit beyond the partition's is accepted and never starts",
        files(LARGE.replace("256G", "250G").replace("--gres=gpu:4", "--gres=gpu:4 --time=2-00:00:00")),
        says=("never start", "2880"),
        options=OPTIONS,
    ),
)

BROKEN = job("--gres=gpu:1 --cpus-per-task=8", "--mem=1.5G")

INVALID = (
    Example(
        "sbatch takes integers",
        {"train.sbatch": BROKEN, "train.py": TRAIN},
        fixed={"train.sbatch": BROKEN.replace("1.5G", "1536M")},
        says=("Invalid --mem specification",),
    ),
    Example(
        "Two of the memory options",
        {"train.sbatch": job("--gres=gpu:1", "--mem=64G", "--mem-per-cpu=4G"), "train.py": TRAIN},
        says=("mutually exclusive",),
    ),
    Example(
        "A bare number is MiB",
        {"train.sbatch": BROKEN.replace("1.5G", "64"), "train.py": TRAIN},
        fixed={"train.sbatch": BROKEN.replace("1.5G", "64G")},
        unsafe=True,
        says=("64 MiB",),
    ),
    Example("Sizes as sbatch takes them", {"train.sbatch": BROKEN.replace("1.5G", "64gb"), "train.py": TRAIN}, finds=0),
)

TORCHRUN = "srun torchrun --nproc_per_node=4 --nnodes=1 train.py --batch_size 64"
NESTED = job("--nodes=1 --ntasks-per-node=4", "--gres=gpu:4", "--cpus-per-task=8 --mem=64G", line=TORCHRUN)
ONCE = NESTED.replace("--ntasks-per-node=4", "--ntasks-per-node=1").replace("task=8", "task=32")

MISMATCH = (
    Example(
        "A torchrun of four in each of four tasks",
        {"train.sbatch": NESTED, "train.py": TRAIN},
        fixed={"train.sbatch": ONCE},
        unsafe=True,
        says=("16 processes on 4 GPUs",),
    ),
    Example("One torchrun per node", {"train.sbatch": ONCE, "train.py": TRAIN}, finds=0),
    Example(
        "More processes than GPUs",
        {"train.sbatch": job("--nodes=1 --ntasks-per-node=4", "--gres=gpu:2", "--mem=64G"), "train.py": TRAIN},
        says=("4 processes per node on 2 GPUs",),
    ),
    Example("One task per GPU", {"train.sbatch": LARGE, "train.py": TRAIN}, finds=0),
    Example(
        "Two nodes, and a launch line that runs on the first alone",
        {"train.sbatch": ONCE.replace("--nodes=1", "--nodes=2").replace("srun ", ""), "train.py": TRAIN},
        finds=1,
        says=("1 node, and 2 are requested",),
    ),
)

LATE = """
#!/bin/bash
#SBATCH --gres=gpu:1
set -e
#SBATCH --mem=64G
srun python train.py
"""

EARLY = """
#!/bin/bash
#SBATCH --gres=gpu:1
#SBATCH --mem=64G
set -e
srun python train.py
"""

IGNORED = (
    Example(
        "A directive behind the first command",
        {"train.sbatch": LATE, "train.py": TRAIN},
        fixed={"train.sbatch": EARLY},
        unsafe=True,
        says=("after the first command (line 3)",),
    ),
    Example(
        "A blank in the marker",
        {"train.sbatch": EARLY.replace("#SBATCH --mem", "# SBATCH --mem"), "train.py": TRAIN},
        fixed={"train.sbatch": EARLY},
        unsafe=True,
    ),
    Example("All directives at the top", {"train.sbatch": EARLY, "train.py": TRAIN}, finds=0),
    Example(
        "A directive that is switched off, and given again",
        {
            "train.sbatch": EARLY.replace("#SBATCH --mem=64G", "##SBATCH --mem=32G\n#SBATCH --mem=64G"),
            "train.py": TRAIN,
        },
        finds=0,
    ),
)

ROOMY = job("--nodes=1 --ntasks-per-node=1", "--gres=gpu:a100:1", "--cpus-per-task=8", "--mem=200G")
ALONE = job("--nodes=1", "--gres=gpu:4", "--mem=16G", line="python train.py --batch_size 64 --workers 4")

OVER = (
    Example(
        "One rank asks for most of a node",
        files(ROOMY),
        says=("--mem gives 200 GiB per node", "stay unused"),
        options=OPTIONS,
    ),
    Example("Most of what is asked for is needed", files(ROOMY.replace("200G", "32G")), finds=0, options=OPTIONS),
    Example(
        "A whole node costs nothing more",
        files(ROOMY.replace("--mem=200G", "--exclusive --mem=0")),
        finds=0,
        options=OPTIONS,
    ),
    Example(
        "What the job runs out of is /dev/shm",
        {**files(ROOMY), "cluster.toml": CLUSTER.replace("gpus = 4", 'gpus = 4\nshm = "64MB"')},
        finds=0,
        options=OPTIONS,
    ),
    Example("One process beside four GPUs", {"train.sbatch": ALONE, "train.py": TRAIN}, says=("one process",)),
)
