"""Statistics of the accuracy benchmark, on figures that can be checked by eye."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.accuracy.calibration import Width, hardness, held, proposal, width
from benchmarks.accuracy.fits import Judged, confusion, contradicted
from benchmarks.accuracy.incidents import Incident
from benchmarks.accuracy.measure import measure
from benchmarks.accuracy.peers import PEERS, Answer, Refused
from benchmarks.accuracy.peers.eleuther import Eleuther
from benchmarks.accuracy.report import comparison, fitted, overview, tiers
from benchmarks.accuracy.score import Score, duels, quantile, summary
from benchmarks.accuracy.tool import Preflight
from benchmarks.accuracy.truth import Inexpressible, Run, Tier
from preflight.vocabulary.estimates import Interval, Verdict
from preflight.vocabulary.job import Job, build


def score(
    measured: int, estimate: int | None, tool: str = "preflight", source: str = "one", tier: Tier = "process"
) -> Score:
    run = Run(f"{source}-{measured}", source, "decoders, LoRA", {}, {tier: measured})
    interval = None if estimate is None else Interval(round(estimate * 0.9), estimate, round(estimate * 1.1))
    return Score(run, tool, tier, measured, estimate, interval)


def test_a_summary_counts_refusals_apart_from_errors() -> None:
    found = summary([score(100, 100), score(100, 90), score(100, 130), score(100, None)])
    assert found is not None
    assert (found.answered, found.refused) == (3, 1)
    assert found.median == pytest.approx(0.10)
    assert (found.worst_under, found.worst_over) == (pytest.approx(-0.10), pytest.approx(0.30))
    assert found.under == pytest.approx(1 / 3)
    assert found.inside == pytest.approx(1 / 3)  # 100 of 90 to 110; 99 is the top of 90's, 117 the foot of 130's


def test_the_ninetieth_percentile_is_a_value_that_nine_of_ten_do_not_exceed() -> None:
    assert quantile(range(1, 11), 0.9) == 9
    assert quantile([5], 0.9) == 5


def test_tools_meet_only_on_rows_that_both_answer() -> None:
    scores = [score(100, 110), score(200, 200), score(100, 105, "peer"), score(200, None, "peer")]
    (found,) = duels(scores, "preflight")
    assert (found.rows, found.ours, found.theirs) == (1, pytest.approx(0.10), pytest.approx(0.05))
    assert not found.first
    assert "| process | decoders, LoRA | peer | 1 | 10.0% | 5.0% |" in "\n".join(comparison(scores))


def test_the_overview_names_the_best_tool_on_common_rows() -> None:
    scores = [score(100, 110), score(200, 200), score(100, 105, "near"), score(100, 150, "far")]
    (line,) = [line for line in overview(scores) if line.startswith("| decoders")]
    assert line.endswith("| 5.0% (near, 1 rows; preflight 10.0%) |")


def test_a_tool_that_answers_nothing_leaves_no_line() -> None:
    text = "\n".join(tiers([score(100, 100), score(100, None, "peer")], ["preflight", "peer"]))
    assert "preflight" in text
    assert "peer" not in text


def test_a_width_gives_each_source_one_vote() -> None:
    many, few = [1.0] * 98, [1.5, 1.5]
    assert width({"many": many, "few": few}) == Width(1.0, 1.5)
    assert width({"many": many + few}) == Width(1.0, 1.0)


def test_a_source_is_judged_by_the_others() -> None:
    scores = [score(m, 100, source="a") for m in (98, 100, 102)] + [score(m, 100, source="b") for m in (120, 130)]
    a, b = held(scores)
    assert (a.source, a.stated, a.left_out) == ("a", 1.0, 0.0)
    assert (b.source, b.stated, b.left_out) == ("b", 0.0, 0.0)
    assert proposal(scores) == Width(0.98, 1.30)


@pytest.mark.parametrize(
    ("fields", "kind", "expected"),
    [
        ({"train.quantization.type": "nf4"}, "decoders, QLoRA", "quantised"),
        ({"parallel.strategy": "fsdp"}, "decoders, several GPUs", "sharded"),
        ({"parallel.strategy": "ddp"}, "detectors", "convolutions"),
        ({"train.sequences": "bound", "train.seq_len": 512}, "decoders, LoRA", "lengths vary"),
        ({"train.sequences": "exact", "train.seq_len": 512}, "decoders, LoRA", "plain"),
    ],
)
def test_what_makes_a_run_hard(fields: dict[str, object], kind: str, expected: str) -> None:
    assert hardness(fields, kind) == expected


def judged(name: str, group: str, died: bool, verdict: Verdict) -> Judged:
    return Judged(Incident(name, group, died, {}, False), verdict)


def test_each_source_of_reports_has_one_vote() -> None:
    found = confusion(
        [
            judged("a", "table", True, "exceeds"),
            judged("b", "table", True, "fits"),
            judged("c", "issue", True, "exceeds"),
            judged("d", "other", True, "unknown"),
            judged("e", "issue", False, "at-risk"),
        ]
    )
    assert found.died == {"fits": 0.5, "at-risk": 0.0, "exceeds": 1.0, "unknown": 1.0}
    assert found.died_judged_fits == pytest.approx(1 / 3)
    assert found.worked_judged_exceeds == 0.0


def test_wrong_verdicts_are_named() -> None:
    one = judged("wrong-one", "x", False, "exceeds")
    assert "| wrong-one | worked | exceeds |  |" in "\n".join(fitted([one], confusion([one])))


def test_tools_that_are_not_installed_say_so() -> None:
    for name, make in PEERS.items():
        peer = make()
        assert peer.name == name
        assert peer.version is None or peer.version


def test_the_published_formula_of_a_gpt2() -> None:
    """By hand: h 768, 12 layers, 12 heads, V 50257, b 1, s 1024, fp32 weights."""
    job = build({"model.name": "openai-community/gpt2", "task": "causal-lm", "train.batch_size": 1,
                 "train.seq_len": 1024, "train.precision": "fp32", "train.optimizer": "adamw"})  # fmt: skip
    found = Eleuther().estimate(job)
    assert not isinstance(found, Refused)
    h, layers, s = 768, 12, 1024
    count = 2 * 50257 * h + h * s + 8 * h * layers + 2 * h + 12 * layers * h * h
    assert found["process"] == count * (4 + 4 + 12) + s * h * layers * (34 + 5 * 12 * s / h)


def test_a_formula_for_full_training_refuses_adapters() -> None:
    job = build({"model.name": "openai-community/gpt2", "train.batch_size": 1, "train.seq_len": 8,
                 "train.peft.method": "lora"})  # fmt: skip
    assert isinstance(Eleuther().estimate(job), Refused)


class Always:
    """A tool that says the same of every job."""

    name = "always"
    version: str | None = "1"
    tiers: tuple[Tier, ...] = ("process",)

    def estimate(self, job: Job) -> Answer | Refused:
        if job.train.batch_size == 3:
            raise ValueError("three")
        return {"process": 100}


def test_runs_are_measured_in_order_and_what_fails_has_refused() -> None:
    runs = [
        Run("b", "x", "k", {"model.name": "no-such-model", "train.batch_size": 3}, {"process": 100}),
        Run("a", "x", "k", Inexpressible("it is no job"), {"process": 100}),
        Run("d", "x", "k", {"model.name": "no-such-model", "train.batch_size": 1}, {"process": 200}),
        Run("c", "x", "k", {"model.name": "no-such-model", "train.batch_size": 1}, {"allocated": 100}),
        Run("e", "x", "k", {"model.name": "no-such-model", "train.batch_size": 1}),
    ]
    found = measure(runs, [Always()], Preflight(tracing=False))
    assert [(s.run.id, s.tool, s.estimate) for s in found.scores] == [
        ("b", "preflight", None), ("b", "always", None),
        ("a", "preflight", None), ("a", "always", None),
        ("d", "preflight", None), ("d", "always", 100),
        ("c", "preflight", None), ("c", "always", None),
    ]  # fmt: skip
    assert [s.why for s in found.scores if s.tool == "always"] == [
        "crashed: ValueError: three", "not a Job: it is no job", "", "no figure for this tier",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "speaks_against"), [(64 << 20, False), (80 << 20, True), (4 << 20, False), (None, False)]
)
def test_a_message_that_speaks_against_what_was_inferred(asked: int | None, speaks_against: bool) -> None:
    fields = {"model.name": "gpt2-medium", "task": "causal-lm", "train.batch_size": 1, "train.seq_len": 1024,
              "train.precision": "fp32", "train.optimizer": "adamw", "train.attention": "eager"}  # fmt: skip
    inferred = Incident("one", "one", True, fields, False, ("batch_size",), asked)
    assert bool(contradicted(inferred)) == speaks_against  # scores: 16 heads x 1,024 x 1,024 x 4 bytes = 64 MiB
    assert not contradicted(replace(inferred, inferred=()))
