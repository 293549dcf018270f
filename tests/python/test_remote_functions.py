"""Functions that ray, Ray Tune, submitit and Modal run elsewhere: what they are given, and what they ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from notebooks_as_text import studies, value

from preflight.vocabulary.values import Choices, Range

BODY = """
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in DataLoader(data, batch_size={size}, shuffle=True):
        model(batch).sum().backward()
        optimizer.step()
"""
HEAD = "import torch\nfrom torch.utils.data import DataLoader\n"
RAY = HEAD + "import ray\n@ray.remote(num_gpus={gpus})\ndef train(size):" + BODY.format(size="size")
TUNE = HEAD + "from ray import tune\ndef train(config):" + BODY.format(size='config["size"]')
SUBMITIT = HEAD + "import submitit\ndef train(size):" + BODY.format(size="size")
MODAL = (
    HEAD
    + 'import modal\napp = modal.App()\n@app.function(gpu="{gpu}")\ndef train(size: int = 4):'
    + BODY.format(size="size")
)


@pytest.mark.parametrize(("gpus", "trials"), [("0.25", 4), ("0.3", 3), ("1", 1)])
def test_a_share_of_a_gpu_is_shared_by_others(gpus: str, trials: int, tmp_path: Path) -> None:
    text = RAY.format(gpus=gpus) + "\nray.get([train.remote(32) for _ in range(2)])\n"
    (study,) = studies(text, tmp_path, name="train.py")
    shared = value(study, "parallel.trials_per_gpu") if trials > 1 else 1
    assert (value(study, "train.batch_size"), shared) == (32, trials)


def test_different_shares_leave_it_open(tmp_path: Path) -> None:
    text = RAY.format(gpus="0.5") + "\n@ray.remote(num_gpus=0.1)\ndef other():\n    pass\nray.get(train.remote(2))\n"
    (study,) = studies(text, tmp_path, name="train.py")
    assert value(study, "parallel.trials_per_gpu") == "?"


def test_the_space_of_ray_tune_is_an_axis(tmp_path: Path) -> None:
    more = (
        'space = {"size": tune.choice([8, 16]), "lr": tune.loguniform(1e-5, 1e-2)}\n'
        'tuner = tune.Tuner(tune.with_resources(train, {"gpu": 0.5}), param_space=space)\ntuner.fit()\n'
    )
    (study,) = studies(TUNE + more, tmp_path, name="train.py")
    axes = {axis.name: axis.domain for box in study.boxes for axis in box.axes}
    size = axes["config.size"]
    assert isinstance(size, Choices)
    assert size.values == (8, 16)
    assert value(study, "parallel.trials_per_gpu") == 2


def test_the_upper_bound_of_randint_is_left_out(tmp_path: Path) -> None:
    more = 'tune.run(train, config={"size": tune.randint(4, 9)}, resources_per_trial={"gpu": 1})\n'
    (study,) = studies(TUNE + more, tmp_path, name="train.py")
    (axis,) = (axis for box in study.boxes for axis in box.axes)
    assert isinstance(axis.domain, Range)
    assert (axis.domain.low, axis.domain.high) == (4, 8)


def test_submitit_gives_the_arguments_and_asks_for_the_nodes(tmp_path: Path) -> None:
    more = (
        'executor = submitit.AutoExecutor(folder="logs")\n'
        "executor.update_parameters(nodes=2, gpus_per_node=4, tasks_per_node=4, mem_gb=100)\n"
        "executor.submit(train, 24)\n"
    )
    (study,) = studies(SUBMITIT + more, tmp_path, name="train.py")
    fields = ("train.batch_size", "parallel.nodes", "parallel.gpus_per_node", "parallel.ranks_per_node")
    assert [value(study, field) for field in fields] == [24, 2, 4, 4]
    assert value(study, "machine.memory_limit") == 100 * 2**30


@pytest.mark.parametrize(
    ("way", "size"),
    [
        ("job = executor.submit(train, 24)\nprint(job.result())\n", 24),
        ("jobs = [executor.submit(work.train, size=24)]\n", 24),
        ("executor.submit(report, 24)\n", None),
    ],
)
def test_submitit_starts_a_function_of_another_file(way: str, size: int | None, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        HEAD + "def train(size):" + BODY.format(size="size") + "\ndef report(size):\n    pass\n"
    )
    more = 'import submitit\nimport work\nfrom work import report, train\nexecutor = submitit.AutoExecutor("logs")\n'
    found = studies(more + way, tmp_path, name="submit.py")
    assert [value(one, "train.batch_size") for one in found] == ([] if size is None else [size])


@pytest.mark.parametrize(
    ("asked", "cpus"), [("cpus_per_task=10, tasks_per_node=8", 80), ("slurm_cpus_per_task=10", 10)]
)
def test_submitit_gives_the_cpus_to_each_task(asked: str, cpus: int, tmp_path: Path) -> None:
    more = f'executor = submitit.AutoExecutor(folder="logs")\nexecutor.update_parameters({asked})\n'
    (study,) = studies(SUBMITIT + more + "executor.submit(train, 24)\n", tmp_path, name="train.py")
    assert value(study, "machine.cpus") == cpus


def test_an_array_of_jobs_has_no_one_value(tmp_path: Path) -> None:
    more = 'executor = submitit.AutoExecutor(folder="logs")\nexecutor.map_array(train, [8, 16])\n'
    (study,) = studies(SUBMITIT + more, tmp_path, name="train.py")
    assert value(study, "train.batch_size") == "?"


@pytest.mark.parametrize(("gpu", "name"), [("A100-80GB", "A100 80GB"), ("H100!:2", "H100 80GB"), ("any", "?")])
def test_modal_names_the_gpu(gpu: str, name: str, tmp_path: Path) -> None:
    more = "\n@app.local_entrypoint()\ndef main(size: int = 12):\n    train.remote(size)\n"
    (study,) = studies(MODAL.format(gpu=gpu) + more, tmp_path, name="train.py")
    assert value(study, "train.batch_size") != 4  # what the entry point passes on, not the function's default
    assert (value(study, "machine.gpu") if "machine.gpu" in study.boxes[0].fields else None) == name


HF = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
def train(config=None):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    Trainer(model=model, args=TrainingArguments("out", per_device_train_batch_size=4), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("asked", "gpu", "count"),
    [
        ('"A100-80GB"', "A100 80GB", 1),
        ('modal.gpu.A100(count=2, size="80GB")', "A100 80GB", 2),
        ('["H100", "A100-80GB:2"]', "?", "?"),
        ("chosen()", "?", "?"),
        ('"any"', "?", 1),
    ],
)
def test_what_modal_rents_is_not_the_machine_of_the_settings(
    asked: str, gpu: str, count: object, tmp_path: Path
) -> None:
    text = HF.replace("def train", f"import modal\napp = modal.App()\n@app.function(gpu={asked})\ndef train")
    more = "\n@app.local_entrypoint()\ndef main():\n    train.remote()\n"
    (study,) = studies(text + more, tmp_path, name="train.py")
    assert (value(study, "machine.gpu"), value(study, "parallel.gpus_per_node")) == (gpu, count)


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ("@ray.remote(num_gpus=1)\ndef train", 1),
        ("@ray.remote(num_gpus=4)\ndef train", 4),
        ("@ray.remote(num_gpus=asked())\ndef train", "?"),
    ],
)
def test_ray_shows_a_process_the_gpus_that_it_asks_for(asked: str, count: object, tmp_path: Path) -> None:
    text = HF.replace("def train", f"import ray\n{asked}") + "\nray.get(train.remote())\n"
    (study,) = studies(text, tmp_path, name="train.py")
    assert value(study, "parallel.gpus_per_node") == count


@pytest.mark.parametrize(("workers", "ranks"), [(1, 1), (4, "?")])
def test_ray_train_places_its_workers(workers: int, ranks: object, tmp_path: Path) -> None:
    more = f"TorchTrainer(train, scaling_config=ScalingConfig(num_workers={workers}, use_gpu=True)).fit()\n"
    head = "from ray.train import ScalingConfig\nfrom ray.train.torch import TorchTrainer\n"
    (study,) = studies(head + HF + more, tmp_path, name="train.py")
    assert value(study, "parallel.ranks_per_node") == ranks


def test_what_several_requests_leave_open_is_not_what_one_of_them_says(tmp_path: Path) -> None:
    text = RAY.format(gpus="0.5") + "\n@ray.remote(num_gpus=1)\ndef other():\n    pass\nray.get(train.remote(2))\n"
    (study,) = studies(text, tmp_path, name="train.py")
    assert value(study, "parallel.trials_per_gpu") == "?"
