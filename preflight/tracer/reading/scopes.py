"""The names of a file of the project. A name is looked up when it is asked for; no statement of a file is executed
for any other reason."""

from __future__ import annotations

import ast
from typing import Any

from .stopped import Stopped
from .values import Frame, Library, Machine, Value

_RUNNING = object()


class Scope(Value):
    """A file. `imports`: "level:name" of its import statements -> path, where a file of the project is imported."""

    def __init__(self, reader: Machine, path: str, text: str, imports: dict[str, str]) -> None:
        self.reader, self.path, self.imports = reader, path, imports
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Stopped(f"the file cannot be parsed: {type(error).__name__}", path, 1) from None
        self.values: dict[str, Any] = {}
        self.bound: dict[str, list[ast.stmt]] = {}
        self.stars: list[ast.ImportFrom] = []
        self.frame = Frame(self)
        self.changed = changed_names(self.tree)
        for statement in self.tree.body:
            self._bind(statement)
        _refuse_patches(self)

    def _bind(self, statement: ast.stmt) -> None:
        """What each statement at the top of the file gives a value to, or may change."""
        if isinstance(statement, ast.If) and _is_type_checking(statement.test):
            return
        if isinstance(statement, ast.Try):  # `try: import a / except ImportError: import b`
            for one in statement.body:
                self._bind(one)
            return
        if isinstance(statement, ast.ImportFrom) and any(one.name == "*" for one in statement.names):
            self.stars.append(statement)
            return
        if isinstance(statement, ast.If) and _is_main(statement.test):
            return
        for name in bound_names(statement):
            self.bound.setdefault(name, []).append(statement)

    def look_up(self, name: str) -> Any:
        """The value of a name. Raises KeyError where the file has none, Stopped where it is not known."""
        found = self.values.get(name, self)
        if found is _RUNNING:
            raise Stopped(f"{name} is defined by itself", self.path, 1)
        if found is not self:
            return found
        statements = self.bound.get(name)
        if not statements:
            for star in self.stars:
                target = self.imports.get(f"{star.level}:{star.module or ''}")
                if target is not None:
                    try:
                        return _file(self.reader, target).look_up(name)
                    except KeyError:
                        continue
                if star.module in _STARS and self.reader.is_listed(f"{star.module}.{name}"):
                    return Library(f"{star.module}.{name}", self.reader)
            raise KeyError(name)
        imported = all(isinstance(one, (ast.Import, ast.ImportFrom)) for one in statements)
        if not imported and (len(statements) > 1 or name in self.changed):
            raise Stopped(f"{name} gets a value, or is changed, in several places", self.path, statements[-1].lineno)
        self.values[name] = _RUNNING
        try:
            self.values[name] = made = self._value(name, statements[0])
        except BaseException:
            del self.values[name]
            raise
        return made

    def _value(self, name: str, statement: ast.stmt) -> Any:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            return self.imported(statement)[name]
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            return self.reader.defined(statement, self.frame)
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if value is not None and (not targets or (len(targets) == 1 and isinstance(targets[0], ast.Name))):
            return self.reader.evaluate(value, self.frame)
        raise Stopped(f"how {name} gets its value is not read", self.path, statement.lineno)

    def imported(self, statement: ast.Import | ast.ImportFrom) -> dict[str, Any]:
        """The names that an import statement binds."""
        found: dict[str, Any] = {}
        for alias in statement.names:
            if isinstance(statement, ast.Import):
                path = self.imports.get(f"0:{alias.name}")
                name = alias.asname or alias.name.partition(".")[0]
                if path is not None and (alias.asname or "." not in alias.name):
                    found[name] = self.reader.scope(path)
                elif path is not None:
                    found[name] = Dotted(self, name)
                else:
                    found[name] = Library(alias.name if alias.asname else name, self.reader)
                continue
            home, level = statement.module or "", statement.level
            below = self.imports.get(f"{level}:{home}.{alias.name}" if home else f"{level}:{alias.name}")
            path = self.imports.get(f"{level}:{home}")
            name = alias.asname or alias.name
            if path is not None:
                scope = _file(self.reader, path)
                try:
                    found[name] = scope.look_up(alias.name)
                    continue
                except KeyError:
                    pass
            if below is not None:
                found[name] = self.reader.scope(below)
            elif path is not None or level:
                raise Stopped(f"{alias.name} is not found in {home or '.'}", self.path, statement.lineno)
            else:
                found[name] = Library(f"{home}.{alias.name}", self.reader)
        return found


