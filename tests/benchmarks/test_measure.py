"""The grid and the script that measures it, with the device stood in: a real training step on the CPU runs through."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes import HANGS

from preflight.vocabulary.job import build as build_job
from preflight.vocabulary.tracing import SHIPPED_ONLY
from tests.benchmarks.fake_cuda import CONTEXT, FakeCuda

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.accuracy.gpu import compare, measure, models, snapshot, step  # noqa: E402
from benchmarks.accuracy.gpu.cases import GRID, Case, matching  # noqa: E402
from benchmarks.accuracy.gpu.device import Cuda  # noqa: E402

TINY = models.Model("tiny", "causal-lm", "gpt2", {
    "n_embd": 64, "n_head": 4, "n_layer": 4, "n_positions": 64, "vocab_size": 300, "use_cache": False})  # fmt: skip
USUAL = Case("tiny", batch=2, length=32, precision="fp32")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.MODELS, "tiny", TINY)


def measured(case: Case, limit: int | None = None) -> dict[str, Any]:
    fake = FakeCuda(limit)
    with fake:
        record = step.run(case, fake)
    return {"id": case.id, "job": case.job(), **record, "facts": fake.facts(), "used_before": 0}


# --- the grid ---------------------------------------------------------------------------------------------------------


def test_the_grid_is_wide_and_every_case_is_a_job() -> None:
    assert len(GRID) >= 80
    assert {case.of.task for case in GRID.values()} == {
        "causal-lm", "sequence-classification", "seq2seq-lm", "image-classification", "contrastive", "speech-seq2seq",
    }  # fmt: skip
    for name, case in GRID.items():
        assert case.id == name
        job = build_job(case.job())
        assert job.train.batch_size == case.batch
        assert job.parallel.strategy == "none"


def test_cases_are_found_by_part_or_glob() -> None:
    assert {case.model for case in matching("t5-")} == {"t5-small", "t5-base"}
    assert {case.model for case in matching("gpt2-*checkpointing*")} == {"gpt2"}
    assert matching(None) == list(GRID.values())
    assert matching("nothing") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({case.model for case in GRID.values() if not case.of.target}))
def test_every_model_takes_its_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer layers and a smaller vocabulary: building, batch, forward and loss fit together."""
    case = replace(next(c for c in GRID.values() if c.model == name), batch=2, precision="fp32", length=24)
    model = models.MODELS[name]
    monkeypatch.setitem(models.MODELS, name, replace(model, config=_smaller(model.config)))
    out = step.forward(case, step.build(case), step.batch_of(case, "cpu", 2))
    assert step.loss_of(out).requires_grad


def _smaller(config: dict[str, Any]) -> dict[str, Any]:
    few = dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers",
                         "encoder_layers", "decoder_layers"), 1) | {"vocab_size": 600}  # fmt: skip
    return {key: _smaller(value) if isinstance(value, dict) else few.get(key, value) for key, value in config.items()}


# --- a step -----------------------------------------------------------------------------------------------------------


def test_a_real_step_runs_through() -> None:
    record = measured(replace(USUAL, validation=4))
    assert record["outcome"] == "ok"
    names = [row["phase"] for row in record["phases"]]
    assert names == ["load", "forward 1", "backward 1", "optimizer 1", "forward 2", "backward 2", "optimizer 2",
                     "validation"]  # fmt: skip
    rows = {row["phase"]: row for row in record["phases"]}
    weights = 4 * (300 * 64 + 64 * 64 + 4 * (12 * 64 * 64 + 13 * 64) + 2 * 64)
    assert weights <= rows["load"]["requested"] < 1.2 * weights
    # gradients at the end of backward, two states more after the first step
    assert rows["backward 1"]["requested"] - rows["load"]["requested"] >= weights
    assert rows["optimizer 2"]["requested"] - rows["load"]["requested"] >= 2 * weights
    assert rows["optimizer 2"]["used"] == rows["optimizer 2"]["reserved"] + CONTEXT
    for row in rows.values():
        assert row["requested_peak"] <= row["allocated_peak"] <= row["reserved_peak"]
    peak = record["peak"]
    assert peak["bytes"] == max(row["requested_peak"] for row in rows.values())
    assert peak["bytes"] == sum(size * count for size, count, _, _ in peak["blocks"]) + peak["rest"]
    assert json.loads(json.dumps(record)) == record
    assert any("transformer.h.2" in label for _, _, label, _ in peak["blocks"])


