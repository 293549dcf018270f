"""The command line's outputs: reports, fixes, the other commands, and what it imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import FITTING, PROGRAM, SWEEP, Command, Run, fake_engine, preflight
from folders import Write
from processes import HANGS

# --- outputs --------------------------------------------------------------------------------------------------------


def test_outputs_go_to_files_beside_the_text(project: Write, check: Command) -> None:
    root = project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    run = check("sweep.yaml", "--gpu", "RTX 4090", "--output", "json=a.json", "--output", "sarif=b.sarif")
    assert run.out.startswith("error[too-large]")
    assert json.loads((root / "a.json").read_text())["summary"]["errors"] == 1
    assert json.loads((root / "b.sarif").read_text())["version"] == "2.1.0"


def test_auto_within_actions(project: Write, check: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert check("sweep.yaml", "--gpu", "RTX 4090").out.startswith("::error file=sweep.yaml,line=4,")


def test_services_name_paths_from_the_checkout(project: Write, check: Command) -> None:
    project(
        {".git/HEAD": "", "ml/sweep.yaml": SWEEP, "ml/train.py": PROGRAM, "ml/preflight.toml": 'gpu = "RTX 4090"\n'}
    )
    assert json.loads(check("ml", "-f", "json").out)["findings"][0]["path"] == "sweep.yaml"
    [run] = json.loads(check("ml", "-f", "sarif").out)["runs"]
    location = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": "ml/sweep.yaml", "uriBaseId": "SRCROOT"}
    assert check("ml", "-f", "github").out.startswith("::error file=ml/sweep.yaml,")
    assert " --> ml/sweep.yaml:4:" in check("ml").out


def test_explain_lists_fields_with_their_places(project: Write, check: Command) -> None:
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    lines = check("sweep.yaml", "--explain").out.splitlines()
    [batch] = [line.split() for line in lines if line.strip().startswith("train.batch_size")]
    assert batch[1:4] == ["64", "read", "sweep.yaml:4:23"]
    assert not any("not set" in line for line in lines)
    assert not any(line.split()[:1] == ["machine.gpu"] for line in lines)
    assert "more fields without a value" in "".join(lines)


# --- fixes ----------------------------------------------------------------------------------------------------------


def test_diff_shows_and_writes_nothing(project: Write, check: Command) -> None:
    root = project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    run = check("sweep.yaml", "--gpu", "RTX 4090", "--fix", "--diff")
    assert run.status == 1
    assert "-  batch_size: {value: 64}  # as in the paper\n+  batch_size: {value: 45}  # as in the paper\n" in run.out
    assert (root / "sweep.yaml").read_text() == SWEEP


def test_no_diff_is_status_0(project: Write, check: Command) -> None:
    project({"sweep.yaml": FITTING, "train.py": PROGRAM})
    assert check("sweep.yaml", "--gpu", "RTX 4090", "--diff") == Run(0, "", "")


def test_fix_writes_once(project: Write, check: Command) -> None:
    root = project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    first = check("sweep.yaml", "--gpu", "RTX 4090", "--fix")
    assert (first.status, "1 fixed" in first.out) == (0, True)
    assert (root / "sweep.yaml").read_text() == SWEEP.replace("64", "45")
    second = check("sweep.yaml", "--gpu", "RTX 4090", "--fix")
    assert (second.status, "fixed" in second.out) == (0, False)
    assert sorted(path.name for path in root.iterdir()) == ["sweep.yaml", "train.py"]


def test_demoted_fix_needs_unsafe_fixes(project: Write, check: Command) -> None:
    files = {"sweep.yaml": SWEEP, "train.py": PROGRAM, "preflight.toml": '[rules.too-large]\nfix = "unsafe"\n'}
    root = project(files)
    assert check("sweep.yaml", "--gpu", "RTX 4090", "--fix").status == 1
    assert (root / "sweep.yaml").read_text() == SWEEP
    assert check("sweep.yaml", "--gpu", "RTX 4090", "--unsafe-fixes").status == 0


def test_ignored_findings_are_not_fixed(project: Write, check: Command) -> None:
    text = SWEEP.replace("# as", "# preflight: ignore[too-large] as")
    root = project({"sweep.yaml": text, "train.py": PROGRAM})
    run = check("sweep.yaml", "--gpu", "RTX 4090", "--fix")
    assert (run.status, "1 ignored" in run.out) == (0, True)
    assert (root / "sweep.yaml").read_text() == text


def test_baseline(project: Write, check: Command) -> None:
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    assert check("sweep.yaml", "--gpu", "RTX 4090", "--write-baseline", "base.json").status == 0
    assert check("sweep.yaml", "--gpu", "RTX 4090", "--baseline", "base.json").status == 0
    project({"sweep.yaml": FITTING})
    assert "the baseline lists too-large" in check("sweep.yaml", "--gpu", "RTX 4090", "--baseline", "base.json").out


# --- the other commands ---------------------------------------------------------------------------------------------


def test_estimate_of_a_configuration(
    project: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine(monkeypatch)
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    run = preflight(capsys, "estimate", "sweep.yaml", "--gpu", "RTX 4090", "--output-format", "json")
    data = json.loads(run.out)
    assert list(data) == [
        "version", "job", "device", "host", "verdict", "assumptions", "standings", "unknown", "unknown_causes",
    ]  # fmt: skip
    assert (data["job"]["train"]["batch_size"], data["device"]["largest_batch_size"]) == (64, 45)
    assert sum(data["device"]["breakdown"].values()) == data["device"]["process"]["expected"]


@pytest.mark.parametrize("name", ["job.json", "job.yaml"])
def test_estimate_of_a_job(
    project: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    fake_engine(monkeypatch)
    job = {"model": {"name": "gpt2"}, "train": {"batch_size": 8, "seq_len": 1024, "precision": "bf16-mixed"}}
    project({name: json.dumps(job)})
    run = preflight(capsys, "estimate", name, "--gpu", "RTX 4090", "--set", "train.batch_size=4")
    assert run.status == 0
    assert "gpt2, batch 4 x 1024, bf16-mixed" in run.out
    assert "largest batch size that fits: 22" in run.out


def test_unknown_length_shows_the_frontier(
    project: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine(monkeypatch)
    project({"job.yaml": "model: {name: gpt2}\ntrain: {batch_size: 8}\n"})
    lines = preflight(capsys, "estimate", "job.yaml", "--gpu", "RTX 4090").out.splitlines()
    table = [line.split() for line in lines if line.strip()[:1].isdigit()]
    assert [row for row in table if row[0] == "512"] == [["512", "45"]]
    assert [row for row in table if row[0] == "2,048"] == [["2,048", "11"]]


def test_measured_says_which_setting_differs(
    project: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine(monkeypatch)
    project({"job.yaml": "model: {name: gpt2}\ntrain: {batch_size: 8, seq_len: 1024}\n"})
    arguments = ("estimate", "job.yaml", "--gpu", "RTX 4090", "--measured")
    assert "agrees" in preflight(capsys, *arguments, "9GiB").out
    assert "4 GiB above the estimate" in preflight(capsys, *arguments, "13GiB").out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: {name: gpt2, colour: red}\ntrain: {batch_size: 1}\n", "model.colour"),
        ("model: {name: gpt2}\ntrain: {batch_size: 0}\n", "train.batch_size"),
        ("model: [\n", "job.yaml:2:1"),
    ],
)
def test_estimate_of_a_broken_job(project: Write, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    project({"job.yaml": text})
    run = preflight(capsys, "estimate", "job.yaml")
    assert (run.status, run.out) == (2, "")
    assert words in run.err


def test_rule_pages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake_engine(monkeypatch)
    assert "too-large" in preflight(capsys, "rule").out
    page = preflight(capsys, "rule", "too-large").out
    assert page.startswith("# too-large\n\nThe job does not fit\n")
    assert "# preflight: ignore[too-large] why" in page
    assert preflight(capsys, "rule", "nope").status == 2


def test_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert "RTX 4090" in preflight(capsys, "machine", "list").out
    assert json.loads(preflight(capsys, "machine", "show", "4090", "--output-format", "json").out)["name"] == "RTX 4090"
    run = preflight(capsys, "machine", "show", "RTX 9999")
    assert (run.status, run.err.count("\n")) == (2, 1)


# --- start-up -------------------------------------------------------------------------------------------------------


def imported(root: Path, *arguments: str) -> set[str]:
    """Top-level modules that a command imports, in a process of its own."""
    command = [sys.executable, "-X", "importtime", "-m", "preflight", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=HANGS)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def test_help_imports_next_to_nothing(tmp_path: Path) -> None:
    found = imported(tmp_path, "--help")
    assert "click" in found
    assert found.isdisjoint({"pydantic", "yaml", "rich", "torch", "hydra", "numpy", "ruamel", "tree_sitter"})


def test_sweep_imports_no_more_than_it_needs(project: Write) -> None:
    root = project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    found = imported(root, "check", "sweep.yaml")
    assert "yaml" in found
    assert found.isdisjoint({"rich", "torch", "hydra", "omegaconf", "numpy", "ruamel", "tree_sitter", "transformers"})
