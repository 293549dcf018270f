"""Writes the files that are made from the code: settings schema, rule pages, outputs shown in the README and the guide.

    python scripts/generate.py [--check] [FILE...]    writes what is out of date: everything, or these files alone

With --check nothing is written, and the exit status is 1 if something is out of date.

In Markdown files what is made stands between two comments. The first says what: the output of a command (of which
`head -n N` and `tail -n N` may leave a part), a file, or a table that is made here.

    <!-- output: preflight check examples/readme/sweep.yaml -->
    <!-- end -->
    <!-- output: preflight estimate examples/readme/sweep.yaml | head -n 12 -->
    <!-- end -->
    <!-- file: examples/readme/sweep.yaml -->
    <!-- end -->
    <!-- table: accuracy -->
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
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = "preflight.schema.json"
RULES = "docs/rules"
ACCURACY_PAGE = "docs/accuracy.md"
HOST_PAGE = "docs/host-memory.md"
PUBLIC_RUNS = "benchmarks/accuracy/public.json"
_BLOCK = re.compile(r"(<!-- (output|file|table): ([^\n]+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_MIB = 2**20
_ENDS = ("low", "expected", "high")
_TIERS = ("process", "reserved", "allocated")


def generated(only: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Path and text of every generated file, or of some."""
    if not only or SCHEMA in only:
        yield SCHEMA, schema()
    if not only or any(path.startswith(f"{RULES}/") for path in only):
        yield from (made for made in rule_pages() if not only or made[0] in only)
    for path in documents():
        if not only or path in only:
            yield path, with_outputs((ROOT / path).read_text(encoding="utf-8"))


def schema() -> str:
    """JSON schema of `[tool.preflight]`, as editors take it."""
    from preflight.vocabulary.settings import Settings

    data = Settings.model_json_schema(by_alias=True)
    data = {"$schema": "https://json-schema.org/draft/2020-12/schema", **data, "title": "preflight settings"}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def rule_pages() -> Iterator[tuple[str, str]]:
    """A page per rule, and their list."""
    from preflight.engine.registry import OWN, rules
    from preflight.reports.rule_page import page

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
    """The text with every block as its command, file or table is today."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{_MADE[match[2]](match[3])}\n{match[4]}", text)


def shown_file(path: str) -> str:
    """A file as a fenced block."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return f"```{Path(path).suffix.lstrip('.')}\n{text.rstrip()}\n```\n"


def table(name: str) -> str:
    """A table by its name."""
    return {"accuracy": accuracy, "api": api, "figures": figures}[name]()


_API = {
    "preflight.vocabulary.rule": "A rule and its case",
    "preflight.vocabulary.findings": "Findings",
    "preflight.vocabulary.words": "Words for messages",
    "preflight.fixes": "What an edit could change",
    "preflight.vocabulary.estimates": "Estimates",
    "preflight.memory": "Host memory",
    "preflight.slurm": "SLURM",
    "preflight.space": "Constraints that the user states",
    "preflight": "Studies, jobs and values",
}
"""Where a public name comes from (the first that fits), and what to call that."""


def api() -> str:
    """The names of preflight.api by what they are about, each with the first sentence of its docstring."""
    import inspect

    from preflight import api

    rows: dict[str, list[str]] = {title: [] for title in _API.values()}
    for name in api.__all__:
        found = getattr(api, name)
        if isinstance(found, type) or inspect.isfunction(found):
            home = next(title for start, title in _API.items() if found.__module__.startswith(start))
            text = " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split())
            rows[home].append(f"| `{name}` | {re.split(r'(?<=[.]) (?=[A-Z`])', text)[0]} |")
    tables = (f"**{title}**\n\n| name | what it is |\n|---|---|\n" + "\n".join(held) for title, held in rows.items())
    return "\n\n".join(tables) + "\n"


def figures() -> str:
    """What the measured runs of docs/accuracy.md come to, every tier of every kind of run, and those of a node."""
    kinds: dict[str, dict[str, str]] = {}
    for row in _rows(ACCURACY_PAGE):
        error = "" if row["median error"] == "-" else f"{row['median error']} ({row['p90']}), "
        kinds.setdefault(row["runs"], {})[row["tier"]] = f"{error}{row['answered']}"
    lines = [f"| runs | {' | '.join(_TIERS)} |", "|---" * (1 + len(_TIERS)) + "|"]
    for kind, tiers in sorted(kinds.items()):
        lines.append(f"| {kind} | {' | '.join(tiers.get(tier, '') for tier in _TIERS)} |")
    for row in _rows(HOST_PAGE):
        if row["group"].startswith("**all"):
            host = f"{row['median error']}, {row['worst']} at worst, {row['inside the interval']} in their intervals"
            lines += ["", f"Host memory of loaders and checkpoints: median error {host}."]
    return "\n".join(lines) + "\n"


