"""The command line's contract: exit statuses, what is recognised, what is said of bad input."""

from __future__ import annotations

import json
import os
import sys

import pytest
from command_line import FITTING, PROGRAM, SWEEP, Command, Raises, Run, TooLarge, fake_engine
from folders import Write

from preflight import __main__ as entry
from preflight import cli

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
    assert run.out.startswith("warning: no job was checked: nothing recognised in 3 files")


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
    assert check(".").out.startswith("warning: no job was checked: no file has a name that preflight reads")
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
        (
            "sweep.yaml",
            ALIAS_BOMB.encode() + b"program: train.py\nmethod: grid\nparameters: {a: {value: *a11}}\n",
            "info[invalid-config]: not read: its aliases",
        ),
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
    assert run.status in ((0,) if words.startswith("info") else (1, 2))  # a budget of ours is no error of the file
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
    real = os.open

    def opened(path: object, *arguments: int, **more: int) -> int:
        if str(path).endswith("sweep.yaml"):
            raise PermissionError(13, os.strerror(13))
        return real(str(path), *arguments, **more)

    monkeypatch.setattr(os, "open", opened)
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


@pytest.mark.parametrize("group", [[], ["model"], ["machine", "import"], ["cache"]])
def test_a_group_without_a_command_shows_its_help(group: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    cli.run(group)
    shown = capfd.readouterr()
    lines = (shown.out + shown.err).splitlines()
    assert lines[0].startswith("Usage: preflight")
    assert "Commands:" in lines
    assert not any("Error" in one for one in lines)


def test_an_interrupt_while_modules_are_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["preflight", "model", "list"])
    monkeypatch.setattr("preflight.cli.main", interrupted)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "preflight: interrupted\n"
