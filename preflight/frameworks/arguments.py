"""Arguments of a trainer by name, each with its place: those of a file, and those of the command that starts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.documents.document import TreeDocument
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Word
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Route, Unknown, Value, evaluate, names


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
    """One mapping of arguments; an empty key (`deepspeed:`) is as if it were not there.

    `given` are values of the command line, by dotted names, which come before the file's.
    """

    def __init__(
        self, document: TreeDocument | None, top: Mapping[str, Value], at: Route = (),
        given: Mapping[str, Expr] | None = None,
    ) -> None:  # fmt: skip
        self.document, self.top, self.at = document, top, at
        self.given = dict(given or {})

    def __contains__(self, name: str) -> bool:
        if name in self.given:
            return self.value(name) is not None
        return self.top.get(name) is not None

    def value(self, name: str) -> Value:
        """The plain value of a key, None where it is not there; Unknown where it depends on something else."""
        expr = self.given.get(name)
        if expr is None:
            return self.top.get(name)
        return Unknown("it is set elsewhere", Cause.not_read) if any(True for _ in names(expr)) else evaluate(expr)

    def some(self, name: str) -> bool:
        """Whether a key has a value that is more than a no; one that cannot be known counts."""
        value = self.value(name)
        return isinstance(value, Unknown) or bool(value)

    def get(self, name: str, default: Value = None) -> Expr:
        """The value with its place; the default has none."""
        if name in self.given:
            return self.given[name]
        if name not in self:
            return Const(default)
        return Const(self.top[name], self.origin(name))

    def origin(self, name: str) -> Origin | None:
        """Where the value of a key is written."""
        given = self.given.get(name)
        if given is not None:
            return given.origin
        route = (*self.at, name)
        return self.document.origin(route) if self.document is not None and self.document.has(route) else None

    def inner(self, name: str) -> Arguments:
        """A nested mapping (empty where there is none)."""
        nested, prefix = self.top.get(name), f"{name}."
        given = {key.removeprefix(prefix): expr for key, expr in self.given.items() if key.startswith(prefix)}
        return Arguments(self.document, nested if isinstance(nested, Mapping) else {}, (*self.at, name), given)

    def all(self) -> dict[str, Expr]:
        """Every key that has a value, those of mappings by dotted names as well."""
        found = {name: self.get(name) for name in (*self.top, *self.given) if name in self}
        for name, value in self.top.items():
            if isinstance(value, Mapping) and name not in self.given:
                found |= {f"{name}.{key}": expr for key, expr in self.inner(name).all().items()}
        return found


def given_by(words: Sequence[Word]) -> dict[str, Expr]:
    """What a command line says by name: `--a.b 1`, `--a=1`, `--flag`, `a.b=1`; several values make a list.

    Names have underscores for hyphens, as every parser of these tools has them; texts are read as YAML scalars.
    """
    found: dict[str, Expr] = {}
    last: str | None = None
    several: list[Expr] = []
    for word in words:
        name = word.prefix.lstrip("+-~").rstrip("=").replace("-", "_")
        if word.prefix.startswith("-") and name and not _is_number(word.prefix):
            last, several = name, []
            if word.value is not None:
                found[name] = _read(word.value)
                last = None
            else:
                found[name] = Const(True, word.origin)  # until a value follows
        elif word.prefix.endswith("=") and word.value is not None:
            found[name] = _read(word.value)
            last = None
        elif last is not None:
            several.append(_read(word.value if word.value is not None else Const(word.prefix, word.origin)))
            found[last] = several[0] if len(several) == 1 else Op("tuple", tuple(several), several[0].origin)
    return {name: _whole(expr) for name, expr in found.items()}


def _is_number(text: str) -> bool:
    return text[1:2].isdigit()


def _whole(expr: Expr) -> Expr:
    """A list of constants as one constant."""
    if isinstance(expr, Op) and expr.operator == "tuple" and not any(True for _ in names(expr)):
        return Const(evaluate(expr), expr.origin)
    return expr


def _read(expr: Expr) -> Expr:
    """A word's text as the scalar that it spells; what depends on the shell stays as it is."""
    if not isinstance(expr, Const) or not isinstance(expr.value, str):
        return expr
    return Const(read_scalar(expr.value), expr.origin)


def read_scalar(text: str) -> Value:
    """`true`, `8`, `2e-5`, `null`, `[a, b]` as YAML has them; anything else is text."""
    import yaml

    if not text or text[0] in "!&*|>%@`'\"{" or len(text) > 4096:
        return text
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    if isinstance(value, list):
        plain = all(isinstance(one, (str, int, float, bool)) for one in value)
        return tuple(value) if plain else text
    return value if isinstance(value, (bool, int, float)) or value is None else text
