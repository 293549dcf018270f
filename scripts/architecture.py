"""The structure of the source: which folder imports which, measured against the floor plan.

    python scripts/architecture.py              prints rooms, arrows, cycles, imports inside functions, size
    python scripts/architecture.py --check      prints what the floor plan does not allow; exit status 1 if there is any
    python scripts/architecture.py --tighten    lowers the limits of the floor plan to what the source has now

A *room* is a folder of the source that the floor plan names; a file belongs to the deepest room that holds it, and a
file or folder that no room holds is a room of its own. An *arrow* leads from a room to a room that it imports, anywhere
in a file: in functions and under `TYPE_CHECKING` too. A *floor* is the length of the longest chain of arrows below a
room; rooms that import each other share a floor.

The floor plan is `tests/architecture/floor_plan.toml`. It holds what is allowed and why; this file holds no exception.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPOSITORY = Path(__file__).resolve().parents[1]
FLOOR_PLAN = REPOSITORY / "tests" / "architecture" / "floor_plan.toml"
PACKAGE, RULES = "preflight", "preflight_rules"
ROOTS = {PACKAGE: "preflight", RULES: "rules/preflight_rules"}
"""Package and its folder."""
VERSION = "preflight/__init__.py"
FACES = ("__init__.py", "__main__.py", "cli.py")
"""Modules at the top of the package that are the command line's; the first holds the version alone."""

Graph = Mapping[str, Iterable[str]]


@dataclass(frozen=True)
class Import:
    """One imported name. `target` is the module it comes from; of a module of ours `file` is the path, else None."""

    line: int
    target: str
    file: str | None
    name: str | None
    in_function: bool
    for_types: bool


@dataclass(frozen=True)
class Module:
    path: str
    lines: int
    imports: tuple[Import, ...]
    by_name: tuple[int, ...] = ()
    """Lines that import a module whose name is computed (`import_module`)."""


@dataclass(frozen=True)
class Plan:
    """The floor plan, as the file states it (`tests/architecture` checks the file itself)."""

    floors: tuple[tuple[str, ...], ...]
    imports: Mapping[str, frozenset[str]]
    stand_alone: frozenset[str]
    inner_cycles: tuple[Mapping[str, Any], ...]
    start_up: Mapping[str, Any]
    by_name: Mapping[str, str]
    top: frozenset[str]
    lengths: Mapping[str, Any]
    limits: Mapping[str, Mapping[str, int]]

    @property
    def rooms(self) -> tuple[str, ...]:
        return tuple(room for floor in self.floors for room in floor)

    def height(self, room: str) -> int | None:
        """The floor that the plan gives a room, counted from below."""
        for index, floor in enumerate(reversed(self.floors)):
            if room in floor:
                return index
        return None


def read_plan(path: Path = FLOOR_PLAN) -> Plan:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return Plan(
        floors=tuple(tuple(floor["rooms"]) for floor in table["floors"]),
        imports={room: frozenset(rooms) for room, rooms in table["imports"].items()},
        stand_alone=frozenset(table["stand_alone"]),
        inner_cycles=tuple(table.get("inner_cycles", ())),
        start_up=table["start_up"],
        by_name=table["by_name"],
        top=frozenset(table["top"]["modules"]),
        lengths=table["lengths"],
        limits=table["limits"],
    )


# ------------------------------------------------------------------------------------------------------------- reading


def read_source(root: Path = REPOSITORY) -> dict[str, Module]:
    """Every Python file of the packages, by its path."""
    paths = sorted(
        path for folder in ROOTS.values() for path in (root / folder).rglob("*.py") if path.name != "_version.py"
    )
    files = {_dotted(path.relative_to(root).as_posix()): path.relative_to(root).as_posix() for path in paths}
    return {path: _module(path, (root / path).read_text(encoding="utf-8"), files) for path in files.values()}


def _dotted(path: str) -> str:
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name.removeprefix("rules.")


def _module(path: str, text: str, files: Mapping[str, str]) -> Module:
    package = _dotted(path) if path.endswith("/__init__.py") else _dotted(path).rpartition(".")[0]
    reader = _Reader(package, files, "import_module" in text or "__import__" in text)
    reader.visit(ast.parse(text, path))
    return Module(path, len(text.splitlines()), tuple(reader.imports), tuple(reader.by_name))


