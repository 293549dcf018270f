"""Many Jobs at once: the verdicts of `estimate`, whatever a row holds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from preflight import api
from preflight.engine.score import scorer as module
from preflight.engine.score.columns import COLUMNS
from preflight.engine.score.scorer import Scorer
from preflight.vocabulary.job import fields

MODELS = {
    "gpt2": "causal-lm", "distilgpt2": "causal-lm", "EleutherAI/pythia-160m": "causal-lm",
    "facebook/opt-125m": "causal-lm", "meta-llama/Llama-3.2-1B": "causal-lm",
    "Qwen/Qwen2.5-0.5B": "causal-lm", "bert-base-uncased": "masked-lm",
    "roberta-base": "sequence-classification", "microsoft/deberta-v3-base": "sequence-classification",
    "mistralai/Mistral-7B-v0.1": "causal-lm",
    "distilbert-base-uncased": "token-classification", "google/electra-base-discriminator": "sequence-classification",
    "t5-small": "seq2seq-lm", "facebook/bart-base": "seq2seq-lm",
}  # fmt: skip
CARDS = ("t4", "RTX 4090", "a100-40gb")
SAME = (
    "verdict",
    "mark",
    "standing",
    "device_verdict",
    "host_verdict",
    "requested",
    "capacity",
    "unknown",
    "cause",
    "reasons",
    "host_limit",
)


def rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    pick = random.Random(seed)
    found = []
    for model, task in MODELS.items():
        setup = {
            "train.precision": pick.choice(["fp32", "bf16-mixed"]),
            "train.gradient_checkpointing": pick.random() < 0.3,
        }
        gpu, more = pick.choice(CARDS), pick.choice([{}, {"machine.memory_limit": 64 << 30}, {"train.grad_accum": 4}])
        for _ in range(count):
            sizes = {"train.batch_size": pick.choice([1, 2, 5, 24, 96, 200]), "train.seq_len": pick.randint(8, 512)}
            if task == "seq2seq-lm":
                sizes["train.target_len"] = 64
            found.append({"model.name": model, "task": task, "machine.gpu": gpu, **setup, **more, **sizes})
    return found


@pytest.mark.slow
def test_what_the_bound_decides_the_replay_says_too() -> None:
    """The property that the fast way stands on."""
    given = rows(24)
    fast, slow = Scorer(), Scorer(exact=True)
    decided = [(row, one) for row, one in zip(given, fast.score(given), strict=True) if one["by"] == "bound"]
    assert len(decided) > len(given) / 3
    replayed = slow.score([row for row, _ in decided])
    for (row, one), full in zip(decided, replayed, strict=True):
        assert {name: one[name] for name in SAME} == {name: full[name] for name in SAME}, row


@pytest.mark.parametrize(
    ("model", "gpu", "lengths", "by"),
    [
        ("mistralai/Mistral-7B-v0.1", "t4", (8, 120, 500), ["bound"] * 3),  # no batch of it fits
        ("gpt2", "t4", (500, 501, 502), ["bound"] * 3),  # a batch of 1 does
    ],
)
def test_a_need_above_every_gpu(model: str, gpu: str, lengths: tuple[int, ...], by: list[str]) -> None:
    """Is it a mistake in the batch, or a model that is too large? Mostly the bound tells which."""
    given = [
        {"model.name": model, "train.batch_size": 4000, "train.seq_len": length, "machine.gpu": gpu}
        for length in lengths
    ]
    found = Scorer().score(given)
    assert [one["by"] for one in found] == by
    for one, full in zip(found, Scorer(exact=True).score(given), strict=True):
        assert {name: one[name] for name in SAME} == {name: full[name] for name in SAME}
    assert {one["verdict"] for one in found} == {"at-risk" if model == "gpt2" else "exceeds"}


def test_a_replayed_row_is_the_estimate() -> None:
    for row in rows(1, 1):
        found, (one,) = api.estimate(api.job_of(row)), Scorer(exact=True).score([row])
        assert found.device is not None
        assert one["verdict"] == found.verdict
        high = one["process_low"], one["process_expected"], one["process_high"]
        assert high == (found.device.process.low, found.device.process.expected, found.device.process.high)


GOOD = {"model.name": "gpt2", "train.batch_size": 2, "train.seq_len": 64, "machine.gpu": "t4"}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (None, "a row is an object"),
        ([1], "a row is an object"),
        ({**GOOD, "train.batch_size": -1}, "train.batch_size"),
        ({**GOOD, "train.batch_size": 10**400}, "less than or equal"),
        ({**GOOD, "train.batch_size": 10**30}, "64 bits"),
        ({**GOOD, "\ud800": 1}, "unable to parse"),
        ({**GOOD, "trian.batch_size": 1}, "trian"),
        ({**GOOD, "machine.gpu": "no such card"}, "no such card"),
        ({**GOOD, "model.path": "/etc"}, "no file that a row names"),
        ({**GOOD, "model.law": "/etc/passwd"}, "no file that a row names"),
        ({"train": {"batch_size": 1}, "model": 7}, "model"),
        ({1: 2}, ""),
    ],
)
def test_a_bad_row_is_a_row_with_its_error(bad: object, words: str) -> None:
    first, found, last = Scorer().score([GOOD, bad, GOOD])
    assert first["verdict"] == last["verdict"] == "fits"
    assert found["verdict"] is None
    assert words in str(found["error"])
    assert list(found) == list(COLUMNS)


@pytest.mark.parametrize("fields", [{}, {"model.architecture": "gpt2"}, {"train.quantization.type": "nf4"}])
def test_a_name_is_no_path(fields: dict[str, object], tmp_path: Path) -> None:
    """`estimate` of one's own Job finds a folder of that name. A row may come from anybody."""
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 64, "n_head": 2}
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 100, "n_positions": 64}), "utf-8")
    row = {**GOOD, "model.name": str(tmp_path), **fields}
    assert api.estimate(api.job_of({**GOOD, "model.name": str(tmp_path)})).device is not None
    assert [one["device_verdict"] for one in Scorer().score([row] + [{**row, "train.batch_size": 9}])] == [None, None]


