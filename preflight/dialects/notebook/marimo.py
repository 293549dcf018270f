"""Reader of marimo notebooks: the cells, in the order in which marimo runs them, are one training program.

A marimo notebook is a Python file in which each cell is a function: its parameters are the names that it uses of other
cells, and what it returns are the names that it gives them. marimo runs a cell behind those whose names it uses, in
whatever order they stand. Source: the marimo documentation 0.13, "File format". The program's text takes the place of
the file in a copy of the project, and is read as any program is; all places are those of the file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from preflight.dialects.notebook.cells import Placed
from preflight.dialects.notebook.places import with_origins
from preflight.dialects.program.find import trains
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.python_grammar import parse_module
from preflight.vocabulary.reading import Call, Reading
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Origin

NAME = "marimo"
_APP = re.compile(r"^\w+\s*=\s*marimo\.App\(", re.M)
_LINE = re.compile(r"[^\n]*\n?")
_PROGRAM: CacheKind[Placed | None] = CacheKind("a marimo notebook as a program")


class _Cell(Struct, frozen=True):
    """The code of a cell, the names that it uses of other cells, and those that it gives."""

    code: Placed
    uses: frozenset[str] = frozenset()
    gives: frozenset[str] = frozenset()
    disabled: bool = False


def recognises(source: Source, project: Project) -> bool:
    """Whether the cells of a marimo notebook train a model."""
    if _APP.search(source.text) is None:
        return False
    program = _program(source, project)
    return program is not None and trains(Source(source.path, program.text), project)


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """The reading of the cells as a program. Raises DocumentError."""
    from preflight.dialects.program import reader

    program = _program(source, project)
    if program is None:
        return Reading(source.path, NAME, trains=False)
    copy = project.with_overlay({source.path: program.text})
    found = reader.read(Source(source.path, program.text), call, copy)

    def in_file(origin: Origin) -> Origin:
        if origin.path != source.path:
            return origin
        return replace(origin, span=program.span(origin.span.start, origin.span.end), editable=False)

    return replace(with_origins(found, in_file), dialect=NAME)


def _program(source: Source, project: Project) -> Placed | None:
    """The cells in the order in which they run; None if the file is not Python, or a cell waits for itself."""
    return project.remembered.get(_PROGRAM, lambda: _made(source), source.path)


def _made(source: Source) -> Placed | None:
    try:
        tree = parse_module(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lines = [match.span() for match in _LINE.finditer(source.text) if match.end() > match.start()]
    ordered = _ordered(_enabled([cell for node in tree.body for cell in _cells(node, source.text, lines)]))
    return None if ordered is None else Placed.of([cell.code for cell in ordered])


def _cells(node: ast.stmt, text: str, lines: list[tuple[int, int]]) -> Iterator[_Cell]:
    """The cell that a statement of the file is; none for the imports and the call that marimo itself writes."""
    if isinstance(node, ast.With) and any(_is_app(item.context_expr, "setup") for item in node.items):
        yield _Cell(_code(node.body, text, lines), gives=frozenset(_stored(node.body)))
        return
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    if isinstance(node, ast.ClassDef) or any(_is_app(one, "function") for one in node.decorator_list):
        yield _Cell(_code([node], text, lines), _loaded([node]), frozenset({node.name}))
    elif any(_is_app(one, "cell") for one in node.decorator_list):
        body = [one for one in node.body if not isinstance(one, ast.Return)]
        if body:
            uses = frozenset(argument.arg for argument in node.args.args)
            yield _Cell(_code(body, text, lines), uses, frozenset(_stored(body)), _is_disabled(node))


def _enabled(cells: list[_Cell]) -> list[_Cell]:
    """The cells that marimo runs: no disabled one, and none that uses a name of a cell that does not run."""
    off = frozenset(name for cell in cells if cell.disabled for name in cell.gives)
    left = [cell for cell in cells if not cell.disabled]
    while gone := [cell for cell in left if cell.uses & off]:
        off |= {name for cell in gone for name in cell.gives}
        left = [cell for cell in left if cell not in gone]
    return left


def _is_disabled(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """`@app.cell(disabled=True)`"""
    said = [one for call in node.decorator_list if isinstance(call, ast.Call) for one in call.keywords]
    return any(one.arg == "disabled" and ast.unparse(one.value) == "True" for one in said)


def _is_app(node: ast.expr, name: str) -> bool:
    """`app.cell`, `app.cell(hide_code=True)`."""
    made = node.func if isinstance(node, ast.Call) else node
    return isinstance(made, ast.Attribute) and made.attr == name and isinstance(made.value, ast.Name)


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
           ast.GeneratorExp)  # fmt: skip
"""What has names of its own inside."""


def _stored(body: Iterable[ast.AST]) -> Iterator[str]:
    """The names that statements give to the cell itself, not those within its functions."""
    for node in body:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        if not isinstance(node, _SCOPES):
            yield from _stored(ast.iter_child_nodes(node))


def _loaded(body: list[ast.stmt]) -> frozenset[str]:
    return frozenset(node.id for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name))


def _code(body: list[ast.stmt], text: str, lines: list[tuple[int, int]]) -> Placed:
    """The text of statements without the indentation of the first one."""
    first, last = body[0], body[-1]
    indentation = first.col_offset
    parts: list[Placed] = []
    for start, end in lines[first.lineno - 1 : last.end_lineno]:
        line = text[start:end]
        cut = indentation if not line[:indentation].strip() else 0
        cut = min(cut, len(line.rstrip("\n")))
        parts.append(Placed(line[cut:], tuple(range(start + cut, end)), tuple(range(start + cut + 1, end + 1))))
    whole = Placed.of(parts)
    if not whole.text.endswith("\n"):
        whole = Placed.of([whole, whole.part(len(whole.text) - 1).replaced("\n")])
    return whole


def _ordered(cells: list[_Cell]) -> list[_Cell] | None:
    """Each cell behind those that give the names that it uses, else as they stand; None if they wait for each other."""
    given = {name for cell in cells for name in cell.gives}
    left, done, known = list(cells), [], set[str]()
    while left:
        ready = next((cell for cell in left if cell.uses & given <= known | cell.gives), None)
        if ready is None:
            return None
        left.remove(ready)
        done.append(ready)
        known |= ready.gives
    return done
