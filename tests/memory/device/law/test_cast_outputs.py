"""Outputs that accelerate copies to fp32 when a model returns, against dry runs of transformers' Trainer."""

from __future__ import annotations

import pytest

from benchmarks.dryrun.agreement import PAIRS
from preflight.memory.device import estimate
from preflight.memory.device.law import store
from preflight.memory.device.law.cast_outputs import MODULE, with_fp32_outputs
from preflight.memory.device.law.expand import expand
from preflight.memory.device.law.tape import Tape, TapeItem, Token
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build

JOBS = {pair.name.removeprefix("Trainer "): dict(pair.job) for pair in PAIRS if pair.program == "trainer.py"}
RUN = {
    "bert": 360_113_152, "bert fp32": 359_197_192, "roberta fp16": 577_692_540, "distilbert": 359_810_304,
    "electra": 360_113_152, "t5": 301_246_120, "t5 checkpointing": 271_332_888, "mt5": 575_612_584,
    "bart": 439_468_820, "gpt2": 589_714_512, "llama": 433_419_984, "qwen2 checkpointing": 412_558_752,
}  # fmt: skip
"""Requested bytes of the dry runs of `python -m benchmarks.dryrun agreement Trainer`."""
OF_LOOP = 24
"""Bytes of the Trainer's own: the number of labels, the sum of losses, the norm of the gradients."""


def run(name: str, **changes: object) -> DeviceEstimate:
    changed = {field.replace("__", "."): value for field, value in changes.items()}
    found = estimate(build({**JOBS[name], **changed}), None)
    assert isinstance(found, DeviceEstimate)
    return found


@pytest.mark.parametrize("name", RUN)
def test_the_law_is_what_the_trainer_takes(name: str) -> None:
    assert 0 <= RUN[name] - run(name).requested.expected <= OF_LOOP


def logits(name: str) -> int:
    train, config = build(JOBS[name]).train, JOBS[name]["model.config"]
    assert isinstance(config, dict)
    return (train.batch_size or 0) * (train.target_len or train.seq_len or 0) * config["vocab_size"]


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_the_copy_is_the_peak_where_the_loss_reads_16_bit_logits(name: str) -> None:
    cast, plain = run(name), run(name, train__outputs_cast=False)
    assert cast.requested.expected - plain.requested.expected == pytest.approx(2 * logits(name), rel=0.02)
    assert (cast.phase, cast.where, plain.phase) == ("forward", MODULE, "backward")
    assert cast.allocated.expected > plain.allocated.expected


@pytest.mark.parametrize("name", ["bart", "llama"])
def test_fp32_logits_have_no_copy_and_a_loss_in_fp32_hides_it(name: str) -> None:
    assert run(name).requested == run(name, train__outputs_cast=False).requested


def test_kept_outputs_are_the_copies() -> None:
    kept = {cast: run("llama", train__outputs_kept="step", train__outputs_cast=cast) for cast in (True, False)}
    assert kept[True].requested.expected - kept[False].requested.expected == 2 * logits("llama")


@pytest.mark.parametrize(
    ("fields", "casts"),
    [
        ({"train.precision": "fp32"}, False),
        ({"train.precision": "bf16"}, False),
        ({"parallel.strategy": "ddp", "parallel.gpus_per_node": 2, "parallel.ranks_per_node": 2}, True),
        ({"parallel.strategy": "zero1", "parallel.gpus_per_node": 2, "parallel.ranks_per_node": 2}, False),
    ],
)
def test_accelerate_casts_where_autocast_is_its_own(fields: dict[str, object], casts: bool) -> None:
    found = [estimate(build({**JOBS["bert"], **fields, "train.outputs_cast": each}), None) for each in (True, False)]
    with_cast, without = (one.requested.expected for one in found if isinstance(one, DeviceEstimate))
    assert (with_cast > without) is casts


def test_every_reference_of_a_tape_stays() -> None:
    """The copies are the only difference of the events: they are born together, and die when the outputs do."""
    [key] = [k for k in store.keys("t5") if k.startswith("seq2seq-lm train fp32/bf16 sdpa exact stored")
             and "lora" not in k and "dropout_rate=off" not in k][:1]  # fmt: skip
    made = store.load(store.LawKey("t5", key))
    assert made is not None
    cast = with_fp32_outputs(made.tape)
    dims = dict.fromkeys({n for size in cast.sizes for _, m in size for n, _ in m}, 8) | {"L": 5, "Ld": 5}
    dims |= dict.fromkeys(cast.depths.values(), 5)
    old, new = expand(made.tape, dims), expand(cast, dims)
    assert len(new) == len(old) + 2
    at = next(n for n, (one, other) in enumerate(zip(old, new, strict=False)) if one[0] != other[0])
    born = new[at][1]
    assert [event[0] for event in new if event[1] == born] == ["b", "d"]
    still = [(kind, size) for kind, birth, size, _, _ in new if birth != born]
    assert still == [(kind, size) for kind, _, size, _, _ in old]


def test_a_loss_that_is_made_after_the_model_has_returned_is_left_alone() -> None:
    block = (Token("b", 0, "or"), Token("d", 0))
    tape = Tape((((2, (("b", 1),)),),), ("",), (TapeItem(None, False, (block,), "forward"),), {})
    assert with_fp32_outputs(tape) is tape