def test_a_model_of_too_many_layers_is_not_replayed() -> None:
    config = {"n_layer": 10**6, "n_embd": 64, "n_head": 2, "vocab_size": 100, "n_positions": 64}
    (found,) = Scorer().score([{**GOOD, "model.name": None, "model.architecture": "gpt2", "model.config": config}])
    assert "layers" in str(found["reasons"])


@pytest.mark.parametrize(
    ("more", "cause", "unknown", "words"),
    [
        ({"machine.gpu": None}, "not-set", "machine.gpu", "machine.gpu is not known"),
        ({"train.frozen": ["all"]}, "lower-bound", None, "no law is shipped"),
    ],
)
def test_an_unknown_verdict_has_its_cause(more: dict[str, object], cause: str, unknown: str | None, words: str) -> None:
    (found,) = Scorer().score([{**GOOD, "task": "causal-lm", **more}])
    assert found["verdict"] == found["device_verdict"] == "unknown"
    assert (found["cause"], found["unknown"]) == (cause, unknown)
    assert words in str(found["reasons"])


def test_one_bad_kind_of_jobs_is_an_error_in_each_of_its_rows() -> None:
    found = Scorer().score([{**GOOD, "machine.gpu": "no such card", "train.batch_size": n} for n in range(2, 12)])
    assert all("no such card" in str(row["error"]) for row in found)


def test_equal_jobs_are_judged_once() -> None:
    judge = Scorer(exact=True)
    found = [*judge.score([{**GOOD, "id": 1}, {**GOOD, "id": 2}]), *judge.score([{**GOOD, "id": 3}])]
    assert [row["id"] for row in found] == ["1", "2", "3"]
    assert judge.judged == judge.replays == 1


def test_jobs_that_come_one_by_one_are_judged_by_the_bound_too() -> None:
    """As those of a service."""
    judge = Scorer()
    assert judge.at_once(GOOD) is None
    assert {judge.score([{**GOOD, "train.batch_size": n}])[0]["by"] for n in range(2, 10)} == {"bound"}
    later = {**GOOD, "train.batch_size": 5, "id": 7}
    assert judge.at_once(later) == {**judge.score([later])[0], "id": "7"}
    assert judge.at_once({**GOOD, "train.seq_len": 48}) == Scorer().score([{**GOOD, "train.seq_len": 48}])[0]


def test_a_job_that_is_too_large_for_the_bound_does_not_keep_it_from_others() -> None:
    """A service would replay all that come after it."""
    huge = {**GOOD, "train.batch_size": 1 << 38}
    for first in ([huge], [GOOD, huge], [{**GOOD, "train.seq_len": 1000}, huge]):
        judge = Scorer()
        judge.score(first)
        assert {one["by"] for one in judge.score([{**GOOD, "train.batch_size": n} for n in range(3, 7)])} == {"bound"}