def _rows(path: str) -> Iterator[dict[str, str]]:
    """Rows of a page's tables of errors; where the page marks a summary, that alone counts."""
    text = (ROOT / path).read_text(encoding="utf-8")
    marked = text.partition("<!-- summary -->")[2].partition("<!-- end of summary -->")[0]
    names: list[str] = []
    for line in (marked or text).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells or not names:
            names = cells
        elif "median error" in names and not set(cells[0]) <= {"-"}:
            # Of columns of the same name the first counts: the later ones are of the groups left out.
            yield dict(reversed([*zip(names, cells, strict=False)]))


def accuracy() -> str:
    """Public measurements of whole processes beside what `preflight estimate` says of them."""
    data = json.loads((ROOT / PUBLIC_RUNS).read_text(encoding="utf-8"))
    lines = [
        "| job | measured, MiB | preflight, MiB | interval | preflight / measured | in the interval |",
        "|---|---|---|---|---|---|",
    ]
    for one in data["runs"]:
        settings = [f"--set={field}={value}" for field, value in (data["set"] | one["set"]).items()]
        answer = run(["estimate", one["target"], "--gpu", one["gpu"], *settings, "--output-format", "json"])
        low, middle, high = (round(json.loads(answer)["device"]["process"][end] / _MIB) for end in _ENDS)
        measured = one["measured_mib"]
        job = ", ".join([one["target"].split(":")[1], *(f"{k.split('.')[1]} {v}" for k, v in one["set"].items())])
        lines.append(
            f"| {job.replace('_size', '')} | {measured:,} | {middle:,} | {low:,} to {high:,} "
            f"| {middle / measured:.2f} | {'yes' if low <= measured <= high else 'no'} |"
        )
    return "\n".join(lines) + "\n"


def shown(command: str) -> str:
    """A command and its output as a fenced block."""
    first, *filters = command.split(" | ")
    output = run(shlex.split(first)[1:])
    for words in map(shlex.split, filters):
        output = _part(output, words)
    language = "diff" if "--diff" in command else "json" if output.startswith("{") else "text"
    head = "" if language != "text" else f"$ {command}\n"
    return f"```{language}\n{head}{output.rstrip()}\n```\n"


def _part(text: str, words: Sequence[str]) -> str:
    """What `head -n N` or `tail -n N` (N > 0) would let through."""
    name, option, count = words
    if name not in ("head", "tail") or option != "-n":
        raise ValueError(f"only head -n N and tail -n N are known here: {shlex.join(words)}")
    lines = text.splitlines(keepends=True)
    return "".join(lines[: int(count)] if name == "head" else lines[-int(count) :])


_MADE = {"output": shown, "file": shown_file, "table": table}


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


def stale(only: Sequence[str] = ()) -> dict[str, str | None]:
    """Files that differ from what the code makes: path -> the text it should have, None for one too many.

    `only`: these files alone. Raises KeyError with those of them that are not made here.
    """
    wanted = dict(generated(only))
    if strangers := set(only) - wanted.keys():
        raise KeyError(", ".join(sorted(strangers)))
    found: dict[str, str | None] = {}
    for path, text in wanted.items():
        file = ROOT / path
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            found[path] = text
    for file in () if only else (ROOT / RULES).glob("*.md"):
        if file.relative_to(ROOT).as_posix() not in wanted:
            found[file.relative_to(ROOT).as_posix()] = None
    return found


def main(arguments: list[str]) -> int:
    """Exit status."""
    check = arguments[:1] == ["--check"]
    only = arguments[check:]
    if any(name.startswith("-") for name in only):
        print(__doc__)
        return 2
    try:
        differing = stale(only)
    except KeyError as error:
        print(f"not made here: {error.args[0]}")
        return 2
    for path, text in sorted(differing.items()):
        print(f"{'out of date' if check else 'written'}: {path}")
        if check:
            continue
        if text is None:
            (ROOT / path).unlink()
        else:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(text, encoding="utf-8")
    if differing and check:
        print("run: python scripts/generate.py")
    return int(bool(differing and check))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
