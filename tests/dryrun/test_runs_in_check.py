"""Saved dry runs in a check: when one answers, and everything that keeps it from answering."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import preflight
from msgspec.structs import replace
from saved_runs import keep, run_in

from preflight.engine.check import Analysis, CheckOptions, analyse, check, outcome_of, setup
from preflight.engine.dry_runs import IN_TREE
from preflight.engine.files import batches
from preflight.memory.device.saved_run import SavedProgram
from preflight.reports import html
from preflight.reports.style import Look
from preflight.vocabulary.edits_of_job import with_fields
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.standing import Standing

Write = Callable[[dict[str, str]], Path]
PROGRAM = """\
import argparse
import torch
from torch.utils.data import DataLoader
from net import Net
parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=8)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--width", type=int, default=64)
args = parser.parse_args()
net = Net(args.width).cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr)
for x, y in DataLoader(data, batch_size=args.bs):
    loss = torch.nn.functional.cross_entropy(net(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
NET = "import torch\nclass Net(torch.nn.Module):\n    def __init__(self, w):\n        self.o = make(w)\n"


def files(*words: str, **more: str) -> dict[str, str]:
    return {"run.sh": f"python train.py {' '.join(words)}\n", "train.py": PROGRAM, "net.py": NET, **more}


def sweep(**axes: str) -> str:
    values = "".join(f"  {name}: {{values: {one}}}\n" for name, one in axes.items())
    return f'program: train.py\nmethod: grid\ncommand: ["python", "${{program}}", "${{args}}"]\nparameters:\n{values}'


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's directory of dry runs."""
    home = tmp_path.with_name(tmp_path.name + "-cache")
    monkeypatch.setenv("PREFLIGHT_CACHE_DIR", str(home))
    return home / "dry-runs"


def analysed(root: Path, *paths: str, **options: Any) -> Analysis:
    [batch] = batches(paths or ("run.sh",), root, from_hook=False)
    return analyse(*setup(batch, CheckOptions(**{"gpu": "RTX 4090", **options}), root))


def result(root: Path, *paths: str, **options: Any) -> StudyResult:
    [found] = analysed(root, *paths, **options).studies
    return found


def need(found: StudyResult) -> int | None:
    device = found.space.worst.estimates.device
    return device.requested.expected if device is not None and not device.lower_bound else None


def test_a_run_answers_its_own_command(project: Write, own: Path) -> None:
    root = project(files("--bs", "8"))
    assert need(result(root)) is None
    run = run_in(root, "--bs", "8", sources=("train.py", "net.py"))
    keep(own, run)
    found = result(root)
    assert need(found) == run.estimate(found.space.worst.job, found.gpu).requested.expected
    assert found.space.worst.estimates.verdict == "fits"
    assert found.standings["train.seq_len"] is Standing.dry_run
    assert found.standings["train.batch_size"] is Standing.read
    assert "is of the dry run and its law over batch and length of `python train.py --bs 8`" in found.remarks[0]


def test_the_law_answers_another_batch(project: Write, own: Path) -> None:
    root = project(files("--bs=24", "--lr", "0.5"))
    keep(own, run_in(root, "--bs", "8", "--lr", "0.1"))
    found = result(root)
    assert found.space.worst.job.train.batch_size == 24
    assert need(found) == 2 * 2**30 + 24 * 2**20


def test_the_law_answers_a_sweep_over_the_batch(project: Write, own: Path) -> None:
    root = project(files(**{"sweep.yaml": sweep(bs="[8, 16, 300]", lr="[0.1, 0.2]")}))
    keep(own, run_in(root, "--bs", "8"))
    found = result(root, "sweep.yaml")
    assert found.space.worst.job.train.batch_size == 300
    assert need(found) == 2 * 2**30 + 300 * 2**20
    assert (found.space.counts.fits, found.space.counts.unknown) == (3, 0)


NOT: Mapping[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "another width": (("--bs", "8", "--width", "128"), {}, "other words than --width 128"),
    "a weight decay": (("--bs", "8", "--weight-decay", "0.1"), {}, "other words than --weight-decay 0.1"),
    "fewer words": ((), {}, "it was run with --bs 8"),
    "another batch without a law": (("--bs", "16"), {"law": None, "no_law": "two runs differ"}, "--bs 16"),
    "another number of processes": (
        ("--bs", "8"),
        {"program": SavedProgram("train.py", False, ("--bs", "8"), 1, 2)},
        "it had 1 x 2 processes",
    ),
    "other variables": (
        ("--bs", "8"),
        {"program": SavedProgram("train.py", False, ("--bs", "8"), environment={"SIZE": "9"})},
        "other variables are set",
    ),
    "another source": (("--bs", "8"), {"sources": {"train.py": "0" * 64}}, "train.py has changed since"),
    "a source that is gone": (("--bs", "8"), {"sources": {"old.py": "0" * 64}}, "old.py: there is no such file"),
    "no sources": (("--bs", "8"), {"sources": {}}, "it has no hashes"),
}


@pytest.mark.parametrize("kind", NOT)
def test_a_run_does_not_answer(project: Write, own: Path, kind: str) -> None:
    words, more, why = NOT[kind]
    root = project(files(*words))
    keep(own, run_in(root, "--bs", "8", **more))
    found = result(root)
    assert need(found) is None
    assert why in found.remarks[0]


def test_a_changed_source_names_the_command(project: Write, own: Path) -> None:
    root = project(files("--bs", "8"))
    keep(own, run_in(root, "--bs", "8", sources=("train.py", "net.py")))
    (root / "net.py").write_text(NET + "# changed\n")
    assert (
        result(root)
        .remarks[0]
        .endswith("net.py has changed since; run again: preflight dry-run --save -- python train.py --bs 8")
    )


def test_a_changed_source_leaves_one_command(project: Write, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = project(files("--bs", "8"))
    keep(own, run_in(root, "--bs", "8", sources=("train.py", "net.py")))
    (root / "net.py").write_text(NET + "# changed\n")
    found = preflight(capsys, "check", str(root / "run.sh"))
    assert " ".join(found.out.split()).count("preflight dry-run --save") == 1


def test_a_sweep_over_what_the_run_has_no_law_of(project: Write, own: Path) -> None:
    root = project(files(**{"sweep.yaml": sweep(bs="[8, 16]", width="[64, 512]")}))
    keep(own, run_in(root, "--bs", "8", "--width", "64"))
    found = result(root, "sweep.yaml")
    assert need(found) is None
    assert "the search varies --width" in found.remarks[0]


def test_the_law_does_not_reach(project: Write, own: Path) -> None:
    root = project(files("--bs", "5000"))
    keep(own, run_in(root, "--bs", "8"))
    found = result(root)
    assert need(found) is None
    assert "batch 5,000 is more than 16 times the largest that was run (24)" in found.remarks[0]


def test_what_the_user_states_is_not_what_the_run_saw(project: Write, own: Path) -> None:
    root = project(files("--bs", "8"))
    keep(own, run_in(root, "--bs", "8"))
    found = result(root, set={"train.gradient_checkpointing": True})
    assert need(found) is None
    assert "train.gradient_checkpointing is stated, and the run did not show it" in found.remarks[0]


def test_a_program_that_nothing_starts_runs_without_words(project: Write, own: Path) -> None:
    root = project({name: text for name, text in files().items() if name != "run.sh"})
    keep(own, run_in(root))
    assert need(result(root, "train.py")) is not None


@pytest.mark.parametrize(
    "other", [{"train.gradient_checkpointing": True}, {"train.optimizer": "sgd"}, {"parallel.strategy": "zero3"}]
)
def test_a_run_says_nothing_of_what_a_fix_would_change(project: Write, own: Path, other: dict[str, object]) -> None:
    """Rules ask what another setting would need: the run has not seen that."""
    root = project(files("--bs", "8"))
    keep(own, run_in(root, "--bs", "8"))
    found = result(root)
    assert found.estimate is not None
    device = found.estimate(with_fields(found.space.worst.job, other)).device
    assert device is None or device.lower_bound
    larger = found.estimate(with_fields(found.space.worst.job, {"train.batch_size": 16})).device
    assert larger is not None
    assert not larger.lower_bound


def test_a_run_of_another_program_says_nothing(project: Write, own: Path) -> None:
    root = project(files("--bs", "8", **{"other.py": PROGRAM}))
    keep(own, run_in(root, "--bs", "8", program=SavedProgram("other.py", False, ("--bs", "8"))))
    assert result(root).remarks == ()


def test_a_run_that_was_not_whole_does_not_say_that_it_fits(project: Write, own: Path) -> None:
    root = project(files("--bs", "8"))
    keep(own, run_in(root, "--bs", "8", whole=False))
    assert result(root).space.worst.estimates.verdict == "unknown"


def test_the_files_are_believed_before_a_run(project: Write, own: Path) -> None:
    root = project(files("--bs", "8"))
    keep(own, run_in(root, "--bs", "8"))
    stated = {"model.name": "gpt2", "train.seq_len": 64}
    device = result(root, set=stated).space.worst.estimates.device
    assert device is not None
    assert "dry run" not in " ".join(device.notes)


# --- where it lies ---------------------------------------------------------------------------------------------------


def test_a_run_in_the_checked_tree_is_assumed(project: Write, own: Path) -> None:
    root = project(files("--bs", "8"))
    path = keep(root / IN_TREE, run_in(root, "--bs", "8", directory="."))
    found = result(root)
    assert need(found) is not None
    assert found.space.worst.estimates.verdict == "fits-if"
    assert found.standings["train.seq_len"] is Standing.assumed
    assert result(root, trust=(str(path),)).space.worst.estimates.verdict == "fits"


@pytest.mark.parametrize("directory", ["..", "/", "/etc", "a/../../b"])
def test_a_run_in_the_tree_leads_nowhere_else(project: Write, own: Path, directory: str) -> None:
    root = project(files("--bs", "8"))
    keep(root / IN_TREE, run_in(root, "--bs", "8", directory=directory))
    [batch] = batches(("run.sh",), root, from_hook=False)
    report = check(*setup(batch, CheckOptions(gpu="RTX 4090"), root))
    assert need(report.studies[0]) is None
    assert any("it is of a directory outside of the project" in note for note in report.notes)


def test_a_run_in_the_tree_reads_no_source_outside(project: Write, own: Path) -> None:
    root = project(files("--bs", "8"))
    outside = root.parent / "outside.py"
    outside.write_text("secret")
    keep(root / IN_TREE, run_in(root, "--bs", "8", directory=".", sources=("../outside.py",)))
    found = result(root)
    assert need(found) is None
    assert "../outside.py is outside of the project" in found.remarks[0]


def test_the_command_of_a_stranger_is_not_recommended(project: Write, own: Path) -> None:
    root = project(files("--bs", "8"))
    more = {"command": ("sh", "-c", "evil"), "sources": {"train.py": "0" * 64}}
    keep(root / IN_TREE, run_in(root, "--bs", "8", directory=".", **more))
    assert "run again: preflight dry-run --save -- python train.py --bs 8" in result(root).remarks[0]


@pytest.mark.parametrize("mode", [0o622, 0o602])
def test_others_may_write_the_file(project: Write, own: Path, mode: int) -> None:
    root = project(files("--bs", "8"))
    keep(own, run_in(root, "--bs", "8")).chmod(mode)
    [batch] = batches(("run.sh",), root, from_hook=False)
    report = check(*setup(batch, CheckOptions(gpu="RTX 4090"), root))
    assert need(report.studies[0]) is None
    assert any("others may write it" in note for note in report.notes)


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"{}", b"null", b'{"format": "preflight dry run"}'])
def test_a_damaged_file_is_one_note(project: Write, own: Path, content: bytes) -> None:
    root = project(files("--bs", "8"))
    keep(own, run_in(root, "--bs", "8")).write_bytes(content)
    [batch] = batches(("run.sh",), root, from_hook=False)
    report = check(*setup(batch, CheckOptions(gpu="RTX 4090"), root))
    assert need(report.studies[0]) is None
    assert len([note for note in report.notes if "is not used" in note]) == 1


def test_runs_of_other_programs_are_not_read(project: Write, own: Path) -> None:
    """A directory with the runs of years costs no check anything."""
    root = project(files("--bs", "8", **{"other.py": PROGRAM}))
    keep(own, run_in(root, program=SavedProgram("other.py", False, ()))).write_bytes(b"damaged")
    [batch] = batches(("run.sh",), root, from_hook=False)
    assert check(*setup(batch, CheckOptions(gpu="RTX 4090"), root)).notes == ()


def test_the_run_with_the_same_batch_comes_first(project: Write, own: Path) -> None:
    root = project(files("--bs", "16"))
    first = keep(own, run_in(root, "--bs", "8"))
    first.rename(own / first.name.replace("-0.json", "-a.json"))
    values = {"train.batch_size": 16, "train.seq_len": 128}
    keep(own, run_in(root, "--bs", "16", values=values, law=None)).rename(
        own / first.name.replace("-0.json", "-b.json")
    )
    assert "`python train.py --bs 16`" in result(root).remarks[0]


def test_a_text_that_is_not_written_is_a_change(project: Write, own: Path) -> None:
    """A fix is proved on texts that are not on the disk: the run is not of them."""
    root = project(files("--bs", "8"))
    keep(own, run_in(root, "--bs", "8"))
    [batch] = batches(("run.sh",), root, from_hook=False)
    opened, asked = setup(batch, CheckOptions(gpu="RTX 4090"), root)
    [found] = analyse(opened.with_overlay({"train.py": PROGRAM + "\n# edited"}), asked).studies
    assert need(found) is None


def test_the_lines_that_hold_the_most_at_any_batch_of_the_law(project: Write, own: Path) -> None:
    root = project(files("--bs=24", "--lr", "0.5"))
    run = run_in(root, "--bs", "8", "--lr", "0.1")
    lines = {0: "net.py:4", 1: "train.py:13", 2: "train.py:15"}
    tape = replace(run.tape, lines=lines)
    law = replace(run.law, tape=tape) if run.law is not None else None
    keep(own, replace(run, tape=tape, law=law))
    found = result(root)
    worst = found.space.worst.job
    assert found.holders is not None
    assert [(one.name, one.bytes, one.part) for one in found.holders(worst)] == [
        ("net.py:4", 2**30, "weights"), ("train.py:15", 2**30, "gradients"), ("train.py:13", 24 * 2**20, "temporary"),
    ]  # fmt: skip
    assert found.moments is not None
    assert max(one.allocated for one in found.moments(worst)) >= 2 * 2**30 + 24 * 2**20
    page = html.render(
        outcome_of([check(*setup(batches(("run.sh",), root, False)[0], CheckOptions("RTX 4090"), root))], root), Look()
    )
    assert "train.py:15" in page
