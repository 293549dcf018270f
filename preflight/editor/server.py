"""`preflight lsp`: the protocol of language servers over standard input and output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from lsprotocol import types as lsp
from msgspec.structs import replace
from pygls import uris
from pygls.lsp.server import LanguageServer

from preflight import __version__
from preflight.editor.beside import Hint, Lens, hints, lenses, place_of
from preflight.editor.checks import Checked, Checker
from preflight.reports.streams import clean
from preflight.system.files import real
from preflight.vocabulary.errors import MachineError, PreflightError
from preflight.vocabulary.findings import Finding, Safety, Severity
from preflight.vocabulary.outcome import Report
from preflight.vocabulary.project import UnreadableFile
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Origin, Span

if TYPE_CHECKING:
    from preflight.vocabulary.text import Source

T = TypeVar("T")
DEBOUNCE = 0.3
"""Seconds without a key before a text is checked."""
SLOW = 1.0
"""Seconds after which the client shows that a check is under way."""
TICK = 0.2
"""Seconds between two looks at what it does."""
FIX_ALL = "source.fixAll.preflight"
_SEVERITIES = {
    Severity.error: lsp.DiagnosticSeverity.Error,
    Severity.warning: lsp.DiagnosticSeverity.Warning,
    Severity.info: lsp.DiagnosticSeverity.Information,
}
_SETTINGS = (".toml", ".json", ".conf")
"""Files from which settings, laws and machines are read."""


class Session:
    """The open files of one client, and what the last check says of them."""

    def __init__(self, server: LanguageServer) -> None:
        self.server = server
        self.open: dict[Path, str] = {}
        """Path -> the name that the client has for it."""
        self.generation = 0
        self._running = 0
        self._stopped = 0
        """The generation whose check the user ended."""
        self._checker = Checker(Path.cwd(), lambda: self._running != self.generation or self._running == self._stopped)
        self._worker = ThreadPoolExecutor(1)  # estimates are kept between checks and are of one thread
        self._held: dict[bool, tuple[int, Checked | None]] = {}
        self._under_way: dict[bool, tuple[int, asyncio.Future[None]]] = {}
        self._elsewhere = False
        """Whether a text changed beside which the client shows nothing, so that it has to ask again for the others."""
        self._published: set[str] = set()
        self._said = ""
        """Why nothing is checked; "": all is well."""
        self._wrong: Path | None = None
        """The settings file that is wrong."""

    def changed(self, forget: bool = False, elsewhere: bool = True) -> None:
        """A text is another: what runs is ended, and a check follows when no key is pressed. `elsewhere`: others than
        the one that the client asks about anyway may have other figures now."""
        self.generation += 1
        self._elsewhere |= elsewhere
        if forget:
            self._worker.submit(self._checker.forget)
        task = asyncio.ensure_future(self._later(self.generation))
        task.add_done_callback(self._ended)

    async def _later(self, generation: int) -> None:
        await asyncio.sleep(DEBOUNCE)
        if generation == self.generation:
            await self.current()

    def _ended(self, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._complain(error)

    async def current(self, prove: bool = False) -> Checked | None:
        """The check of the texts as they are now; None if the settings are wrong, or if the user ended the check.

        Requests that come together share one check. A request that the client takes back ends nothing of the others.
        """
        while True:
            generation = self.generation
            for kind in (True,) if prove else (True, False):
                if kind in self._held and self._held[kind][0] == generation:
                    return self._held[kind][1]
            if self._stopped == generation:
                return None
            known = self._under_way.get(prove)
            if known is None or known[0] != generation or known[1].done():
                known = (generation, asyncio.ensure_future(self._fresh(generation, prove)))
                self._under_way[prove] = known
            await asyncio.shield(known[1])

    async def _fresh(self, generation: int, prove: bool) -> None:
        """Check the texts, and show what the check says unless they are others by then."""
        texts = {path: self.server.workspace.get_text_document(uri).source for path, uri in self.open.items()}
        progress = asyncio.ensure_future(self._progress(generation))
        try:
            found = await self._work(partial(self._check, texts, prove, generation))
        finally:
            progress.cancel()
        if generation == self.generation and generation != self._stopped:
            self._held[prove] = (generation, found)
            self._publish(found)
            self._refresh()

    async def _progress(self, generation: int) -> None:
        """Say what a check does that takes long, and end it where the user does not want it."""
        window = self.server.client_capabilities.window
        if window is None or not window.work_done_progress:
            return
        await asyncio.sleep(SLOW)
        shown, token = self.server.work_done_progress, f"preflight-{uuid4()}"
        await shown.create_async(token)
        said = self._checker.doing
        shown.begin(token, lsp.WorkDoneProgressBegin("preflight", cancellable=True, message=clean(said) or None))
        try:
            while not shown.tokens[token].cancelled():
                await asyncio.sleep(TICK)
                if self._checker.doing and self._checker.doing != said:
                    said = self._checker.doing
                    shown.report(token, lsp.WorkDoneProgressReport(message=clean(said)))
            self._stopped = generation
        finally:
            shown.end(token, lsp.WorkDoneProgressEnd())

    def _refresh(self) -> None:
        """Have the client ask again for what stands beside texts that did not change themselves."""
        workspace = self.server.client_capabilities.workspace
        if not self._elsewhere or workspace is None:
            return
        self._elsewhere = False
        if workspace.inlay_hint is not None and workspace.inlay_hint.refresh_support:
            self.server.workspace_inlay_hint_refresh(None)
        if workspace.code_lens is not None and workspace.code_lens.refresh_support:
            self.server.workspace_code_lens_refresh(None)

    async def _work(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, function)

    def _check(self, texts: Mapping[Path, str], prove: bool, generation: int) -> Checked | None:
        self._running = generation
        if generation != self.generation:
            return None
        try:
            found = self._checker.check(texts, prove)
            self._said, self._wrong = "", None
        except Exception as error:  # a check that failed must not look clean
            if generation == self.generation:
                self._complain(error)
            return None
        return found

    def _complain(self, error: BaseException) -> None:
        """Say once why nothing is checked."""
        self._wrong = getattr(error, "file", None)
        own = isinstance(error, (PreflightError, MachineError))
        said = clean(str(error) if own else f"internal error: {type(error).__name__}: {error}")
        if said != self._said:
            self._said = said
            self.server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Error, f"preflight: {said}"))

    # --- diagnostics

    def _publish(self, checked: Checked | None) -> None:
        """Diagnostics for every file that a finding is in. Files without one any more are cleared."""
        found: dict[str, list[lsp.Diagnostic]] = {uri: [] for uri in (*self.open.values(), *self._published)}
        for report, finding in map(_placed, checked.outcome.findings()) if checked is not None else ():
            if finding.origin is not None:
                found.setdefault(self.uri(report, finding.origin.path), []).append(self.diagnostic(report, finding))
        if checked is None and self._said:
            start = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
            for uri in self.open.values():
                found[uri] = [_of_check(start, f"not checked: {self._said}", lsp.DiagnosticSeverity.Warning)]
            if self._wrong is not None:
                uri = self.open.get(self._wrong) or self._wrong.as_uri()
                found[uri] = [_of_check(start, self._said, lsp.DiagnosticSeverity.Error)]
        self._published = {uri for uri, diagnostics in found.items() if diagnostics}
        for uri, diagnostics in found.items():
            self.server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, diagnostics))

    def uri(self, report: Report, path: str) -> str:
        """A file as the client names it."""
        full = report.project.root / path
        return self.open.get(full) or uris.from_fs_path(str(full)) or full.as_uri()

    def diagnostic(self, report: Report, finding: Finding) -> lsp.Diagnostic:
        """A finding at its place."""
        assert finding.origin is not None
        related = [
            lsp.DiagnosticRelatedInformation(
                lsp.Location(self.uri(report, origin.path), self.range(report, origin.path, origin.span)), clean(words)
            )
            for origin, words in finding.related
        ]
        return lsp.Diagnostic(
            range=self.range(report, finding.origin.path, finding.origin.span),
            message=clean(finding.message),
            severity=_SEVERITIES[finding.severity],
            code=finding.rule,
            source="preflight",
            related_information=related,
        )

    def range(self, report: Report, path: str, span: Span) -> lsp.Range:
        """Lines and columns in the client's units; the start of a file that cannot be read (any more)."""
        try:
            source, found = place_of(report, path, span)
        except UnreadableFile:
            return lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
        start = self._position(source, found.line, found.column)
        return lsp.Range(start, self._position(source, found.end_line, found.end_column))

    def _position(self, source: Source, line: int, column: int) -> lsp.Position:
        before = source.line(line)[: column - 1]
        return lsp.Position(line - 1, self.server.workspace.position_codec.client_num_units(before))

    # --- actions

    async def actions(self, asked: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        """The fix of each finding at a place, and all safe ones at once."""
        uri, only = asked.text_document.uri, asked.context.only
        checked = await self.current(prove=True)
        if checked is None:
            return []
        found = []
        if _wanted("quickfix", only):
            for report, finding in checked.outcome.findings():
                if finding.origin is None or finding.fix is None or self.uri(report, finding.origin.path) != uri:
                    continue
                diagnostic = self.diagnostic(report, finding)
                if _touch(diagnostic.range, asked.range):
                    safe = finding.fix.safety is Safety.safe
                    title = clean(finding.fix.title) + (
                        "" if safe else f" (changes the run: {clean(finding.fix.reason)})"
                    )
                    edit = self._edit(report, finding.fix.edits)
                    kind = lsp.CodeActionKind.QuickFix
                    found.append(lsp.CodeAction(title, kind, [diagnostic], is_preferred=safe, edit=edit))
        if _wanted(FIX_ALL, only) and any(fix.safety is Safety.safe for fix in checked.outcome.fixes()):
            generation = self.generation
            texts = await self._work(checked.fixed_texts)
            changes = {self.open.get(path) or path.as_uri(): [self._whole(path, text)] for path, text in texts.items()}
            if changes and generation == self.generation:
                edit = lsp.WorkspaceEdit(changes=changes)
                found.append(lsp.CodeAction("Write all safe fixes of preflight", FIX_ALL, edit=edit))
        return found

    def _edit(self, report: Report, edits: Iterable[Edit]) -> lsp.WorkspaceEdit:
        changes: dict[str, list[lsp.TextEdit]] = {}
        for one in edits:
            edit = lsp.TextEdit(self.range(report, one.path, one.span), one.text)
            changes.setdefault(self.uri(report, one.path), []).append(edit)
        return lsp.WorkspaceEdit(changes=changes)

    def _whole(self, path: Path, text: str) -> lsp.TextEdit:
        lines = self.server.workspace.get_text_document(self.open.get(path) or path.as_uri()).lines
        return lsp.TextEdit(lsp.Range(lsp.Position(0, 0), lsp.Position(len(lines), 0)), text)

    # --- beside the text

    async def hints(self, uri: str) -> list[tuple[lsp.Position, Hint]]:
        """The hints of a file, each with the end of its line."""
        checked = await self.current()
        every: list[Hint] = await self._work(lambda: list(hints(checked.outcome))) if checked is not None else []
        found = []
        for hint in every:
            if self.uri(hint.report, hint.origin.path) == uri:
                source = hint.report.project.source(hint.origin.path)
                end = len(source.line(hint.line)) + 1
                found.append((self._position(source, hint.line, end), hint))
        return found

    async def lenses(self, uri: str) -> list[Lens]:
        """The lenses of a file."""
        checked = await self.current()
        every = list(lenses(checked.outcome)) if checked is not None else []
        return [one for one in every if self.uri(one.report, one.path) == uri]

    async def hover(self, uri: str, position: lsp.Position) -> lsp.Hover | None:
        """The parts, on a line that moves the peak. The text is plain: a model's name is no markup."""
        for end, hint in await self.hints(uri):
            if end.line == position.line:
                return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.PlainText, hint.details))
        return None


