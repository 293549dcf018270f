"""The little of W&B's server that `wandb agent` asks: who the user is, what the sweep is, and what to run next."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USER = {"id": "1", "entity": "ada", "username": "ada", "email": "", "flags": "{}", "teams": {"edges": []}}


@contextmanager
def serving(sweep: str, runs: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """The address of a server on the loopback address with one sweep (its file) that hands out these runs."""
    left = [
        {"type": "run", "run_id": f"run{number}", "program": "train.py",
         "args": {name: {"value": value} for name, value in one.items()}}
        for number, one in enumerate(runs)
    ]  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Nothing."""

        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers.get("content-length") or 0)).decode(errors="replace")
            text = json.dumps({"data": _answer(asked)}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    def _answer(asked: str) -> Mapping[str, object]:
        if "SweepWithRuns" in asked:
            found = {"id": "s", "name": "s", "state": "RUNNING", "config": sweep, "runs": {"edges": []}}
            return {"project": {"sweep": found}}
        if "createAgent" in asked:
            return {"createAgent": {"agent": {"id": "agent"}}}
        if "agentHeartbeat" in asked:
            running = json.loads(json.loads(asked)["variables"]["runState"])
            commands = [] if running else [left.pop(0) if left else {"type": "exit"}]
            return {"agentHeartbeat": {"agent": {"id": "agent"}, "commands": json.dumps(commands)}}
        return {"viewer": USER}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
