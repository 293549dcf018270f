"""Compose files and Kubernetes objects: the program inside, and what its container gives it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from preflight.dialects import recognise
from preflight.engine import check as engine
from preflight.engine.files import Batch
from preflight.vocabulary.job import Job
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings

MIB, GIB = 2**20, 2**30
TRAIN = """
import argparse
import torch
from torch.utils.data import DataLoader
from data import dataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
model = torch.nn.Linear(10, 10)
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(dataset, batch_size=args.batch_size, num_workers=3):
    model(batch).mean().backward()
    optimizer.step()
"""


def jobs(text: str, folder: Path, name: str = "file.yaml") -> list[Job]:
    (folder / "train.py").write_text(TRAIN)
    (folder / name).write_text(dedent(text))
    batch = Batch(folder, Settings(), None, (name,), ())
    project, asked = engine.setup(batch, engine.CheckOptions(), folder)
    return [one.space.worst.job for one in engine.check(project, asked).studies]


SERVICE = """
services:
  db:
    image: postgres:16
  train:
    image: pytorch/pytorch
    command: python train.py --batch-size 16
"""
COMPOSE = {
    "nothing said": ("", 64 * MIB, None, "cpu"),
    "shm_size": ("    shm_size: 8gb\n    gpus: all\n", 8 * GIB, None, "gpu"),
    "bytes": ("    shm_size: 1073741824\n    mem_limit: 512m\n", GIB, 512 * MIB, "cpu"),
    "the host's": ("    ipc: host\n    runtime: nvidia\n", None, None, "gpu"),
    "mounted": ("    volumes: ['/dev/shm:/dev/shm', './data:/data']\n", None, None, "cpu"),
    "deploy": ("    mem_limit: 1g\n    deploy: {resources: {limits: {memory: 16G}}}\n", 64 * MIB, 16 * GIB, "cpu"),
    "no memory is so large": (f"    shm_size: {'1' * 400}g\n", None, None, "cpu"),
    "a variable": ("    shm_size: ${SHM:-8g}\n", None, None, "cpu"),
}


@pytest.mark.parametrize("name", COMPOSE)
def test_what_a_service_has(name: str, tmp_path: Path) -> None:
    more, shm, memory, accelerator = COMPOSE[name]
    [job] = jobs(SERVICE + more, tmp_path)
    machine = job.machine
    assert (machine.shm, machine.memory_limit, machine.accelerator) == (shm, memory, accelerator)
    assert job.train.batch_size == 16


COMMANDS = {
    "a list": "command: ['python', 'train.py', '--batch-size=8']",
    "a shell": 'command: ["bash", "-c", "cd /work && python train.py --batch-size 8"]',
    "entry point": "entrypoint: [python, train.py]\n    command: --batch-size 8",
    "a block": "command: >\n      bash -c 'python train.py\n      --batch-size 8'",
    "torchrun": "command: torchrun --nproc_per_node=2 train.py --batch-size 8",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_of_a_service(name: str, tmp_path: Path) -> None:
    [job] = jobs(f"services:\n  train:\n    build: .\n    {COMMANDS[name]}\n", tmp_path)
    assert job.train.batch_size == 8
    assert job.parallel.ranks_per_node == (2 if name == "torchrun" else 1)


def test_devices_are_counted(tmp_path: Path) -> None:
    text = """
    services:
      train:
        image: x
        command: python train.py
        deploy:
          resources:
            reservations:
              devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]
    """
    [job] = jobs(text, tmp_path)
    assert job.parallel.gpus_per_node == 2
    assert job.machine.accelerator == "gpu"


POD = """
apiVersion: v1
kind: ConfigMap
metadata: {name: x}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      containers:
        - name: train
          image: pytorch/pytorch
          command: ["torchrun", "--nproc_per_node=4"]
          args:
            - train.py
            - --batch-size=8
          resources:
            limits: {memory: 64Gi, nvidia.com/gpu: 4}
          volumeMounts:
            - {name: dshm, mountPath: /dev/shm}
      volumes:
        - name: dshm
          emptyDir: {medium: Memory, sizeLimit: 16G}
"""


def test_a_job_of_kubernetes(tmp_path: Path) -> None:
    [job] = jobs(POD, tmp_path)
    assert (job.machine.shm, job.machine.memory_limit) == (16 * 10**9, 64 * GIB)
    assert (job.parallel.gpus_per_node, job.parallel.ranks_per_node, job.train.batch_size) == (4, 4, 8)


def test_a_pod_without_more_has_64_mib_and_no_gpu(tmp_path: Path) -> None:
    text = POD[POD.index("---") + 4 :].replace(", nvidia.com/gpu: 4", "").replace("/dev/shm", "/data")
    [job] = jobs(text, tmp_path)
    assert (job.machine.shm, job.machine.accelerator) == (64 * MIB, "cpu")


@pytest.mark.parametrize("change", [("          emptyDir", "          hostPath"), (", sizeLimit: 16G", "")])
def test_shared_memory_whose_size_nobody_says(change: tuple[str, str], tmp_path: Path) -> None:
    [job] = jobs(POD.replace(*change), tmp_path)
    assert job.machine.shm is None


def test_replicas_of_one_run_are_nodes(tmp_path: Path) -> None:
    text = """
    apiVersion: kubeflow.org/v1
    kind: PyTorchJob
    metadata: {name: train}
    spec:
      pytorchReplicaSpecs:
        Master: &one
          replicas: 1
          template:
            spec:
              containers:
                - {name: pytorch, image: x, command: [python, train.py], resources: {limits: {nvidia.com/gpu: 1}}}
        Worker:
          replicas: 3
          template:
            spec:
              containers:
                - {name: pytorch, image: x, command: [python, train.py], resources: {limits: {nvidia.com/gpu: 1}}}
    """
    [job] = jobs(text, tmp_path)
    assert job.parallel.nodes == 4


JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  NPROC
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - {name: pytorch, image: x, command: [COMMAND], resources: {limits: {nvidia.com/gpu: 4}}}
"""


