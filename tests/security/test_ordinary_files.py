"""Files as they lie about: links in a circle, pipes, directories, numbers without end. One clear answer, and no wait.

A hang is caught by the limit of the process that the case runs in.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import PROGRAM, SWEEP, fake_engine
from folders import Write
from processes import HANGS

from preflight.cli import run
from preflight.system.files import MAX_BYTES, UnreadableFile, read_bytes, read_text, real

DIGITS = "9" * 5000
"""More than Python reads as a whole number (sys.get_int_max_str_digits: 4,300)."""
JOB = ["--set", "train.batch_size=1", "--set", "train.seq_len=64"]
Arrange = Callable[[Path], object]


def link(target: str, name: str) -> Arrange:
    return lambda root: (root / name).symlink_to(target)


def fifo(name: str) -> Arrange:
    return lambda root: os.mkfifo(root / name)


def folder(name: str) -> Arrange:
    return lambda root: (root / name).mkdir()


def text(name: str, content: str | bytes) -> Arrange:
    return lambda root: (root / name).write_bytes(content.encode() if isinstance(content, str) else content)


def answered(root: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """A command in this process: its status, and what it printed."""
    status = run(arguments)
    shown = capsys.readouterr()
    assert "internal" not in shown.out + shown.err, shown.out + shown.err
    return status, shown.out, shown.err


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arrange", "words"), [
    (folder("x"), "it is a directory"), (fifo("x"), "it is not a regular file"), (link("x", "x"), "symbolic links"),
    (link("gone", "x"), "a link to a file that does not exist"), (lambda _: None, "there is no such file"),
    (link("/dev/zero", "x"), "it is not a regular file"), (text("x", b"\xff"), "not UTF-8 text (byte 0)"),
    (lambda root: os.truncate(os.open(root / "x", os.O_CREAT | os.O_WRONLY), MAX_BYTES + 1), "larger than 8 MiB"),
])  # fmt: skip
def test_what_is_no_text_is_refused_at_once(tmp_path: Path, arrange: Arrange, words: str) -> None:
    arrange(tmp_path)
    with pytest.raises(UnreadableFile, match=words.replace("(", r"\(").replace(")", r"\)")):
        read_text(tmp_path / "x")


def test_what_is_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("é")
    (tmp_path / "y").symlink_to("x")
    assert (read_text(tmp_path / "y"), read_bytes(tmp_path / "x")) == ("é", "é".encode())


@pytest.mark.parametrize("name", ["loop", "a\0b", "a\ud800"])
def test_the_real_path_of_what_has_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert real(tmp_path / name) == tmp_path / name


# --- a check goes on --------------------------------------------------------------------------------------------------

BESIDE: dict[str, Arrange] = {
    "a link to itself": link("loop.yaml", "loop.yaml"),
    "a link to nothing": link("gone", "x.yaml"),
    "a directory in itself": link(".", "again"),
    "directories in a circle": lambda root: (link("b", "a")(root), link("a", "b")(root)),
    "a pipe": fifo("x.yaml"),
    "a directory named like a file": folder("x.yaml"),
    "digits": text("x.yaml", SWEEP.replace("64", DIGITS)),
    "digits in a program": text("x.py", PROGRAM.replace("default=4", f"default={DIGITS}")),
    "digits of base 16": text("x.py", PROGRAM.replace("default=4", f"default=0x{'f' * 5000}")),
    "a power": text("x.py", PROGRAM.replace("default=4", "default=10**5000")),
    "infinity": text("x.yaml", SWEEP.replace("64", "1e999")),
    "half a character": text("x.yaml", SWEEP + '  "\\ud800": {value: "\\udfff"}\n'),
    "half a character in a program": text("x.py", PROGRAM.replace('"gpt2"', r'"\ud800"')),
    "digits in a script": text(
        "x.sh", f"#!/bin/bash\n#SBATCH --mem={DIGITS} -N {DIGITS}\n#SBATCH --array=0-{DIGITS}\nsrun python train.py\n"
    ),
    "deep substitutions": text("x.sh", "#!/bin/bash\n#SBATCH --mem=3G\nX=" + "${X:-" * 9000 + "}" * 9000 + "\n"),
    "deep brackets": text("x.yaml", "[" * 20_000),
    "deep JSON": text("x.json", "[" * 100_000),
    "deep parentheses": text("x.py", PROGRAM + "x = " + "(" * 5000 + "1" + ")" * 5000),
    "many signs": text("x.py", PROGRAM + "x = " + "-" * 50_000 + "1"),
    "a digit that is none": text("x.sh", "#!/bin/bash\n#SBATCH -N \u00b2 --gres=gpu:\u00b2\nsrun python a.py\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", BESIDE)
def test_a_file_does_not_stop_the_check_of_another(
    project: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    fake_engine(monkeypatch)
    root = project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    BESIDE[case](root)
    status, out, err = answered(root, ["check", ".", "--set", "model.name=gpt2", "--set", "machine.gpu=T4"], capsys)
    assert status in (0, 1)
    assert err == ""
    assert "sweep.yaml" in out or "exceeds" in out


@pytest.mark.parametrize("arrange", [link("x.yaml", "x.yaml"), fifo("x.yaml"), link("gone", "x.yaml")])
def test_a_named_file_that_cannot_be_read_is_a_finding(
    project: Write, capsys: pytest.CaptureFixture[str], arrange: Arrange
) -> None:
    root = project({})
    arrange(root)
    status, out, _ = answered(root, ["check", "x.yaml"], capsys)
    assert status == 1
    assert "error[unreadable-file]: x.yaml cannot be read" in out


# --- one line, status 2 -----------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Arrange, list[str], str]] = {
    f"{name}: {what}": (arrange(name), ["check", "."], name)
    for name in ("preflight.toml", "pyproject.toml")
    for what, arrange in {
        "a directory": folder, "a pipe": fifo, "a link to itself": lambda name: link(name, name),
        "a link to nothing": lambda name: link("gone", name),
    }.items()
}  # fmt: skip
REFUSED |= {
    "settings of digits": (text("preflight.toml", f"set.train.batch_size = {DIGITS}"), ["check"], "preflight.toml"),
    "deep settings": (text("preflight.toml", "a = " + "[" * 100_000), ["check"], "nested too deeply"),
    "a glob": (text("preflight.toml", 'exclude = ["[z-a]"]'), ["check"], "preflight.toml.exclude: the glob [z-a]"),
    "a glob of ignores": (
        text("preflight.toml", '[per-file-ignores]\n"[z-a]" = []'), ["check"], "per-file-ignores: the glob [z-a]",
    ),
    "baseline: a pipe": (fifo("b"), ["check", "--baseline", "b"], "it is not a regular file"),
    "baseline: a link to itself": (link("b", "b"), ["check", "--baseline", "b"], "b: the baseline cannot be read"),
    "a machine: a link to itself": (link("m", "m"), ["check", "--machine", "m"], "m"),
    "baseline: a directory": (folder("b"), ["check", "--baseline", "b"], "it is a directory"),
    "baseline: deep": (text("b", "[" * 100_000), ["check", "--baseline", "b"], "not a baseline"),
    "baseline: infinity": (
        text("b", '{"version": 1, "findings": [{"rule": "", "path": "", "key": "", "count": 1e999}]}'),
        ["check", "--baseline", "b"], "not a baseline",
    ),
    "machine: a pipe": (fifo("m.toml"), ["check", "--machine", "m.toml"], "it is not a regular file"),
    "machine: deep": (text("m.toml", "a = " + "[" * 50_000), ["check", "--machine", "m.toml"], "nested too deeply"),
    "machine: digits": (text("m.toml", f"a = {DIGITS}"), ["check", "--machine", "m.toml"], "m.toml: not valid TOML"),
    "slurm.conf: a pipe": (fifo("f"), ["machine", "import", "slurm", "--conf", "f"], "it is not a regular file"),
    "slurm.conf: digits": (
        text("f", f"NodeName=n CPUs={DIGITS}\n"), ["machine", "import", "slurm", "--conf", "f"], "is not a number",
    ),
    "slurm.conf: a digit that is none": (
        text("f", "NodeName=n CPUs=\u00b2\n"), ["machine", "import", "slurm", "--conf", "f"], "is not a number",
    ),
    "estimate: a pipe": (fifo("f.yaml"), ["estimate", "f.yaml"], "it is not a regular file"),
    "estimate: a link to itself": (link("f.yaml", "f.yaml"), ["estimate", "f.yaml"], "f.yaml"),
    "a log: a link to itself": (link("x", "x"), ["postmortem", "x"], "x: cannot be read"),
    "--set of digits": (folder("x"), ["check", "--set", f"train.batch_size={DIGITS}"], "not valid YAML"),
    "--set of base 16": (
        folder("x"), ["estimate", "gpt2", "--set", f"train.batch_size=0x{'f' * 5000}"], "thousands of digits",
    ),
    "--set: deep": (folder("x"), ["check", "--set", "model.config=" + "[" * 20_000], "not valid YAML"),
    "--measured 0": (folder("x"), ["estimate", "gpt2", *JOB, "--measured", "0"], "no process takes 0 bytes"),
    "--measured: huge": (folder("x"), ["estimate", "gpt2", *JOB, "--measured", "9" * 400 + "G"], "no computer has"),
    "--gpu: long": (folder("x"), ["estimate", "gpt2", *JOB, "--gpu", DIGITS], "no GPU is known"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_one_line(project: Write, capsys: pytest.CaptureFixture[str], case: str) -> None:
    arrange, arguments, words = REFUSED[case]
    root = project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    arrange(root)
    status, out, err = answered(root, arguments, capsys)
    assert (status, out) == (2, "")
    assert err.startswith("preflight: error: ")
    assert words in err
    assert err.count("\n") == 1
    assert len(err) <= 2010


# --- laws -------------------------------------------------------------------------------------------------------------

LAWS: dict[str, Arrange] = {
    "a directory": folder("law"), "a pipe": fifo("law"), "a link to itself": link("law", "law"),
    "nothing": text("law", ""), "junk": text("law", b"\x1f\x8b\x08"), "a list": text("law", "[]"),
    "null": text("law", "null"), "an object": text("law", "{}"), "deep": text("law", "[" * 100_000),
    "of another kind": text("law", '{"format": 3, "made_by": {"tracer": 99}, "laws": 7}'),
}  # fmt: skip


@pytest.mark.parametrize("case", LAWS)
def test_a_law_that_holds_none_is_unknown(project: Write, capsys: pytest.CaptureFixture[str], case: str) -> None:
    root = project({})
    LAWS[case](root)
    status, out, err = answered(root, ["estimate", "gpt2", *JOB, "--set", "model.law=law"], capsys)
    assert (status, err) == (0, "")
    assert "GPU memory is unknown: model.law law" in out


# --- where a command runs ---------------------------------------------------------------------------------------------


def test_a_current_directory_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    code = f"import os; os.rmdir({str(tmp_path / 'here')!r}); from preflight.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "check"], cwd=tmp_path / "here", capture_output=True, text=True, timeout=HANGS
    )
    assert done.returncode == 2
    assert done.stderr.startswith("preflight: error: the current directory is gone")
    assert done.stderr.count("\n") == 1


# --- options that say nothing -----------------------------------------------------------------------------------------

EMPTY = [
    *(["check", option, value] for option in ("--gpu", "--machine", "--trust", "--select", "--ignore", "--set",
      "--output", "--baseline", "--write-baseline") for value in ("", " ")),
    ["check", ""], ["check", "--select", ","], ["estimate", ""], ["estimate", "gpt2", "--gpu", ""],
    ["estimate", "gpt2", "--plot", ""], ["estimate", "gpt2", "--measured", ""], ["estimate", "gpt2", "--trust", ""],
    ["postmortem", ""], ["postmortem", "--gpu", ""], ["postmortem", "--job-id", ""], ["rule", ""],
    ["machine", "show", ""], ["model", "show", ""],
]  # fmt: skip


@pytest.mark.parametrize("arguments", EMPTY, ids=" ".join)
def test_an_empty_value_is_refused(project: Write, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """`--gpu "$GPU"` without a GPU would check nothing, `--trust "$TREE"` without a tree trust the current one."""
    root = project({"sweep.yaml": SWEEP, "train.py": PROGRAM})
    status, out, err = answered(root, arguments, capsys)
    assert (status, out) == (2, "")
    assert err.endswith(": it is empty\n")
    assert err.count("\n") == 1
