"""Where names of a Python file get their values, and what stands around a place: for edits of calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from preflight.documents.layout import line_start
from preflight.documents.python import PythonDocument

Parents = Mapping[ast.AST, ast.AST]

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def parents_of(document: PythonDocument) -> Parents:
    """Each node of a file -> the node around it."""
    return {child: node for node in ast.walk(document.tree) for child in ast.iter_child_nodes(node)}


def above(node: ast.AST, parents: Parents) -> Iterator[ast.AST]:
    """The nodes around a node, the nearest first, up to the file."""
    while node in parents:
        node = parents[node]
        yield node


def within(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope; of the scopes in it their names, and what they declare to be of another one."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, SCOPES):
            yield from (one for one in ast.walk(node) if isinstance(one, (ast.Global, ast.Nonlocal)))
        else:
            pending += ast.iter_child_nodes(node)


def binds(node: ast.AST, name: str) -> bool:
    """Whether a node gives a name a value, or makes it one of another scope."""
    if isinstance(node, ast.Name):
        return node.id == name and not isinstance(node.ctx, ast.Load)
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return name in node.names
    if isinstance(node, ast.arg):
        return node.arg == name
    return name in (getattr(node, "name", None), getattr(node, "asname", None))  # a function, an import, a pattern


def called(node: ast.AST) -> str:
    """The last name of what is called, or of a decorator."""
    named = node.func if isinstance(node, ast.Call) else node
    return named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")


def indent_at(document: PythonDocument, at: int) -> str:
    """The white space before the line that holds an offset."""
    text = document.source.text
    line = text[line_start(text, at) :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def imports_torch(tree: ast.Module) -> bool:
    """Whether a file imports torch under its name, which stands for nothing else in it."""
    imported = any(
        isinstance(statement, ast.Import) and any(a.name == "torch" and a.asname is None for a in statement.names)
        for statement in tree.body
    )
    bound = any(isinstance(node, (ast.Name, ast.arg)) and binds(node, "torch") for node in ast.walk(tree))
    return imported and not bound
