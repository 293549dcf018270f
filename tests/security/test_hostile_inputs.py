"""Inputs of a few lines that took all the memory or time there is: each ends, and says what was too much."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from preflight.engine import settings
from preflight.engine.ask import check, estimate, job_of
from preflight.machines.hostlist import expand, fold
from preflight.slurm.import_.conf import read_slurm_conf
from preflight.vocabulary.budgets import (
    HOST_NAMES,
    LEAST_SECONDS,
    MODEL_LAYERS,
    READING_SECONDS,
    Budget,
    ReadingTime,
    cpu_is_over,
)
from preflight.vocabulary.errors import MachineError, SettingsError
from preflight.vocabulary.notation import major_minor, parse_size, slurm_minutes

TRAIN = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
{}
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model=model, args=TrainingArguments(per_device_train_batch_size=8, output_dir="x")).train()
"""
HYDRA = """import hydra
@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    print(cfg.bs)
main()
"""
DOUBLED = "bs: 8\na0: x\n" + "".join(f"a{n + 1}: ${{add:${{a{n}}},${{a{n}}}}}\n" for n in range(60))
LLAMA = {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 256, "intermediate_size": 128}


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": TRAIN.format("s = 'ab'\nfor i in range(60):\n    s = s.join([s] * 50)")},
        {"train.py": TRAIN.format("s = [1]\nfor i in range(64):\n    s.extend(s)")},
        {"train.py": HYDRA, "conf/config.yaml": DOUBLED},
    ],
)
def test_a_value_that_doubles_itself_does_no_harm(files: dict[str, str], tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = check([tmp_path], cwd=tmp_path)
    assert [finding.rule for _, finding in found.findings() if finding.rule == "internal-error"] == []


@pytest.mark.parametrize("layers", [MODEL_LAYERS + 1, 10**9])
def test_a_model_of_too_many_layers_is_unknown(layers: int) -> None:
    config = {**LLAMA, "num_hidden_layers": layers}
    fields = {"model": {"architecture": "llama", "config": config}, "train": {"batch_size": 1, "seq_len": 16}}
    found = estimate(job_of(fields))
    assert found.device is None
    assert "over the budget of 1,000 layers" in json.dumps(found.reasons, default=str)


def test_a_dimension_of_zero_is_unknown() -> None:
    config = {**LLAMA, "num_hidden_layers": 2, "num_attention_heads": 0}
    fields = {"model": {"architecture": "llama", "config": config}, "train": {"batch_size": 1, "seq_len": 16}}
    assert estimate(job_of(fields)).device is None


@pytest.mark.parametrize(
    "text", ["n[1-9]" * 30, "n[0-99999999999]", "x" * 60_000 + "[1-99999]", "n[" + "9" * 5000 + "]"]
)
def test_a_host_list_ends(text: str) -> None:
    names = expand(text)
    assert len(names) <= HOST_NAMES + 1
    fold(names[:100])


def test_a_cluster_of_too_many_nodes_is_refused() -> None:
    with pytest.raises(MachineError, match=r"slurm.conf:2: .*more than 100,000 nodes"):
        read_slurm_conf("ClusterName=c\nNodeName=n[1-9]n[1-9]n[1-9]n[1-9]n[1-9]n[1-9]n[1-9] CPUs=4\n")


def test_numbers_that_are_no_sizes_or_versions() -> None:
    digits = "9" * 5000
    assert parse_size(digits) is None
    assert parse_size(float("inf")) is None
    assert parse_size(float("nan")) is None
    assert major_minor(f"{digits}.1") is None
    assert slurm_minutes(digits) is None


def test_the_clock_of_a_file_leaves_out_the_files_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "process_time", lambda: now[0])
    assert not cpu_is_over()
    reading = ReadingTime()
    with reading.of_a_file():
        now[0] += 6
        with reading.of_a_file():
            now[0] += 5
            assert not cpu_is_over()
        assert not cpu_is_over()
        now[0] += 2
        assert cpu_is_over()
    assert not cpu_is_over()


def test_all_files_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that each take what they may have less and less, and a small one is read however many were before it."""
    now = [0.0]
    monkeypatch.setattr(time, "process_time", lambda: now[0])
    reading = ReadingTime()
    for _ in range(100):
        with reading.of_a_file():
            assert not cpu_is_over()
            while not cpu_is_over():
                now[0] += 0.05
    assert READING_SECONDS < now[0] < READING_SECONDS + 100 * (LEAST_SECONDS + 0.06)
    with reading.of_a_file():
        now[0] += LEAST_SECONDS / 2
        assert not cpu_is_over()


def test_a_budget_says_what_it_counts() -> None:
    assert Budget(2000, "files").over == "over the budget of 2,000 files"


def test_a_family_with_a_name_too_long_for_a_file_has_no_law() -> None:
    from preflight.memory.device.law import store

    assert store._file(store.law_path("1" * 5000)) is None


@pytest.mark.parametrize("sweep", ["range(0,1e308,1e-300)", "range(0,.inf,1)", "range(-1e308,1e308)"])
def test_a_range_without_an_end_is_unknown(sweep: str, tmp_path: Path) -> None:
    conf = f"bs: 8\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      bs: {sweep}\n"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/config.yaml").write_text(conf)
    (tmp_path / "train.py").write_text(HYDRA)
    found = check([tmp_path], cwd=tmp_path)
    assert [finding.rule for _, finding in found.findings() if finding.rule == "internal-error"] == []


def test_a_key_of_too_many_parts_is_refused() -> None:
    with pytest.raises(SettingsError, match="over the budget of 1,000 dots"):
        settings.parse("[a" + ".a" * 100_000 + "]\n", "preflight.toml")


def test_a_job_with_a_model_name_too_long_for_a_file_is_unknown() -> None:
    fields = {"model": {"target": f"timm:gpt{'1' * 5000}"}, "train": {"batch_size": 1, "image_size": 32}}
    assert estimate(job_of(fields)).device is None
    assert estimate(job_of({**fields, "model": {"name": f"timm/gpt{'1' * 5000}"}})).device is None
