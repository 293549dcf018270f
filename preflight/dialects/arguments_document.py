"""A JSON or YAML file of arguments: values by name, each as a constant with its place."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.documents.base import Source
from preflight.documents.document import TreeDocument
from preflight.project import Project
from preflight.values import Const, Expr, Route, Value


def document_of(source: Source, project: Project) -> TreeDocument:
    """The parsed file, kept per project; YAML 1.1, as yaml.safe_load reads it. Raises DocumentError."""
    key = ("arguments-document", source.path)
    found = project.parsed.get(key)
    if isinstance(found, TreeDocument):
        return found
    if source.path.endswith(".json"):
        from preflight.documents.json import parse_json

        document: TreeDocument = parse_json(source)
    else:
        from preflight.documents.yaml import parse_yaml

        document = parse_yaml(source, "1.1")
    project.parsed[key] = document
    return document


class Arguments:
    """Top-level keys of a file of arguments; an empty key (`deepspeed:`) is as if it were not there."""

    def __init__(self, document: TreeDocument, top: Mapping[str, Value], at: Route = ()) -> None:
        self.document, self.top, self.at = document, top, at

    def __contains__(self, name: str) -> bool:
        return self.top.get(name) is not None

    def value(self, name: str) -> Value:
        """The plain value of a key, None where it is not there."""
        return self.top.get(name)

    def get(self, name: str, default: Value = None) -> Expr:
        """The value with its place; the default has none."""
        if name not in self:
            return Const(default)
        return Const(self.top[name], self.document.origin((*self.at, name)))

    def inner(self, name: str) -> Arguments:
        """A nested mapping (empty where there is none)."""
        nested = self.top.get(name)
        return Arguments(self.document, nested if isinstance(nested, Mapping) else {}, (*self.at, name))

    def all(self) -> dict[str, Expr]:
        """Every key that has a value."""
        return {name: self.get(name) for name in self.top if name in self}
