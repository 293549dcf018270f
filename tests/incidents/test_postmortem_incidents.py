"""The five reports, read from what their jobs left behind: the post-mortem has to say what they established."""

from __future__ import annotations

import io
import json
import os
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from rooms import EXAMPLES, GIB, open_room

Json = dict[str, Any]

LOGS = EXAMPLES.parent / "postmortem"
"""What each incident's job left behind, by the incident's name."""


def postmortem(name: str, where: Path, *options: str, without: str = "") -> Json:
    """The JSON of a post-mortem beside an incident's files; no --config: the logs have to name them."""
    from preflight.cli import run

    root = open_room(name, where).root
    logs = [path.name for path in sorted((LOGS / name).iterdir()) if path.name != without]
    for log in logs:
        shutil.copy(LOGS / name / log, root)
    before, written = Path.cwd(), io.StringIO()
    os.chdir(root)
    try:
        with redirect_stdout(written):
            status = run(["postmortem", *logs, *options, "--output-format", "json"])
    finally:
        os.chdir(before)
    assert status == 1, written.getvalue()
    return dict(json.loads(written.getvalue()))


def words(found: Json) -> str:
    """All that the comparison says."""
    return " ".join(text for one in found["estimates"] for text in one["words"])


def tier(found: Json, name: str) -> Json:
    return dict(next(row for row in found["estimates"][0]["tiers"] if row["tier"] == name))


def test_the_sweep_that_the_kernel_killed(tmp_path: Path) -> None:
    found = postmortem("wandb-host-oom", tmp_path, "--config", "sweep_config.yaml")
    [cause] = found["causes"]
    assert (cause["limit"], cause["when"]["phase"]) == ("node", "validation")
    assert cause["host"]["limit"] == 38 * GIB  # 30 GiB of RAM and 8 of swap
    assert any("total-vm 48.01 GiB" in one["figure"] for one in found["misleading"])
    estimate = found["estimates"][0]["host"]
    assert estimate["verdict"] == "exceeds"
    assert "to fail" in words(found)
    fix = next(one["fix"] for one in found["check"]["findings"] if one["rule"] == "host-memory-exceeded")
    assert fix["safety"] == "safe"


def test_the_vocabulary_of_ten_million(tmp_path: Path) -> None:
    found = postmortem("wandb-vocab-gpu-oom", tmp_path, "--config", "sweep_config_minimal.yaml")
    [cause] = found["causes"]
    assert (cause["limit"], cause["when"]["phase"]) == ("gpu", "forward")
    assert "200 tokens x 10,000,000 vocabulary x 4" in words(found)  # 7.45 GiB, to the digit
    assert "optimizer states alone need 9.54 GiB" in words(found)
    assert "11.38 GiB was in use" in words(found)
    rules = {one["rule"] for one in found["check"]["findings"]}
    assert {"logits-exceed-gpu", "eval-unbatched"} <= rules


def test_killed_when_validation_starts(tmp_path: Path) -> None:
    found = postmortem("slurm-validation-oom", tmp_path)
    [cause] = found["causes"]
    assert (cause["limit"], cause["when"]["phase"]) == ("cgroup", "validation")
    assert cause["host"]["limit"] == 256 * GIB
    [one] = [one for one in found["misleading"] if "MaxRSS 72.5 GiB" in one["figure"]]
    assert "samples" in one["why"]
    assert found["configuration"] == ["train_4node_16gpu_l40s.slurm"]  # as the accounting names it
    assert "one decoded sample is larger than" in words(found)


@pytest.mark.slow
def test_the_size_of_a_sample_makes_it_a_verdict(tmp_path: Path) -> None:
    options = ("--config", "train_4node_16gpu_l40s.slurm", "--set", "data.sample_bytes=230000000")
    found = postmortem("slurm-validation-oom", tmp_path, *options, without="sacct.txt")
    assert "to fail" in words(found)
    assert "the validation loaders need the rest" in words(found)
    assert any(one["rule"] == "validation-memory-spike" and one["fix"] for one in found["check"]["findings"])


def test_clip_on_eight_gigabytes(tmp_path: Path) -> None:
    found = postmortem("argparse-clip-gpu-oom", tmp_path)
    [cause] = found["causes"]
    assert (cause["limit"], cause["when"]["phase"]) == ("gpu", "backward")
    assert found["configuration"] == ["scripts/train_car_clip.py"]
    assert "to fail" in words(found)
    row = tier(found, "allocated")
    assert row["seen"] < row["needed"] < row["estimate"]["low"]  # it died on its way to the peak
    assert "contrastive" in json.dumps(found["check"])


def test_the_trial_that_ended_the_night(tmp_path: Path) -> None:
    found = postmortem("optuna-hpo-gpu-oom", tmp_path)
    [cause] = found["causes"]
    assert (cause["limit"], cause["trial"]["name"]) == ("gpu", "7")
    [estimate] = found["estimates"]
    assert estimate["certain"]
    assert estimate["job"]["model"]["name"] == "bert-large-uncased"
    assert (estimate["job"]["train"]["batch_size"], estimate["job"]["train"]["seq_len"]) == (48, 480)
    assert estimate["device"]["verdict"] == "exceeds"
    assert "to fail" in words(found)
    assert {one["rule"] for one in found["check"]["findings"]} >= {"space-partly-unsafe", "oom-not-handled"}
    for name in ("allocated", "reserved", "process"):
        assert tier(found, name)["estimate"] == estimate["device"][name]  # never one tier beside another
