"""The same function in the workers of another engine. How many rows it judges there: benchmarks/batch/engines.py."""

from __future__ import annotations

import os
from typing import Any

import pytest

from preflight import api

pytestmark = pytest.mark.integration


def test_ray_data_maps_batches_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    arrow = pytest.importorskip("pyarrow")
    ray = pytest.importorskip("ray.data") and pytest.importorskip("ray")
    count = 400
    rows = {
        "id": [str(number) for number in range(count)],
        "model.name": ["gpt2", "bert-base-uncased"] * (count // 2),
        "task": ["causal-lm", "masked-lm"] * (count // 2),
        "train.batch_size": [1 + number for number in range(count)],
        "train.seq_len": [64, None, 128, 500] * (count // 4),
        "machine.gpu": ["t4"] * (count - 1) + ["no such card"],
    }
    table = arrow.table(rows)

    def judged(part: Any) -> Any:
        found = api.score(part)
        return found.append_column("worker", arrow.array([os.getpid()] * found.num_rows))

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        data = ray.data.from_arrow([table.slice(start, 50) for start in range(0, count, 50)])
        found = arrow.concat_tables(
            ray.get(data.map_batches(judged, batch_format="pyarrow", batch_size=50).to_arrow_refs())
        )
    finally:
        ray.shutdown()
    assert os.getpid() not in found["worker"].to_pylist()
    found = found.drop_columns(["worker"]).to_pylist()
    assert sorted(found, key=lambda row: int(row["id"])) == api.score(table).to_pylist()
    assert found[0].keys() == set(api.score(table).column_names)
    assert [row["id"] for row in found if row["error"]] == [str(count - 1)]