def _file(reader: Machine, path: str) -> Scope:
    found = reader.scope(path)
    assert isinstance(found, Scope)
    return found


_STARS = ("torch.nn", "math")


class Dotted(Value):
    """`import models.net`: `models`, of which the next name is asked for."""

    def __init__(self, scope: Scope, name: str) -> None:
        self.scope, self.name = scope, name

    def attribute(self, name: str) -> Any:
        path = self.scope.imports.get(f"0:{self.name}.{name}")
        return self.scope.reader.scope(path) if path is not None else Dotted(self.scope, f"{self.name}.{name}")


def bound_names(statement: ast.AST) -> set[str]:
    """The names that a statement binds."""
    found: set[str] = set()
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    for node in ast.walk(statement):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {one.asname or one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
    return found


def changed_names(tree: ast.Module) -> set[str]:
    """The names at the top of a file whose values its statements may change: `TABLE["a"] = x`, `TABLE.append(x)`, and
    `global COUNT` in a function."""
    found: set[str] = set()
    for statement in tree.body:
        local = bound_names(statement) if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) else set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Global):
                found.update(node.names)
            elif isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
                found |= _root(node)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                found |= _root(node.value.func) if isinstance(node.value.func, ast.Attribute) else set()
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            stored = {
                one.id for one in ast.walk(statement) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
            }
            stored |= {one.arg for one in ast.walk(statement) if isinstance(one, ast.arg)} | local
            named = {name for one in ast.walk(statement) if isinstance(one, ast.Global) for name in one.names}
            found -= stored - named
    return found


def _root(node: ast.AST) -> set[str]:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test).endswith("TYPE_CHECKING")


_VALUES_ONLY = {"requires_grad", "grad", "data"}


def _refuse_patches(scope: Scope) -> None:
    """Raises Stopped where a file changes a class or a library: `Net.forward = other`, `torch.relu = other`. Whether
    and when that runs is not asked."""
    outer = {name for name, made in scope.bound.items() if any(_can_be_called(one, scope) for one in made)}
    for node in ast.walk(scope.tree):
        changed: set[str] = set()
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and node.attr not in _VALUES_ONLY:
            changed = _root(node)
            if node.attr in ("forward", "__call__", "__class__"):
                raise Stopped(f"the program replaces .{node.attr}", scope.path, node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
            changed = _root(node.args[0]) if node.args else set()
        for name in changed & outer:
            if not _HARMLESS & set(ast.unparse(node).split(".")):
                raise Stopped(f"the program changes {name}", scope.path, getattr(node, "lineno", 1))


_HARMLESS = {"backends", "environ", "rcParams"}
"""`torch.backends.cudnn.benchmark = True`: settings of libraries, which preflight reads elsewhere."""


_CALLED = ("torch", "torchvision", "timm", "einops", "math", "numpy", "functools", "collections", "copy")
"""Libraries of which the tables of `allowed` name something; of others nothing is ever called."""


def _can_be_called(statement: ast.stmt, scope: Scope) -> bool:
    """Whether a name is that of a class, of a file of the project, or of a library of which something is called."""
    if isinstance(statement, ast.ImportFrom):
        home = statement.module or ""
        return (
            bool(statement.level)
            or (home.partition(".")[0] in _CALLED and home != "torch.backends")
            or any(key.partition(":")[2].startswith(home) for key in scope.imports)
        )
    if isinstance(statement, ast.Import):
        return any(
            (one.name.partition(".")[0] in _CALLED and not (one.asname and one.name.startswith("torch.backends")))
            or f"0:{one.name}" in scope.imports
            for one in statement.names
        )
    return isinstance(statement, ast.ClassDef)
