"""`preflight lsp` as an editor sees it: the real process, texts that no file holds, columns in UTF-16."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client import Client
from command_line import PROGRAM
from processes import HANGS

pytest.importorskip("pygls")

from preflight.editor.checks import Checked, Checker
from preflight.editor.server import Session, made
from preflight.vocabulary.findings import Confidence, Finding, Severity
from preflight.vocabulary.outcome import Outcome, Report
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings

SETTINGS = 'gpu = "RTX 4090"\n'
SWEEP = """\
program: train.py
method: grid
parameters:
  batch_size: {values: [8, 16, 4096]}
  max_length: {value: 512}
"""
CANARY = "import pathlib\npathlib.Path('ran').write_text('x')\n"


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Client]:
    (tmp_path / "preflight.toml").write_text(SETTINGS)
    (tmp_path / "train.py").write_text(CANARY + PROGRAM)
    (tmp_path / "sweep.yaml").write_text("")
    client = Client(tmp_path)
    try:
        yield client
        client.close()
    finally:
        client.process.kill()


def fresh(root: Path, name: str, text: str) -> list[tuple[object, ...]]:
    """What `preflight check -` says of a text, in code points."""
    command = [sys.executable, "-m", "preflight", "check", "-", "--stdin-filename", name, "-f", "json", "--exit-zero"]
    done = subprocess.run(command, cwd=root, input=text, capture_output=True, text=True, timeout=HANGS, check=True)
    found = json.loads(done.stdout)["findings"]
    return sorted((one["rule"], one["message"], one["line"], one["column"]) for one in found if one["path"] == name)


def shown(diagnostics: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """The same of diagnostics, of a text without characters beyond the first plane."""
    return sorted(
        (one["code"], one["message"], one["range"]["start"]["line"] + 1, one["range"]["start"]["character"] + 1)
        for one in diagnostics
    )


def put(line: int, start: int, end: int, text: str) -> dict[str, Any]:
    places = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
    return {"range": places, "text": text}


def test_replayed_edits_give_what_a_fresh_check_gives(editor: Client) -> None:
    editor.open("sweep.yaml", SWEEP)
    assert shown(editor.settled("sweep.yaml")) == fresh(editor.root, "sweep.yaml", SWEEP) != []
    at = SWEEP.splitlines()[3].index("4096")
    text = SWEEP
    for version, (old, new) in enumerate((("4096", "4"), ("4", "4096"), ("4096", "x: ["), ("x: [", "32")), 2):
        editor.change("sweep.yaml", version, put(3, at, at + len(old), new))
        text = text.replace(f"16, {old}]", f"16, {new}]")
        assert shown(editor.settled("sweep.yaml")) == fresh(editor.root, "sweep.yaml", text)
    assert not (editor.root / "ran").exists()
    assert (editor.root / "sweep.yaml").read_text() == ""


def test_unsaved_program_decides_and_old_findings_go(editor: Client) -> None:
    editor.open("sweep.yaml", SWEEP)
    assert editor.settled("sweep.yaml")
    editor.open("train.py", "print('no training')\n")
    for version in range(2, 6):  # keys in a row: only the last text counts
        editor.change("train.py", version, {"text": f"print({version})\n"})
    assert not any("GiB" in one["message"] for one in editor.settled("sweep.yaml"))


def test_columns_are_utf16(editor: Client) -> None:
    text = SWEEP.replace("batch_size: {values: [8", 'batch_size: {note: "𝒙😀", values: [8')
    editor.open("sweep.yaml", text)
    line = text.splitlines()[3]
    starts = [one["range"]["start"] for one in editor.settled("sweep.yaml")]
    assert {"line": 3, "character": line.index("4096") + 2} in starts


def test_fixes_hints_lenses_and_hovers(editor: Client) -> None:
    editor.open("sweep.yaml", SWEEP)
    [lens] = editor.ask("textDocument/codeLens", {"textDocument": {"uri": editor.uri("sweep.yaml")}})
    assert "of 3 combinations do not fit" in lens["command"]["title"]
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 9, "character": 0}}
    about = {"textDocument": {"uri": editor.uri("sweep.yaml")}}
    hints = editor.ask("textDocument/inlayHint", {**about, "range": whole})
    lines = SWEEP.splitlines()
    [hint] = [one for one in hints if one["position"]["line"] == 3]
    assert hint["position"]["character"] == len(lines[3])
    assert hint["label"].startswith("!*")
    hover = editor.ask("textDocument/hover", {**about, "position": {"line": 3, "character": 2}})
    assert "weights: " in hover["contents"]["value"]
    quick = editor.actions("sweep.yaml", 3, "quickfix")
    assert quick
    assert all(one["kind"] == "quickfix" and one["edit"]["changes"] for one in quick)
    for action in editor.actions("sweep.yaml", 3, "source.fixAll"):
        assert action["kind"] == "source.fixAll.preflight"
        changes = action["edit"]["changes"]
        assert all(edit["newText"] for edits in changes.values() for edit in edits)


def test_wrong_settings_are_said_and_repaired(editor: Client) -> None:
    (editor.root / "preflight.toml").write_text("gpu = 3\n")
    editor.open("sweep.yaml", SWEEP)
    [told] = editor.settled("sweep.yaml")
    assert (told["code"], told["severity"]) == ("not-checked", 2)
    [wrong] = editor.published[editor.uri("preflight.toml")]
    assert wrong["severity"] == 1
    assert wrong["message"].startswith("preflight.toml.gpu: ")
    (editor.root / "preflight.toml").write_text(SETTINGS)
    editor.tell("workspace/didChangeWatchedFiles", {"changes": []})
    assert all(one["code"] != "not-checked" for one in editor.settled("sweep.yaml"))
    assert editor.published[editor.uri("preflight.toml")] == []


def test_a_bug_does_not_look_like_a_clean_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise KeyError("sizes")

    published: dict[str, list[Any]] = {}
    said: list[str] = []
    server = made()
    monkeypatch.setattr(Checker, "check", broken)
    monkeypatch.setattr(server, "window_show_message", lambda given: said.append(given.message))
    monkeypatch.setattr(
        server, "text_document_publish_diagnostics", lambda given: published.update({given.uri: given.diagnostics})
    )
    session = Session(server)
    session.open = {tmp_path / "sweep.yaml": "file:///sweep.yaml"}
    for _ in range(2):
        session._publish(session._check({}, False, 0))
    assert said == ["preflight: internal error: KeyError: 'sizes'"]
    [told] = published["file:///sweep.yaml"]
    assert told.message == "not checked: internal error: KeyError: 'sizes'"


def test_a_finding_without_a_place_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published: dict[str, list[Any]] = {}
    server = made()
    monkeypatch.setattr(
        server, "text_document_publish_diagnostics", lambda given: published.update({given.uri: given.diagnostics})
    )
    found = Finding("internal-error", Severity.error, Confidence.high, "a rule failed", None)
    report = Report(Project(tmp_path, Settings()), (found,), (), ("sweep.yaml",))
    Session(server)._publish(Checked(Outcome((report,), tmp_path, tmp_path), (), False))
    [told] = published[(tmp_path / "sweep.yaml").as_uri()]
    assert told.message == "a rule failed"


@pytest.mark.slow
def test_a_request_that_is_taken_back_ends_nothing_of_the_others(editor: Client) -> None:
    editor.open("sweep.yaml", SWEEP)
    about = {"textDocument": {"uri": editor.uri("sweep.yaml")}}
    editor._send({"id": "taken back", "method": "textDocument/codeLens", "params": about})
    editor.tell("$/cancelRequest", {"id": "taken back"})
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 9, "character": 0}}
    assert editor.ask("textDocument/inlayHint", {**about, "range": whole})
    assert editor.settled("sweep.yaml")