class _Reader(ast.NodeVisitor):
    """Collects the imports of one file."""

    def __init__(self, package: str, files: Mapping[str, str], by_name: bool) -> None:
        self.package, self.files = package, files
        self.in_expressions = by_name
        """Whether one of its expressions may import; most of a file is expressions."""
        self.imports: list[Import] = []
        self.by_name: list[int] = []
        self.functions = self.type_checks = 0

    def generic_visit(self, node: ast.AST) -> None:
        if self.in_expressions or not isinstance(node, ast.expr):
            super().generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self.functions += 1
        self.generic_visit(node)
        self.functions -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # the names that ast.NodeVisitor looks for

    def visit_If(self, node: ast.If) -> None:
        checks = ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        self.type_checks += checks
        for child in node.body:
            self.visit(child)
        self.type_checks -= checks
        for child in node.orelse:
            self.visit(child)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(node.lineno, alias.name, None)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            above = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
            base = ".".join([*above, base] if base else above)
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            if inner in self.files:
                self._add(node.lineno, inner, None)
            else:
                self._add(node.lineno, base, alias.name)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__"):
            if node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                self._add(node.lineno, node.args[0].value, None)
            else:
                self.by_name.append(node.lineno)
        self.generic_visit(node)

    def _add(self, line: int, target: str, name: str | None) -> None:
        file = self.files.get(target)
        self.imports.append(Import(line, target, file, name, self.functions > 0, self.type_checks > 0))


# -------------------------------------------------------------------------------------------------------------- graphs


