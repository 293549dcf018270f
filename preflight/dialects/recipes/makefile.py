"""Reader of Makefiles: the programs that the recipes start, with the variables of the file.

Source: the GNU make manual 4.4, "How make Reads a Makefile", "Recipe Syntax", "Target-specific Variable Values".
Conditions are not decided: a variable that is set under one is unknown, and a recipe under one is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct, field

from preflight.dialects.recipes.make_variables import Piece, Scope, Variable, value_pieces
from preflight.dialects.recipes.reader import STARTS, Recipe, reading, starts
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Reading
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Span, unknown

NAME = "makefile"
_READ: CacheKind[Reading] = CacheKind("a Makefile, read")

_ASSIGNMENT = re.compile(
    r"[ ]*(?P<words>(?:(?:export|override|private)[ \t]+)*)(?P<name>[^\s:#=!?+$]+)[ \t]*"
    r"(?P<operator>:{0,3}=|\?=|\+=|!=)[ \t]*"
)
_RULE = re.compile(r"[ ]*(?P<targets>[^\s#:=][^#:=]*?)[ \t]*::?(?!=)[ \t]*(?P<rest>.*)", re.DOTALL)
_KEYWORD = re.compile(r"[ ]*(ifeq|ifneq|ifdef|ifndef|endif|define|endef|-?include|sinclude|export)\b")
_CONDITIONS = ("ifeq", "ifneq", "ifdef", "ifndef")
_QUIET = re.compile(r"[ \t]*[@+-][@+ \t-]*")
"""What makes a line of a recipe silent, or its failure no failure."""


def recognises(source: Source, project: Project) -> bool:
    """Whether a recipe starts a program of the project."""
    if STARTS.search(source.text) is None or not ("\t" in source.text or ";" in source.text):
        return False
    return starts(lambda: read(source, None, project), project)


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """Links to the programs that the recipes start. Raises DocumentError."""
    return project.remembered.get(_READ, lambda: _read(source, project), source.path)


def _read(source: Source, project: Project) -> Reading:
    makefile = Makefile(source)
    makefile.parse()
    return reading(source, NAME, makefile.recipes(), project)


class Rule(Struct):
    """One rule: its targets, the text of its prerequisites, and the logical lines of its recipe."""

    targets: tuple[str, ...]
    prerequisites: str
    lines: list[Piece] = field(default_factory=list)


class Makefile(Struct):
    """What a Makefile states."""

    source: Source
    variables: dict[str, Variable] = field(default_factory=dict)
    of_targets: dict[str, dict[str, Variable]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    rules: list[Rule] = field(default_factory=list)
    includes: bool = False
    one_shell: bool = False
    _conditions: int = 0

    # --- lines --------------------------------------------------------------------------------------------------------

    def parse(self) -> None:
        """Reads all lines; fills the variables and the rules."""
        current: Rule | None = None
        defined = False
        for line in self._lines():
            found = _KEYWORD.match(line.text)
            keyword = found[1] if found else ""
            if defined:
                defined = keyword != "endef"
            elif line.text.startswith("\t") and current is not None:
                current.lines.append(line.part(1))
            elif keyword == "define":
                defined = True
                for name in line.text.split()[1:2]:
                    self.variables[name] = self._undecided(f"{name} has several lines", line, Cause.not_read)
            elif keyword in _CONDITIONS:
                self._conditions += 1
            elif keyword == "endif":
                self._conditions = max(self._conditions - 1, 0)
            elif keyword.endswith("include"):
                self.includes = True
            elif line.text.strip() and not line.text.lstrip().startswith("#"):
                current = self._statement(line, current)

    def _lines(self) -> Iterator[Piece]:
        """Logical lines: a line with a backslash at its end goes on."""
        text, start = self.source.text, 0
        for match in re.finditer(r"(?:[^\\\n]|\\.)*(?:\n|\Z)", text, re.DOTALL):
            if match.end() > start:
                yield Piece(match.group().rstrip("\r\n"), start)
            start = match.end()

    def _statement(self, line: Piece, current: Rule | None) -> Rule | None:
        """Reads an assignment or the head of a rule. Returns the rule that the next lines belong to."""
        assigned = _ASSIGNMENT.match(line.text)
        if assigned:
            self._assign(assigned, line, self.variables)
            return None
        words = line.text.split()
        if words[0] == "export":
            self.exported |= set(words[1:])
            return current
        rule = _RULE.match(line.text)
        if rule is None:
            return current if words[0] == "else" else None
        targets = tuple(rule["targets"].split())
        rest = line.part(rule.start("rest"))
        own = _ASSIGNMENT.match(rest.text)
        if own:
            for target in targets:
                self._assign(own, rest, self.of_targets.setdefault(target, {}))
            return None
        self.one_shell |= ".ONESHELL" in targets
        prerequisites, semicolon, _ = rest.text.partition(";")
        self.rules.append(Rule(targets, prerequisites))
        if semicolon:
            self.rules[-1].lines.append(rest.part(len(prerequisites) + 1))
        return self.rules[-1]

    def _assign(self, found: re.Match[str], line: Piece, into: dict[str, Variable]) -> None:
        name, operator = found["name"], found["operator"]
        if "export" in found["words"]:
            self.exported.add(name)
        old = into.get(name, self.variables.get(name))
        if self._conditions:
            into[name] = self._undecided(f"{name} is set under a condition", line, Cause.run_time)
            return
        if operator == "!=":
            into[name] = self._undecided(f"{name} is the output of a command", line, Cause.run_time)
            return
        pieces = value_pieces(line.part(found.end()))
        if operator == "?=" and old is not None:
            return
        if operator == "+=" and old is not None:
            into[name] = self._longer(old, pieces)
        elif operator in (":=", "::="):
            into[name] = Variable(simple=self._now(pieces, line))
        else:
            into[name] = Variable(pieces, is_default=operator == "?=")

    def _longer(self, old: Variable, added: tuple[Piece, ...]) -> Variable:
        space = Piece(" ", added[0].start)
        if old.simple is None:
            return Variable((*old.pieces, space, *added))
        return Variable(simple=Op("concat", (old.simple, Const(" "), self._now(added, added[0])), None))

    def _now(self, pieces: tuple[Piece, ...], line: Piece) -> Expr:
        """The value of pieces with the variables of this moment."""
        parts = [part for piece in pieces for part in self._scope().parts(piece)]
        origin = Origin(self.source.path, Span(line.start, line.start + len(line.text)), editable=False)
        return parts[0] if len(parts) == 1 else Op("concat", tuple(parts), origin) if parts else Const("")

    def _undecided(self, words: str, line: Piece, cause: Cause) -> Variable:
        origin = Origin(self.source.path, Span(line.start, line.start + len(line.text)), editable=False)
        return Variable(simple=unknown(words, origin, cause))

    # --- recipes ------------------------------------------------------------------------------------------------------

    def _scope(self, rule: Rule | None = None) -> Scope:
        variables = dict(self.variables)
        automatic: dict[str, Expr] = {"CURDIR": Const("."), "PWD": Const(".")}
        if rule is not None:
            for target in rule.targets:
                variables.update(self.of_targets.get(target, {}))
            [target, *more] = rule.targets
            first = (rule.prerequisites.split() or [""])[0]
            if not more and "%" not in target and "$" not in target:
                automatic["@"] = Const(target)
                if first and "$" not in first:
                    automatic["<"] = Const(first)
        return Scope(self.source.path, variables, automatic, self.includes)

    def recipes(self) -> Iterator[Recipe]:
        """The recipes with their variables. Each line has a shell of its own."""
        for rule in self.rules:
            if not rule.lines:
                continue
            scope = self._scope(rule)
            lines = [scope.expanded(_loud(line)) for line in rule.lines]
            if self.one_shell:
                lines = [Op("concat", tuple(part for line in lines for part in (line, Const("\n"))), None)]
            environment = {
                name: scope.of(name, Origin(self.source.path, Span(0, 0), editable=False))
                for name in sorted(self.exported)
                if name in scope.variables
            }
            yield Recipe(tuple(lines), environment=environment)


def _loud(line: Piece) -> Piece:
    """A line of a recipe without the marks before its command."""
    quiet = _QUIET.match(line.text)
    return line.part(quiet.end()) if quiet else line
