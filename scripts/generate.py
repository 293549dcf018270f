"""Writes the files that are made from the code: settings schema, rule pages, reference pages, outputs shown in pages.

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

In a tutorial (docs/tutorials) the commands run one after another in a directory of its own: see scripts/tutorials.py.
The picture of a terminal and the rules in the navigation of the site are made here, too.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import json_contract  # noqa: E402
import picture  # noqa: E402
import reference  # noqa: E402
import results  # noqa: E402
import tutorials  # noqa: E402

SCHEMA = "preflight.schema.json"
RULES = "docs/rules"
TUTORIALS = "docs/tutorials"
PICTURE = "docs/terminal.svg"
SITE = "mkdocs.yml"
PUBLIC_RUNS = "benchmarks/accuracy/public.json"
_BLOCK = re.compile(r"(<!-- (output|file|table): ([^\n]+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_MIB = 2**20
_ENDS = ("low", "expected", "high")
_SITE_RULES = re.compile(
    r"(?<=# rules: made by scripts/generate.py\n).*?(?=^ *# end of rules)", re.DOTALL | re.MULTILINE
)


def generated(only: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Path and text of every generated file, or of some."""
    if not only or SCHEMA in only:
        yield SCHEMA, schema()
    if not only or any(path.startswith(json_contract.FOLDER) for path in only):
        yield from (made for made in json_contract.schemas() if not only or made[0] in only)
    if not only or any(path.startswith(f"{RULES}/") for path in only):
        yield from (made for made in rule_pages() if not only or made[0] in only)
    if not only or SITE in only:
        yield SITE, site((ROOT / SITE).read_text(encoding="utf-8"))
    if not only or PICTURE in only:
        yield PICTURE, picture.terminal(picture.COMMAND, run(shlex.split(picture.COMMAND)[1:], coloured=True))
    for path in documents():
        if not only or path in only:
            yield path, as_of_today(path, (ROOT / path).read_text(encoding="utf-8"))


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
    guide = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return ["README.md", *(path for path in guide if not path.startswith(f"{RULES}/"))]


def site(text: str) -> str:
    """The configuration of the site with today's rules in its navigation."""
    from preflight.engine.registry import rules

    return _SITE_RULES.sub("".join(f"      - rules/{name}.md\n" for name in rules()), text)


def as_of_today(path: str, text: str) -> str:
    """A page as its commands, files and tables are today."""
    return (
        tutorials.played(text, [sys.executable, "-m", "preflight"])
        if path.startswith(TUTORIALS)
        else with_outputs(text)
    )


def with_outputs(text: str) -> str:
    """The text with every block as its command, file or table is today."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{_MADE[match[2]](match[3])}\n{match[4]}", text)


def shown_file(path: str) -> str:
    """A file as a fenced block."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return f"```{Path(path).suffix.lstrip('.')}\n{text.rstrip()}\n```\n"


def table(name: str) -> str:
    """A table by its name."""
    return TABLES[name]()


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


TABLES: dict[str, Callable[[], str]] = {
    "accuracy": accuracy,
    "api": reference.api,
    "commands": reference.commands,
    "dry-runs": results.dry_runs,
    "figures": results.figures,
    "held-out": results.held_out,
    "intervals": results.intervals,
    "jobs": reference.jobs,
    "json": json_contract.tables,
    "repositories": results.repositories,
    "settings": reference.settings,
    "versions": reference.versions,
    "batch-columns": reference.batch_columns,
}


def shown(command: str) -> str:
    """A command and its output as a fenced block."""
    first, *filters = command.split(" | ")
    return tutorials.block(command, tutorials.filtered(run(shlex.split(first)[1:]), filters))


_MADE = {"output": shown, "file": shown_file, "table": table}


def run(arguments: list[str], coloured: bool = False) -> str:
    """What `preflight ARGUMENTS` prints in the repository's root: 100 columns, no CI."""
    from preflight.cli import run as command

    kept, before = dict(os.environ), Path.cwd()
    written = io.StringIO()
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "GITHUB_ACTIONS"):
        os.environ.pop(name, None)
    os.environ["FORCE_COLOR" if coloured else "NO_COLOR"] = "1"
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
