"""Writes the files that are made from the code: settings schema, rule pages, outputs shown in the README and the guide.

    python scripts/generate.py            writes what is out of date
    python scripts/generate.py --check    writes nothing, exit status 1 if something is out of date

In Markdown files an output stands between two comments, the first naming the command that makes it:

    <!-- output: preflight check examples/first/sweep.yaml -->
    <!-- end -->
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = "preflight.schema.json"
RULES = "docs/rules"
_BLOCK = re.compile(r"(<!-- output: (preflight [^\n]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def generated() -> Iterator[tuple[str, str]]:
    """Path and text of every generated file."""
    yield SCHEMA, schema()
    yield from rule_pages()
    for path in documents():
        yield path, with_outputs((ROOT / path).read_text(encoding="utf-8"))


def schema() -> str:
    """JSON schema of `[tool.preflight]`, as editors take it."""
    from preflight.settings import Settings

    data = Settings.model_json_schema(by_alias=True)
    data = {"$schema": "https://json-schema.org/draft/2020-12/schema", **data, "title": "preflight settings"}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def rule_pages() -> Iterator[tuple[str, str]]:
    """A page per rule, and their list."""
    from preflight.registry import OWN, rules
    from preflight.rulepages import page

    lines = ["# Rules", "", "Made from the rules themselves; `preflight rule NAME` prints the same text.", ""]
    for name, rule in rules().items():
        yield f"{RULES}/{name}.md", page(rule)
        lines.append(f"- [`{name}`]({name}.md): {rule.summary}")
    lines += ["", "Rules of the check itself:", "", *(f"- `{name}`: {text}" for name, text in OWN.items())]
    yield f"{RULES}/index.md", "\n".join(lines) + "\n"


def documents() -> list[str]:
    """Markdown files that may show outputs."""
    guide = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
    return [path for path in ("README.md", *guide) if (ROOT / path).is_file()]


def with_outputs(text: str) -> str:
    """The text with every shown output as its command gives it today."""
    return _BLOCK.sub(lambda match: f"{match[1]}{shown(match[2])}{match[3]}", text)


def shown(command: str) -> str:
    """A command and its output as a fenced block."""
    output = run(shlex.split(command)[1:])
    language = "diff" if "--diff" in command else "json" if output.startswith("{") else "text"
    head = "" if language != "text" else f"$ {command}\n"
    return f"\n```{language}\n{head}{output.rstrip()}\n```\n\n"


def run(arguments: list[str]) -> str:
    """What `preflight ARGUMENTS` prints in the repository's root: no colours, 100 columns, no CI."""
    from preflight.cli import run as command

    kept, before = dict(os.environ), Path.cwd()
    written = io.StringIO()
    for name in ("COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS"):
        os.environ.pop(name, None)
    os.environ["NO_COLOR"] = "1"
    os.chdir(ROOT)
    try:
        with contextlib.redirect_stdout(_Utf8(written)):
            command(arguments)
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(kept)
    return written.getvalue()


class _Utf8(io.TextIOBase):
    """A stream that says it takes any character."""

    encoding = "utf-8"

    def __init__(self, inner: io.StringIO) -> None:
        self._inner = inner

    def write(self, text: str) -> int:
        return self._inner.write(text)


def stale() -> dict[str, str | None]:
    """Files that differ from what the code makes: path -> the text it should have, None for one too many."""
    wanted = dict(generated())
    found: dict[str, str | None] = {}
    for path, text in wanted.items():
        file = ROOT / path
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            found[path] = text
    for file in (ROOT / RULES).glob("*.md"):
        if file.relative_to(ROOT).as_posix() not in wanted:
            found[file.relative_to(ROOT).as_posix()] = None
    return found


def main(arguments: list[str]) -> int:
    """Exit status."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    differing = stale()
    for path, text in sorted(differing.items()):
        print(f"{'out of date' if arguments else 'written'}: {path}")
        if arguments:
            continue
        if text is None:
            (ROOT / path).unlink()
        else:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(text, encoding="utf-8")
    if differing and arguments:
        print("run: python scripts/generate.py")
    return int(bool(differing and arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