def _placed(one: tuple[Report, Finding]) -> tuple[Report, Finding]:
    """A finding without a place is shown at the start of the first file that it is about."""
    report, finding = one
    about = report.files[:1] if finding.study is None else report.studies[finding.study].study.paths[:1]
    if finding.origin is not None or not about:
        return one
    return report, replace(finding, origin=Origin(about[0], Span(0, 0)))


def _of_check(where: lsp.Range, said: str, severity: lsp.DiagnosticSeverity) -> lsp.Diagnostic:
    """What is wrong with the check itself."""
    return lsp.Diagnostic(where, said, severity=severity, code="not-checked", source="preflight")


def _wanted(kind: str, only: Iterable[str] | None) -> bool:
    """Whether the client asks for a kind of action, by it or by what it is a part of."""
    return only is None or any(kind == one or kind.startswith(f"{one}.") for one in only)


def _touch(one: lsp.Range, other: lsp.Range) -> bool:
    return bool(one.start.line <= other.end.line and other.start.line <= one.end.line)


def made() -> LanguageServer:
    """The server, with its session."""
    server = LanguageServer("preflight", __version__)
    session = Session(server)

    def path_of(uri: str) -> Path | None:
        name = uris.to_fs_path(uri) if uri.startswith("file:") else None
        return real(Path(name)) if name else None

    def opened(given: lsp.DidOpenTextDocumentParams) -> None:
        path = path_of(given.text_document.uri)
        if path is not None:
            session.open[path] = given.text_document.uri
            session.changed()

    def edited(given: lsp.DidChangeTextDocumentParams) -> None:
        session.changed(elsewhere=len(session.open) > 1)

    def saved(given: lsp.DidSaveTextDocumentParams) -> None:
        session.changed(forget=given.text_document.uri.endswith(_SETTINGS))

    def closed(given: lsp.DidCloseTextDocumentParams) -> None:
        session.open = {path: uri for path, uri in session.open.items() if uri != given.text_document.uri}
        session.changed()

    def written(given: lsp.DidChangeWatchedFilesParams) -> None:
        session.changed(forget=any(one.uri.endswith(_SETTINGS) for one in given.changes))

    async def actions(given: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        return await session.actions(given)

    async def hover(given: lsp.HoverParams) -> lsp.Hover | None:
        return await session.hover(given.text_document.uri, given.position)

    async def inlay(given: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        found = await session.hints(given.text_document.uri)
        start, end = given.range.start.line, given.range.end.line
        return [
            lsp.InlayHint(at, hint.label, tooltip=hint.details, padding_left=True)
            for at, hint in found
            if start <= at.line <= end
        ]

    async def lens(given: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        start = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
        return [
            lsp.CodeLens(start, lsp.Command(one.label, "")) for one in await session.lenses(given.text_document.uri)
        ]

    kinds = lsp.CodeActionOptions([lsp.CodeActionKind.QuickFix, FIX_ALL])
    server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)(opened)
    server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)(edited)
    server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)(saved)
    server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)(closed)
    server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)(written)
    server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, kinds)(actions)
    server.feature(lsp.TEXT_DOCUMENT_HOVER)(hover)
    server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)(inlay)
    server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)(lens)
    return server


def serve() -> None:
    """Answers the client on standard input and output until it says goodbye."""
    made().start_io()
