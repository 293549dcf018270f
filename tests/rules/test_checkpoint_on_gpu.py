"""A checkpoint on the GPU that makes the whole difference."""

from __future__ import annotations

from pathlib import Path

from preflight.engine import check as engine
from preflight.engine.files import Batch
from preflight.engine.rounds import fixed
from preflight.vocabulary.settings import Settings
from preflight_rules.checkpoint_on_gpu import KEPT, ON_HOST

GIB = 2**30


def test_a_job_that_exceeds_only_for_its_checkpoint_loads_it_by_way_of_the_host(tmp_path: Path) -> None:
    kept, by_host = (text.lstrip("\n").replace("default=8", "default=1") for text in (KEPT, ON_HOST))
    (tmp_path / "train.py").write_text(kept)
    settings = Settings(set={"machine.gpu_memory": round(7.75 * GIB)})
    project, asked = engine.setup(Batch(tmp_path, settings, None, ("train.py",), ()), engine.CheckOptions(), tmp_path)
    found = {finding.rule: finding.message for finding in engine.check(project, asked).findings}
    assert "gpu-memory-exceeded" in found
    assert "without it the job fits" in found["checkpoint-on-gpu"]
    assert fixed(project, asked, False, lambda report: report).texts == {"train.py": by_host}
