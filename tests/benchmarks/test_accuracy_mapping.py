"""Measured rows and reports become the Jobs that their sources ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy.incidents import Incident, incident_of, reports
from benchmarks.accuracy.sources import run_of, timm
from benchmarks.accuracy.truth import GIB, MIB, Inexpressible, Run, rows, tier_of
from preflight.vocabulary.job import Job, build

DATA = Path(__file__).parents[2] / "benchmarks" / "accuracy" / "data"
RUNS = {row["id"]: run_of(row) for row in rows(DATA / "rows.jsonl")}
INCIDENTS = {report["id"]: incident_of(report) for report in reports(DATA / "incidents.jsonl")}


def job(run: Run | Incident) -> Job:
    assert not isinstance(run.fields, Inexpressible)
    return build(dict(run.fields))


@pytest.mark.parametrize(
    ("metric", "tier"),
    [
        ("allocated (torch.cuda.max_memory_allocated/1e9)", "allocated"),
        ("active (torch peak active bytes ~ allocated)", "allocated"),
        ("reserved (swift logs torch.cuda.max_memory_reserved)", "reserved"),
        ("nvidia-smi/dcgm max", "process"),
        ("NOT STATED (likely nvidia-smi or max reserved)", None),
        ("max context that fits", None),
        ("approx peak", None),
    ],
)
def test_a_metric_names_its_tier_or_none(metric: str, tier: str | None) -> None:
    assert tier_of(metric) == tier


def test_every_source_is_known_and_every_job_is_valid() -> None:
    assert {run.source for run in RUNS.values()} == {
        "fitcheck", "litgpt", "torchtune", "ms-swift", "qwen", "detection", "timm", "megatron", "unsloth",
    }  # fmt: skip
    for run in RUNS.values():
        if not isinstance(run.fields, Inexpressible):
            job(run)


def test_a_t4_row_has_three_tiers_and_the_settings_of_its_script() -> None:
    run = RUNS["fitcheck-sweep-SmolLM2-135M-b2-s512-eager-nf4"]
    assert run.kind == "decoders, QLoRA"
    assert run.measured["allocated"] == pytest.approx(1067.19 * MIB, rel=1e-5)
    assert run.measured["process"] - run.measured["reserved"] == 140.875 * MIB
    train = job(run).train
    assert (train.attention, train.outputs_kept, train.optimizer_impl) == ("eager", "step", "foreach")
    assert (train.quantization.type, train.quantization.compute_dtype) == ("nf4", "fp16")
    assert train.peft.targets == ["q_proj", "k_proj", "v_proj", "o_proj"]


def test_decimal_gigabytes_are_told_from_binary_ones() -> None:
    assert RUNS["litgpt-rt-Llama-2-7b-hf-nf4-dq-mb1"].measured["allocated"] == pytest.approx(13.84e9, rel=1e-4)
    assert RUNS["swift-qwen-7b-chat-lora-s2048"].measured["reserved"] == pytest.approx(27.74 * GIB, rel=1e-4)


def test_litgpt_keeps_everything_in_bf16_and_pages_its_optimizer_when_quantised() -> None:
    train = job(RUNS["litgpt-rt-Llama-2-7b-hf-nf4-dq-mb1"]).train
    assert (train.precision, train.peft.dtype, train.quantization.upcast_rest) == ("bf16", "bf16", False)
    assert train.quantization.double_quant is True
    assert train.optimizer == "paged-adamw"
    assert "lm_head" in (job(RUNS["litgpt-hub-phi-2-lora-mb4"]).train.peft.targets or [])


def test_what_a_job_cannot_say_is_not_approximated() -> None:
    for name in ("qwen-Qwen-1.8B-lora(emb)-s256", "megatron-bigcode-h6-l6-e768"):
        assert isinstance(RUNS[name].fields, Inexpressible)


def test_a_ladder_of_techniques_adds_up() -> None:
    packed, chunked = (job(RUNS[f"torchtune-llama3.2-3b-{name}"]).train for name in ("packed", "chunkedce"))
    assert (packed.compile, packed.loss, packed.sequences, packed.seq_len) == (False, "full", "packed", 4096)
    assert (chunked.compile, chunked.loss, chunked.gradient_checkpointing) == (True, "chunked", False)


def test_unstated_tiers_are_not_scored() -> None:
    assert not RUNS["unsloth-hf-fa2-llama31-8b-24gb"].measured
    assert not RUNS["qwen-Qwen-1.8B-lora(emb)-s256"].measured


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("resnet50", "images, convolutions"),
        ("vit_base_patch16_224", "images, attention or MLP"),
        ("mixer_b16_224", "images, attention or MLP"),
        ("maxvit_tiny_tf_224", "images, convolutions"),
        ("convnext_tiny", "images, convolutions"),
    ],
)
def test_image_models_are_told_apart_by_what_cudnn_does_for_them(model: str, kind: str) -> None:
    assert timm.kind(model) == kind


def test_a_line_of_the_whole_table_is_the_same_run_as_its_row() -> None:
    line = timm.run_of({"model": "resnet50", "batch_size": 32, "process_mib": 5229, "fake_mib": 2673})
    row = RUNS["timm-gpumemnet-resnet50-bs32"]
    assert (line.fields, line.measured, line.kind) == (row.fields, row.measured, row.kind)


def test_a_model_has_the_side_of_its_day() -> None:
    for model, side in (("ese_vovnet57b", 224), ("resnet50", None)):
        line = timm.run_of({"model": model, "batch_size": 8, "process_mib": 2987, "fake_mib": 755})
        assert isinstance(line.fields, dict)
        assert line.fields.get("train.image_size") == side


@pytest.mark.parametrize(
    ("figures", "dead"),
    [
        ({8: 5519, 32: 13845, 128: 2769}, {128}),
        ({8: 5519, 32: 13845, 128: 9000}, set()),  # odd, but it may have trained
        ({8: 9000, 32: 25000, 128: 2500}, {128}),
        ({8: 9000, 32: 39900, 128: 2500}, {32, 128}),
        ({16: 8000, 32: 8471, 64: 7459}, set()),  # cuDNN chose other algorithms
    ],
)
def test_a_run_that_met_the_end_of_memory_measured_nothing(figures: dict[int, float], dead: set[int]) -> None:
    assert timm.died(figures) == dead


@pytest.mark.parametrize(
    ("figures", "fake", "dead"),
    [
        ({8: 2035, 16: 2035, 32: 2035}, {8: 1145, 16: 2280, 32: 4551}, {8, 16, 32}),  # no step is the same at each
        ({8: 13585, 16: 15635, 64: 28039}, {8: 43264, 16: 85186, 64: 336719}, {8, 16, 64}),  # less than its tensors
        ({8: 2573, 16: 13021, 32: 2611, 64: 34855}, {8: 5103, 16: 9052, 32: 16949, 64: 32744}, {8, 32}),
        ({8: 6929, 16: 3581, 32: 5079}, {8: 646, 16: 1228, 32: 2415}, set()),  # cuDNN chose other algorithms
    ],
)
def test_a_run_with_less_than_the_source_counted_measured_nothing(
    figures: dict[int, float], fake: dict[int, float], dead: set[int]
) -> None:
    assert timm.died(figures, fake) == dead


def test_a_pair_of_reports_differs_in_what_the_thread_changed() -> None:
    died, worked = (job(INCIDENTS[f"axolotl708-mistral-qlora-mb{batch}"]) for batch in (4, 2))
    assert died.train.batch_size == 4
    assert died.model_copy(update={"train": died.train.model_copy(update={"batch_size": 2})}) == worked
    assert INCIDENTS["axolotl708-mistral-qlora-mb4"].group == INCIDENTS["axolotl708-mistral-qlora-mb2"].group


def test_the_capacity_of_the_message_is_the_capacity() -> None:
    assert job(INCIDENTS["aitextgen71-gpt2m"]).machine.gpu_memory == round(15.9 * GIB)


def test_what_a_source_shows_beats_what_the_row_leaves_open() -> None:
    train = job(INCIDENTS["axolotl708-mistral-qlora-mb2"]).train
    assert (train.precision, train.weights_dtype, train.quantization.double_quant) == ("bf16-mixed", "bf16", True)
    assert train.peft.targets is not None
    assert len(train.peft.targets) == 7


def test_nodes_share_the_gpus_of_a_report() -> None:
    parallel = job(INCIDENTS["llava655-7b-z2-a100-40"]).parallel
    assert (parallel.strategy, parallel.nodes, parallel.gpus_per_node) == ("zero2", 2, 4)


def test_a_model_whose_layers_lie_on_several_gpus_is_a_pipeline() -> None:
    found = job(INCIDENTS["platypus10-70b-mp"])
    assert (found.parallel.pipeline, found.parallel.gpus_per_node, found.train.grad_accum) == (4, 4, 1)
