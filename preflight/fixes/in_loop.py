"""Edits of a training loop that leave the run as it is: the loss divided by the batches that are added up, outputs of
the model that are deleted before the backward pass, and a cache that is emptied at the end of each round.

Names are deleted only where nothing can miss them: one assignment in the same block, and before the backward pass
nothing but the model's loss and loss functions read them.
"""

from __future__ import annotations

import ast

from preflight.documents.layout import line_end, line_start, newline_of
from preflight.documents.python import PythonDocument, parse_python
from preflight.fixes.python_names import SCOPES, Parents, above, called, imports_torch, indent_at, parents_of, within
from preflight.vocabulary.findings import Change
from preflight.vocabulary.project import Project
from preflight.vocabulary.study import Study
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Origin, Span

DIVIDED = "program.loss_divided"
"""What a Change names to have the loss divided: a fact of the program, and no field of its Job."""
KEPT, EMPTIED = "train.outputs_kept", "train.empty_cache_every"
_LOSSES = ("loss", "criterion", "cross_entropy")
_INSPECTING = frozenset({"locals", "globals", "vars", "eval", "exec", "dir"})


def is_in_loop(change: Change, study: Study) -> bool:
    """Whether a change is an edit of the program's own loop."""
    if change.field == KEPT:
        return "kept_outputs" in study.facts and change.value == "no"
    own = study.facts.get("framework")
    return change.field == DIVIDED or (change.field == EMPTIED and own is not None and own.value == "hand-written")


def in_loop(change: Change, study: Study, project: Project) -> tuple[Edit, ...] | None:
    """The edits; None where the loop has another shape. Raises DocumentError."""
    if change.field == DIVIDED:
        return _divided(study, project)
    place = next((box.fields[KEPT].origin for box in study.boxes if KEPT in box.fields), None)
    if place is None or not place.path.endswith(".py"):
        return None
    document = parse_python(project.source(place.path))
    parents = parents_of(document)
    backward = _at(place, document)
    if backward is None:
        return None
    if change.field == EMPTIED:
        return _emptied(backward, document, parents) if change.value == 1 else None
    names = str(study.facts["kept_outputs"].value).split()
    return _deleted(names, backward, document, parents)


def _at(place: Origin, document: PythonDocument) -> ast.expr | None:
    """The innermost expression of a place."""
    found = [
        node for node in ast.walk(document.tree) if isinstance(node, ast.expr) and document.span(node) == place.span
    ]
    return found[-1] if found else None


def _divided(study: Study, project: Project) -> tuple[Edit, ...] | None:
    fact = study.facts.get("loss_undivided")
    if fact is None or fact.origin is None or not fact.origin.path.endswith(".py"):
        return None
    document = parse_python(project.source(fact.origin.path))
    loss = _at(fact.origin, document)
    if not isinstance(loss, (ast.Call, ast.Attribute)):
        return None
    used = parents_of(document)[loss]
    opened, closed = ("(", ")") if isinstance(used, ast.Attribute) else ("", "")  # loss_of(x).backward()
    span = document.span(loss)
    return (Edit(document.source.path, span, f"{opened}{document.text(loss)} / {fact.value}{closed}"),)


def _emptied(backward: ast.expr, document: PythonDocument, parents: Parents) -> tuple[Edit, ...] | None:
    """`torch.cuda.empty_cache()` as the last line of the loop around the backward pass, which every round reaches."""
    loop: ast.AST | None = None
    for node in above(backward, parents):
        if isinstance(node, SCOPES):
            return None
        if isinstance(node, (ast.For, ast.While)):
            loop = node
            break
    if not isinstance(loop, (ast.For, ast.While)) or not imports_torch(document.tree):
        return None
    if any(isinstance(node, ast.Continue) for node in ast.walk(loop)):
        return None
    last = loop.body[-1]
    return _line(document, document.span(last).end, indent_at(document, document.span(last).start), last)


def _line(document: PythonDocument, end: int, indent: str, last: ast.stmt) -> tuple[Edit, ...] | None:
    text = document.source.text
    first = document.span(last).start
    rest = text[end : line_end(text, end)].strip()
    if text[line_start(text, first) : first].strip() or (rest and not rest.startswith("#")):
        return None  # several statements on one line
    at = line_end(text, end)
    return (Edit(document.source.path, Span(at, at), f"{newline_of(text, first)}{indent}torch.cuda.empty_cache()"),)


def _deleted(
    names: list[str], backward: ast.expr, document: PythonDocument, parents: Parents
) -> tuple[Edit, ...] | None:
    """`del outputs` before the statement of the backward pass."""
    statement = next((node for node in above(backward, parents) if isinstance(node, ast.stmt)), None)
    scope = next((node for node in above(backward, parents) if isinstance(node, (*SCOPES, ast.Module))), None)
    if not isinstance(statement, ast.Expr) or scope is None or not names:
        return None
    if not all(_may_be_deleted(name, statement, scope, document, parents) for name in names):
        return None
    start = document.span(statement).start
    text = document.source.text
    if text[line_start(text, start) : start].strip():
        return None
    line = f"del {', '.join(names)}{newline_of(text, start)}{indent_at(document, start)}"
    return (Edit(document.source.path, Span(start, start), line),)


def _may_be_deleted(name: str, statement: ast.stmt, scope: ast.AST, document: PythonDocument, parents: Parents) -> bool:
    """Whether a name has one value, given before the statement in each round, and no reader that keeps it."""
    everywhere = [node for node in ast.walk(scope) if isinstance(node, ast.Name)]
    if any(node.id in _INSPECTING for node in everywhere):
        return False
    own = set(within(scope))
    named = [node for node in everywhere if node.id == name]
    stores = [node for node in named if not isinstance(node.ctx, ast.Load)]
    if len(stores) != 1 or any(node not in own for node in named) or _declared(name, scope):
        return False
    assignment = parents[stores[0]]
    if not isinstance(assignment, ast.Assign) or assignment.targets != stores:
        return False
    after, before = document.span(assignment).end, document.span(statement).start
    reads = [node for node in named if node is not stores[0]]
    if any(not after <= document.span(node).start < before for node in reads):
        return False
    return _reached(assignment, statement, parents) and all(_passes(node, parents) for node in reads)


def _declared(name: str, scope: ast.AST) -> bool:
    return any(isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names for node in ast.walk(scope))


def _reached(assignment: ast.stmt, statement: ast.stmt, parents: Parents) -> bool:
    """Whether the assignment has run whenever the statement runs: both in one block, or in `with` blocks of it."""

    def blocks(node: ast.stmt) -> list[ast.AST]:
        """The nodes that have the statement in their block, through `with`; the body of an `if` or a `try` is none."""
        found: list[ast.AST] = []
        inner: ast.AST = node
        while inner in getattr(parents[inner], "body", ()) and isinstance(parents[inner], _BLOCKS):
            found.append(parents[inner])
            if not isinstance(found[-1], ast.With):
                break
            inner = found[-1]
        return found

    return any(one in blocks(statement) for one in blocks(assignment))


_BLOCKS = (ast.For, ast.While, ast.With, ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)


def _passes(node: ast.Name, parents: Parents) -> bool:
    """Whether a read of the outputs keeps none of them: `outputs.loss`, or an argument of a loss function."""
    top: ast.AST = node
    while isinstance(parents[top], ast.Attribute):
        top = parents[top]
        if isinstance(top, ast.Attribute) and top.attr == "loss":
            return True
    around = parents[top]
    return isinstance(around, ast.Call) and top in around.args and any(one in called(around).lower() for one in _LOSSES)
