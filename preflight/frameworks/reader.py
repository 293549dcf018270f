"""Files of arguments that a trainer reads: `tables/` has one table for each kind of file.

Arguments on the command line win over those in the file.
"""

from __future__ import annotations

from collections.abc import Mapping

from preflight.frameworks.arguments import after_unread_words, arguments_of, document_of, given_by
from preflight.frameworks.table import Table, heads
from preflight.program.rows import function
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Fact, Problem, Reading
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Const, Origin, Value

NAME = "transformers_args"


def recognises(source: Source, project: Project) -> bool:
    """A mapping whose keys are those of one of the kinds."""
    if not any(word in source.text for head in heads().values() for word in head.words):
        return False
    try:
        top = document_of(source, project).value()
    except DocumentError:
        return False
    return isinstance(top, Mapping) and kind_of(top) is not None


def kind_of(top: Mapping[str, Value]) -> str | None:
    """The kind of the file, by its keys; None for another file."""
    return next((kind for kind, head in heads().items() if _fits(top, head)), None)


def told_kind(call: Call | None) -> str | None:
    """The kind that the command of a tool says its file has, whatever the keys."""
    from preflight.frameworks.commands import KIND

    words = call.words if call is not None else ()
    told = next((word.value for word in words if word.prefix == KIND), None)
    value = told.value if isinstance(told, Const) else None
    return value if isinstance(value, str) and value in heads() else None


def _fits(top: Mapping[str, Value], head: Table) -> bool:
    if not head.words:
        return False  # it has a command and no files
    known = all(_has(top, key) for key in head.all_of)
    known = known and all(any(_has(top, key) for key in keys) for keys in head.any_of)
    known = known and not any(_has(top, key) for key in head.none_of)
    return known and (not head.recognises or bool(function(head.recognises)(top)))


def _has(top: Mapping[str, Value], key: str) -> bool:
    """Whether a mapping has a key; a dotted key is one of an inner mapping."""
    first, _, rest = key.partition(".")
    inner = top.get(first)
    return first in top and (not rest or (isinstance(inner, Mapping) and _has(inner, rest)))


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """The reading of the file, by the table of its kind."""
    from preflight.frameworks.launch import launch_bindings, launch_links, visible_gpus, without_launch
    from preflight.frameworks.named_files import folders
    from preflight.frameworks.shared import settle_files
    from preflight.frameworks.table import read as read_table
    from preflight.program.versions import pinned
    from preflight.vocabulary.argv import behind_unread_words

    try:
        document = document_of(source, project)
    except DocumentError as error:
        problem = Problem("invalid-config", error.message, Origin(source.path, error.span))
        return Reading(source.path, NAME, problems=(problem,), trains=False)
    top = document.value()
    kind = (kind_of(top) or told_kind(call)) if isinstance(top, Mapping) else None
    if not isinstance(top, Mapping) or kind is None:
        return Reading(source.path, NAME, trains=False)
    head = heads()[kind]
    starts = head.starts
    given = given_by(call.words) if call is not None and starts and kind != "lightning" else {}
    versions = list(pinned(source.path, project)) if starts and head.command is not None else []
    given |= {one.field: one.expr for one in versions}
    found = read_table(kind, arguments_of(document, top, given))
    settle_files(found, project, folders(source.path, call))
    if call is not None and starts:
        behind = read_table(kind, arguments_of(None, {}, given_by(behind_unread_words(call.words)[1]))).bindings
        found.bindings = after_unread_words(call.words, found.bindings, behind)
    if call is None and starts and head.launched:
        found.bindings = [*without_launch(found), *found.bindings]
    framework = Fact("framework", head.framework)
    facts = (framework, Fact("reads_config", True), *found.facts) if starts else tuple(found.facts)
    bindings = found.bindings
    if starts and call is not None:
        bindings = [*launch_bindings(call, facts, bindings, project), *visible_gpus(None, call)]
    links = [*launch_links(call, project), *found.links] if starts else found.links
    return Reading(
        source.path,
        kind,
        bindings=(*versions, *(visible_gpus(None, call) if starts else ()), *bindings),
        links=tuple(links),
        facts=facts,
        problems=tuple(found.problems),
        trains=starts,
    )
