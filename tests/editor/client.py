"""A small client of `preflight lsp`: the real process, its messages as they are on the wire."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from processes import HANGS


class Client:
    """Starts the server in a folder and says hello. `wait` returns the diagnostics that follow a change."""

    def __init__(self, root: Path, encodings: tuple[str, ...] = ("utf-16",)) -> None:
        self.root = root
        self.process = subprocess.Popen(
            [sys.executable, "-m", "preflight", "lsp"], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.published: dict[str, list[dict[str, Any]]] = {}
        self._number = 0
        threading.Thread(target=self._read, daemon=True).start()
        capabilities = {"general": {"positionEncodings": list(encodings)}}
        hello = {"processId": None, "rootUri": root.as_uri(), "capabilities": capabilities}
        self.capabilities = self.ask("initialize", hello)["capabilities"]
        self.tell("initialized", {})

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while header := stream.readline():
            length = 0
            while header.strip():
                name, _, value = header.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
                header = stream.readline()
            self.answers.put(json.loads(stream.read(length)))

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def tell(self, method: str, parameters: object) -> None:
        self._send({"method": method, "params": parameters})

    def ask(self, method: str, parameters: object) -> Any:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": parameters})
        while True:
            answer = self._next()
            if answer.get("id") == self._number and "method" not in answer:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        message = self.answers.get(timeout=HANGS)
        if message.get("method") == "textDocument/publishDiagnostics":
            self.published[message["params"]["uri"]] = message["params"]["diagnostics"]
        return message

    def uri(self, name: str) -> str:
        return (self.root / name).as_uri()

    def open(self, name: str, text: str) -> None:
        document = {"uri": self.uri(name), "languageId": "yaml", "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": document})

    def change(self, name: str, version: int, *changes: dict[str, Any]) -> None:
        document = {"uri": self.uri(name), "version": version}
        self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": list(changes)})

    def settled(self, name: str) -> list[dict[str, Any]]:
        """The diagnostics of a file for its text as it is now: an answer about it comes after them."""
        self.ask("textDocument/codeLens", {"textDocument": {"uri": self.uri(name)}})
        return self.published.get(self.uri(name), [])

    def actions(self, name: str, line: int, *only: str) -> list[dict[str, Any]]:
        spot = {"line": line, "character": 0}
        context = {"diagnostics": [], **({"only": list(only)} if only else {})}
        where = {"textDocument": {"uri": self.uri(name)}, "range": {"start": spot, "end": spot}, "context": context}
        return list(self.ask("textDocument/codeAction", where) or [])

    def close(self) -> None:
        self.ask("shutdown", None)
        self.tell("exit", None)
        assert self.process.wait(HANGS) == 0
