"""The command line's contract: exit statuses, what is said where, what is written and what never is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import PROGRAM, SWEEP, Raises, Run, TooLarge, fake_engine, preflight

Write = Callable[[dict[str, str]], Path]
Command = Callable[..., Run]
FITTING = SWEEP.replace("64", "8")


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    fake_engine(monkeypatch)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return lambda *arguments: preflight(capsys, "check", *arguments)


# --- exit status ----------------------------------------------------------------------------------------------------


def test_clean(project: Write, check: Command) -> None:
    project({"sweep.yaml": FITTING, "train.py": PROGRAM})
    run = check("sweep.yaml", "--gpu", "A100 80GB")
    assert (run.status, run.err) == (0, "")
    assert "fits" in run.out


def test_error_is_status_1(project: Write, check: Command) -> None:
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    run = check("sweep.yaml", "--gpu", "RTX 4090")
    assert run.status == 1
    assert "error[too-large]: needs 33.0 GiB\n --> sweep.yaml:4:" in run.out


def test_exit_zero(project: Write, check: Command) -> None:
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    assert check("sweep.yaml", "--gpu", "RTX 4090", "--exit-zero").status == 0


@pytest.mark.parametrize(("severity", "fail_on", "status"), [
    ("info", "error", 0), ("warning", "error", 0), ("info", "warning", 0), ("warning", "info", 1),
    ("warning", "warning", 1), ("error", "error", 1),
])  # fmt: skip
def test_threshold(project: Write, check: Command, severity: str, fail_on: str, status: int) -> None:
    settings = f'[rules.too-large]\nseverity = "{severity}"\n'
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM, "preflight.toml": settings})
    assert check("sweep.yaml", "--gpu", "RTX 4090", "--fail-on", fail_on).status == status


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.yaml"], "nowhere.yaml: there is no such file or directory"),
        (["--gpu", "RTX 9999"], 'no GPU is known as "RTX 9999"'),
        (["--machine", "nowhere"], "nowhere"),
        (["--set", "train.batchsize=3"], 'train.batchsize is not a Job field (did you mean "train.batch_size"?)'),
        (["--set", "train.batch_size"], "write FIELD=VALUE"),
        (["--set", "train.batch_size=many"], "train.batch_size"),
        (["--select", "too-larg"], 'there is no rule too-larg (did you mean "too-large"?)'),
        (["--output", "xml=x"], "write FORMAT=FILE"),
        (["--baseline", "none.json"], "the baseline cannot be read"),
    ],
)
def test_usage_is_one_line_and_status_2(project: Write, check: Command, arguments: list[str], words: str) -> None:
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    run = check(*arguments)
    assert (run.status, run.out) == (2, "")
    assert words in run.err
    assert run.err.count("\n") == 1


def test_broken_settings_are_status_2(project: Write, check: Command) -> None:
    project({"sweep.yaml": SWEEP, "pyproject.toml": "[tool.preflight]\ngpuu = 'x'\n"})
    run = check("sweep.yaml")
    assert (run.status, run.err) == (
        2, 'preflight: error: pyproject.toml: tool.preflight.gpuu: there is no such setting (did you mean "gpu"?)\n',
    )  # fmt: skip


def test_rule_that_raises_is_a_finding_and_the_others_run(
    project: Write, check: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    fake_engine(monkeypatch, Raises, TooLarge)
    run = check("sweep.yaml", "--gpu", "RTX 4090", "--exit-zero")
    assert run.status == 2
    assert "error[internal-error]: the rule raises failed: ZeroDivisionError: a bug of ours" in run.out
    assert "error[too-large]" in run.out
    assert "Traceback" not in run.out + run.err


def test_unexpected_error_is_one_line(check: Command, monkeypatch: pytest.MonkeyPatch, project: Write) -> None:
    project({})

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("preflight.commands.check.batches", broken)
    run = check(".")
    assert run.status == 2
    assert run.err.startswith("preflight: internal error: RuntimeError: first - please report it")
    assert run.err.count("\n") == 1
    monkeypatch.setenv("PREFLIGHT_DEBUG", "1")
    with pytest.raises(RuntimeError):
        check(".")


# --- what is recognised ---------------------------------------------------------------------------------------------


def test_named_file_of_no_dialect_is_an_error(project: Write, check: Command) -> None:
    project({"deploy.yaml": "kind: Service\n"})
    run = check("deploy.yaml")
    assert run.status == 2
    assert "deploy.yaml is not recognised; preflight reads W&B sweeps" in run.err


def test_walked_files_of_no_dialect_are_passed_over(project: Write, check: Command) -> None:
    project({"deploy.yaml": "kind: Service\n", "a/b.yaml": "x: 1\n", "c.sh": "echo\n", "venv/pyvenv.cfg": "",
             "venv/d.yaml": "x: 1\n", "node_modules/e.yaml": "x: 1\n"})  # fmt: skip
    run = check()
    assert (run.status, run.err) == (0, "")
    assert run.out.startswith("nothing recognised in 3 files")


def test_walked_files_that_cannot_be_read_are_told(project: Write, check: Command) -> None:
    root = project({f"{name}.yaml": "x: \0" for name in "abcde"})
    (root / "data").write_bytes(b"\0")
    run = check()
    assert (run.status, run.err) == (0, "")
    assert run.out.count(" was left out: it is a binary file") == 3
    assert "note: 2 more files were left out" in run.out


def test_hook_is_silent_about_what_it_does_not_know(project: Write, check: Command) -> None:
    project({"deploy.yaml": "kind: Service\n", "util.py": "x = 1\n"})
    assert check("--from-hook", "deploy.yaml", "util.py") == Run(0, "", "")


def test_hook_finds_the_study_of_a_program_alone(project: Write, check: Command) -> None:
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    run = check("--from-hook", "train.py", "--gpu", "RTX 4090")
    assert run.status == 1
    assert " --> sweep.yaml:4:" in run.out


def test_excluded_files_are_left_out(project: Write, check: Command) -> None:
    project({"sweep.yaml": SWEEP, "train.py": PROGRAM, "preflight.toml": 'exclude = ["*.yaml", "train.py"]\n'})
    assert "nothing recognised in 0 files" in check(".").out
    assert check("--from-hook", "sweep.yaml").status == 0


def test_several_projects_in_one_command(project: Write, check: Command) -> None:
    files = {"sweep.yaml": SWEEP, "train.py": PROGRAM}
    project({f"{name}/{path}": text for name in "ab" for path, text in files.items()})
    project({"a/preflight.toml": 'gpu = "RTX 4090"\n', "b/preflight.toml": 'gpu = "A100 80GB"\n'})
    data = json.loads(check("a", "b", "--output-format", "json").out)
    assert [found["path"] for found in data["findings"]] == ["a/sweep.yaml"]
    assert [study["paths"][0] for study in data["studies"]] == ["a/sweep.yaml", "b/sweep.yaml"]


# --- bad input ------------------------------------------------------------------------------------------------------

ALIAS_BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("sweep.yaml", b"program: train.py\nmethod: grid\nparameters: [\n", "sweep.yaml:"),
        ("sweep.yaml", b"program: train.py\nmethod: grid\nparameters:\n\t- x\n", "sweep.yaml:4:"),
        ("sweep.yaml", b"program: \0\1\2", "binary"),
        ("sweep.yaml", b"program: \xff\xfe\n", "UTF-8"),
        ("sweep.yaml", ALIAS_BOMB.encode() + b"program: train.py\nmethod: grid\nparameters: {a: {value: *a11}}\n", ""),
        ("sweep.yaml", b"program: train.py\nmethod: grid\nparameters: " + b"[" * 5000, ""),
        ("train.py", b"import torch\ndef broken(:\n", "train.py:2:"),
        ("train.py", b"import torch\nx = " + b"(" * 5000 + b"\n", ""),
        ("job.sbatch", b"#!/bin/bash\n#SBATCH --mem=12Q\nsrun python train.py\n", ""),
    ],
)
def test_bad_files_are_findings_with_a_place(
    project: Write, check: Command, name: str, data: bytes, words: str
) -> None:
    root = project({})
    (root / name).write_bytes(data)
    run = check(name)
    assert run.status in (1, 2)
    assert "Traceback" not in run.out + run.err
    assert "internal" not in run.out + run.err
    assert name in run.out + run.err
    assert words in run.out + run.err
    assert [path.name for path in root.iterdir()] == [name]
    assert (root / name).read_bytes() == data


def test_huge_file_is_not_read(project: Write, check: Command) -> None:
    root = project({})
    with (root / "sweep.yaml").open("wb") as file:
        file.truncate(100 * 2**20)
    run = check("sweep.yaml")
    assert run.status == 1
    assert "it is larger than 8 MiB" in run.out


def test_unreadable_file(project: Write, check: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, for whom every file can be read: the refusal is the operating system's own words."""
    project({"sweep.yaml": SWEEP})
    real = Path.read_bytes

    def read(path: Path) -> bytes:
        if path.name == "sweep.yaml":
            raise PermissionError(13, os.strerror(13))
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    run = check("sweep.yaml")
    assert run.status == 1
    assert "error[unreadable-file]: sweep.yaml cannot be read: Permission denied" in run.out


def test_nothing_of_a_configuration_is_run(project: Write, check: Command) -> None:
    root = project(
        {
            "conf/config.yaml": "x:\n  _target_: os.system\n  command: touch ran\nbatch_size: 4\n",
            "train.py": 'import os\nos.system("touch ran")\nimport hydra\n\n'
            '@hydra.main(version_base=None, config_path="conf", config_name="config")\ndef main(cfg):\n    pass\n',
        }
    )
    run = check(".")
    assert "Traceback" not in run.out + run.err
    assert not (root / "ran").exists()


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
    assert batch[1:3] == ["64", "sweep.yaml:4:23"]
    assert any(line.split()[:1] == ["machine.gpu"] for line in lines)


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
    assert list(data) == ["version", "job", "device", "host", "unknown"]
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
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
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
