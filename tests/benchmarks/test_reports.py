"""The reports: each is a Job of a run with a card, none was used before, and the tables say what was judged wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.accuracy import reports
from benchmarks.accuracy.fits import Judged
from benchmarks.accuracy.heldout import held
from benchmarks.accuracy.incidents import Incident
from benchmarks.accuracy.reports import FILE, ReportRow, Verdict, incident_of, rows, text
from benchmarks.accuracy.tool import job_of
from benchmarks.accuracy.truth import Inexpressible
from preflight.machines.gpus import find_gpu
from preflight.vocabulary.estimates import Verdict as Word

ROWS = list(rows())


def test_every_row_is_a_run_on_a_card() -> None:
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    for row in ROWS:
        fields = incident_of(row).fields
        assert not isinstance(fields, Inexpressible)
        job = job_of(fields)
        assert job.model.name or job.model.target or job.model.config, row["id"]
        assert job.machine.gpu_memory or find_gpu(job.machine.gpu or ""), row["id"]
        assert row["outcome"] in ("oom", "ok")
        assert row["why"]
        assert len(row["date"]) == len("2024-01-31")


def test_a_message_is_of_a_run_that_died_and_within_its_card() -> None:
    for row in ROWS:
        if message := row.get("message"):
            assert row["outcome"] == "oom", row["id"]
            assert message.get("allocated_gib", 0) <= row.get("capacity_gib", float("inf")), row["id"]


def test_two_thirds_died_and_sources_are_many() -> None:
    died = sum(row["outcome"] == "oom" for row in ROWS)
    assert len(ROWS) // 2 < died < len(ROWS) * 3 // 4
    assert len({row["source"] for row in ROWS}) > len(ROWS) // 2


def test_the_reports_are_no_figures_of_the_measured_runs() -> None:
    assert FILE.suffix == ".jsonl"
    assert not {each.run.kind for each in held()} & {"reports"}


def one(outcome: str, verdict: Word, source: str, why: str = "") -> Verdict:
    row: ReportRow = {"id": f"{source}-{outcome}-{verdict}", "source": source, "date": "", "why": "w", "job": {}}
    incident = Incident(row["id"], source, outcome == "oom", {}, False)
    return Verdict(row | {"outcome": "oom" if outcome == "oom" else "ok"}, Judged(incident, verdict, why))


def test_only_fits_that_died_and_exceeds_that_worked_are_wrong() -> None:
    assert one("oom", "fits", "a").wrong
    assert one("ok", "exceeds", "a").wrong
    assert not any(one("oom", each, "a").wrong for each in ("at-risk", "exceeds", "unknown"))
    assert not any(one("ok", each, "a").wrong for each in ("fits", "at-risk", "unknown"))


def test_a_source_has_one_vote() -> None:
    shown = text([one("oom", "fits", "a"), one("oom", "exceeds", "a"), one("oom", "exceeds", "b")])
    assert '"fits": 25.0%' in shown
    assert "3 reports of 2 sources" in shown


def test_the_tables_name_what_is_wrong_and_why_others_are_unknown() -> None:
    shown = text([one("oom", "fits", "a"), one("ok", "fits", "b"), one("ok", "unknown", "c", "no length\nat all")])
    assert "| a-oom-fits |" in shown
    assert "b-ok-fits" not in shown
    assert "| c-ok-unknown | ok | no length |" in shown


def test_the_command_judges_the_reports_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"model.name": "gpt2", "task": "causal-lm", "train.batch_size": 1, "train.seq_len": 64, "machine.gpu": "H100"}
    common = {"source": "s", "date": "2024-01-31", "why": "w"}
    lines = [
        common | {"id": "small", "outcome": "oom", "job": job},
        common | {"id": "other", "outcome": "ok", "job": job},
    ]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    monkeypatch.setattr(reports, "rows", lambda: rows(tmp_path / "r.jsonl"))
    assert reports.main(["--shipped", "--all", "--only", "small"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("small: oom fits\n")
    assert "| small | oom | fits |" in shown
    assert "other" not in shown
