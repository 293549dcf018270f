"""Edits that add a comment, and the proof that a text means the same with it.

Each language is proved by the parser that would notice: YAML by a second parser and by its values, Python by its syntax
tree, scripts by bash's syntax tree and by the directives that sbatch reads. JSON has no comments.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight.documents.layout import line_end, newline_of
from preflight.documents.render import language_of
from preflight.fixes import yaml_round_trip
from preflight.vocabulary.text import DocumentError, Edit, Source, splice
from preflight.vocabulary.values import Span

if TYPE_CHECKING:
    from preflight.documents.bash import BashDocument

_DIRECTIVES = ("#SBATCH", "#SLURM", "#!")
"""Lines that are no comments for those who read them: nothing is written behind them."""


def behind(source: Source, line: int, comment: str) -> Edit | None:
    """`comment` at the end of a line; None where the line is one of directives or goes on."""
    text = source.line(line)
    if text.lstrip().startswith(_DIRECTIVES) or text.rstrip().endswith("\\"):
        return None
    start = source.offset(line, 1) + len(text.rstrip())
    return Edit(source.path, Span(start, line_end(source.text, start)), f"  {comment}")


def above(source: Source, line: int, comment: str) -> Edit | None:
    """`comment` as a line above another, indented like it; None above the first line of a script, which names the
    interpreter, and in a line that goes on."""
    text = source.line(line)
    before = source.line(line - 1) if line > 1 else ""
    if (line == 1 and text.startswith("#!")) or before.rstrip().endswith("\\"):
        return None
    start = source.offset(line, 1)
    indent = text[: len(text) - len(text.lstrip())]
    return Edit(source.path, Span(start, start), f"{indent}{comment}{newline_of(source.text, start)}")


def means_the_same(source: Source, edit: Edit) -> bool:
    """Whether readers of the file find the same in it after an edit that adds a comment."""
    after = Source(source.path, splice(source.text, [edit]), source.bom)
    language = language_of(source.path)
    try:
        if language == "yaml":
            return _same_yaml(source, after, edit)
        if language == "python":
            return ast.dump(ast.parse(source.text)) == ast.dump(ast.parse(after.text))
        return language == "bash" and _same_script(source, after)
    except (DocumentError, SyntaxError, ValueError, MemoryError, RecursionError):
        return False  # what cannot be read cannot be compared


def _same_yaml(before: Source, after: Source, edit: Edit) -> bool:
    from preflight.documents.yaml import parse_yaml

    try:
        yaml_round_trip.prove(before, [edit])
    except yaml_round_trip.Unproved:
        return False
    return parse_yaml(before).value() == parse_yaml(after).value()


def _same_script(before: Source, after: Source) -> bool:
    from preflight.documents.bash import parse_bash, syntax

    if syntax(before.text) != syntax(after.text):
        return False
    old, new = parse_bash(before), parse_bash(after)
    return _directives(old) == _directives(new)


def _directives(found: BashDocument) -> list[tuple[object, ...]]:
    """What sbatch reads, and what it does not."""
    read = [(one.name, one.value, one.component) for one in found.directives]
    return [*read, *((one.reason, one.text) for one in found.ignored_directives)]


def places(source: Source, line: int, end: int, comment: str) -> Iterator[Edit]:
    """The edits that may put a comment beside the lines of a finding, the best first."""
    for number in dict.fromkeys((line, end)):
        found = behind(source, number, comment)
        if found is not None:
            yield found
    found = above(source, line, comment)
    if found is not None:
        yield found
