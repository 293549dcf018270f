"""`preflight lsp` before the clients of editors, as pytest-lsp knows them: it also says where a message breaks the
protocol for a client of these capabilities."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from command_line import PROGRAM
from processes import HANGS

pytest_lsp = pytest.importorskip("pytest_lsp")

from lsprotocol import types as lsp  # noqa: E402
from pytest_lsp import LanguageClient, client_capabilities  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("error::pytest_lsp.LspSpecificationWarning")]
SWEEP = """\
program: train.py
method: grid
# 𝒙😀 é
parameters:
  batch_size: {note: "𝒙😀", values: [8, 16, 4096]}
  max_length: {value: 512}
"""
MARKS = ">=*~?!"
"""Before a figure that is not known to fit."""
EDITORS = ("visual-studio-code", "neovim")


class Editor:
    """An editor with its own copy of each text. `put` types: the place is counted in the units that were agreed on."""

    def __init__(self, client: LanguageClient, root: Path) -> None:
        self.client, self.root = client, root
        self.texts: dict[str, str] = {}
        self.version = 0
        self.utf8 = False

    def uri(self, name: str) -> str:
        return (self.root / name).as_uri()

    def open(self, name: str, text: str) -> None:
        self.texts[name] = text
        document = lsp.TextDocumentItem(self.uri(name), "yaml", 0, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(document))

    def put(self, name: str, start: int, end: int, new: str) -> None:
        """Replace characters of a text."""
        text = self.texts[name]
        place = lsp.Range(self.position(text, start), self.position(text, end))
        self.texts[name] = text[:start] + new + text[end:]
        self.version += 1
        change = lsp.TextDocumentContentChangePartial(range=place, text=new)
        known = lsp.VersionedTextDocumentIdentifier(uri=self.uri(name), version=self.version)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(known, [change]))

    def position(self, text: str, at: int) -> lsp.Position:
        line = text.count("\n", 0, at)
        return lsp.Position(line, self.units(text[text.rfind("\n", 0, at) + 1 : at]))

    def units(self, text: str) -> int:
        return len(text.encode()) if self.utf8 else len(text.encode("utf-16-le")) // 2

    async def shown(self, name: str) -> list[tuple[object, ...]]:
        """The diagnostics of the text as it is now, in code points."""
        about = lsp.TextDocumentIdentifier(self.uri(name))
        await self.client.text_document_code_lens_async(lsp.CodeLensParams(about))
        lines = self.texts[name].split("\n")
        found = []
        for one in self.client.diagnostics.get(self.uri(name), ()):
            before = lines[one.range.start.line]
            column = next(at for at in range(len(before) + 1) if self.units(before[:at]) == one.range.start.character)
            found.append((one.code, one.message, one.range.start.line + 1, column + 1))
        return sorted(found)


def fresh(root: Path, name: str, text: str) -> list[tuple[object, ...]]:
    """What `preflight check -` says of a text."""
    command = [sys.executable, "-m", "preflight", "check", "-", "--stdin-filename", name, "-f", "json", "--exit-zero"]
    done = subprocess.run(command, cwd=root, input=text, capture_output=True, text=True, timeout=HANGS, check=False)
    found = json.loads(done.stdout)["findings"]
    return sorted((one["rule"], one["message"], one["line"], one["column"]) for one in found if one["path"] == name)


def in_editor(kind: str, root: Path, does: Callable[[Editor], Awaitable[None]], cwd: Path | None = None) -> None:
    (root / "preflight.toml").write_text('gpu = "RTX 4090"\nset.train.compile = false\n')
    (root / "train.py").write_text(PROGRAM)
    (root / "sweep.yaml").write_text("")

    async def session() -> None:
        client = pytest_lsp.make_test_lsp_client()
        await client.start_io(sys.executable, "-m", "preflight", "lsp", cwd=cwd or root)
        try:
            hello = lsp.InitializeParams(
                capabilities=client_capabilities(kind),
                root_uri=root.as_uri(),
                workspace_folders=[lsp.WorkspaceFolder(root.as_uri(), root.name)],
            )
            answer = await client.initialize_session(hello)
            editor = Editor(client, root)
            editor.utf8 = answer.capabilities.position_encoding == lsp.PositionEncodingKind.Utf8
            await does(editor)
            assert [one.message for one in client.messages] == []
            assert client.error is None
            await client.shutdown_session()
        finally:
            await client.stop()

    asyncio.run(asyncio.wait_for(session(), HANGS))


@pytest.mark.parametrize("kind", EDITORS)
def test_a_number_is_seen_while_it_is_typed(kind: str, tmp_path: Path) -> None:
    async def does(editor: Editor) -> None:
        editor.open("sweep.yaml", SWEEP)
        at = SWEEP.index("4096")
        editor.put("sweep.yaml", at, at + 4, "")
        labels = []
        for key in "256":
            editor.put("sweep.yaml", at, at, key)
            at += 1
            whole = lsp.Range(lsp.Position(0, 0), lsp.Position(9, 0))
            about = lsp.TextDocumentIdentifier(editor.uri("sweep.yaml"))
            hints = await editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(about, whole))
            [hint] = [one for one in hints or () if one.position.line == 4]
            assert hint.position == editor.position(
                editor.texts["sweep.yaml"], editor.texts["sweep.yaml"].index("]}") + 2
            )
            labels.append(float(str(hint.label).split()[0].lstrip(MARKS)))
        assert labels == sorted(labels)
        assert labels[0] < labels[-1]

    in_editor(kind, tmp_path, does)


KEYS = ("4", "", "9", "]", "[", "😀", "\n", "16, ", "512, ", " # é", "\t")


@pytest.mark.parametrize("kind", EDITORS)
def test_replayed_keys_give_what_a_fresh_check_gives(kind: str, tmp_path: Path) -> None:
    """Keys in the values of the search, which leave it whole or break it; names of keys stay, so that no law is new."""
    keys = random.Random(kind)

    async def does(editor: Editor) -> None:
        editor.open("sweep.yaml", SWEEP)
        for turn in range(6):
            for _ in range(3):
                text = editor.texts["sweep.yaml"]
                start = keys.randrange(text.index("values: ") + 8, text.index("  max_length") - 2)
                editor.put("sweep.yaml", start, start + keys.choice((0, 0, 1)), keys.choice(KEYS))
            if turn % 3 == 2:  # the text as it was: findings are back
                editor.put("sweep.yaml", 0, len(editor.texts["sweep.yaml"]), SWEEP)
            said = await editor.shown("sweep.yaml")
            assert said == fresh(editor.root, "sweep.yaml", editor.texts["sweep.yaml"]), editor.texts["sweep.yaml"]

    in_editor(kind, tmp_path, does)


def test_a_server_that_was_started_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()

    async def does(editor: Editor) -> None:
        editor.open("sweep.yaml", SWEEP)
        assert await editor.shown("sweep.yaml") == fresh(editor.root, "sweep.yaml", SWEEP) != []

    in_editor("visual-studio-code", tmp_path / "project", does, cwd=tmp_path)


def test_safe_fixes_alone_are_written_at_once(tmp_path: Path) -> None:
    async def does(editor: Editor) -> None:
        text = SWEEP.replace("4096", "64")
        editor.open("sweep.yaml", text)
        about = lsp.TextDocumentIdentifier(editor.uri("sweep.yaml"))
        spot = lsp.Range(lsp.Position(4, 0), lsp.Position(4, 1))

        async def actions(*only: str) -> list[lsp.CodeAction]:
            context = lsp.CodeActionContext([], only=list(only) or None)
            asked = lsp.CodeActionParams(about, spot, context)
            return [one for one in await editor.client.text_document_code_action_async(asked) or () if one]  # type: ignore[misc]

        assert all(one.kind == "quickfix" for one in await actions("quickfix"))
        every = await actions("source.fixAll")
        for action in every:
            assert action.edit is not None
            for uri, edits in (action.edit.changes or {}).items():
                name = uri.rpartition("/")[2]
                (editor.root / name).write_text(edits[0].new_text)
        diff = subprocess.run([sys.executable, "-m", "preflight", "check", "--diff", "sweep.yaml"], cwd=editor.root,
                              capture_output=True, text=True, timeout=HANGS, check=False)  # fmt: skip
        assert diff.stdout == ""

    in_editor("visual-studio-code", tmp_path, does)