@pytest.mark.slow
@pytest.mark.parametrize("changes", [
    {"accumulation": 3}, {"optimizer": "adafactor", "implementation": "for-loop"}, {"outputs": "step"},
    {"optimizer": "sgd-momentum", "implementation": "for-loop"}, {"checkpointing": True}, {"attention": "eager"},
    {"precision": "bf16-mixed"}, {"precision": "bf16", "padded": False}, {"precision": "fp16-mixed"},
    {"implementation": "fused"},
])  # fmt: skip
def test_every_kind_of_step_runs(changes: dict[str, Any]) -> None:
    record = measured(replace(USUAL, **changes))
    assert record["outcome"] == "ok"
    assert [row["phase"] for row in record["phases"]][-1] == "optimizer 2"
    earlier = [row for row in record["phases"] if row["phase"].endswith("earlier")]
    assert len(earlier) == 2 * 2 * (changes.get("accumulation", 1) - 1)


@pytest.mark.slow
def test_adapters_train_alone() -> None:
    pytest.importorskip("peft")
    models.MODELS["tiny"] = replace(TINY, lora=("c_attn",))
    record = measured(replace(USUAL, lora=4))
    rows = {row["phase"]: row for row in record["phases"]}
    assert rows["optimizer 2"]["requested"] - rows["load"]["requested"] < 0.2 * rows["load"]["requested"]


def test_running_out_of_memory_is_an_outcome() -> None:
    whole = measured(USUAL)
    limit = next(row["allocated_peak"] for row in whole["phases"] if row["phase"] == "backward 1") - 4096
    record = measured(USUAL, limit)
    assert (record["outcome"], record["died_in"]) == ("oom", "backward 1")
    assert record["message"].startswith("CUDA out of memory")
    assert [row["phase"] for row in record["phases"]] == ["load", "forward 1"]


def test_the_context_is_measured_step_by_step() -> None:
    fake = FakeCuda()
    with fake:
        found = step.context(fake)
    assert list(found) == ["context", "cublas", "cudnn forward", "cudnn backward"]
    assert set(found.values()) == {CONTEXT}


