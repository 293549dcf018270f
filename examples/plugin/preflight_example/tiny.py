"""Files of a made-up trainer: a first line `# tiny 1`, then lines `key = value`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.api import Binding, Call, Const, Fact, Origin, Problem, Project, Reading, Source, Span

NAME = "tiny"
SUFFIXES = (".tiny",)

FIELDS = {
    "model": "model.name",
    "batch": "train.batch_size",
    "length": "train.seq_len",
    "optimizer": "train.optimizer",
    "gpu": "machine.gpu",
}
NUMBERS = ("batch", "length")
_LINE = re.compile(r"^(\w+) *= *(.*?) *$", re.MULTILINE)


def recognises(source: Source, project: Project) -> bool:
    """Its first line says so."""
    return source.text.startswith("# tiny 1\n")


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """A binding for each line; what is no line of the format is a problem at its place."""
    found = [*_lines(source)]
    return Reading(
        source.path,
        NAME,
        bindings=tuple(one for one in found if isinstance(one, Binding)),
        problems=tuple(one for one in found if isinstance(one, Problem)),
        facts=(Fact("framework", "hand-written"), Fact("reads_config", True)),
    )


def _lines(source: Source) -> Iterator[Binding | Problem]:
    for match in _LINE.finditer(source.text):
        key, text = match[1], match[2]
        place = Origin(source.path, Span(*match.span(2)), editable=False)
        if key not in FIELDS:
            yield Problem("invalid-config", f"tiny has no key {key}", Origin(source.path, Span(*match.span(1))))
        elif key not in NUMBERS:
            yield Binding(FIELDS[key], Const(text, place), origin=place)
        elif text.isdigit():
            yield Binding(FIELDS[key], Const(int(text), place), origin=place)
        else:
            yield Problem("invalid-config", f"{key} is not a whole number", place)