@pytest.mark.parametrize(
    "more",
    [
        {"model.name": "corp/private"},
        {"machine.gpu": "no such card"},
        {"model.name": "corp/private", "data.sample_bytes": 2000, "data.workers": 2},
        {"train.precision": "fp17"},
    ],
)
def test_what_has_nothing_to_do_with_sizes_is_found_once(
    more: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A company's own models, and a card that there is none of: each row has the answer that it has alone."""
    given = [{**GOOD, **more, "train.batch_size": 2 + n, "train.seq_len": 64 + 3 * n} for n in range(8)]
    alone = [Scorer().score([row])[0] for row in given]
    assert Scorer().score(given) == alone
    asked: list[object] = []
    judged = Scorer._judged

    def counted(scorer: Scorer, row: object) -> object:
        asked.append(row)
        return judged(scorer, row)

    monkeypatch.setattr(Scorer, "_judged", counted)
    Scorer().score(given)
    assert len(asked) == (10 if "data.sample_bytes" in more else 2)


def test_kinds_grow_and_do_not_move() -> None:
    """Long samples in small batches, and short ones in large ones, take turns."""
    judge = Scorer()
    for n in range(4):
        judge.score([{**GOOD, "train.batch_size": 2 + n, "train.seq_len": 900}])
        judge.score([{**GOOD, "train.batch_size": 60 + n}])
    (kind,) = judge._kinds.values()
    assert kind.covers(2, 900)
    assert kind.covers(64, 64)


@pytest.mark.parametrize("model", ["gpt2", "meta-llama/Llama-3.2-1B"])
def test_a_batch_of_one_is_judged_with_the_others(model: str) -> None:
    """Its tape may be another one: whichever comes first, each has the figures that it has alone."""
    given = [
        {**GOOD, "model.name": model, "train.batch_size": n, "train.seq_len": s} for n in (1, 2, 3) for s in (63, 64)
    ]
    alone = [Scorer(exact=True).score([row])[0]["requested"] for row in given]
    for order in (given, given[::-1]):
        judge = Scorer()
        found = {one["requested"] for row in order for one in judge.score([row]) if one["by"] == "bound"}
        assert found == {*alone}
        assert len(judge._kinds) == 1
    assert [one["requested"] for one in Scorer().score(given)] == alone


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    judge = Scorer(exact=True)
    judge.score([{**GOOD, "train.batch_size": n} for n in range(1, 9)])
    assert len(judge._kept) == 3


def test_what_strangers_send_is_not_kept() -> None:
    judge = Scorer()
    judge.score([{**GOOD, "train.trian": "x" * 100_000}, "y" * 100_000, {**GOOD, "task": ["z" * 100_000]}])
    judge.score([{**GOOD, "model.config": {"n_layer": 12, "note": "x" * 100_000}}])
    assert not judge._kept or max(len(text) for text, _, _ in judge._kept) < 2000
    assert all(len(text) < 2000 for text in (*judge._kinds, *judge._failed))


def test_a_verdict_stands_on_what_a_row_knows() -> None:
    """A table of what `check` found keeps how each value is known."""
    weak = {**GOOD, "standings": {"train.batch_size": "by-name"}}
    seen = {**GOOD, "standings": {"train.seq_len": "dry-run", "train.batch_size": "dry-run", "model.name": "dry-run"}}
    every = {**dict.fromkeys(fields(), "read")}
    plain, doubted, well, whole = Scorer().score([GOOD, weak, seen, {**GOOD, "standings": every}])
    assert (plain["verdict"], plain["standing"]) == ("fits", "default")  # the row states no optimizer, say
    assert (whole["verdict"], whole["standing"]) == ("fits", "read")
    assert (doubted["verdict"], doubted["standing"], doubted["assumptions"]) == (
        "fits-if", "by-name", "train.batch_size",
    )  # fmt: skip
    assert (well["verdict"], well["by"], well["standing"]) == ("fits", "bound", "default")
    for wrong in ("read", ["read"], {"train.seq_len": "sure"}, {"train.seqlen": "read"}, {"train.seq_len": ["read"]}):
        (found,) = Scorer().score([{**GOOD, "standings": wrong}])
        assert "standings" in str(found["error"]), wrong


def test_a_value_that_is_stated_twice_is_not_guessed() -> None:
    """Which of the two holds is the same for one row and for many."""
    many = [{**GOOD, "train": {"batch_size": n, "seq_len": 64}, "train.batch_size": 512} for n in range(2, 12)]
    alone = [api.estimate(api.job_of(row)).verdict for row in many]
    assert [row["verdict"] for row in Scorer().score(many)] == alone


def test_a_list_of_rows_in_a_list_out() -> None:
    (found,) = api.score([{"id": "a", "model": "gpt2", "train": {"batch_size": 2, "seq_len": 64}}], machine="t4")
    assert (found["id"], found["verdict"]) == ("a", "fits")
    assert api.score([]) == []


def test_arrow_tables_and_null_columns() -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"model.name": ["gpt2"] * 2, "train.batch_size": [2, 3], "train.seq_len": [64, None]})
    found = api.score(table, machine="t4")
    assert found["verdict"].to_pylist() == ["fits", "unknown"]
    assert found.column_names == list(COLUMNS)
    assert api.score(table.slice(0, 0)).schema == found.schema


def test_columns_without_dots() -> None:
    """Spark has none, nor have most data bases."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"model__name": ["gpt2"], "train__batch_size": [2], "train__seq_len": [64]})
    assert list(api.score(frame, machine="t4")["verdict"]) == ["fits"]


def test_pandas_frames_and_integers_beside_nulls() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"model.name": ["gpt2"] * 2, "train.batch_size": [2, 3], "train.seq_len": [64, None]})
    assert list(api.score(frame, machine="t4")["verdict"]) == ["fits", "unknown"]


def test_a_record_batch_without_rows() -> None:
    arrow = pytest.importorskip("pyarrow")
    batch = arrow.record_batch({"model.name": arrow.array([], arrow.string())})
    found = api.score(batch)
    assert (type(found), found.num_rows, found.schema.names) == (type(batch), 0, list(COLUMNS))
