"""Reader of justfiles: the programs that the recipes start, with the variables and the default arguments of the file.

Source: the manual of just 1.40, "Expressions and Substitutions", "Recipe Parameters", "Shebang Recipes". Nothing is
run: backticks and functions are unknown, but for the default of `env_var_or_default` and `env`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from preflight.dialects.recipes.reader import STARTS, Recipe, joined, reading, starts
from preflight.vocabulary.budgets import RECIPE_DEPTH
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Reading
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Ref, Span, unknown

NAME = "justfile"
_READ: CacheKind[Reading] = CacheKind("a justfile, read")

_ASSIGNMENT = re.compile(r"(?P<export>export\s+)?(?P<name>[A-Za-z_][\w-]*)\s*:=\s*(?P<value>.*)")
_HEAD = re.compile(r"@?(?P<name>[A-Za-z_][\w-]*)(?P<parameters>[^:]*(?:'[^']*'|\"[^\"]*\"|[^:'\"])*?):(?!=)")
_PARAMETER = re.compile(
    r"(?P<kind>[*+$]*)(?P<name>[A-Za-z_][\w-]*)(?:=(?P<value>'[^']*'|\"[^\"]*\"|[\w./-]+|\([^)]*\)))?"
)
_TOKEN = re.compile(
    r"\s*(?:(?P<string>'[^']*'|\"[^\"\\]*\")|(?P<env>env(?:_var_or_default)?)\(\s*['\"](?P<variable>\w+)['\"]\s*,\s*"
    r"(?P<default>'[^']*'|\"[^\"\\]*\")\s*\)|(?P<name>[A-Za-z_][\w-]*)(?!\()|(?P<plus>\+))\s*"
)
_HOLE = re.compile(r"\{\{(?!\{)(?P<inside>[^{}]*)\}\}")


def recognises(source: Source, project: Project) -> bool:
    """Whether a recipe starts a program of the project."""
    if STARTS.search(source.text) is None:
        return False
    return starts(lambda: read(source, None, project), project)


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """Links to the programs that the recipes start. Raises DocumentError."""
    return project.remembered.get(_READ, lambda: _read(source, project), source.path)


def _read(source: Source, project: Project) -> Reading:
    justfile = Justfile(source)
    return reading(source, NAME, justfile.recipes(), project)


class Line(Struct, frozen=True):
    """A logical line of the file at its place."""

    text: str
    start: int


class Justfile(Struct):
    """What a justfile states."""

    source: Source
    exported: dict[str, Expr] = field(default_factory=dict)
    _texts: dict[str, Line] = field(default_factory=dict)
    _named_values: dict[tuple[str, int], Expr] = field(default_factory=dict)
    """Values of variables by name and depth. Variables that double each other would be read a million times."""

    def recipes(self) -> Iterator[Recipe]:
        """The recipes. The variables of the whole file are known in each of them."""
        found: list[tuple[Mapping[str, Expr], list[Line]]] = []
        heads: list[tuple[re.Match[str], int, list[Line]]] = []
        for line in self._lines():
            if line.text[:1] in (" ", "\t"):
                if heads:
                    heads[-1][2].append(line)
                continue
            assigned = _ASSIGNMENT.match(line.text)
            if assigned:
                self._texts[assigned["name"]] = Line(assigned["value"], line.start + assigned.start("value"))
                if assigned["export"]:
                    self.exported[assigned["name"]] = Const("")
            elif not line.text.startswith(("#", "set ", "alias ", "import ", "mod ", "[")):
                head = _HEAD.match(line.text)
                if head:
                    heads.append((head, line.start, []))
        variables = {name: self._variable(name, 0) for name in self._texts}
        found = [
            ({**variables, **dict(self._parameters(head, start, variables))}, lines) for head, start, lines in heads
        ]
        environment = {name: variables[name] for name in self.exported}
        for known, lines in found:
            scripts = tuple(self._scripts(lines, known))
            if scripts:
                yield Recipe(scripts, environment=environment)

    def _lines(self) -> Iterator[Line]:
        start = 0
        for match in re.finditer(r"(?:[^\\\n]|\\.)*(?:\n|\Z)", self.source.text, re.DOTALL):
            if match.group().strip():
                yield Line(match.group().rstrip("\r\n"), start)
            start = match.end()

    def _parameters(self, head: re.Match[str], start: int, variables: Mapping[str, Expr]) -> Iterator[tuple[str, Expr]]:
        at = start + head.start("parameters")
        for match in _PARAMETER.finditer(head["parameters"]):
            origin = self._origin(at + match.start(), at + match.end())
            name, value = match["name"], match["value"]
            if value is None or match["kind"]:
                words = f"{name} is an argument of the recipe"
                yield name, unknown(words, origin, Cause.not_set)
            else:
                known = self._value(Line(value, at + match.start("value")), variables, 0)
                yield name, Op("default", (Ref(name, origin), known), origin)

    def _value(self, text: Line, known: Mapping[str, Expr], depth: int) -> Expr:
        """The value of an expression: strings and names that are joined with `+`."""
        parts: list[Expr] = []
        at = 0
        while at < len(text.text):
            token = _TOKEN.match(text.text, at)
            if token is None or token.end() == at:
                comment = text.text[at:].lstrip().startswith("#")
                if comment and parts:
                    break
                where = self._origin(text.start, text.start + len(text.text))
                return unknown(f"{text.text[:40]} is not followed", where)
            parts += self._token(token, text, known, depth)
            at = token.end()
        return joined(parts or [Const("")], self._origin(text.start, text.start + len(text.text)))

    def _token(self, token: re.Match[str], text: Line, known: Mapping[str, Expr], depth: int) -> Iterator[Expr]:
        if token["string"] is not None:
            start = text.start + token.start("string")
            yield Const(token["string"][1:-1], self._origin(start + 1, start + len(token["string"]) - 1))
        elif token["env"] is not None:
            start = text.start + token.start("default")
            default = Const(token["default"][1:-1], self._origin(start + 1, start + len(token["default"]) - 1))
            yield Op("default", (Ref(token["variable"], default.origin), default), default.origin)
        elif token["name"] is not None:
            yield self._named(
                token["name"],
                self._origin(text.start + token.start("name"), text.start + token.end("name")),
                known,
                depth,
            )

    def _variable(self, name: str, depth: int) -> Expr:
        """The value of a variable of the file, from the other variables of the file alone."""
        key = name, depth
        if key not in self._named_values:
            self._named_values[key] = self._value(self._texts[name], {}, depth)
        return self._named_values[key]

    def _named(self, name: str, origin: Origin, known: Mapping[str, Expr], depth: int) -> Expr:
        if name in known:
            return known[name]
        if name in self._texts and depth < RECIPE_DEPTH:
            return self._variable(name, depth + 1)
        return unknown(f"{name} is not set in the justfile", origin, Cause.not_set)

    def _scripts(self, lines: list[Line], known: Mapping[str, Expr]) -> Iterator[Expr]:
        """The texts that shells get: one for each line, or the whole body of a shell script."""
        if not lines:
            return
        first = lines[0].text.strip()
        if first.startswith("#!"):
            if re.search(r"\b(bash|sh|zsh)\b", first):
                body = [part for line in lines for part in (*self._parts(line, known), Const("\n"))]
                yield joined(body, None)
            return
        for line in lines:
            yield joined(list(self._parts(line, known)) or [Const("")], None)

    def _parts(self, line: Line, known: Mapping[str, Expr]) -> Iterator[Expr]:
        start = len(line.text) - len(line.text.lstrip(" \t@-"))
        at = start
        for hole in _HOLE.finditer(line.text, start):
            if hole.start() > at:
                yield self._constant(line, at, hole.start())
            yield self._value(Line(hole["inside"].strip(), line.start + hole.start("inside")), known, 0)
            at = hole.end()
        if at < len(line.text):
            yield self._constant(line, at, len(line.text))

    def _constant(self, line: Line, start: int, end: int) -> Const:
        return Const(line.text[start:end], self._origin(line.start + start, line.start + end))

    def _origin(self, start: int, end: int) -> Origin:
        return Origin(self.source.path, Span(start, end), editable=False)