def test_cuda_is_asked_by_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    counters = [
        (name, when) for name in ("allocated", "reserved", "active", "requested") for when in ("current", "peak")
    ]
    stats = {f"{name}_bytes.all.{when}": value for value, (name, when) in enumerate(counters)}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {**stats, "num_alloc_retries": 7})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (30, 100))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: said.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: said.append("reset"))
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **given: said.append(given))
    monkeypatch.setattr(torch.cuda.memory, "_set_memory_metadata", said.append, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": []})
    device = Cuda()
    assert device.counters() == {
        "allocated": 0, "allocated_peak": 1, "reserved": 2, "reserved_peak": 3, "active": 4, "active_peak": 5,
        "requested": 6, "requested_peak": 7, "retries": 7,
    }  # fmt: skip
    assert device.used() == 70
    device.synchronize()
    device.reset_peaks()
    device.record(True)
    device.label("forward 1")
    device.record(False)
    recorded = {"enabled": "all", "context": "alloc", "stacks": "python"}
    assert said == ["synchronize", "reset", recorded, "forward 1", {"enabled": None}]
    assert snapshot.peak_blocks(device.snapshot()) == {"bytes": 0, "label": "", "blocks": [], "rest": 0}


# --- the history ------------------------------------------------------------------------------------------------------


def event(action: str, address: int, size: int, label: str = "", *files: str) -> dict[str, Any]:
    frames = [{"filename": name, "line": 7, "name": "forward"} for name in files]
    return {"action": action, "addr": address, "size": size, "user_metadata": label, "frames": frames}


def test_a_history_is_reduced_to_its_peak() -> None:
    model, inside = "/site-packages/transformers/models/gpt2/modeling_gpt2.py", "/site-packages/torch/nn/functional.py"
    history = [
        event("segment_alloc", 1, 2**21), event("alloc", 1, 100, "load"), event("alloc", 2, 50, "forward 1:h.0", inside,
                                                                                model),
        event("alloc", 3, 50, "forward 1:h.0", inside, model), event("free_requested", 2, 50),
        event("free_completed", 2, 50), event("alloc", 4, 200, "backward 1"), event("free_requested", 4, 200),
        event("alloc", 2, 60, "later"),
    ]  # fmt: skip
    found = snapshot.peak_blocks({"device_traces": [history]})
    assert found["bytes"] == 350
    assert found["label"] == "backward 1"
    assert found["blocks"] == [
        [200, 1, "backward 1", ""], [100, 1, "load", ""], [50, 1, "forward 1:h.0", "modeling_gpt2.py:7 forward"],
    ]  # fmt: skip


# --- the file ---------------------------------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "records.jsonl"
    ran: list[str] = []

    def run(name: str, _limit: float) -> dict[str, Any]:
        ran.append(name)
        if len(ran) == 3:
            raise KeyboardInterrupt
        return {"id": name, "outcome": "ok", "phases": [{"allocated_peak": 2**20}]}

    cases = matching("t5-base")
    with pytest.raises(KeyboardInterrupt):
        measure.measure(cases, output, run, say=lambda _: None)
    with output.open("a") as file:
        file.write('{"id": "cut o')  # the machine went away while a line was written
    wanted = ["context", *(case.id for case in cases)]
    assert measure.measure(cases, output, run, say=lambda _: None) == len(wanted) - 2
    assert list(measure.read(output)) == wanted
    assert measure.measure(cases, output, run, say=lambda _: None) == 0


def test_what_becomes_of_a_process_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure.in_process("context", 0.01)["outcome"] == "timeout"

    class Done:
        stdout, stderr, returncode = "noise\n", "Traceback\nRuntimeError: no kernel\n", 1

    monkeypatch.setattr(measure.subprocess, "run", lambda *_, **__: Done())
    failed = {"id": "a", "outcome": "error", "message": "RuntimeError: no kernel"}
    assert measure.in_process("a", 1) == failed
    Done.stdout = 'a library says hello\n{"id": "a", "outcome": "ok"}\n'
    assert measure.in_process("a", 1) == {"id": "a", "outcome": "ok", "used_before": None}


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure.main(["--list", "--only", "whisper"]) == 0
    assert capsys.readouterr().out.splitlines() == [case.id for case in matching("whisper")]
    for wrong in ([], ["--output", "x", "--only", "nothing"]):
        with pytest.raises(SystemExit) as stopped:
            measure.main(wrong)
        assert stopped.value.code == 2


@pytest.mark.slow
def test_measuring_needs_nothing_of_preflight() -> None:
    import subprocess

    code = (
        "import sys; import benchmarks.accuracy.gpu.measure, benchmarks.accuracy.gpu.step;"
        "raise SystemExit(any(name.partition('.')[0] == 'preflight' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=measure.ROOT, check=False, timeout=HANGS).returncode == 0


# --- beside preflight -------------------------------------------------------------------------------------------------


def test_a_record_is_compared_by_tier_and_phase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "records.jsonl"
    record = measured(replace(USUAL, validation=4))
    measure.append(output, record)
    measure.append(output, {"id": "context", "outcome": "ok", "context": {"context": 1}})
    measure.append(output, {"id": "dead", "job": USUAL.job(), "outcome": "timeout"})
    measure.append(output, {**record, "id": "full", "outcome": "oom", "died_in": "backward 1"})
    assert compare.main([str(output)]) == 0
    text = capsys.readouterr().out
    for word in ("requested", "allocated", "reserved", "process", "allocated, load", "allocated, backward",
                 "allocated, optimizer", "allocated, validation", "dead: timeout", "full: out of memory in backward 1",
                 "records  median"):  # fmt: skip
        assert word in text, word


def test_deviations_are_explained_by_the_allocations_that_differ() -> None:
    """A block that a library made and no law knows is named, with its size and place; what agrees is not."""
    from preflight.memory.device.prepare import prepare

    ready = prepare(build_job(USUAL.job()), tracing=SHIPPED_ONLY)
    mine = compare.alive(ready, ())  # type: ignore[arg-type]
    blocks = [[size, count, "backward 2", where] for (size, where), count in mine.blocks.items()]
    record = {"peak": {"label": "backward 2:lm_head", "blocks": [*blocks, [123_456, 3, "forward 2:h.1", "m.py:9 f"]]}}
    lines = compare.differences(record, mine)
    assert len(lines) == 2
    assert "only measured" in lines[1]
    assert "123,456 B" in lines[1]
    assert "forward 2:h.1 m.py:9 f x3" in lines[1]
    largest = max(mine.blocks, key=lambda key: key[0])
    fewer = {"peak": {"label": "", "blocks": [b for b in blocks if b[0] != largest[0]]}}
    assert "only replayed" in compare.differences(fewer, mine)[1]


def test_the_replays_blocks_add_up_to_the_law() -> None:
    from preflight.memory.device.prepare import prepare
    from preflight.memory.device.step.prepared import PreparedJob
    from preflight.memory.device.step.run import requested_peak

    for changes in ({}, {"accumulation": 2}, {"outputs": "step"}, {"optimizer": "sgd"}, {"checkpointing": True}):
        ready = prepare(build_job(replace(USUAL, **changes).job()), tracing=SHIPPED_ONLY)  # type: ignore[arg-type]
        assert isinstance(ready, PreparedJob), ready
        mine = compare.alive(ready, ())
        assert mine.bytes == requested_peak(ready), changes
        assert mine.bytes == sum(size * count for (size, _), count in mine.blocks.items())
