"""A trainer's command without a file of the project: everything it does stands on its line of a job script."""

from __future__ import annotations

from preflight.dialects.reading import Call, Fact, Reading
from preflight.documents.base import Source
from preflight.project import Project
from preflight.values import Const

NAME = "commands"


def recognises(source: Source, project: Project) -> bool:
    """No file by itself: `preflight.study` hands on the line of a script that has such a command."""
    return False


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """The bindings of the command in `call`: its first word names the reader of its settings."""
    from preflight.dialects import arguments_kinds
    from preflight.dialects.arguments_document import Arguments, given_by
    from preflight.dialects.arguments_found import unread
    from preflight.dialects.program_launch import launch_bindings, launch_links

    words = call.words if call is not None else ()
    kind = words[0].value.value if words and isinstance(words[0].value, Const) else None
    if not isinstance(kind, str) or kind not in arguments_kinds.READERS:
        return Reading(source.path, NAME, trains=False)
    found = arguments_kinds.READERS[kind](Arguments(None, {}, (), given_by(words[1:])))
    found.bindings += unread(found, project)
    facts = (Fact("framework", arguments_kinds.FRAMEWORKS.get(kind, "transformers-trainer")), *found.facts)
    links = (*launch_links(call, project), *found.links)
    bindings = tuple(launch_bindings(call, facts, found.bindings))
    return Reading(source.path, kind, bindings=bindings, links=links, facts=facts, problems=tuple(found.problems))
