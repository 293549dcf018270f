"""Ultralytics' own semantics of batch, workers and image size."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import facts, is_unknown, read_program, text_at, values

from preflight.dialects.program import reader as program
from preflight.engine.job_by_hand import completed
from preflight.frameworks.table import load
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.spelling import YOLO_NOMINAL_BATCH

PROGRAM = """
import wandb
from ultralytics import YOLO
wandb.init()
config = wandb.config
model = YOLO("yolov8n.pt")
model.train(data="cones.yaml", {arguments})
"""


def told(arguments: str, root: Path, **given: object) -> dict[str, object]:
    return dict(values(read_program(PROGRAM.replace("{arguments}", arguments), root), given))  # type: ignore[arg-type]


def test_defaults(tmp_path: Path) -> None:
    found = told("epochs=3", tmp_path)
    assert (found["train.batch_size"], found["data.workers"], found["train.image_size"]) == (16, 8, 640)
    assert (found["train.grad_accum"], found["data.prefetch"]) == (4, 4)
    assert found["model.target"] == "ultralytics:yolov8n"


def test_validation_takes_twice_the_batch_and_the_workers(tmp_path: Path) -> None:
    found = told("batch=64, workers=16", tmp_path)
    assert (found["validation.batch_size"], found["data.validation_workers"]) == (128, 32)
    assert found["data.validation_overlaps"] is True


def test_literals_and_what_the_sweep_sets(tmp_path: Path) -> None:
    text = PROGRAM.replace("{arguments}", "batch=config.batch, workers=16, imgsz=config.imgsz")
    reading = read_program(text, tmp_path)
    found = values(reading, {"batch": 32, "imgsz": 320})
    assert (found["train.batch_size"], found["train.grad_accum"]) == (32, 2)
    assert found["data.sample_bytes"] == 3 * 320 * 320
    assert found["data.worker_bytes"] == 8 * 32 * 3 * 320 * 320
    assert text_at(reading, "data.workers", tmp_path) == "16"
    assert facts(reading)["nominal_batch"] == 64
    assert facts(reading)["framework"] == "ultralytics"


def test_the_mosaic_buffer_ends_at_a_thousand_images(tmp_path: Path) -> None:
    assert told("batch=256, imgsz=100", tmp_path)["data.worker_bytes"] == 1000 * 3 * 100 * 100


@pytest.mark.parametrize(("cpus", "train", "validation"), [(64, 16, 32), (24, 16, 24), (8, 8, 8)])
def test_workers_end_at_the_machines_cpus(cpus: int, train: int, validation: int, tmp_path: Path) -> None:
    (tmp_path / "box.toml").write_text(f"[node.box]\ncpus = {cpus}\n")
    (tmp_path / "train.py").write_text(PROGRAM.replace("{arguments}", "workers=16"))
    project = Project(tmp_path, Settings(machine="box.toml"))
    found = values(program.read(project.source("train.py"), None, project))
    assert (found["data.workers"], found["data.validation_workers"]) == (train, validation)


def test_several_gpus_share_the_batch(tmp_path: Path) -> None:
    found = told("batch=64, device=[0, 1, 2, 3]", tmp_path)
    assert (found["train.batch_size"], found["parallel.ranks_per_node"]) == (16, 4)


@pytest.mark.parametrize("batch", ["-1", "0.7"])
def test_a_batch_that_ultralytics_measures_is_unknown(batch: str, tmp_path: Path) -> None:
    assert is_unknown(told(f"batch={batch}", tmp_path)["train.batch_size"])  # type: ignore[arg-type]


@pytest.mark.parametrize(("cache", "known"), [("False", True), ("'disk'", True), ("True", False), ("'ram'", False)])
def test_a_cache_of_unknown_size(cache: str, known: bool, tmp_path: Path) -> None:
    assert ("data.in_memory_bytes" not in told(f"cache={cache}", tmp_path)) is known


def test_model_train_of_torch_is_a_mode(tmp_path: Path) -> None:
    text = "import torch\nmodel = torch.nn.Linear(2, 2)\nmodel.train()\nmodel(x).sum().backward()\n"
    assert "data.sample_bytes" not in values(read_program(text, tmp_path))


SPREAD = """
import wandb
from ultralytics import YOLO
DEFAULTS = dict(imgsz=640, batch=16)
run = wandb.init()
params = {**DEFAULTS, **dict(run.config)}
YOLO("yolov8n.pt").train(data="cones.yaml", workers=12, **params)
"""


def test_a_configuration_as_arguments_has_the_programs_defaults_below_it(tmp_path: Path) -> None:
    reading = read_program(SPREAD, tmp_path)
    assert (values(reading)["train.batch_size"], values(reading)["train.image_size"]) == (16, 640)
    found = values(reading, {"batch": 64})
    assert (found["train.batch_size"], found["data.workers"], found["validation.batch_size"]) == (64, 12, 128)
    assert {p.kind for p in reading.parameters if p.name == "batch"} == {"wandb"}


def test_arguments_from_anywhere_else_are_unknown(tmp_path: Path) -> None:
    text = "import json\nfrom ultralytics import YOLO\nYOLO('y.pt').train(**json.loads(input()))\n"
    assert is_unknown(values(read_program(text, tmp_path))["train.batch_size"])


@pytest.mark.parametrize(
    ("text", "count"),
    [("names: [a, b, c]\n", 3), ("names:\n  0: a\n  1: b\n", 2), ("nc: 7\nnames: []\n", 7), ("path: x\n", None),
     ("names: [\n", None)],
)  # fmt: skip
def test_the_data_sets_file_says_how_many_classes_there_are(text: str, count: int | None, tmp_path: Path) -> None:
    (tmp_path / "cones.yaml").write_text(text)
    assert told("epochs=3", tmp_path).get("model.kwargs.nc") == count


def test_a_job_by_hand_has_the_trainers_defaults() -> None:
    found = completed({"model.target": "ultralytics:yolov8n", "train.batch_size": 16})
    assert (found["train.precision"], found["train.copies.ema"], found["train.grad_accum"]) == ("fp16-mixed", 1, 4)
    found = completed({"model.name": "yolo11x.pt", "train.batch_size": 100, "train.precision": "fp32"})
    assert (found["train.precision"], found["train.grad_accum"]) == ("fp32", 1)
    assert "train.precision" not in completed({"model.name": "hustvl/yolos-tiny"})


def test_the_nominal_batch_of_a_job_by_hand_is_the_tables() -> None:
    assert load("ultralytics").defaults["nbs"] == YOLO_NOMINAL_BATCH
