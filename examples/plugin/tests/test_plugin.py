"""Each part of the plugin as a user sees it: through preflight's command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

JOB = (Path(__file__).parents[1] / "job.tiny").read_text()


def preflight(cwd: Path, *arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "preflight", *arguments], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def parts(cwd: Path, optimizer: str) -> dict[str, int]:
    sets = [f"--set=train.{one}" for one in ("batch_size=2", "seq_len=64", "precision=fp32", f"optimizer={optimizer}")]
    found = json.loads(preflight(cwd, "estimate", "gpt2", *sets, "--gpu=X1", "--output-format=json"))
    breakdown: dict[str, int] = found["device"]["breakdown"]
    return breakdown


def test_the_dialect_reads_a_file_and_the_rule_speaks_of_it(tmp_path: Path) -> None:
    (tmp_path / "job.tiny").write_text(JOB)
    found = json.loads(preflight(tmp_path, "check", "job.tiny", "--select=batch-is-odd", "--output-format=json"))
    [finding] = found["findings"]
    assert (finding["rule"], finding["message"]) == ("batch-is-odd", "batch 33 is odd")
    assert found["studies"][0]["worst"]["machine"]["gpu"] == "Example X1"


def test_a_walk_finds_the_file(tmp_path: Path) -> None:
    (tmp_path / "job.tiny").write_text(JOB)
    assert "job.tiny" in preflight(tmp_path, "check", "--select=batch-is-odd")


def test_a_file_of_the_suffix_that_is_another_one_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "job.tiny").write_text("batch = 33\n")
    preflight(tmp_path, "check", "job.tiny", status=2)


def test_a_malformed_line_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "job.tiny").write_text(JOB.replace("33", "many"))
    assert "batch is not a whole number" in preflight(tmp_path, "check", "job.tiny", status=1)


def test_the_optimizer_keeps_half_of_what_adam_keeps(tmp_path: Path) -> None:
    adam, own = parts(tmp_path, "adamw"), parts(tmp_path, "ExampleSignum")
    assert 1.9 < adam["optimizer"] / own["optimizer"] < 2.1  # each storage fills whole blocks of 512 bytes


def test_the_rule_and_the_gpu_are_listed(tmp_path: Path) -> None:
    assert "It stands for a rule of a house" in preflight(tmp_path, "rule", "batch-is-odd")
    assert "Example X1" in preflight(tmp_path, "machine", "list")
    assert "an example: nothing was measured" in preflight(tmp_path, "machine", "show", "X1")
