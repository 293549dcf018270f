"""Fixes are offered only when proved: first what must not be offered, then what must."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from preflight.documents.document import TreeDocument
from preflight.documents.yaml import parse_yaml
from preflight.fixes import proof
from preflight.fixes.launches import readers
from preflight.fixes.proof import Prover, prove
from preflight.system import forked
from preflight.vocabulary.findings import Change, Confidence, Finding, Fix, Proposal, Safety, Severity
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Bound, Box, Study
from preflight.vocabulary.text import Edit, splice
from preflight.vocabulary.values import Axis, Cause, Choices, Const, Expr, Op, Origin, Ref, Span, evaluate

LIMIT = 16384


class Judged(Struct, frozen=True):
    study: Study


class Read(Struct, frozen=True):
    project: Project
    studies: tuple[Judged, ...]
    findings: tuple[Finding, ...]

    def started_by(self, path: str) -> tuple[Study, ...]:
        return ()


def constant(document: TreeDocument, *route: str) -> Expr:
    return Const(document.value(route), document.origin(route))


def study_of(document: TreeDocument) -> Study:
    """A toy dialect: keys of one file are Job fields, `follow` is computed from batch, `axis` is a list to search."""
    exprs: dict[str, Expr] = {}
    for field, key in (("train.batch_size", "batch"), ("train.grad_accum", "accum"), ("train.seq_len", "length")):
        if document.has((key,)):
            exprs[field] = constant(document, key)
    axes = []
    if document.has(("axis",)):
        values = document.value(("axis",))
        assert isinstance(values, tuple)
        places = tuple(document.origin(("axis", i)) for i in range(len(values)))
        axes.append(Axis("axis", Choices(values, places), document.origin(("axis",)), ("train.image_size",)))
        exprs["train.image_size"] = Ref("axis")
    constants = {key: constant(document, key) for key in ("batch", "name") if document.has((key,))}
    for name, target in (("eval", "validation.batch_size"), ("crop", "train.text_len"), ("vocab", "model.config")):
        if document.has((name,)):
            exprs[target] = Op("*", (constant(document, "batch"), Const(2)))
    if document.has(("warmup",)):
        constants["warmup"] = Op("*", (constant(document, "batch"), Const(10)))
    fields = {field: Bound(field, expr, next(iter([getattr(expr, "origin", None)]))) for field, expr in exprs.items()}
    return Study((document.source.path,), ("toy",), (Box(fields, tuple(axes), {}, constants),))


def findings_of(document: TreeDocument, study: Study, proposals: tuple[Proposal, ...]) -> list[Finding]:
    box, place = study.boxes[0], document.origin(())
    found = []

    def say(rule: str, severity: Severity, *settings: str) -> None:
        found.append(Finding(rule, severity, Confidence.high, rule, place, settings, proposals=proposals, study=0))

    def number(field: str, default: int) -> int:
        bound = box.fields.get(field)
        value = default if bound is None else evaluate(bound.expr)
        return value if isinstance(value, int) else default

    batch = number("train.batch_size", 1)
    if batch * number("train.seq_len", 1) > LIMIT:
        say("too-big", Severity.error, "train.batch_size")
    if batch % 2:
        say("odd", Severity.error, "train.batch_size")
    if batch % 8:
        say("slow", Severity.warning, "train.batch_size")
    for axis in box.axes:
        assert isinstance(axis.domain, Choices)
        if any(isinstance(value, int) and value > 500 for value in axis.domain.values):
            say("space", Severity.error, "train.image_size")
    if document.has(("bad",)):
        say("malformed", Severity.error)
    return found


def reader(proposals: tuple[Proposal, ...], calls: list[int] | None = None) -> Callable[[Project], Read]:
    def read(project: Project) -> Read:
        if calls is not None:
            calls.append(1)
        document = parse_yaml(project.source("job.yaml"))
        study = study_of(document)
        return Read(project, (Judged(study),), tuple(findings_of(document, study, proposals)))

    return read


def offered(root: Path, text: str, *proposals: Proposal, rule: str = "too-big") -> Fix | None:
    """The fix of the finding in a project of one file."""
    (root / "job.yaml").write_text(text)
    read = reader(proposals)
    found = read(Project(root, Settings()))
    (finding,) = [finding for finding in prove(found.findings, found, read) if finding.rule == rule]
    return finding.fix


def fixed_text(root: Path, fix: Fix | None) -> str:
    assert fix is not None
    return splice((root / "job.yaml").read_text(), fix.edits)


def batch(value: int, *more: Change, safety: Safety = Safety.safe) -> Proposal:
    return Proposal(f"batch {value}", (Change("train.batch_size", value), *more), safety)


TEXT = "batch: 64  # c\naccum: 1\nlength: 512\n"

REFUSED: list[tuple[str, str, Proposal]] = [
    ("the finding stays", TEXT, batch(48)),
    ("another as severe appears", TEXT, batch(7)),
    ("there is no way back", "batch: &b 64\nlength: 512\nx: *b\n", batch(16)),
    ("the field is nowhere", TEXT, Proposal("x", (Change("train.vocab_size", 3),), Safety.safe)),
    ("nothing would change", TEXT, batch(64)),
    ("nothing is proposed", TEXT, Proposal("x")),
    ("a setting shares the value", "batch: 64\nlength: 512\ncrop: 1\n", batch(16)),
    ("its edits overlap", TEXT, Proposal("x", edits=(
        Edit("job.yaml", Span(7, 9), "8"), Edit("job.yaml", Span(8, 10), "1")))),
    ("it edits another setting", TEXT, Proposal("x", (Change("train.batch_size", 16),), Safety.safe, edits=(
        Edit("job.yaml", Span(TEXT.index("512"), TEXT.index("512") + 3), "256"),))),
    ("the edited text would not parse", TEXT, Proposal("x", edits=(Edit("job.yaml", Span(7, 9), "[1"),))),
    ("the file is not there", TEXT, Proposal("x", edits=(Edit("none.yaml", Span(0, 0), "a"),))),
]  # fmt: skip


@pytest.mark.parametrize(("why", "text", "proposal"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_not_proved_is_not_offered(tmp_path: Path, why: str, text: str, proposal: Proposal) -> None:
    assert offered(tmp_path, text, proposal) is None


def test_a_proved_proposal_is_a_fix_that_changes_its_fields_alone(tmp_path: Path) -> None:
    fix = offered(tmp_path, TEXT, batch(16, Change("train.grad_accum", 4)))
    assert fix is not None
    assert fix.safety is Safety.safe
    assert fixed_text(tmp_path, fix) == TEXT.replace("64", "16").replace("accum: 1", "accum: 4")


def test_the_first_that_is_proved_is_taken(tmp_path: Path) -> None:
    fix = offered(tmp_path, TEXT, batch(48), batch(32), batch(8))
    assert fix is not None
    assert fix.title == "batch 32"


def test_a_milder_finding_may_appear(tmp_path: Path) -> None:
    fix = offered(tmp_path, TEXT, batch(20))
    assert fixed_text(tmp_path, fix) == TEXT.replace("64", "20")


def test_evaluation_that_follows_the_batch_leaves_a_fix_safe(tmp_path: Path) -> None:
    fix = offered(tmp_path, TEXT + "eval: 1\n", batch(16))
    assert fix is not None
    assert fix.safety is Safety.safe


def test_what_follows_the_edited_value_takes_safety_away(tmp_path: Path) -> None:
    fix = offered(tmp_path, TEXT + "warmup: 1\n", batch(16))
    assert fix is not None
    assert fix.safety is Safety.unsafe
    assert "warmup" in fix.reason
    unsafe = offered(tmp_path, TEXT + "warmup: 1\n", batch(16, safety=Safety.unsafe))
    assert unsafe is not None
    assert unsafe.reason == ""


def test_an_axis_is_narrowed_to_what_is_kept(tmp_path: Path) -> None:
    text = "batch: 8\naxis:\n- 224  # small\n- 512  # large\n- 448\n"
    narrow = Proposal("narrow", (Change("axis", keep=(224, 448)),))
    fix = offered(tmp_path, text, narrow, rule="space")
    assert fixed_text(tmp_path, fix) == text.replace("- 512  # large\n", "")


def test_malformed_text_is_fixed_by_its_own_edit(tmp_path: Path) -> None:
    text = "batch: 8\nbad: 1\n"
    repair = Proposal("drop it", edits=(Edit("job.yaml", Span(9, len(text)), ""),), safety=Safety.safe)
    fix = offered(tmp_path, text, repair, rule="malformed")
    assert fixed_text(tmp_path, fix) == "batch: 8\n"


def test_files_on_disk_stay_as_they_are_and_equal_edits_are_checked_once(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("batch: 1025\nlength: 512\n")
    calls: list[int] = []
    read = reader((batch(16),), calls)
    found = read(Project(tmp_path, Settings()))
    fixed = list(prove(found.findings, found, read))
    assert [finding.rule for finding in fixed if finding.fix is not None] == ["too-big", "odd", "slow"]
    assert len(calls) == 2
    assert (tmp_path / "job.yaml").read_text() == "batch: 1025\nlength: 512\n"


@pytest.mark.parametrize("copies", [0, 2])
def test_all_processors_prove_what_one_proves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: int) -> None:
    (tmp_path / "job.yaml").write_text(TEXT)
    read = reader((batch(16),))
    found = read(Project(tmp_path, Settings()))
    findings = [replace(one, label=str(number)) for number in range(4) for one in found.findings]
    alone = list(prove(findings, found, read))
    monkeypatch.setattr(proof, "ALONE_S", -1.0)
    monkeypatch.setattr(forked, "most_copies", lambda: copies)
    assert any(finding.fix is not None for finding in alone)
    assert list(prove(findings, found, read)) == alone


def test_a_proof_whose_process_was_killed_is_no_fix_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.yaml").write_text(TEXT)
    read, own = reader((batch(16),)), os.getpid()
    found = read(Project(tmp_path, Settings()))

    def killed(project: Project) -> Read:
        if os.getpid() != own:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(project)

    monkeypatch.setattr(proof, "ALONE_S", -1.0)
    monkeypatch.setattr(forked, "most_copies", lambda: 2)
    findings = [one for one in found.findings if one.proposals]
    first, *others = prove([*findings, replace(findings[0], proposals=(batch(8),))], found, killed)
    assert first.fix is not None
    assert [(one.fix, one.unproved) for one in others] == [(None, Cause.time_limit)] * len(others)
    assert others
    assert "ended by signal 9" in others[-1].notes[-1]


def test_a_finding_without_a_study_can_only_bring_its_own_edits(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(TEXT)
    read = reader((batch(16),))
    found = read(Project(tmp_path, Settings()))
    lonely = replace(found.findings[0], study=None, origin=Origin("job.yaml", Span(0, 0)))
    (finding,) = prove([lonely], found, read)
    assert finding.fix is None


def test_a_file_that_the_second_parser_does_not_read_gets_no_fix_but_the_reason(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(TEXT.replace("batch: 64", "batch:\t64"))
    read = reader((batch(16),))
    found = read(Project(tmp_path, Settings()))
    (finding,) = [finding for finding in prove(found.findings, found, read) if finding.rule == "too-big"]
    assert finding.fix is None
    (note,) = finding.notes
    assert note.startswith("no fix is offered: a second parser (ruamel.yaml) does not read job.yaml")


def test_a_finding_that_another_replaces_is_not_gone(tmp_path: Path) -> None:
    """Findings are told by rule, study and file. The ones that were not made anew are the same objects."""
    place = Origin("a.yaml", Span(0, 1))
    first, second = (Finding("r", Severity.warning, Confidence.high, text, place) for text in ("one", "two"))
    found = Read(Project(tmp_path, Settings()), (), (first, second))
    prover = Prover(found, lambda project: found)
    worse = replace(second, message="three", severity=Severity.error)
    assert not prover._gone(first, found)
    assert not prover._gone(first, replace(found, findings=(replace(first, message="new"), second)))
    assert not prover._gone(first, replace(found, findings=(worse, replace(second))))
    assert prover._gone(first, replace(found, findings=(second,)))
    assert prover._gone(first, replace(found, findings=(replace(second),)))
    elsewhere = replace(worse, rule="other")
    assert not prover._gone(first, replace(found, findings=(second, elsewhere)))
    mild = replace(elsewhere, severity=Severity.info)
    assert prover._gone(first, replace(found, findings=(second, mild)))


def test_the_studies_that_read_a_file_are_named_in_order(tmp_path: Path) -> None:
    paths = (("a.sh", "c.yaml", "c.yaml"), ("b.sh",), ("d.sh", "c.yaml"))
    studies = [Judged(Study(one, (), ())) for one in paths]
    assert readers(studies) == {"a.sh": [0], "c.yaml": [0, 2], "b.sh": [1], "d.sh": [2]}
