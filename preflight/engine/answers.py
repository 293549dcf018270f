"""Writes answers of the user into the settings file. Every other byte of the file stays as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from preflight.engine.settings import FILE, load, toml_of
from preflight.fixes.write import write_text
from preflight.reports.outputs import write_output
from preflight.system import observed
from preflight.vocabulary.errors import SettingsError, UsageError
from preflight.vocabulary.outcome import Question
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings

Answer = str | int | float | bool

_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_PLACES = 400
"""Places of a settings file that are tried for a new line. A file with more is not one that a person wrote."""


def settings_file(root: Path) -> Path:
    """The file that answers about a project are written to: its settings file, or a new preflight.toml."""
    return load(root)[1] or root / FILE


def written(root: Path, answers: Sequence[tuple[Question, Answer]]) -> Path:
    """Adds a line for each answer to the settings file, which is returned. Raises UsageError if one has no place."""
    path = settings_file(root)
    existing = observed.exists(path)
    project = Project(path.parent, Settings())
    old = project.source(path.name).text if existing else ""
    text = old
    for question, answer in answers:
        text = with_line(text, question.key, answer, path.name)
    if existing:
        write_text(project, path.name, text)
    else:
        write_output(path, text)
    return path


def with_line(text: str, key: str, answer: Answer, name: str = FILE) -> str:
    """The text of a settings file with one more line. Raises UsageError if there is no place for it.

    TOML has several spellings of a table. Each possible place is tried, and the first one is taken that adds the
    answer and changes no other value.
    """
    section = "" if name == FILE else "tool.preflight."
    before = _flat(toml_of(text, name))
    wanted = {**before, section + key: answer}
    for candidate in _candidates(text, section, key, json.dumps(answer)):
        try:
            if _flat(toml_of(candidate, name)) == wanted:
                return candidate
        except SettingsError:
            continue
    raise UsageError(f"{name}: there is no place for the line {key} = {json.dumps(answer)}; write it by hand")


def _candidates(text: str, section: str, key: str, value: str) -> Iterator[str]:
    """The text with the line at each possible place, the best first."""
    end = "\r\n" if "\r\n" in text else "\n"
    whole = text if not text or text.endswith("\n") else text + end
    line = f"{key} = {value}{end}"
    tables = [match.start() for match in _TABLE.finditer(whole)][:_PLACES]
    ends = [*tables, len(whole)][1:]
    if not section:  # at the top level: before the first table
        yield _inserted(whole, tables[0] if tables else len(whole), line)
    header, words = section.rstrip("."), key.split(".")
    for depth in range(len(words)):  # in the table of the settings, or in one of theirs: [set], [set.train]
        name = ".".join([*([header] if header else []), *words[:depth]])
        own = f"{'.'.join(words[depth:])} = {value}{end}"
        for start, stop in zip(tables, ends, strict=True):
            if name and re.match(rf"[ \t]*\[[ \t]*{re.escape(name)}[ \t]*\]", whole[start:stop]):
                body = whole[start:stop].rstrip()
                yield _inserted(whole, whole.find("\n", start + len(body)) + 1 or len(whole), own)
                yield _inserted(whole, whole.find("\n", start) + 1 or len(whole), own)
    inner = ".".join(words[1:])
    if inner:  # set = { ... }
        for match in list(re.finditer(r"\}", whole))[:_PLACES]:
            yield f"{whole[: match.start()].rstrip()}, {inner} = {value} {whole[match.start() :]}"
            yield f"{whole[: match.start()].rstrip()} {inner} = {value} {whole[match.start() :]}"
    if header:
        yield f"{whole}{end if whole else ''}[{header}]{end}{line}"


def _inserted(text: str, at: int, line: str) -> str:
    return f"{text[:at]}{line}{text[at:]}"


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Dotted key -> value: what the settings say, whichever way their tables are written."""
    found: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found
