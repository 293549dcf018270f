"""Nothing of a file, a name or an argument reaches a stream as it is: not in any format, not in an error."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as XML

import pytest
from command_line import PROGRAM, SWEEP, Command
from folders import Write
from processes import HANGS
from thorough import sample

import preflight
from preflight.cli import run
from preflight.reports.streams import clean, complain, safe, show
from preflight.vocabulary.errors import OutputError, ReaderGone

DRIVES = "\x1b]0;title\x07\x1b[8m\u202eabc\x9b31m\r\x08"
COMMANDS = "\n::error::owned\n  ::set-output name=a::b\n##[error]owned ##vso[task.setvariable]x ##teamcity[x]"
HOSTILE = DRIVES + COMMANDS
FORMATS = ("full", "concise", "json", "sarif", "github", "gitlab", "junit", "html")
OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
    r"|##\w*\[|^\s*::(?!(?:error|warning|notice) (?:file|title)=)[A-Za-z]",
    re.MULTILINE,
)


def escaped(text: str) -> str:
    """As a text within double quotes in YAML and TOML."""
    return json.dumps(text)


def obeyed(text: str) -> list[str]:
    """What of a text a terminal or a build service would obey. GitHub looks for no other command behind `::error`."""
    text = re.sub(r"(?m)^(::(?:error|warning|notice) .*)", lambda found: found[1].replace("##", ""), text)
    return [found[0] for found in OBEYED.finditer(text)]


def test_the_measure_sees_what_is_hostile() -> None:
    assert len(obeyed(HOSTILE)) >= 10
    assert obeyed("::error title=preflight: x::words\n  ::: a.yaml:1:1\nplain\té") == []


# --- formats ----------------------------------------------------------------------------------------------------------

PLACES: dict[str, dict[str, str]] = {
    "a value": {"sweep.yaml": SWEEP.replace("grid", escaped(HOSTILE)), "train.py": PROGRAM},
    "a key": {"sweep.yaml": SWEEP + f"{escaped(HOSTILE)}: 1\n", "train.py": PROGRAM},
    "a line": {"sweep.yaml": SWEEP.replace("paper", "##[error]x \u202e") + "methd: 1\n", "train.py": PROGRAM},
    "a file's name": {"::error::\x1b]0;x\x07\n::error::y.yaml": SWEEP.replace("grid", "gri"), "train.py": PROGRAM},
    "a program's name": {"sweep.yaml": SWEEP.replace("train.py", escaped(HOSTILE))},
    "a model's name": {"sweep.yaml": SWEEP, "train.py": PROGRAM.replace('"gpt2"', escaped(HOSTILE))},
    "a setting": {"sweep.yaml": SWEEP, "preflight.toml": f"map = {{{escaped(HOSTILE)} = 'task'}}\n"},
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", FORMATS)
def test_no_format_hands_it_on(project: Write, check: Command, form: str, place: str) -> None:
    project(PLACES[place])
    done = check(".", "-f", form, "--gpu", "RTX 4090", "--explain")
    assert done.status in (0, 1)
    assert obeyed(done.out) == []
    assert obeyed(done.err) == []
    if form in ("json", "sarif", "gitlab"):
        json.loads(done.out)
    if form == "junit":
        XML.fromstring(done.out)


@pytest.mark.parametrize("form", FORMATS)
def test_reports_in_files_are_no_other(project: Write, check: Command, form: str) -> None:
    root = project(PLACES["a file's name"])
    check(".", "--output", f"{form}=report")
    assert obeyed((root / "report").read_text()) == []


def test_a_name_is_one_line(project: Write, check: Command) -> None:
    project({"a\nb.yaml": SWEEP.replace("grid", "gri"), "train.py": PROGRAM})
    lines = check(".", "-f", "concise").out.splitlines()
    assert [line for line in lines if line.startswith("b.yaml")] == []


def test_json_gives_the_text_back(project: Write, check: Command) -> None:
    project({"a\n##[x].yaml": SWEEP.replace("grid", "gri"), "train.py": PROGRAM})
    found = json.loads(check(".", "-f", "json").out)
    assert found["findings"][0]["path"] == "a\n##[x].yaml"


def test_properties_and_data_of_github_are_escaped_as_its_toolkit_does(project: Write, check: Command) -> None:
    project({"50%,a:b\n.yaml": SWEEP.replace("grid", "gri"), "train.py": PROGRAM})
    assert check(".", "-f", "github").out.startswith("::error file=50%25%2Ca%3Ab%0A.yaml,line=2,")


# --- errors -----------------------------------------------------------------------------------------------------------

ERRORS: dict[str, tuple[dict[str, str], list[str]]] = {
    "key of settings": ({"preflight.toml": f"{escaped(HOSTILE)} = 1"}, ["check", "."]),
    "value of settings": ({"preflight.toml": f"set.train.batch_size = {escaped(HOSTILE)}"}, ["check", "."]),
    "glob of settings": ({"preflight.toml": f"exclude = [{escaped('[z-a]' + HOSTILE)}]"}, ["check", "."]),
    "path": ({}, ["check", HOSTILE[:80]]),
    "option": ({}, ["check", "--" + HOSTILE]),
    "choice": ({}, ["check", "-f", HOSTILE]),
    "command": ({}, [HOSTILE]),
    "superfluous": ({}, ["rule", "a", HOSTILE]),
    "gpu": ({}, ["check", "--gpu", HOSTILE]),
    "machine": ({}, ["check", "--machine", HOSTILE[:80]]),
    "set": ({}, ["check", "--set", HOSTILE]),
    "set value": ({}, ["check", "--set", "train.batch_size=" + HOSTILE]),
    "rule": ({}, ["rule", HOSTILE]),
    "model": ({}, ["model", "show", HOSTILE]),
    "models": ({}, ["model", "list", HOSTILE]),
    "machine show": ({}, ["machine", "show", HOSTILE[:80]]),
    "target": ({}, ["estimate", HOSTILE[:80]]),
    "job": ({"j.json": json.dumps({"model": "gpt2", "train": {"batch_size": HOSTILE}})}, ["estimate", "j.json"]),
    "baseline": ({}, ["check", "--baseline", HOSTILE[:80]]),
    "log": ({}, ["postmortem", HOSTILE[:80]]),
    "output": ({}, ["check", "--output", HOSTILE]),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_no_error_hands_it_on(project: Write, capsys: pytest.CaptureFixture[str], case: str) -> None:
    files, arguments = ERRORS[case]
    project({"sweep.yaml": SWEEP, **files})
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert obeyed(shown.out + shown.err) == []
    lines = shown.err.splitlines()
    assert lines[-1].startswith(("preflight: error: ", "Error: "))
    assert len(lines) == 1 or lines[0].startswith("Usage: ")


def test_a_crash_of_ours_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr("preflight.commands.check.batches", broken)
    assert run(["check"]) == 2
    err = capsys.readouterr().err
    assert obeyed(err) == []
    assert err.count("\n") == 1


TEXTS: dict[str, tuple[dict[str, str], list[str]]] = {
    "log of a dead job": (
        {"job.out": f"{DRIVES}\nTraceback (most recent call last):\n  File \"a\", line 1\nValueError: {DRIVES}##[x]\n"},
        ["postmortem", "job.out"],
    ),
    "estimate": (
        {"j.json": json.dumps({"model": {"name": HOSTILE}, "train": {"batch_size": 1, "seq_len": 8}})},
        ["estimate", "j.json"],
    ),
    "estimate as JSON": (
        {"j.json": json.dumps({"model": {"name": HOSTILE}, "train": {"batch_size": 1, "seq_len": 8}})},
        ["estimate", "j.json", "--output-format", "json"],
    ),
    "machine": (
        {"m.toml": f'name = {escaped(HOSTILE)}\n[node.a]\nmemory = "1GB"\ncpus = 1\n'},
        ["machine", "show", "m.toml"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_no_other_text_hands_it_on(project: Write, capsys: pytest.CaptureFixture[str], case: str) -> None:
    files, arguments = TEXTS[case]
    project(files)
    run(arguments)
    shown = capsys.readouterr()
    assert shown.out + shown.err
    assert obeyed(shown.out + shown.err) == []


# --- one place --------------------------------------------------------------------------------------------------------

WRITERS = {"click.echo", "click.secho", "print", "sys.stdout.write", "sys.stderr.write", "os.write"}
ALLOWED = {
    "streams.py",
    "slurm/sbatch/child.py",  # a pipe to the parent
    "slurm/sbatch/handover.py",  # the script, as sbatch is given it
    "slurm/sbatch/real.py",  # a list of paths, read by this program again
    "system/forked.py",  # pipes between a process and its copies
}


def test_all_that_is_written_goes_through_one_place() -> None:
    home = Path(preflight.__file__).parent
    found = []
    for path in home.rglob("*.py"):
        name = path.relative_to(home).as_posix()
        if name in ALLOWED or name.startswith(("tracer/", "dryrun/inside/", "guard/")):
            continue
        text = path.read_text()
        if not re.search(r"(echo|print|write)\(", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in WRITERS:
                found.append(f"{name}:{node.lineno}")
    assert found == []


# --- a diff is a patch ------------------------------------------------------------------------------------------------


def test_a_diff_applies_whatever_stands_in_it(project: Write, check: Command) -> None:
    root = project({"sweep.yaml": SWEEP.replace("as in the paper", "é \u202e ##[error]x"), "train.py": PROGRAM})
    diff = check("sweep.yaml", "--gpu", "RTX 4090", "--diff", "--unsafe-fixes").out
    assert "\u202e ##[error]x" in diff
    done = subprocess.run(["patch", "-p1"], cwd=root, input=diff.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Callable[..., io.TextIOWrapper]:
    """Puts a stream in the place of standard output."""

    def put(encoding: str = "utf-8", terminal: bool = False) -> io.TextIOWrapper:
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
        monkeypatch.setattr(sys, "stdout", stream)
        return stream

    for name in ("GITHUB_ACTIONS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return put


def written(stream: io.TextIOWrapper) -> bytes:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()


def test_a_patch_keeps_its_bytes_but_on_a_terminal(output: Callable[..., io.TextIOWrapper]) -> None:
    stream = output("ascii")
    show("+a \x1b[2J é \udcff\n", "patch")
    assert written(stream) == "+a \x1b[2J é ".encode() + b"\xff\n"


def test_a_patch_in_githubs_log_holds_no_command(
    output: Callable[..., io.TextIOWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    stream = output()
    show("--- a/x\n+++ b/x\n ::error::x\n", "patch")
    first, *patch, last = written(stream).decode().splitlines()
    token = first.removeprefix("::stop-commands::")
    assert len(token) == 32
    assert last == f"::{token}::"
    assert patch == ["--- a/x", "+++ b/x", " ::error::x"]


# --- streams of every kind --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "kind", "expected"), [
    ("a\x1b[2Jb", "text", "a\\x1b[2Jb"),
    ("\u202ea", "text", "\\u202ea"),
    ("\U000e0041", "text", "\\U000e0041"),
    ("\udcff", "text", "\\udcff"),
    ("\udcff\U000e0041", "json", "\\ufffd\\udb40\\udc41"),
    ("  ::error::a", "text", "  \\x3a:error::a"),
    ("\u2003::error::a", "text", "\u2003\\x3a:error::a"),
    ("a ::error::a", "text", "a ::error::a"),
    ("  ::: a.yaml:1", "text", "  ::: a.yaml:1"),
    ("::error file=a::##[x]", "github", "::error file=a::##[x]"),
    ("a ##[error]b ##vso[x] # [y]", "text", "a \\x23#[error]b \\x23#vso[x] # [y]"),
    ('"##[error]"', "json", '"\\u0023#[error]"'),
    ("a\tb\nc é 漢", "text", "a\tb\nc é 漢"),
    ("\x1b[1;31mred\x1b[0m", "text", "\\x1b[1;31mred\\x1b[0m"),
])  # fmt: skip
def test_what_is_shown(text: str, kind: str, expected: str) -> None:
    assert safe(text, kind) == expected  # type: ignore[arg-type]
    assert safe(expected, kind) == expected  # type: ignore[arg-type]


def test_own_colours_are_sent_where_colours_are_and_no_other_escape() -> None:
    text = "\x1b[1;31ma\x1b[0m\x1b[8m\x1b[2J\x1b[0;5m"
    assert safe(text, colour=True) == "\x1b[1;31ma\x1b[0m\\x1b[8m\\x1b[2J\\x1b[0;5m"
    assert safe("\x1b[31m::error::x", colour=True) == "\x1b[31m\\x3a:error::x"


def test_foreign_text_in_a_line_stays_in_it() -> None:
    assert clean("a\tb\nc\rd\u2028e") == "a    b c\\x0dd\\u2028e"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("kind", ["text", "json", "github", "patch"])
def test_no_encoding_stops_a_text(output: Callable[..., io.TextIOWrapper], encoding: str, kind: str) -> None:
    stream = output(encoding)
    show('"é漢\U0001f600"\n', kind)  # type: ignore[arg-type]
    assert written(stream)
    if kind == "json":
        assert json.loads(written(stream).decode(encoding)) == "é漢\U0001f600"


def test_a_closed_output_is_an_error_and_a_closed_error_stream_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(OutputError, match="closed"):
        show("a\n")
    complain("a")


@pytest.mark.parametrize(("error", "raised"), [
    (BrokenPipeError(32, "Broken pipe"), ReaderGone), (OSError(28, "No space left on device"), OutputError),
])  # fmt: skip
def test_an_output_that_takes_nothing(
    output: Callable[..., io.TextIOWrapper], monkeypatch: pytest.MonkeyPatch, error: OSError, raised: type[Exception]
) -> None:
    def refuse(_: str) -> int:
        raise error

    monkeypatch.setattr(output(), "write", refuse, raising=False)
    with pytest.raises(raised):
        show("a\n")


CLOSED = {
    "check . >&-": (2, "preflight: error: standard output is closed"),
    "check nowhere 2>&-": (2, ""),
    "check . 2>&-": (0, ""),
    "check . >&- 2>&- <&-": (2, ""),
    "postmortem <&-": (2, "preflight: error: name the logs"),
    "check . >/dev/full": (2, "preflight: error: standard output cannot be written: No space left on device"),
    "--help >/dev/full": (2, "preflight: error: standard output cannot be written: No space left on device"),
}


@pytest.mark.parametrize("line", sample(CLOSED, 3))
def test_closed_and_full_streams(tmp_path: Path, line: str) -> None:
    status, words = CLOSED[line]
    command = f'"{sys.executable}" -m preflight {line}'
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=HANGS)
    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
    assert done.stderr.startswith(words)
    assert done.stderr.count("\n") == bool(words)


def test_a_name_that_is_no_utf8(project: Write, check: Command) -> None:
    root = project({"train.py": PROGRAM})
    with open(os.fsencode(root) + b"/\xff.yaml", "w") as file:
        file.write(SWEEP.replace("grid", "gri"))
    for form in FORMATS:
        done = check(".", "-f", form, "--output", f"{form}=report-{form}")
        assert done.status == 1
        assert obeyed(done.out) == []
    assert "%FF.yaml" in check(".", "-f", "sarif").out
    assert check(".", "--write-baseline", "known.json").status == 0
    assert check(".", "--baseline", "known.json").status == 0
