"""Examples of the rules about shared memory, copies, checkpoints and offloading: their tests, and what pages show."""

from __future__ import annotations

from preflight.vocabulary.rule import Example
from preflight_rules.host_examples import GIB, SAMPLES, TRAIN

IN_DOCKER = """
#!/bin/bash
#SBATCH --mem=30G
#SBATCH --cpus-per-task=16

docker run --rm --gpus all -v "$PWD:/work" -w /work pytorch/pytorch python train.py --batch_size 64
"""
WITH_SHM = IN_DOCKER.replace("docker run", "docker run --shm-size=11g")

COMPOSE = """
services:
  train:
    image: pytorch/pytorch
    command: python train.py --batch_size 64
    shm_size: 512mb
    gpus: all
"""

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  containers:
    - name: train
      image: pytorch/pytorch
      command: ["python", "train.py", "--batch_size=64"]
      resources:
        limits: {memory: 96Gi, nvidia.com/gpu: 1}
      volumeMounts:
        - {name: shm, mountPath: /dev/shm}
  volumes:
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: 4Gi}
"""

SHM = (
    Example(
        "Docker's 64 MiB, and 33 batches of 256 MiB",
        {"job.sh": IN_DOCKER, "train.py": TRAIN},
        fixed={"job.sh": WITH_SHM},
        says=("8.25 GiB of finished batches", "/dev/shm, which has 64 MiB"),
        options={"set": SAMPLES},
    ),
    Example(
        "A machine whose shared memory holds half of the batches",
        {"train.py": TRAIN},
        fixed={"train.py": TRAIN.replace("num_workers=16", "num_workers=4")},
        says=("which has 4 GiB",),
        options={"set": {**SAMPLES, "machine.shm": 4 * GIB}},
    ),
    Example(
        "The size of a sample is nowhere: the inequality is solved for it",
        {"job.sh": IN_DOCKER, "train.py": TRAIN},
        says=("2,112 samples in flight fit only if one decoded sample is at most 31.0 KiB",),
    ),
    Example(
        "A compose file",
        {"compose.yaml": COMPOSE, "train.py": TRAIN},
        fixed={"compose.yaml": COMPOSE.replace("512mb", "11g")},
        says=("/dev/shm, which has 512 MiB",),
        options={"set": SAMPLES},
    ),
    Example(
        "A pod whose memory at /dev/shm is too small",
        {"job.yaml": POD, "train.py": TRAIN},
        fixed={"job.yaml": POD.replace("4Gi", "11Gi")},
        says=("/dev/shm, which has 4 GiB",),
        options={"set": SAMPLES},
    ),
    Example("Enough for them", {"job.sh": WITH_SHM, "train.py": TRAIN}, finds=0, options={"set": SAMPLES}),
    Example(
        "The node's own shared memory",
        {"job.sh": IN_DOCKER.replace("docker run", "docker run --ipc=host"), "train.py": TRAIN},
        finds=0,
        options={"set": SAMPLES},
    ),
)

HELD = TRAIN.replace(
    "from data import dataset, validation",
    """import json


class Answers(torch.utils.data.Dataset):
    def __init__(self, path):
        self.items = [json.loads(line) for line in open(path)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return torch.tensor(self.items[index]["tokens"])


dataset = Answers("answers.jsonl")""",
)
IN_ARRAYS = (
    HELD.replace("[json.loads(line) for line in open(path)]", 'numpy.load(path, mmap_mode="r")')
    .replace("import json\n", "import json\n\nimport numpy\n")
    .replace('["tokens"]', "")
)

COPIED = (
    Example(
        "Four GiB of dicts, and 16 workers",
        {"train.py": HELD},
        says=("takes 4 GiB, and 16 workers copy 32.64 GiB more",),
        options={"set": {**SAMPLES, "data.in_memory_bytes": 4 * GIB, "machine.memory_limit": 256 * GIB}},
    ),
    Example(
        "How large the list is, nobody says",
        {"train.py": HELD},
        says=("fits only if it takes at most", "declare data.in_memory_bytes"),
        options={"set": {"data.sample_bytes": 8192, "machine.memory_limit": 8 * GIB}},
    ),
    Example(
        "An array that all workers share",
        {"train.py": IN_ARRAYS},
        finds=0,
        options={"set": {**SAMPLES, "data.in_memory_bytes": 4 * GIB, "machine.memory_limit": 256 * GIB}},
    ),
)

RESUMED = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

from data import dataset

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
model.load_state_dict(torch.load("step_9000.pt", map_location="cpu"))
arguments = TrainingArguments("out", per_device_train_batch_size=1, bf16=True)
Trainer(model, arguments, train_dataset=dataset).train()
"""
EIGHT = """
#!/bin/bash
#SBATCH --gres=gpu:8
#SBATCH --mem=400G
#SBATCH --cpus-per-task=64

torchrun --nproc_per_node 8 train.py
"""

CHECKPOINT = (
    Example(
        "Eight ranks, each with 25 GiB of its own",
        {"job.sh": EIGHT, "train.py": RESUMED},
        fixed={"train.py": RESUMED.replace('map_location="cpu"', 'map_location="cpu", mmap=True')},
        unsafe=True,
        says=("each of 8 ranks loads the weights (25.1 GiB)", "at least 200.82 GiB at once"),
    ),
    Example(
        "Pages of the file, which all ranks share",
        {"job.sh": EIGHT, "train.py": RESUMED.replace('map_location="cpu"', 'map_location="cpu", mmap=True')},
        finds=0,
    ),
    Example("One rank", {"job.sh": EIGHT.replace("8", "1"), "train.py": RESUMED}, finds=0),
)

OFFLOADED = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from data import dataset

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
arguments = TrainingArguments("out", per_device_train_batch_size=1, bf16=True, deepspeed="zero3.json")
Trainer(model, arguments, train_dataset=dataset).train()
"""
ZERO = """
{
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu"},
    "offload_param": {"device": "cpu"}
  },
  "bf16": {"enabled": true}
}
"""
FILES = {"train.py": OFFLOADED, "zero3.json": ZERO}

OFFLOAD = (
    Example(
        "Seven billion parameters on a node of 128 GiB",
        FILES,
        says=("6,738,415,616 parameters", "24 bytes each", "128 GiB it may use"),
        options={"set": {"data.sample_bytes": 8192, "machine.node_memory": 128 * GIB}},
    ),
    Example(
        "A node of 512 GiB",
        FILES,
        finds=0,
        options={"set": {"data.sample_bytes": 8192, "machine.node_memory": 512 * GIB}},
    ),
)
