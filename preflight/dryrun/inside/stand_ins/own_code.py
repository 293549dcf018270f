"""What the program's own code says: what it expects to be missing, and the names by which it takes something."""

from __future__ import annotations

import ast
import functools
import linecache
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

from .. import places

_OF_MISSING = ("Exception", "BaseException", "OSError", "IOError", "EnvironmentError", "FileNotFoundError",
               "RuntimeError", "ValueError")  # fmt: skip
"""Errors by which a program may expect that a file is missing: its own are raised as the last two."""
_OF_IMPORT = ("Exception", "BaseException", "ImportError", "ModuleNotFoundError")
"""Errors by which a program may expect that a package is not installed."""
_ENDS = ("exit", "_exit", "abort", "quit", "error")


_PASSES_ON = re.compile(
    r"\bpathlib\b|torch.utils.data|torchvision.datasets|pycocotools|imageio|monai.(data|transforms|utils)\b"
)
"""Files whose own question is that of the line that called them."""
_POOLS = re.compile(r"multiprocessing[/\\]pool\.|concurrent[/\\]futures")
_LOADS = re.compile(r"[/\\]torch[/\\]utils[/\\]data[/\\]")


MOST = 32
"""Names that are looked at."""
_NAME = re.compile(r"\w[\w .-]{0,40}")


def own_files() -> list[str]:
    """The files of the program's own modules."""
    found: dict[str, None] = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py") and places.is_users(path) and name[:10] != "preflight_":
            found[path] = None
    return list(found)


def names_used() -> list[str]:
    """Texts by which the program's own modules take something from something: `row["label"]`, `get("text")`."""
    found = dict.fromkeys(name for path in own_files() for name in _texts(tree_of(path)))
    return [name for name in found if _NAME.fullmatch(name)][:MOST]


def own_texts() -> str:
    """The lines of the program's own modules."""
    return "\n".join("".join(linecache.getlines(path)) for path in own_files())


_LENGTHS = re.compile(r"^\s*(?:context|block|seq|sequence|ctx|max_seq|max)_?(?:length|len|size)\s*=\s*(\d+)", re.M)


def length_stated() -> int:
    """The length of sequences that the program states as a number; 0 if none."""
    found = _LENGTHS.search(own_texts())
    return int(found[1]) if found is not None else 0


def assigned_names() -> list[str]:
    """Names of what the program's line at work is assigned to: `x, y = load(...)`."""
    frame = program_frame()
    for node in ast.walk(tree_of(frame.f_code.co_filename)) if frame is not None else ():
        here = isinstance(node, ast.Assign) and node.lineno <= frame.f_lineno <= (node.end_lineno or 0)
        if here and isinstance(node, ast.Assign) and not isinstance(node.value, ast.Tuple):
            target = node.targets[0]
            found = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            return [ast.unparse(one) for one in found]
    return []


def beginnings() -> list[str]:
    """Texts with which the program wants others to begin: `text.startswith(PREFIXES)`."""
    found: dict[str, None] = {}
    modules = [vars(one) for one in list(sys.modules.values()) if places.is_users(getattr(one, "__file__", "") or "")]
    for node in (node for path in own_files() for node in ast.walk(tree_of(path))):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "startswith" or not node.args:
            continue
        what = node.args[0]
        known = [what.value] if isinstance(what, ast.Constant) else []
        if isinstance(what, ast.Name):
            known = [scope[what.id] for scope in modules if what.id in scope]
        for one in known:
            texts = one if isinstance(one, (tuple, list)) else [one]
            found.update(dict.fromkeys(text for text in texts if isinstance(text, str) and text.endswith(" ")))
    return list(found)


def iterated_names() -> frozenset[str]:
    """Names by which the program takes something that it goes through: `for ending in row["endings"]`."""
    found: set[str] = set()
    for tree in map(tree_of, own_files()):
        taken = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                taken[node.targets[0].id] = list(_texts_of(node.value))
        for node in ast.walk(tree):
            if isinstance(node, (ast.For, ast.comprehension)):
                found.update(taken.get(node.iter.id, ()) if isinstance(node.iter, ast.Name) else _texts_of(node.iter))
    return frozenset(found)


