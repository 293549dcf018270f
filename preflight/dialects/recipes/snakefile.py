"""Reader of Snakemake workflows: the programs that the shell lines of rules start, with `params` and the config file.

Source: the Snakemake documentation 8, "Snakefiles and Rules" and "Configuration". A section of a rule is a list of
Python arguments; nothing of it is run: constants, names of constants and `config[...]` have values, and all else is
unknown. Names of files stand for themselves, since no memory depends on them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from preflight.dialects.recipes.reader import STARTS, Recipe, joined, reading, starts
from preflight.documents.yaml import YamlDocument, yaml_of
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.python_grammar import parse_module
from preflight.vocabulary.reading import Call, Reading
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Cause, Const, Expr, Origin, Route, Span, unknown

NAME = "snakefile"
_READ: CacheKind[Reading] = CacheKind("a Snakemake workflow, read")

_RULE = re.compile(r"^(?P<indent>[ \t]*)(?:rule|checkpoint)(?:[ \t]+(?P<name>\w+))?[ \t]*:[^\n]*\n", re.M)
_SECTION = re.compile(r"^(?P<indent>[ \t]+)(?P<name>[a-z]+)[ \t]*:(?P<rest>[^\n]*)\n?", re.M)
_CONFIG = re.compile(r"""^configfile\s*:\s*(?P<quote>["'])(?P<path>[^"'\n]+)(?P=quote)""", re.M)
_CONSTANT = re.compile(r"^(?P<name>[A-Za-z_]\w*)[ \t]*=[ \t]*(?P<value>[^\n#]+)", re.M)
_HOLE = re.compile(r"\{\{|\}\}|\{(?P<name>\w+)(?P<steps>(?:\.\w+|\[[\w.'\"-]+\])*)(?P<format>[:!][^{}]*)?\}")
_STEP = re.compile(r"\.(\w+)|\[['\"]?([\w.-]+)['\"]?\]")
_FILES = ("input", "output", "log", "benchmark")
_SECTIONS = ("params", "threads", "resources", "shell", *_FILES)
MOST_RULES = 200


def recognises(source: Source, project: Project) -> bool:
    """Whether a rule starts a program of the project."""
    if STARTS.search(source.text) is None or "shell" not in source.text:
        return False
    return starts(lambda: read(source, None, project), project)


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """Links to the programs that the rules start. Raises DocumentError."""
    return project.remembered.get(_READ, lambda: _read(source, project), source.path)


def _read(source: Source, project: Project) -> Reading:
    config = _config(source, project)
    reads = (config.source.path,) if config is not None else ()
    names: dict[str, Expr] = {}
    workflow = _Workflow(source, config, names)
    for match in _CONSTANT.finditer(source.text):
        names[match["name"]] = workflow.one(match["value"], match.start("value"))
    return reading(source, NAME, workflow.recipes(), project, reads)


def _config(source: Source, project: Project) -> YamlDocument | None:
    """The file of `configfile:`; it is looked for where the workflow is usually started, and beside it."""
    said = _CONFIG.search(source.text)
    here = PurePosixPath(source.path).parent
    for folder in (PurePosixPath("."), here.parent, here) if said is not None else ():
        path = (folder / said["path"]).as_posix() if said is not None else ""
        if not path.startswith("..") and path.endswith((".yaml", ".yml")) and project.exists(path):
            try:
                return yaml_of(project.source(path), project, "1.2")
            except (DocumentError, UnreadableFile):
                return None  # the values of the file stay unknown
    return None


@dataclass
class _Section:
    """The arguments of a section: by position, and by name."""

    several: list[Expr] = field(default_factory=list)
    named: dict[str, Expr] = field(default_factory=dict)

    def at(self, steps: list[str]) -> Expr | None:
        """The argument behind a name or a number; all of them where no step is left."""
        if not steps:
            every = [*self.several, *self.named.values()]
            return every[0] if len(every) == 1 else None
        if steps[0].isdecimal():
            every = [*self.several, *self.named.values()]
            return every[int(steps[0])] if int(steps[0]) < len(every) else None
        return self.named.get(steps[0])


@dataclass
class _Workflow:
    """A workflow: its text, its config file, and the constants of the file."""

    source: Source
    config: YamlDocument | None
    names: Mapping[str, Expr]

    def recipes(self) -> Iterator[Recipe]:
        """The shell commands of the rules."""
        rules = list(_RULE.finditer(self.source.text))[:MOST_RULES]
        for number, rule in enumerate(rules):
            end = rules[number + 1].start() if number + 1 < len(rules) else len(self.source.text)
            sections = dict(self._sections(rule, end))
            shell = sections.get("shell")
            script = shell.at(["0"]) if shell is not None else None
            if isinstance(script, Const) and isinstance(script.value, str):
                yield Recipe((self._filled(script, sections),))

    def _sections(self, rule: re.Match[str], end: int) -> Iterator[tuple[str, _Section]]:
        text = self.source.text
        heads: list[re.Match[str]] = []
        for match in _SECTION.finditer(text, rule.end(), end):
            if len(match["indent"]) <= len(rule["indent"]):
                break
            if not heads or len(match["indent"]) == len(heads[0]["indent"]):
                heads.append(match)
        for number, head in enumerate(heads):
            if head["name"] in _SECTIONS:
                stop = heads[number + 1].start() if number + 1 < len(heads) else end
                stop = self._dedent(head, stop)
                yield head["name"], self._section(text[head.start("rest") : stop], head.start("rest"))

    def _dedent(self, head: re.Match[str], stop: int) -> int:
        """Where the lines of the last section of a rule end."""
        at = head.end()
        for line in self.source.text[at:stop].splitlines(keepends=True):
            if line.strip() and len(line) - len(line.lstrip()) <= len(head["indent"]) and not self._in_text(head, at):
                return at
            at += len(line)
        return stop

    def _in_text(self, head: re.Match[str], at: int) -> bool:
        """Whether a place is inside a text of three quotes that began in the section."""
        text = self.source.text[head.start("rest") : at]
        return any(text.count(quotes) % 2 for quotes in ('"""', "'''"))

    def _section(self, text: str, start: int) -> _Section:
        try:
            tree = parse_module(f"_(\n{text}\n)")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return _Section()
        call = tree.body[0].value if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr) else None
        if not isinstance(call, ast.Call):
            return _Section()
        place = Origin(self.source.path, Span(start, start + len(text)), editable=False)
        named = {one.arg: self._value(one.value, place) for one in call.keywords if one.arg is not None}
        return _Section([self._value(one, place) for one in call.args], named)

    def one(self, text: str, start: int) -> Expr:
        """The value of an expression of one line."""
        place = Origin(self.source.path, Span(start, start + len(text)), editable=False)
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return unknown("the workflow computes it", place)
        return self._value(tree.body, place)

    def _value(self, node: ast.expr, place: Origin) -> Expr:
        """A constant, the name of one, or an item of the configuration."""
        if isinstance(node, ast.Constant):
            return Const(node.value if isinstance(node.value, (str, int, float, bool)) else None, place)
        if isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        steps: list[str | int] = []
        default: ast.expr | None = None
        inner: ast.expr = node
        while not isinstance(inner, ast.Name):
            if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Constant):
                key = inner.slice.value
                inner = inner.value
            elif _is_get(inner):
                assert isinstance(inner, ast.Call)
                assert isinstance(inner.func, ast.Attribute)
                first = inner.args[0]
                key = first.value if isinstance(first, ast.Constant) else None
                default = inner.args[1] if len(inner.args) > 1 and not steps else None
                inner = inner.func.value
            else:
                return unknown("the workflow computes it", place)
            if not isinstance(key, (str, int)):
                return unknown("the workflow computes it", place)
            steps.insert(0, key)
        found = self._configured(tuple(steps)) if inner.id == "config" else None
        if found is None and default is not None and inner.id == "config" and self.config is not None:
            return self._value(default, place)
        return found or unknown("the workflow computes it", place)

    def _configured(self, route: Route) -> Expr | None:
        if self.config is None or not route or not self.config.has(route):
            return None
        value = self.config.value(route)
        return None if isinstance(value, (tuple, Mapping)) else Const(value, self.config.origin(route))

    # --- the text of a command ---------------------------------------------------------------------------------------

    def _filled(self, script: Const, sections: Mapping[str, _Section]) -> Expr:
        """A command with the values of its `{params.x}`."""
        text, at = str(script.value), 0
        parts: list[Expr] = []
        for hole in _HOLE.finditer(text):
            if hole.start() > at:
                parts.append(Const(text[at : hole.start()], script.origin))
            parts.append(self._hole(hole, sections, script.origin))
            at = hole.end()
        parts += [Const(text[at:], script.origin)] if at < len(text) else []
        return joined(parts or [Const("")], script.origin)

    def _hole(self, hole: re.Match[str], sections: Mapping[str, _Section], place: Origin | None) -> Expr:
        if hole["name"] is None:
            return Const(hole[0][0], place)
        name = hole["name"]
        steps = [one or other for one, other in _STEP.findall(hole["steps"])]
        if name in _FILES:
            return Const(name, place)
        found: Expr | None = None
        if name in ("params", "resources"):
            found = sections[name].at(steps) if name in sections else None
        elif name == "threads":
            found = sections[name].at([]) if name in sections else Const(1, place)
        elif name == "config":
            found = self._configured(tuple(steps))
        elif not steps:
            found = self.names.get(name)
        if isinstance(found, Const) and isinstance(found.value, (str, int, float)):
            if isinstance(found.value, str) and "{" in found.value:  # wildcards of the rule's files
                return unknown("each run of the rule has another value", found.origin, Cause.run_time)
            return replace(found, value=str(found.value))
        return unknown(f"{hole[0]} is known when the rule runs", place, Cause.run_time)


def _is_get(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and bool(node.args)
    )
