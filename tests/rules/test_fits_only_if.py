"""What an unknown setting may be at most."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import GIB, Device, case
from cases import findings as all_findings
from command_line import preflight
from msgspec.structs import replace

from preflight.vocabulary.findings import Finding, Severity
from preflight.vocabulary.rule import Case
from preflight.vocabulary.values import Value
from preflight_rules.fits_only_if import FitsOnlyIf


def findings(case: Case) -> list[Finding]:
    return all_findings(case, FitsOnlyIf)


def test_unknown_length_shows_the_frontier() -> None:
    def device(job):  # type: ignore[no-untyped-def]
        return None if job.train.seq_len is None else Device(states=2 * GIB)(job)

    one = case({"train.batch_size": 8, "train.grad_accum": 1}, device=device, unknown=("train.seq_len",))
    [finding] = findings(one)
    assert (finding.rule, finding.severity) == ("fits-only-if", Severity.info)
    assert "up to 1,664 at batch 8, 3,328 at batch 4, 6,656 at batch 2, 13,312 at batch 1" in finding.message


@pytest.mark.parametrize("capacity", [16 * GIB, None])
def test_a_lower_bound_is_no_need(capacity: int | None) -> None:
    def device(job):  # type: ignore[no-untyped-def]
        found = None if job.train.seq_len is None else Device(states=20 * GIB, capacity=capacity)(job)
        return None if found is None else replace(found, lower_bound=True)

    written: dict[str, Value] = {"train.batch_size": 8, "train.grad_accum": 1}
    assert findings(case(written, device=device, unknown=("train.seq_len",))) == []


OPEN = {
    "no GPU": (
        {"train.batch_size": 8}, ("train.seq_len",), None,
        "the length is unknown: at batch 8 it needs 3 GiB at 128, 6 GiB at 512, 18 GiB at 2,048",
    ),
    "length and batch": (
        {}, ("train.seq_len", "train.batch_size"), 16 * GIB,
        "length and batch are unknown: it fits the GPU up to 416 at batch 32, 1,664 at batch 8, 13,312 at batch 1",
    ),
    "the batch alone, no GPU": (
        {"train.seq_len": 512}, ("train.batch_size",), None,
        "the batch size is unknown: it needs 2.5 GiB at 1, 6 GiB at 8, 18 GiB at 32",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("written", "unknown", "capacity", "says"), OPEN.values(), ids=OPEN.keys())
def test_what_is_unknown_is_solved_for(
    written: dict[str, Value], unknown: tuple[str, ...], capacity: int | None, says: str
) -> None:
    def device(job):  # type: ignore[no-untyped-def]
        known = job.train.seq_len is not None and job.train.batch_size is not None
        return Device(capacity=capacity, states=2 * GIB)(job) if known else None

    [finding] = findings(case(written, device=device, unknown=unknown))
    assert (finding.rule, finding.severity) == ("fits-only-if", Severity.info)
    assert says in finding.message


@pytest.mark.parametrize(("capacity", "severity"), [(131, Severity.warning), (16, Severity.error)])
def test_what_never_fits_is_as_bad_as_the_least_of_it(capacity: int, severity: Severity) -> None:
    def device(job):  # type: ignore[no-untyped-def]
        return None if job.train.batch_size is None else Device(capacity=capacity * GIB, states=2 * GIB)(job)

    [finding] = findings(case({"train.seq_len": 2**17}, device=device, unknown=("train.batch_size",)))
    assert (finding.rule, finding.severity) == ("fits-only-if", severity)
    assert "the batch size is unknown, and not even 1 fits" in finding.message
    assert finding.interval is not None
    assert finding.capacity == capacity * GIB


@pytest.mark.parametrize("fits_again", [(960, 1536), (900, 1100)])
def test_no_frontier_where_a_shorter_length_needs_more_than_a_longer(fits_again: tuple[int, int]) -> None:
    """What the allocator keeps of freed blocks is given back when the card is full."""

    def device(job):  # type: ignore[no-untyped-def]
        length = job.train.seq_len
        if length is None:
            return None
        kept = 0 if length < 700 or fits_again[0] <= length <= fits_again[1] else 14 * GIB
        return Device(states=3 * GIB + kept, per_token=0)(job)

    one = case({"train.batch_size": 1, "train.grad_accum": 1}, device=device, unknown=("train.seq_len",))
    [finding] = findings(one)
    assert "shorter ones may need more than longer ones" in finding.message
    assert "up to" not in finding.message


OWN_TOKENS = """
from transformers import RobertaConfig, RobertaForMaskedLM, Trainer, TrainingArguments
from tokens import tokenizer, data

config = RobertaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=256, num_hidden_layers=6,
                       num_attention_heads=8, intermediate_size=1024, max_position_embeddings=130)
model = RobertaForMaskedLM(config=config)
Trainer(model, TrainingArguments("out", per_device_train_batch_size={batch}, fp16=True), train_dataset=data).train()
"""


@pytest.mark.parametrize(("batch", "kind"), [(480, "info"), (9600, "warning")])
def test_a_vocabulary_of_ones_own_may_be_small(
    batch: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With 32,000 tokens neither fits; with a few hundred the smaller batch does."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(OWN_TOKENS.format(batch=batch))
    found = preflight(capsys, "check", "train.py", "--gpu", "T4", "--set", "train.seq_len=128")
    assert f"{kind}[fits-only-if]: the vocabulary is unknown" in found.out
    assert "none of these fits T4" in " ".join(found.out.split())