def texts_named() -> frozenset[str]:
    """All texts of one line in the program's own modules."""
    nodes = (node for path in own_files() for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant))
    return frozenset(node.value for node in nodes if isinstance(node.value, str) and "\n" not in node.value)


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        yield from _texts_of(node)


def _texts_of(node: ast.AST) -> Iterator[str]:
    asked: list[ast.expr] = []
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        asked = node.slice.elts if isinstance(node.slice, (ast.List, ast.Tuple)) else [node.slice]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
        asked = node.args[:1]
    yield from (one.value for one in asked if isinstance(one, ast.Constant) and isinstance(one.value, str))


def may_be_missing() -> bool:
    """Whether the program handles an error of what it is doing."""
    return any(_catches(frame, _OF_MISSING) for frame in _users_frames())


def may_be_absent() -> bool:
    """Whether the program's own line that imports something handles that it is not installed."""
    frame = next(_users_frames(), None)
    return frame is not None and _catches(frame, _OF_IMPORT)


def program_frame() -> Any:
    """The frame of the program's own line that is at work, if only pathlib and libraries of data stand between. What
    calls a loader of torch, as a trainer does, asks for the program."""
    frame: Any = sys._getframe(1)
    loads = pooled = False
    while frame is not None:
        name = frame.f_code.co_filename
        if places.is_users(name):
            return frame
        loads = loads or bool(_LOADS.search(name))
        pooled = pooled or bool(_POOLS.search(name))
        if not loads and not pooled and not name.startswith(places.HERE) and not _PASSES_ON.search(name):
            return None
        frame = frame.f_back
    if pooled and threading.current_thread() is not threading.main_thread():  # the main thread's line waits for it
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        while frame is not None and not places.is_users(frame.f_code.co_filename):
            frame = frame.f_back
    return frame


def reads_tokens() -> bool:
    """Whether the program's function at work speaks of tokens."""
    frame = program_frame()
    return frame is not None and "token" in " ".join((frame.f_code.co_name, *frame.f_code.co_varnames)).lower()


def asked_by_program() -> bool:
    """Whether the line at work is the program's own."""
    return program_frame() is not None


def called_by_program() -> bool:
    """Whether the function at work was called by the program's own line, with no library between."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(places.HERE):
        frame = frame.f_back
    return frame is not None and places.is_users(frame.f_code.co_filename)


def _users_frames() -> Iterator[Any]:
    frame: Any = sys._getframe(2)
    while frame is not None:
        if places.is_users(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


@functools.cache
def tree_of(path: str) -> ast.Module:
    """The statements of a file; none if it cannot be read."""
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _catches(frame: Any, errors: tuple[str, ...]) -> bool:
    """Whether the line that is at work stands in a `try` that goes on after one of these errors."""
    return any(first <= frame.f_lineno <= last for first, last in _tries(frame.f_code.co_filename, errors))


@functools.cache
def _tries(path: str, errors: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Lines of a file, from and to, for whose errors there is such a `try`."""
    last = _last_statements(tree_of(path))
    found = [
        node
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Try) and node not in last and any(_goes_on(one, errors) for one in node.handlers)
    ]
    return tuple((node.body[0].lineno, node.body[-1].end_lineno or 0) for node in found)


def _last_statements(tree: ast.Module) -> list[ast.stmt]:
    """The last statement of a program, and those at the end of it: nothing follows on an error that they handle."""
    found: list[ast.stmt] = []
    mains = [one.body for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "main"]
    for body in (tree.body, *mains):
        while body:
            found.append(body[-1])
            inner = body[-1]
            body = inner.body if isinstance(inner, (ast.If, ast.With)) else []
    return found


def _goes_on(handler: ast.ExceptHandler, errors: tuple[str, ...]) -> bool:
    """Whether a handler takes one of these errors, and does not end the program."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = [one.id if isinstance(one, ast.Name) else getattr(one, "attr", "") for one in kinds if one is not None]
    return (not names or any(one in errors for one in names)) and not ends(handler.body)


def ends(body: list[ast.stmt]) -> bool:
    """Whether statements end the program, or raise an error."""
    last = body[-1] if body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        function = last.value.func
        return (function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")) in _ENDS
    return isinstance(last, ast.Raise)
