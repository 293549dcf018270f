"""The pre-commit hook that `preflight init` writes: one more entry of `repos`, all other bytes as they were."""

from __future__ import annotations

from preflight import RELEASE, REPOSITORY
from preflight.documents.document import TreeDocument
from preflight.documents.yaml import parse_yaml
from preflight.engine.init.planned import Plan, Planned, Tree, appended, ending
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Value

FILE = ".pre-commit-config.yaml"
WHAT = "the pre-commit hook"
HOOKS = ("preflight", "preflight-fix")
ENTRY: dict[str, Value] = {"repo": REPOSITORY, "rev": f"v{RELEASE}", "hooks": ({"id": HOOKS[0]},)}
"""The entry as data; `_lines` writes the same."""


def plan(tree: Tree) -> Plan:
    """The hook. Raises UsageError where the configuration is malformed."""
    if not tree.version_controlled:
        return Plan(notes=("hook: this is no Git checkout, so there are no commits to check",))
    path, old, text = tree.read(FILE)
    if old is None or not text.strip():
        return Plan((Planned(FILE, path, old, appended(text, "repos:\n" + _lines("  ")), WHAT),))
    document = parsed(text, FILE)
    if _is_there(document):
        return Plan(notes=(f"hook: {FILE} has it already",))
    new = _with(document, text)
    if new is None:
        return Plan(
            notes=(f"hook: {FILE} has a form that is not edited; add the hook of docs/how-to/pre-commit.md by hand",)
        )
    return Plan((Planned(FILE, path, old, new, WHAT),))


def parsed(text: str, name: str) -> TreeDocument:
    """The document. Raises UsageError with the place where it is malformed."""
    source = Source(name, text)
    try:
        return parse_yaml(source)
    except DocumentError as error:
        line, column = source.line_column(error.span.start)
        raise UsageError(f"{name}:{line}:{column}: {error.message}; nothing was written") from error


def _is_there(document: TreeDocument) -> bool:
    """Whether a hook of preflight is listed, from whatever repository."""
    return any(hook.get("id") in HOOKS for repo in _maps(document.value(), "repos") for hook in _maps(repo, "hooks"))


def _maps(value: Value, key: str) -> list[dict[str, Value]]:
    found = value.get(key) if isinstance(value, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, tuple) else []


def _with(document: TreeDocument, text: str) -> str | None:
    """The text with the entry at the end of `repos`, proved; None where the list has another form."""
    value = document.value()
    if not isinstance(value, dict) or any(note.kind == "several-documents" for note in document.problems):
        return None
    repos = value.get("repos")
    if repos is None and document.root.style == "block":
        new = None if "repos" in value else appended(text, "repos:\n" + _lines("  "))
    elif isinstance(repos, tuple) and document.has(("repos",)):
        new = _listed(document, text)
    else:
        return None
    if new is None:
        return None
    try:
        after = document.reparse(Source(FILE, new)).value()
    except DocumentError:
        return None
    return new if after == {**value, "repos": (*(repos or ()), ENTRY)} else None


def _listed(document: TreeDocument, text: str) -> str | None:
    """The text with the entry behind the last one of a list with a line for each entry, or in place of an empty one."""
    found = document.find(("repos",))
    node = found.node
    if found.shared or not node.items:
        indent = "\n" + _lines("  ").rstrip("\n").replace("\n", ending(text))
        empty = not found.shared and node.style == "flow"
        return (
            text[: node.start].rstrip(" ") + indent.replace("\n", ending(text), 1) + text[node.end :] if empty else None
        )
    if node.style != "block":
        return None
    first = text.rfind("\n", 0, node.start) + 1
    indent = text[first : node.start]
    if indent.strip():  # something else stands on the line of the first dash
        return None
    end = text.find("\n", len(text[: node.end].rstrip()))  # a block text ends behind its line
    newline = ending(text)
    block = _lines(indent).replace("\n", newline)
    return text + newline + block if end < 0 else text[: end + 1] + block + text[end + 1 :]


def _lines(indent: str) -> str:
    return f"{indent}- repo: {REPOSITORY}\n{indent}  rev: v{RELEASE}\n{indent}  hooks:\n{indent}    - id: {HOOKS[0]}\n"