def cycles(graph: Graph) -> list[list[str]]:
    """Sets of nodes that reach each other, of two nodes or more, the largest first (Tarjan, without recursion)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    held: set[str] = set()
    found: list[list[str]] = []
    for start in sorted(graph):
        if start in order:
            continue
        work: list[tuple[str, Iterator[str]]] = [(start, iter(sorted(graph[start])))]
        order[start] = lowest[start] = len(order)
        stack.append(start)
        held.add(start)
        while work:
            node, below = work[-1]
            child = next((one for one in below if one not in order or one in held), None)
            if child is None:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    cut = stack.index(node)
                    found.append(sorted(stack[cut:]))
                    held.difference_update(stack[cut:])
                    del stack[cut:]
            elif child in order:
                lowest[node] = min(lowest[node], order[child])
            else:
                order[child] = lowest[child] = len(order)
                stack.append(child)
                held.add(child)
                work.append((child, iter(sorted(graph.get(child, ())))))
    return sorted((one for one in found if len(one) > 1), key=lambda one: (-len(one), one))


def floors(graph: Graph) -> dict[str, int]:
    """The floor of every node: the longest chain of arrows below it, rooms of a cycle taken as one."""
    leader = {node: node for node in graph}
    for cycle in cycles(graph):
        leader.update(dict.fromkeys(cycle, cycle[0]))
    below: dict[str, set[str]] = defaultdict(set)
    for node, targets in graph.items():
        below[leader[node]] |= {leader[one] for one in targets} - {leader[node]}
    heights: dict[str, int] = {}

    def height(node: str) -> int:
        if node not in heights:
            heights[node] = max((height(one) + 1 for one in below[node]), default=0)
        return heights[node]

    return {node: height(leader[node]) for node in graph}


@dataclass
class House:
    """The source, seen as rooms."""

    modules: dict[str, Module]
    plan: Plan
    room_of: dict[str, str] = field(init=False)
    arrows: dict[tuple[str, str], set[str]] = field(init=False)
    """Rooms, and the files whose imports make the arrow."""

    def __post_init__(self) -> None:
        self.room_of = {path: room_of(path, self.plan.rooms) for path in self.modules}
        self.arrows = defaultdict(set)
        for path, module in self.modules.items():
            for one in module.imports:
                if one.file not in (None, VERSION) and self.room_of[one.file] != self.room_of[path]:
                    self.arrows[self.room_of[path], self.room_of[one.file]].add(path)

    @property
    def graph(self) -> dict[str, set[str]]:
        return {room: {to for start, to in self.arrows if start == room} for room in set(self.room_of.values())}

    def loose(self) -> list[str]:
        """Rooms that the plan does not name. A package that holds rooms and nothing else is none."""
        bare = {path for path, module in self.modules.items() if path.endswith("/__init__.py") and not module.imports}
        return sorted({room for path, room in self.room_of.items() if path not in bare} - set(self.plan.rooms))

    def files_of(self, room: str) -> list[Module]:
        return [self.modules[path] for path, one in self.room_of.items() if one == room]

    def inner_cycles(self) -> list[list[str]]:
        """Files of one room that import each other."""
        graph: dict[str, set[str]] = {path: set() for path in self.modules}
        for path, module in self.modules.items():
            graph[path] = {
                one.file for one in module.imports if one.file and self.room_of[one.file] == self.room_of[path]
            }
            graph[path].discard(path)
        return cycles(graph)

    def in_functions(self) -> Iterator[tuple[str, Import]]:
        """Imports inside functions, and the files that hold them; of several names of one module the first."""
        for path, module in self.modules.items():
            seen: set[tuple[int, str]] = set()
            for one in module.imports:
                if one.in_function and (one.line, one.target) not in seen:
                    seen.add((one.line, one.target))
                    yield path, one

    @cached_property
    def knots(self) -> dict[str, int]:
        """Files that import each other, in whatever rooms, and the number of their cycle."""
        graph = {
            path: {one.file for one in module.imports if one.file and one.file != path}
            for path, module in self.modules.items()
        }
        return {path: number for number, cycle in enumerate(cycles(graph)) for path in cycle}

    def for_start_up(self, path: str, one: Import) -> bool:
        """Whether the plan lets this import stand in a function because it makes the start slow: not one that hides a
        cycle."""
        stated = self.plan.start_up
        if one.file in self.knots and self.knots[one.file] == self.knots.get(path):
            return False
        if one.target.split(".")[0] in stated["packages"]:
            return True
        return any(_within(path, row["file"]) and _within(one.target, row["imports"]) for row in stated["rows"])

    def measured(self) -> dict[str, int]:
        """What the limits of the plan are about."""
        graph = self.graph
        return {
            "rooms": len(graph),
            "floors": max(floors(graph).values(), default=-1) + 1,
            "arrows": len(self.arrows),
            "arrows_not_in_plan": sum(1 for _ in arrows_not_in_plan(self)),
            "room_cycles": len(cycles(graph)),
            "inner_cycles": len(self.inner_cycles()),
            "files_in_inner_cycles": sum(map(len, self.inner_cycles())),
            "modules_at_the_top": sum(1 for _ in loose_modules(self)),
            "rooms_not_in_plan": len(self.loose()),
            "imports_in_functions": sum(1 for path, one in self.in_functions() if not self.for_start_up(path, one)),
            "files_of_wrong_length": sum(1 for _ in wrong_lengths(self)),
            "lines": sum(module.lines for module in self.modules.values()),
        }


def room_of(path: str, rooms: Sequence[str]) -> str:
    """The room of a file: the deepest planned folder that holds it, else its folder below `preflight/`, else itself."""
    inner = path.removeprefix("rules/").removeprefix("preflight/")
    if inner in FACES:
        return "cli"
    held = [room for room in rooms if inner.startswith(f"{room}/") or ("/" not in room and inner == f"{room}.py")]
    if held:
        return max(held, key=len)
    return inner.split("/")[0] if "/" in inner else inner.removesuffix(".py")


def _within(name: str, outer: str) -> bool:
    return bool(re.fullmatch(rf"{re.escape(outer)}([./].*)?", name))


# --------------------------------------------------------------------------------------------------------------- rules


def arrows_not_in_plan(house: House) -> Iterator[tuple[str, str]]:
    """Arrows that the plan does not allow."""
    yield from sorted(arrow for arrow in house.arrows if arrow[1] not in house.plan.imports.get(arrow[0], ()))


def loose_modules(house: House) -> Iterator[str]:
    """Files directly in `preflight/` beside those that the plan names."""
    for path in house.modules:
        folder, _, name = path.rpartition("/")
        if folder == PACKAGE and name not in house.plan.top:
            yield path


def wrong_lengths(house: House) -> Iterator[tuple[str, int]]:
    """Files that are too short or too long, without those that the plan names."""
    stated = house.plan.lengths
    for path, module in house.modules.items():
        if path.endswith("/__init__.py") or any(_within(path, one) for one in stated["exceptions"]):
            continue
        if not stated["shortest"] <= module.lines <= stated["longest"]:
            yield path, module.lines


def never(house: House) -> Iterator[str]:
    """What no limit allows, each as one sentence."""
    rooms = house.room_of
    for path, module in house.modules.items():
        for one in module.imports:
            where = f"{path}:{one.line}"
            if one.target.split(".")[0] == RULES and path.startswith(f"{PACKAGE}/"):
                yield f"{where} imports a rule ({one.target})"
            if _within(one.target, "dataclasses") and rooms[path] not in house.plan.stand_alone:
                yield f"{where} imports dataclasses: a record is a msgspec.Struct, whose class is made at once"
            if one.file is None or rooms[one.file] == rooms[path]:
                continue
            if rooms[path] in house.plan.stand_alone:
                yield f"{where} imports {one.target}, but {rooms[path]} stands alone"
            if rooms[path] == "reports" and rooms[one.file].split("/")[0] == "dialects":
                yield f"{where} imports {one.target}: a report knows no dialect"
        if module.by_name and path not in house.plan.by_name:
            yield f"{path}:{module.by_name[0]} imports a module whose name is computed"


def unlisted_cycles(house: House) -> Iterator[list[str]]:
    """Cycles of files that the plan does not name: each of its rows stands for one cycle, of at most so many files."""
    rows = list(house.plan.inner_cycles)
    for cycle in house.inner_cycles():
        row = next((r for r in rows if r["room"] == house.room_of[cycle[0]] and len(cycle) <= r["files"]), None)
        if row is None:
            yield cycle
        else:
            rows.remove(row)


def gone(house: House) -> Iterator[str]:
    """Files of which the plan says something, and that there are none of."""
    plan = house.plan
    stated = [*plan.by_name, *plan.lengths["exceptions"], *(row["file"] for row in plan.start_up["rows"])]
    yield from (path for path in stated if not any(_within(file, path) for file in house.modules))


def not_allowed(house: House) -> Iterator[str]:
    """Everything that the plan does not allow, each as one sentence."""
    yield from never(house)
    measured = house.measured()
    for name, limit in house.plan.limits.items():
        if measured[name] > limit["now"]:
            yield f"{name.replace('_', ' ')}: {measured[name]}, at most {limit['now']}"
    if measured["inner_cycles"] <= house.plan.limits["inner_cycles"]["goal"]:
        yield from (f"not listed with a reason: {' '.join(cycle)}" for cycle in unlisted_cycles(house))
    if not measured["arrows_not_in_plan"]:  # before that, files still move
        yield from (f"the plan names {path}, which is not there" for path in gone(house))


# ------------------------------------------------------------------------------------------------------------ printing


def report(house: House) -> Iterator[str]:
    graph, heights = house.graph, floors(house.graph)
    yield "ROOMS (floor, files, lines)"
    for room in sorted(graph, key=lambda one: (-heights[one], one)):
        held = house.files_of(room)
        new = "" if room in house.plan.rooms else "   (not in the plan)"
        yield f"  {heights[room]:>3} {len(held):>4} {sum(one.lines for one in held):>6}  {room}{new}"
    yield ""
    yield "ARROWS (files that import); ! is not in the plan"
    refused = set(arrows_not_in_plan(house))
    for (start, to), files in sorted(house.arrows.items()):
        yield f"  {'!' if (start, to) in refused else ' '} {start} -> {to} ({len(files)})"
    yield ""
    yield "CYCLES BETWEEN ROOMS"
    yield from (f"  {len(cycle)}: {' '.join(cycle)}" for cycle in cycles(graph))
    yield ""
    yield "CYCLES OF FILES IN A ROOM"
    yield from (f"  {len(cycle)}: {' '.join(cycle)}" for cycle in house.inner_cycles())
    yield ""
    yield "IMPORTS IN FUNCTIONS (of them for a quick start)"
    per_file = Counter(path for path, _ in house.in_functions())
    quick = Counter(path for path, one in house.in_functions() if house.for_start_up(path, one))
    for path, count in sorted(per_file.items(), key=lambda item: (-item[1], item[0])):
        yield f"  {count:>3} ({quick[path]})  {path}"
    yield ""
    yield "FILES OF WRONG LENGTH"
    yield from (f"  {lines:>4}  {path}" for path, lines in sorted(wrong_lengths(house), key=lambda item: item[1]))
    yield ""
    yield "LIMITS (measured, limit now, goal)"
    for name, count in house.measured().items():
        limit = house.plan.limits.get(name)
        yield f"  {count:>6} {limit['now'] if limit else '':>6} {limit['goal'] if limit else '':>6}  {name}"


def tightened(text: str, measured: Mapping[str, int]) -> str:
    """The text of the plan, with every limit that the source is below lowered to what the source has."""

    def lower(match: re.Match[str]) -> str:
        return f"{match[1]}{max(min(int(match[3]), measured[match[2]]), int(match[5]))}{match[4]}{match[5]}"

    rows = re.compile(r"^((\w+) = \{ now = )(\d+)(, goal = )(\d+)", re.MULTILINE)
    head, mark, limits = text.partition("[limits]\n")
    return head + mark + rows.sub(lower, limits)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="print only what is not allowed")
    parser.add_argument("--tighten", action="store_true", help="lower the limits to what the source has")
    options = parser.parse_args(arguments)
    house = House(read_source(), read_plan())
    if options.tighten:
        text = FLOOR_PLAN.read_text(encoding="utf-8")
        FLOOR_PLAN.write_text(tightened(text, house.measured()), encoding="utf-8")
        return 0
    if not options.check:
        print("\n".join(report(house)))
    problems = list(not_allowed(house))
    for problem in problems:
        print(problem, file=sys.stderr if not options.check else sys.stdout)
    return 1 if problems and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
