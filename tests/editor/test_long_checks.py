"""A check that takes long: the editor says so, the user can end it, and requests that come together share it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from processes import HANGS

pytest.importorskip("pygls")

from lsprotocol import types as lsp

from preflight.editor import server as editor
from preflight.editor.checks import Checked, Checker


class Server:
    """What a session uses of the server of pygls."""

    def __init__(self, shows_progress: bool = True) -> None:
        asks = lsp.InlayHintWorkspaceClientCapabilities(refresh_support=True)
        self.client_capabilities = lsp.ClientCapabilities(
            window=lsp.WindowClientCapabilities(work_done_progress=shows_progress),
            workspace=lsp.WorkspaceClientCapabilities(inlay_hint=asks),
        )
        self.workspace = SimpleNamespace(get_text_document=lambda uri: SimpleNamespace(source="text"))
        self.work_done_progress = self
        self.tokens: dict[str, Future[None]] = {}
        self.said: list[str] = []

    async def create_async(self, token: str) -> None:
        self.tokens[token] = Future()

    def begin(self, token: str, value: lsp.WorkDoneProgressBegin) -> None:
        self.said.append(f"begin {value.message}")
        assert value.cancellable

    def report(self, token: str, value: lsp.WorkDoneProgressReport) -> None:
        self.said.append(f"report {value.message}")

    def end(self, token: str, value: lsp.WorkDoneProgressEnd) -> None:
        self.said.append("end")

    def workspace_inlay_hint_refresh(self, given: None) -> None:
        self.said.append("refresh")


class Check:
    """A check that goes on until it may end, or until nobody wants it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_end, self.started, self.count = threading.Event(), threading.Event(), 0
        monkeypatch.setattr(editor, "SLOW", 0.0)
        monkeypatch.setattr(editor, "TICK", 0.001)
        monkeypatch.setattr(Checker, "check", lambda *given: self(*given))

    def __call__(self, checker: Checker, texts: object, prove: bool) -> Checked:
        self.count += 1
        with checker._shown(f"judging study {self.count} of 9"):
            self.started.set()
            deadline = checker._options.progress.deadline
            assert deadline is not None
            while not self.may_end.is_set() and deadline.left > 0:
                time.sleep(0.001)
        return Checked(SimpleNamespace(findings=tuple), (), prove)  # type: ignore[arg-type]


def session(server: Server) -> editor.Session:
    found = editor.Session(server)  # type: ignore[arg-type]
    found.open[Path("/a/sweep.yaml")] = "file:///a/sweep.yaml"
    found.server.text_document_publish_diagnostics = lambda given: None
    found.generation = 1
    return found


async def until(what: Callable[[], object]) -> None:
    async def waited() -> None:
        while not what():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(waited(), HANGS)


def within(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_progress_is_shown_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        server, check = Server(), Check(monkeypatch)
        asked = asyncio.ensure_future(session(server).current())
        await until(lambda: any("judging study 1 of 9" in one for one in server.said))
        check.may_end.set()
        assert await asked is not None
        await until(lambda: server.said[-1] == "end")

    within(test())


def test_a_client_without_progress_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        server, check = Server(shows_progress=False), Check(monkeypatch)
        asked = asyncio.ensure_future(session(server).current())
        await until(check.started.is_set)
        check.may_end.set()
        await asked
        assert server.said == []

    within(test())


def test_the_user_ends_a_check_and_the_next_text_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        server, check = Server(), Check(monkeypatch)
        found = session(server)
        asked = asyncio.ensure_future(found.current())
        await until(lambda: server.tokens and server.said)
        next(iter(server.tokens.values())).cancel()
        assert await asked is None
        assert await found.current() is None  # and it is not begun again
        assert check.count == 1
        check.may_end.set()
        found.changed()
        assert await found.current() is not None
        assert check.count == 2

    within(test())


def test_requests_share_a_check_and_one_that_is_taken_back_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        server, check = Server(), Check(monkeypatch)
        found = session(server)
        first, second, third = (asyncio.ensure_future(found.current()) for _ in range(3))
        await until(check.started.is_set)
        second.cancel()
        await asyncio.sleep(0)
        check.may_end.set()
        assert await first is await third is not None
        assert check.count == 1

    within(test())


def test_a_key_ends_the_check_of_the_text_before(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        server, check = Server(), Check(monkeypatch)
        found = session(server)
        asked = asyncio.ensure_future(found.current())
        await until(check.started.is_set)
        found.changed()  # the check that runs sees it, and the request waits for the one of the new text
        await until(lambda: check.count == 2)
        check.may_end.set()
        assert await asked is not None
        await until(lambda: "refresh" in server.said)

    within(test())
