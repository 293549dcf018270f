"""The incidents as a user would run them: copied to a place of their own, checked through the command line."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from fcntl import LOCK_EX, flock
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples" / "incidents"
GIB = 2**30
Json = dict[str, Any]
SHARED: list[Path] = []
"""The folder of what is made once in a run of the tests: its last item (`conftest.py`)."""


@dataclass(frozen=True)
class Outcome:
    """What one `preflight check --output-format json` said."""

    status: int
    report: Json

    def named(self, rule: str) -> list[Json]:
        """Findings of one rule."""
        return [finding for finding in self.report["findings"] if finding["rule"] == rule]

    @property
    def rules(self) -> set[str]:
        return {finding["rule"] for finding in self.report["findings"]}

    @property
    def errors(self) -> list[tuple[str, str]]:
        """Rule and message of each error, for an assertion that shows them."""
        found = self.report["findings"]
        return [(finding["rule"], finding["message"]) for finding in found if finding["severity"] == "error"]

    @property
    def unsafe(self) -> int:
        """Combinations that exceed or are at risk, over all studies."""
        return sum(study["unsafe"] for study in self.report["studies"])

    def study(self) -> Json:
        """The only study."""
        [study] = self.report["studies"]
        return dict(study)


@dataclass(frozen=True)
class Room:
    """A copy of one incident's files."""

    root: Path

    def check(self, *options: str) -> Outcome:
        """Runs `preflight check` on the whole directory."""
        status, text = self.output("--output-format", "json", *options)
        assert text.startswith("{"), text
        return Outcome(status, json.loads(text))

    def output(self, *options: str) -> tuple[int, str]:
        """Exit status and standard output of `preflight check` in the directory."""
        from preflight.cli import run

        before, written = Path.cwd(), io.StringIO()
        os.chdir(self.root)
        try:
            with redirect_stdout(written):
                status = run(["check", ".", *options])
        finally:
            os.chdir(before)
        return status, written.getvalue()

    def texts(self) -> dict[str, str]:
        """Every file's text by its name."""
        return {path.relative_to(self.root).as_posix(): path.read_text() for path in files(self.root)}

    def line(self, path: str, number: int) -> str:
        """A line of a file, counted from 1."""
        return (self.root / path).read_text().splitlines()[number - 1]


def files(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*")) if path.is_file())


def open_room(name: str, target: Path, repaired: bool = False) -> Room:
    """A copy of the incident as it happened, or with the files of `repaired/` in place of its own."""
    source, root = EXAMPLES / name, target / name
    shutil.copytree(source, root, ignore=shutil.ignore_patterns("repaired", "README*"))
    if repaired:
        shutil.copytree(source / "repaired", root, dirs_exist_ok=True)
    return Room(root)


@lru_cache(maxsize=64)
def checked(name: str, *options: str, repaired: bool = False) -> Outcome:
    """What a check of an incident says, as it happened or as it was repaired; made once, for no test changes it."""

    def make() -> Json:
        with TemporaryDirectory() as folder:
            return asdict(open_room(name, Path(folder), repaired).check(*options))

    return Outcome(**made_once(["checked", name, repaired, *options], make))


@dataclass(frozen=True)
class Fixed:
    """An incident before a fix, after it, and after the same fix once more, with what the last check said."""

    before: dict[str, str]
    once: dict[str, str]
    twice: dict[str, str]
    left: Outcome


@lru_cache(maxsize=64)
def fixed(name: str, option: str, *options: str) -> Fixed:
    """An incident with its fixes written twice; made once, for no test changes it."""

    def make() -> Json:
        with TemporaryDirectory() as folder:
            room = open_room(name, Path(folder))
            before = room.texts()
            room.check(option, *options)
            once = room.texts()
            left = room.check(option, *options)
            return asdict(Fixed(before, once, room.texts(), left))

    found = made_once(["fixed", name, option, *options], make)
    return Fixed(**{**found, "left": Outcome(**found["left"])})


def made_once(key: list[object], make: Callable[[], Json]) -> Json:
    """What `make` gives, made by one of the processes that share the tests; the others wait, and read it."""
    path = SHARED[-1] / f"{sha256(json.dumps(key).encode()).hexdigest()}.json"
    with path.open("a+", encoding="utf-8") as file:
        flock(file, LOCK_EX)  # until the file is closed
        file.seek(0)
        text = file.read()
        if not text:
            text = json.dumps(make())
            file.write(text)
        found: Json = json.loads(text)
        return found


def changed_lines(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    """For each file that differs, its lines before and after; lines are only ever replaced by a fix of a value."""
    found: dict[str, list[tuple[str, str]]] = {}
    assert before.keys() == after.keys()
    for name, text in before.items():
        old, new = text.splitlines(keepends=True), after[name].splitlines(keepends=True)
        if old != new:
            assert len(old) == len(new), f"lines came or went in {name}"
            found[name] = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    return found
