"""`yolo train ...` in a job script."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import values
from test_litgpt_and_swift import command

from preflight.frameworks.commands import started
from preflight.vocabulary.reading import Launch, Word, word

SETTINGS = ("model=yolov8m-seg.pt", "data=coco.yaml", "batch=32", "imgsz=960", "device=0,1", "optimizer=SGD")


def test_settings_and_defaults(tmp_path: Path) -> None:
    found = values(command("ultralytics", tmp_path, *SETTINGS))
    expected = {
        "model.target": "ultralytics:yolov8m-seg", "train.batch_size": 16, "train.grad_accum": 2,
        "train.image_size": 960, "train.precision": "fp16-mixed", "train.optimizer": "sgd-momentum",
        "train.copies.ema": 1, "validation.batch_size": 32, "parallel.ranks_per_node": 2, "data.workers": 8,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("line", ["train model=a.pt batch=4", "detect train model=a.pt batch=4",
                                  "task=detect mode=train model=a.pt batch=4"])  # fmt: skip
def test_its_words_stand_in_any_order(line: str) -> None:
    found = started("yolo", [word(one) for one in line.split()], Launch(), None)
    assert found is not None
    assert found.kind == "ultralytics"
    assert {one.prefix for one in found.words} >= {"model=", "batch="}


@pytest.mark.parametrize("line", ["predict model=a.pt source=x.jpg", "detect val model=a.pt", "export model=a.pt", ""])
def test_what_does_not_train_is_left_alone(line: str) -> None:
    words: list[Word] = [word(one) for one in line.split()]
    assert started("yolo", words, Launch(), None) is None
