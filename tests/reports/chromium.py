"""Debian's Chromium, driven by its own driver over WebDriver: no package of Python is needed."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from processes import HANGS

AXE = "PREFLIGHT_AXE"
"""The path of axe-core's axe.min.js (npm install --prefix tests/reports/browser)."""
HERE = Path(__file__).parent / "browser" / "node_modules" / "axe-core" / "axe.min.js"
KEYS = {"Tab": "\ue004", "Down": "\ue015", "Enter": "\ue007", "Space": " ", "PageDown": "\ue00f"}


def missing() -> str:
    """Why no browser can be driven here; "" where one can."""
    absent = [name for name in ("chromium", "chromedriver") if which(name) is None]
    return f"{' and '.join(absent)} not installed (Debian: apt-get install chromium chromium-driver)" if absent else ""


def axe() -> str:
    """The text of axe-core; skips the test where it is not installed."""
    file = Path(os.environ.get(AXE) or HERE)
    if not file.is_file():
        pytest.skip(f"axe-core is not installed: npm install --prefix tests/reports/browser, or {AXE}=axe.min.js")
    return file.read_text(encoding="utf-8")


class Chromium:
    """A window without a screen. `requests`: the addresses that it asked for."""

    def __init__(self, dark: bool = False, width: int = 1100, height: int = 900) -> None:
        self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        assert self._driver.stdout is not None
        port = None
        while port is None:
            line = self._driver.stdout.readline()
            assert line, "chromedriver ended"
            found = re.search(r"successfully on port (\d+)", line)
            port = found[1] if found else None
        self._base = f"http://127.0.0.1:{port}/session"
        words = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--window-size={width},{height}",
        ]
        words += ["--disable-background-networking", "--disable-component-update", "--no-first-run"]
        always = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": words, "binary": str(which("chromium"))},
            "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
        }
        made = self._ask("POST", "", {"capabilities": {"alwaysMatch": always}})
        self._base += f"/{made['sessionId']}"
        if dark:
            self.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        asked = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=HANGS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from error

    def tell(self, command: str, **parameters: object) -> Any:
        """A command of Chromium's own protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, file: Path) -> None:
        self._ask("POST", "/url", {"url": file.as_uri()})

    def run(self, script: str, *given: object) -> Any:
        """The value that a script returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(given)})

    def wait(self, script: str, *given: object) -> Any:
        """The value that a script passes to its last argument."""
        return self._ask("POST", "/execute/async", {"script": script, "args": list(given)})

    def press(self, *keys: str) -> None:
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def picture(self, file: Path) -> None:
        """The whole page as a PNG."""
        size = self.tell("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = self.tell("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(found["data"]))

    def printed(self, file: Path) -> None:
        """The page as a PDF, as the browser prints it."""
        file.write_bytes(base64.b64decode(self._ask("POST", "/print", {"background": True})))

    def requests(self) -> list[str]:
        """Every address that was asked for since the last call."""
        entries = [
            json.loads(one["message"])["message"] for one in self._ask("POST", "/se/log", {"type": "performance"})
        ]
        return [one["params"]["request"]["url"] for one in entries if one["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """What the console says, such as a refusal of the policy."""
        return [one["message"] for one in self._ask("POST", "/se/log", {"type": "browser"})]

    def tree(self) -> list[tuple[str, str]]:
        """(role, name) of everything that a screen reader meets, in its order."""
        nodes = self.tell("Accessibility.getFullAXTree")["nodes"]
        shown = (node for node in nodes if not node.get("ignored"))
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in shown]

    def close(self) -> None:
        try:
            self._ask("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(HANGS)