@pytest.mark.parametrize(
    ("said", "command", "ranks"),
    [
        ('nprocPerNode: "2"', "torchrun, train.py", 2),
        ("nprocPerNode: auto", "torchrun, train.py", 4),
        ("elasticPolicy: {nProcPerNode: 3}", "torchrun, train.py", 3),
        ('nprocPerNode: "2"', "torchrun, --nproc_per_node=4, train.py", 4),
        ('nprocPerNode: "2"', "bash, -c, torchrun train.py", 2),
        ('nprocPerNode: "2"', "python, train.py", None),
        ("runPolicy: {}", "torchrun, train.py", None),
    ],
)
def test_the_operator_tells_torchrun_the_processes_of_a_pod(
    said: str, command: str, ranks: int | None, tmp_path: Path
) -> None:
    [job] = jobs(JOB.replace("NPROC", said).replace("COMMAND", command), tmp_path)
    assert job.parallel.nodes == 2
    assert ranks is None or job.parallel.ranks_per_node == ranks
    assert ranks is not None or job.parallel.ranks_per_node != 2


def test_a_variable_tells_torchrun_its_processes(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH --gres=gpu:4\nexport PET_NPROC_PER_NODE=4\ntorchrun train.py\n"
    [job] = jobs(text, tmp_path, "job.sh")
    assert job.parallel.ranks_per_node == 4


ARGO = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: train-}
spec:
  entrypoint: main
  arguments:
    parameters: [{name: size, value: 32}]
  templates:
    - name: main
      inputs:
        parameters: [{name: size, value: 1}]
      STEPS
    - name: train
      inputs:
        parameters: [{name: batch, default: 64}]
      container:
        image: x
        command: [python, train.py]
        args: ["--batch-size={{inputs.parameters.batch}}"]
"""
ONE = "{name: a, template: train, arguments: {parameters: [{name: batch, value: VALUE}]}MORE}"
STEPS = {
    "the default holds where nothing is given": ("steps: [[{name: a, template: train}]]", {64}),
    "the argument of the step": (f"steps: [[{ONE}]]".replace("VALUE", "8"), {8}),
    "the argument of a task": (f"dag: {{tasks: [{ONE}]}}".replace("VALUE", "8"), {8}),
    "an input of the caller": (f"steps: [[{ONE}]]".replace("VALUE", '"{{inputs.parameters.size}}"'), {32}),
    "a parameter of the workflow": (f"steps: [[{ONE}]]".replace("VALUE", '"{{workflow.parameters.size}}"'), {32}),
    "several steps": (f"steps: [[{ONE}], [{ONE.replace('VALUE', '16')}]]".replace("VALUE", "8"), {8, 16}),
    "items": (
        f"steps: [[{ONE}]]".replace("VALUE", '"{{item}}"').replace("MORE", ", withItems: [4, 8]"),
        {4, 8},
    ),
    "items of mappings": (
        f"steps: [[{ONE}]]".replace("VALUE", '"{{item.b}}"').replace("MORE", ", withItems: [{b: 4}]"),
        {4},
    ),
    "items of the run": (
        f"steps: [[{ONE}]]".replace("VALUE", '"{{item}}"').replace("MORE", ', withParam: "{{steps.a.outputs.result}}"'),
        {None},
    ),
}


@pytest.mark.parametrize(("steps", "batches"), STEPS.values(), ids=STEPS)
def test_what_starts_a_template_of_argo_gives_its_inputs(steps: str, batches: set[int | None], tmp_path: Path) -> None:
    found = jobs(ARGO.replace("STEPS", steps.replace("MORE", "")), tmp_path)
    assert {job.train.batch_size for job in found} == batches


def test_a_template_that_starts_itself_ends(tmp_path: Path) -> None:
    own = ARGO.replace("STEPS", "steps: [[{name: a, template: main}, {name: b, template: train}]]")
    assert {job.train.batch_size for job in jobs(own, tmp_path)} == {64}


def test_templates_that_all_start_each_other_are_followed_once(tmp_path: Path) -> None:
    every = ", ".join(f"{{name: s{n}, template: t{n}}}" for n in range(40))
    more = "".join(f"    - {{name: t{n}, steps: [[{every}, {ONE}]]}}\n" for n in range(40))
    text = ARGO.replace("STEPS", f"steps: [[{ONE}]]") + more
    found = jobs(text.replace("VALUE", "8").replace("MORE", ""), tmp_path)
    assert {job.train.batch_size for job in found} <= {8, None}


ALONE = {
    "no program of the project": "services:\n  web:\n    image: nginx\n    command: nginx -g 'daemon off;'\n",
    "not services of containers": "services:\n  - name: train\n    command: python train.py\n",
    "a template": POD.replace("64Gi", "{{ .Values.memory }}"),
    "no containers": "apiVersion: v1\nkind: Service\nspec: {ports: []}\n",
    "commands that are no text": "services:\n  a:\n    image: b\n    command: [1, [2], null]\n",
}


@pytest.mark.parametrize("name", ALONE)
def test_files_that_are_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "file.yaml").write_text(ALONE[name])
    project = Project(tmp_path, Settings())
    found = recognise(project.source("file.yaml"), project)
    assert found is None or found.NAME not in ("compose", "kubernetes")
