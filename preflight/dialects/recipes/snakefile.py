"""Reader of Snakemake workflows: the programs that the shell lines of rules start, with `params` and the config file.

Source: the Snakemake documentation 8, "Snakefiles and Rules" and "Configuration". A section of a rule is a list of
Python arguments; nothing of it is run: constants, names of constants and `config[...]` have values, and all else is
unknown. Names of files stand for themselves, since no memory depends on them.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from operator import itemgetter
from pathlib import PurePosixPath
from typing import TypeGuard

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.dialects.recipes.reader import STARTS, Recipe, joined, reading, starts
from preflight.documents.yaml import YamlDocument, yaml_of
from preflight.vocabulary.budgets import JOINED_NODES, WORD_CHARACTERS
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.python_grammar import parse_module
from preflight.vocabulary.reading import Call, Reading, Unread
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Route, Span, Unknown, unknown

NAME = "snakefile"
_READ: CacheKind[Reading] = CacheKind("a Snakemake workflow, read")

_RULE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<use>use[ \t]+)?(?:rule|checkpoint)(?:[ \t]+(?P<name>[\w*][\w*, \t]*?))?"
    r"(?:[ \t]+from[ \t]+(?P<module>\w+))?(?:[ \t]+as[ \t]+(?P<new>[\w*]+))?(?:[ \t]+with)?"
    r"[ \t]*:?[ \t]*(?:#[^\n]*)?\n",
    re.M,
)
_DIRECTIVE = re.compile(
    r"^(?P<indent>[ \t]*)(?:(?P<config>configfile)|include|workdir|pepfile|pepschema|report|localrules|singularity|"
    r"container|containerized|envvars|scattergather|wildcard_constraints|ruleorder|resource_scopes|conda|inputflags|"
    r"onstart|onsuccess|onerror|outputflags|pathvars|(?:module|storage)(?:[ \t]+\w+)?)[ \t]*:(?P<rest>[^\n]*)\n?",
    re.M,
)
"""What stands in a workflow beside its rules and Python."""
_SECTION = re.compile(r"^(?P<indent>[ \t]+)(?P<name>[a-z]+)[ \t]*:(?P<rest>[^\n]*)\n?", re.M)
_HOLE = re.compile(r"\{\{|\}\}|\{(?P<name>\w+)(?P<steps>(?:\.\w+|\[[\w.'\"-]+\])*)(?P<format>[:!][^{}]*)?\}")
_STEP = re.compile(r"\.(\w+)|\[['\"]?([\w.-]+)['\"]?\]")
_READING = ("get", "keys", "values", "items", "copy")
"""Methods of the configuration that leave it as it is."""
_FILES = ("input", "output", "log", "benchmark")
_SECTIONS = ("params", "threads", "resources", "shell", *_FILES)


def recognises(source: Source, project: Project) -> bool:
    """Whether a rule starts a program of the project."""
    if STARTS.search(source.text) is None or "shell" not in source.text:
        return False
    return starts(lambda: read(source, None, project), project)


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """Links to the programs that the rules start. Raises DocumentError."""
    return project.remembered.get(_READ, lambda: _read(source, project), source.path)


def _read(source: Source, project: Project) -> Reading:
    workflow = _Workflow(source, project)
    workflow.follow()
    reads = tuple(one.source.path for _, one in workflow.layers if isinstance(one, YamlDocument))
    found = reading(source, NAME, workflow.recipes(), project, reads)
    if workflow.unread is None:
        return found
    words = "the workflow computes a command, or takes a rule from another workflow"
    return replace(found, unread=Unread(Unknown(words, Cause.not_read), workflow.unread))


class _Section(Struct):
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


class _Assigned(Struct, frozen=True):
    """`config["a"]["b"] = value`; an empty route is the whole configuration."""

    route: Route
    value: Expr


class _Workflow(Struct, dict=True):
    """A workflow: its text, and the constants of the file. `layers`: what its configuration is made of, each behind a
    place of the text: files (None: one that was not read) and assignments. `unread`: the place of a rule whose command
    is not known."""

    source: Source
    project: Project
    names: dict[str, Expr] = field(default_factory=dict)
    layers: list[tuple[int, YamlDocument | _Assigned | None]] = field(default_factory=list)
    unread: Origin | None = None

    @cached_property
    def rules(self) -> list[tuple[re.Match[str], int]]:
        """The heads of the rules, with the end of each."""
        return [(rule, self._end(rule)) for rule in _RULE.finditer(self.source.text)]

    def follow(self) -> None:
        """The constants and the configuration: the files of `configfile:`, and the Python beside the rules."""
        directives = [(one, self._end(one)) for one in _DIRECTIVE.finditer(self.source.text)]
        text = list(self.source.text)
        for match, end in (*directives, *self.rules):
            start = match.start() + len(match["indent"])
            text[start:end] = ["\n" if one == "\n" else " " for one in text[start:end]]
            text[start : start + 4] = "pass"
        self.layers = [(one.start(), self._file(one, end)) for one, end in directives if one["config"]]
        try:
            body = parse_module("".join(text)).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.layers.append((0, _Assigned((), self._computed(0, 0))))
            body = []
        for statement in body:
            self._statement(statement)
        self.layers.sort(key=lambda layer: layer[0])

    def _file(self, said: re.Match[str], end: int) -> YamlDocument | None:
        """The file of `configfile:`; None if it is not there, or if a condition chooses it. It is looked for where the
        workflow is usually started, and beside it."""
        text = self.source.text[said.start("rest") : end]
        name = self.one(text.strip().rstrip(","), said.start("rest"))
        here = PurePosixPath(self.source.path).parent
        for folder in (PurePosixPath("."), here.parent, here):
            if said["indent"] or not isinstance(name, Const) or not isinstance(name.value, str):
                return None
            path = (folder / name.value).as_posix()
            if not path.startswith("..") and path.endswith((".yaml", ".yml")) and self.project.exists(path):
                try:
                    return yaml_of(self.project.source(path), self.project, "1.2")
                except (DocumentError, UnreadableFile):
                    return None
        return None

    def _statement(self, node: ast.stmt) -> None:
        """A statement of Python: constants and `config[...] = value` at the top; what else changes a name or the
        configuration leaves it unknown."""
        start = self.source.offset(node.lineno, 1)
        unknown_here = self._computed(start, start)
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Name) and target.id not in (*self.names, "config"):
            self.names[target.id] = self._value(node.value, self._place(start, start))
        elif isinstance(node, ast.Assign) and (route := _route(target)) and None not in route:
            value = self._value(node.value, self._place(start, start))
            self.layers.append((start, _Assigned(tuple(one for one in route if one is not None), value)))
        else:
            for one in ast.walk(node):
                if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
                    self.names[one.id] = unknown_here
                if (isinstance(one, ast.Name) and one.id == "config" and not isinstance(one.ctx, ast.Load)) or (
                    isinstance(one, ast.Subscript) and not isinstance(one.ctx, ast.Load) and _route(one)
                ):
                    self.layers.append((start, _Assigned((), unknown_here)))
        if any(_changes(one) for one in ast.walk(node) if isinstance(one, ast.Call)):
            self.layers.append((start, _Assigned((), unknown_here)))

    def recipes(self) -> Iterator[Recipe]:
        """The shell commands of the rules."""
        named: dict[str, dict[str, _Section]] = {}
        for rule, end in self.rules:
            sections = dict(self._sections(rule, end))
            if rule["use"]:
                base = named.get(rule["name"] or "") if rule["module"] is None else None
                if base is None:
                    self.unread = self.unread or self._place(rule.start(), rule.end())
                    continue
                sections = {**base, **sections}
            named[rule["new"] or rule["name"] or ""] = sections
            shell = sections.get("shell")
            script = shell.at(["0"]) if shell is not None else None
            first = script.operands[0] if isinstance(script, Op) else script
            if isinstance(first, Const) and isinstance(first.value, str) and script is not None:
                yield Recipe((self._filled(script, sections),), turns=(self._place(rule.start(), rule.end()),))
            elif shell is not None:
                self.unread = self.unread or self._place(rule.start(), rule.end())

    def _place(self, start: int, end: int) -> Origin:
        return Origin(self.source.path, Span(start, end), editable=False)

    def _computed(self, start: int, end: int) -> Const:
        """A value that only the run of the workflow gives."""
        return unknown("the workflow computes it", self._place(start, end))

    def _end(self, rule: re.Match[str]) -> int:
        """Where the lines of a rule or directive end."""
        text, at, inside = self.source.text, rule.end(), ""
        for line in text[at:].splitlines(keepends=True):
            bare = line.strip()
            if not inside and bare and bare[0] != "#" and len(line) - len(line.lstrip()) <= len(rule["indent"]):
                return at
            for quotes in re.findall(r"\"{3}|'{3}", line):
                inside = "" if inside == quotes else inside or quotes
            at += len(line)
        return at

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
        place = self._place(start, start + len(text))
        named = {one.arg: self._value(one.value, place) for one in call.keywords if one.arg is not None}
        return _Section([self._value(one, place) for one in call.args], named)

    def one(self, text: str, start: int) -> Expr:
        """The value of an expression of one line."""
        place = self._place(start, start + len(text))
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
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)):
            nodes = node.values if isinstance(node, ast.JoinedStr) else [node.left, node.right]
            return _text([self._part(one, place) for one in nodes], place)
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
        found = self._configured(tuple(steps), place.span.start) if inner.id == "config" else None
        if found is None and default is not None and inner.id == "config" and self.layers:
            return self._value(default, place)
        return found or unknown("the workflow computes it", place)

    def _part(self, node: ast.expr, place: Origin) -> Expr:
        """A part of a text: of `f"{X}"` and `"a" + X`. What is written in braces is filled in later."""
        if not isinstance(node, ast.FormattedValue):
            return self._value(node, place)
        plain = node.conversion == -1 and node.format_spec is None
        found = self._value(node.value, place) if plain else unknown("the workflow computes it", place)
        if isinstance(found, Const) and isinstance(found.value, str):
            return replace(found, value=found.value.replace("{", "{{").replace("}", "}}"))
        return found

    def _configured(self, route: Route, before: int | None = None) -> Expr | None:
        """The value of a key of the configuration, as it is at a place of the text: of the last layer that has the key.
        None: it has none."""
        end = len(self.layers) if before is None else bisect_right(self.layers, before, key=itemgetter(0))
        for number in range(end - 1, -1, -1):
            layer = self.layers[number][1]
            if layer is None:
                return unknown("it may be in a config file that was not read", cause=Cause.file_not_found)
            if isinstance(layer, _Assigned):
                where = layer.route
                if where == route and where:
                    return layer.value
                if where[: len(route)] == route[: len(where)]:  # a part of it, or the whole of which it is a part
                    return unknown("the workflow computes it", layer.value.origin)
            elif route and layer.has(route):
                value = layer.value(route)
                return None if isinstance(value, (tuple, Mapping)) else Const(value, layer.origin(route))
        return None

    # --- the text of a command ---------------------------------------------------------------------------------------

    def _filled(self, script: Expr, sections: Mapping[str, _Section]) -> Expr:
        """A command with the values of its `{params.x}`."""
        if isinstance(script, Op):
            return joined([self._filled(one, sections) for one in script.operands], script.origin)
        if not isinstance(script, Const) or isinstance(script.value, Unknown):
            return script
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


def _text(parts: list[Expr], place: Origin) -> Expr:
    """Parts of a text as one, without texts inside of texts: a name may hold a text that holds it twice."""
    flat = [one for part in parts for one in (part.operands if isinstance(part, Op) else (part,))]
    merged: list[Expr] = []
    for one in flat:
        last = merged[-1] if merged else None
        if last is not None and _is_text(one) and _is_text(last):
            merged[-1] = replace(last, value=f"{last.value}{one.value}")
        else:
            merged.append(one)
    if len(merged) > JOINED_NODES or any(len(str(one.value)) > WORD_CHARACTERS for one in merged if _is_text(one)):
        return unknown("it is longer than any word of a command can be", place, Cause.budget)
    return merged[0] if len(merged) == 1 else Op("concat", tuple(merged), place) if merged else Const("", place)


def _is_text(expr: Expr) -> TypeGuard[Const]:
    return isinstance(expr, Const) and isinstance(expr.value, str)


def _route(node: ast.expr | None) -> list[str | int | None]:
    """The keys of `config["a"]["b"]`; None for one that is no constant. Empty for anything else."""
    keys: list[str | int | None] = []
    while isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        keys.insert(0, key if isinstance(key, (str, int)) else None)
        node = node.value
    return keys if isinstance(node, ast.Name) and node.id == "config" else []


def _changes(call: ast.Call) -> bool:
    """Whether a call may change the configuration: a method, or a function that gets it. validate() of Snakemake only
    adds what a schema has as defaults."""
    where = call.func.value if isinstance(call.func, ast.Attribute) else None
    while isinstance(where, ast.Subscript):
        where = where.value
    if isinstance(where, ast.Name) and where.id == "config" and isinstance(call.func, ast.Attribute):
        return call.func.attr not in _READING
    given = [*call.args, *(one.value for one in call.keywords)]
    own = any(isinstance(one, ast.Name) and one.id == "config" for one in given)
    return own and ast.unparse(call.func).rpartition(".")[2] not in ("validate", "print", "len")


def _is_get(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and bool(node.args)
    )
