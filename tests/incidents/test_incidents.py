"""What the five reports must lead to: flagged as they happened, clean once fixed, and clean as they were repaired."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rooms import EXAMPLES, GIB, Json, Outcome, changed_lines, checked, fixed, open_room
from thorough import sample

INCIDENTS = {
    "wandb-host-oom": "host-memory-exceeded",
    "wandb-vocab-gpu-oom": "logits-exceed-gpu",
    "slurm-validation-oom": "validation-memory-spike",
    "argparse-clip-gpu-oom": "gpu-memory-exceeded",
    "optuna-hpo-gpu-oom": "space-partly-unsafe",
}
"""Incident -> the rule that has to speak."""

AT_RISK = {"wandb-host-oom": 1}
"""Combinations that may exceed the GPU afterwards: what would help is another run (batch normalisation)."""
SAFELY_FIXED = ("wandb-host-oom", "slurm-validation-oom")
UNSAFELY_FIXED = ("wandb-vocab-gpu-oom", "argparse-clip-gpu-oom", "optuna-hpo-gpu-oom")
SAMPLE = {"slurm-validation-oom": ("--set", "data.sample_bytes=230000000")}
"""What the files of an incident cannot say: a decoded sample of eight cameras and the lidar sweeps, as float32."""


def places(finding: Json) -> set[tuple[str, int]]:
    """File and line of a finding and of everything it relates to."""
    return {(finding["path"], finding["line"]), *((one["path"], one["line"]) for one in finding["related"])}


def gib(number: float) -> float:
    return number / GIB


@pytest.mark.parametrize("name", INCIDENTS)
def test_every_incident_is_here(name: str) -> None:
    assert (EXAMPLES / name / "repaired").is_dir()


@pytest.mark.parametrize(("name", "rule"), INCIDENTS.items())
def test_flagged_as_it_happened(name: str, rule: str) -> None:
    found = checked(name, *SAMPLE.get(name, ()))
    assert rule in found.rules
    assert found.status == 1
    assert "internal-error" not in found.rules


@pytest.mark.parametrize("name", INCIDENTS)
def test_the_reports_own_repair_is_clean(name: str) -> None:
    found = checked(name, *SAMPLE.get(name, ()), repaired=True)
    if name == "optuna-hpo-gpu-oom":  # its DeBERTa rows do not fit, whatever the report says
        assert all("deberta" in message for _, message in found.errors)
    else:
        assert found.errors == []
        assert found.status == 0


@pytest.mark.parametrize("name", SAFELY_FIXED)
def test_safe_fixes_make_it_clean(name: str) -> None:
    after = fixed(name, "--fix", *SAMPLE.get(name, ())).left
    assert after.errors == []
    assert after.unsafe == AT_RISK.get(name, 0)
    assert after.status == 0


@pytest.mark.parametrize("name", UNSAFELY_FIXED)
def test_unsafe_fixes_make_it_clean(name: str) -> None:
    safe = fixed(name, "--fix")
    assert safe.once == safe.before, "no safe fix may touch it"
    after = fixed(name, "--unsafe-fixes").left
    assert after.errors == []
    assert after.unsafe == 0


FIXES = {(option, name): pytest.param(option, name) for option in ("--fix", "--unsafe-fixes") for name in INCIDENTS}
for case in (  # which no other test asks for
    ("--unsafe-fixes", "wandb-host-oom"),
    ("--unsafe-fixes", "slurm-validation-oom"),
    ("--fix", "optuna-hpo-gpu-oom"),
):
    FIXES[case] = pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(("option", "name"), sample(FIXES.values(), 2))
def test_a_second_fix_changes_nothing(option: str, name: str) -> None:
    found = fixed(name, option, *SAMPLE.get(name, ()))
    assert found.twice == found.once


def test_an_edited_sweep_has_to_be_registered_again() -> None:
    [edited] = checked("wandb-vocab-gpu-oom").named("logits-exceed-gpu")
    assert {edit["path"] for edit in edited["fix"]["edits"]} == {"sweep_config_minimal.yaml"}
    assert edited["fix"]["title"].endswith("; run `wandb sweep` again")
    [other] = checked("wandb-host-oom").named("host-memory-exceeded")  # of which the program is edited
    assert "wandb sweep" not in other["fix"]["title"]


# --- wandb-host-oom ---------------------------------------------------------------------------------------------------


def test_wandb_host_locates_both_lines_and_edits_nothing_else() -> None:
    [finding] = checked("wandb-host-oom").named("host-memory-exceeded")
    found = fixed("wandb-host-oom", "--fix")
    lines = {(path, found.before[path].splitlines()[line - 1].strip()) for path, line in places(finding)}
    assert any(path == "sweep_config.yaml" and "64" in text for path, text in lines)
    assert any(path == "train_sweep.py" and "workers=16" in text for path, text in lines)
    assert finding["fix"]["safety"] == "safe"
    edited = changed_lines(found.before, found.once)
    assert edited.keys() == {"train_sweep.py"}, "a smaller batch is another run under batch normalisation"
    for pairs in edited.values():
        [(old, new)] = pairs
        assert re.sub(r"\d+", "N", old) == re.sub(r"\d+", "N", new)


def test_wandb_host_knows_how_ultralytics_loads() -> None:
    job = checked("wandb-host-oom").study()["worst"]
    assert (job["train"]["batch_size"], job["data"]["workers"]) == (64, 16)
    assert (job["validation"]["batch_size"], job["data"]["validation_workers"]) == (128, 32)


# --- wandb-vocab-gpu-oom ----------------------------------------------------------------------------------------------


@pytest.fixture
def vocabulary() -> Outcome:
    return checked("wandb-vocab-gpu-oom")


def test_vocabulary_largest_allocation_to_the_digit(vocabulary: Outcome) -> None:
    [finding] = vocabulary.named("logits-exceed-gpu")
    assert "7.45 GiB" in finding["message"]
    assert re.search(r"200\b.*\b10,000,000\b.*\b4\b", finding["message"])
    assert vocabulary.study()["device"]["largest_allocation"]["bytes"] == 200 * 10_000_000 * 4


def test_vocabulary_states_are_shown(vocabulary: Outcome) -> None:
    breakdown = vocabulary.study()["device"]["breakdown"]
    states = sum(breakdown[part] for part in ("weights", "gradients", "optimizer"))
    assert gib(states) == pytest.approx(9.54, abs=0.05)
    assert vocabulary.study()["device"]["capacity"] == pytest.approx(15.48 * GIB, rel=1e-3)


def test_vocabulary_evaluation_and_counts(vocabulary: Outcome) -> None:
    [finding] = vocabulary.named("eval-unbatched")
    assert finding["path"].endswith(".py")
    study = vocabulary.study()
    assert study["unsafe"] == study["counts"]["exceeds"] + study["counts"]["at_risk"] > 0


def test_vocabulary_is_capped_within_the_constraint() -> None:
    texts = fixed("wandb-vocab-gpu-oom", "--unsafe-fixes").once
    [sweep] = [text for name, text in texts.items() if name.endswith(".yaml")]
    import yaml

    parameters = yaml.safe_load(sweep)["parameters"]

    def largest(name: str) -> int:
        return int(parameters[name].get("value") or max(parameters[name]["values"]))

    assert largest("graph_vocab_size") < 10_000_000
    lengths = [name for name in parameters if name in ("graph_l", "path_len", "graph_path_len")]
    length = largest(lengths[0]) if lengths else 5
    assert largest("graph_vocab_size") >= largest("graph_d") * (length - 1) + 1


# --- slurm-validation-oom ---------------------------------------------------------------------------------------------


def test_slurm_prints_the_threshold() -> None:
    found = checked("slurm-validation-oom")
    [finding] = found.named("validation-memory-spike")
    assert finding["severity"] != "error"
    assert re.search(r"fits only if one decoded sample is at most [\d.]+ [MG]iB", finding["message"])
    assert "data.sample_bytes" in finding["message"]
    assert found.status == 0


def test_slurm_spike_is_located_and_fixed() -> None:
    sample = SAMPLE["slurm-validation-oom"]
    [finding] = checked("slurm-validation-oom", *sample).named("validation-memory-spike")
    found = fixed("slurm-validation-oom", "--fix", *sample)
    shown = [found.before[path].splitlines()[line - 1] for path, line in places(finding)]
    assert any("num_workers" in line or "batch_size" in line for line in shown)
    assert any("--mem" in line for line in shown)
    [pairs] = changed_lines(found.before, found.once).values()
    new = "".join(line for _, line in pairs)
    memory = re.search(r"--mem=(\d+)G", new)
    assert memory is not None
    assert 256 < int(memory[1]) <= 513
    assert len(pairs) >= 2, "the loaders are quieted as well"


def test_slurm_counts_ranks() -> None:
    job = checked("slurm-validation-oom").study()["worst"]
    parallel = job["parallel"]
    assert (parallel["nodes"], parallel["ranks_per_node"], parallel["gpus_per_node"]) == (4, 4, 4)
    assert (job["train"]["batch_size"], job["data"]["workers"]) == (22, 2)
    assert job["machine"]["memory_limit"] == 256 * GIB


# --- argparse-clip-gpu-oom --------------------------------------------------------------------------------------------


def test_clip_needs_what_was_traced() -> None:
    study = checked("argparse-clip-gpu-oom").study()
    job, device = study["worst"], study["device"]
    assert (job["train"]["batch_size"], job["train"]["precision"]) == (128, "fp16-mixed")
    assert (job["train"]["optimizer"], job["train"]["optimizer_impl"]) == ("adamw", "foreach")
    assert gib(device["allocated"]["expected"]) == pytest.approx(7.5, rel=0.07)
    assert gib(device["reserved"]["expected"]) == pytest.approx(7.8, rel=0.07)
    assert device["verdict"] == "exceeds"


def test_clip_repaired_needs_3_to_4_gib() -> None:
    study = checked("argparse-clip-gpu-oom", repaired=True).study()
    assert study["worst"]["train"]["batch_size"] == 16
    assert 3 <= gib(study["device"]["process"]["expected"]) <= 4


def test_clip_accumulation_is_unsafe_with_the_reason() -> None:
    [finding] = checked("argparse-clip-gpu-oom").named("gpu-memory-exceeded")
    assert finding["fix"]["safety"] == "unsafe"
    job = fixed("argparse-clip-gpu-oom", "--unsafe-fixes").left.study()["worst"]
    assert job["train"]["batch_size"] * job["train"]["grad_accum"] == 128
    assert job["train"]["batch_size"] < 128


# --- optuna-hpo-gpu-oom -----------------------------------------------------------------------------------------------


@pytest.fixture
def study() -> Outcome:
    return checked("optuna-hpo-gpu-oom")


def test_optuna_counts_the_whole_space(study: Outcome) -> None:
    assert study.study()["combinations"] == 7 * 546
    counts = study.study()["counts"]
    assert sum(counts[name] for name in ("fits", "at_risk", "exceeds", "unknown")) == 7 * 546
    assert counts["unknown"] == 0


def test_optuna_says_per_model_what_is_safe(tmp_path: Path) -> None:
    _, text = open_room("optuna-hpo-gpu-oom", tmp_path).output("--output-format", "full", "-v")
    for model in ("bert-base-uncased", "bert-large-uncased", "roberta-large", "deberta-v3-base"):
        assert re.search(rf"{model}.*\d+ of 546", text), model


def test_optuna_missing_handling_is_flagged(study: Outcome) -> None:
    assert study.named("oom-not-handled")
    assert not checked("optuna-hpo-gpu-oom", repaired=True).named("oom-not-handled")


@pytest.mark.parametrize(
    ("model", "batch", "length", "verdict"),
    [
        ("bert-large-uncased", 16, 384, "fits"),
        ("bert-large-uncased", 8, 384, "fits"),
        ("roberta-large", 16, 384, "fits"),
        ("bert-base-uncased", 64, 512, "fits"),
        ("bert-base-uncased", 32, 512, "fits"),
        ("roberta-base", 48, 512, "fits"),
        ("bert-large-uncased", 48, 480, "exceeds"),
        ("microsoft/deberta-v3-large", 16, 384, "exceeds"),
        ("microsoft/deberta-v3-base", 64, 512, "exceeds"),
    ],
)
def test_optuna_rows_of_the_report(model: str, batch: int, length: int, verdict: str) -> None:
    fixed = (f"model.name={model}", f"train.batch_size={batch}", f"train.seq_len={length}", "train.grad_accum=4")
    options = [word for setting in fixed for word in ("--set", setting)]
    device = checked("optuna-hpo-gpu-oom", *options).study()["device"]
    assert device["verdict"] == verdict
    if (batch, length) == (48, 480):
        assert gib(device["process"]["expected"]) == pytest.approx(28, rel=0.05)
    assert device["capacity"] == pytest.approx(23.56 * GIB, rel=1e-3)


@pytest.mark.parametrize("name", sample(INCIDENTS, 2))
def test_each_finding_fits_the_first_screen(name: str, tmp_path: Path) -> None:
    _, text = open_room(name, tmp_path).output("--output-format", "full", *SAMPLE.get(name, ()))
    findings = text.partition("\n\nFound ")[0].split("\n\n")
    assert all(len(finding.splitlines()) <= 8 for finding in findings), text
