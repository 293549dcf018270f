"""Whether what a program calls trains, also in other files of the project: calls are followed by their names.

A program that only starts a package, `main()` -> `from package import main`, has no word of training itself. What is
followed is what the program runs: statements at the top, the functions that they call, and of a class its `__init__`
and the methods that are called. A module that is merely imported says nothing.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.vocabulary.caches import regex
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.python_grammar import parse_module
from preflight.vocabulary.text import Source

MOST_PIECES = 120
"""Functions and methods that are looked at for one program."""
MOST_FILES = 16
_FITS = frozenset({"train", "fit", "run", "learn", "launch", "start", "forward_backward"})
"""Methods of a trainer of a library that train, which a class of the project inherits."""
_FOLDER = regex(r"[\w./-]{1,60}")

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class _File(Struct, frozen=True):
    """A file with what is defined at its top, and where each name that is imported there comes from."""

    source: Source
    body: Sequence[ast.stmt]
    definitions: dict[str, Definition]
    imported: dict[str, tuple[str, str]]
    """A name -> the module that it is imported from, and its name there; "" for a module itself."""
    folders: tuple[str, ...]
    """Folders of the project that the file may add to `sys.path`."""


class Followed(Struct):
    """What is followed from one program. `trains` says whether a text trains by itself, `uses` whether its file can."""

    project: Project
    trains: Callable[[str], bool]
    uses: Callable[[str], bool]
    _files: dict[str, _File | None] = field(default_factory=dict)
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def started_by(self, source: Source) -> bool:
        """Whether the statements at the top of a program train, through functions and classes of other files."""
        file = self._read(source)
        if file is None:
            return False
        return self._calls(_plain(file.body), file, ())  # what they say themselves is `recognises` to judge

    def _runs(self, node: ast.AST, file: _File, own: Sequence[tuple[_File, ast.ClassDef]]) -> bool:
        """Whether a piece of a program trains; `own` has the classes whose method it is."""
        here = self.uses(file.source.text) and self.trains(ast.unparse(node))
        return here or self._calls(node, file, own)

    def _calls(self, node: ast.AST, file: _File, own: Sequence[tuple[_File, ast.ClassDef]]) -> bool:
        """Whether something that a piece of a program calls trains."""
        inner = list(ast.walk(node))
        calls = [function for one in inner if isinstance(one, ast.Call) for function in (one.func, *_handed_on(one))]
        if own_names := dict(_imported(inner)):
            file = replace(file, imported={**file.imported, **own_names})
        methods = {one.attr for one in calls if isinstance(one, ast.Attribute)}
        if any(self._method(holder, cls, methods) for holder, cls in own):
            return True
        return any(self._called(one, methods, file) for one in calls)

    def _called(self, function: ast.expr, methods: set[str], file: _File) -> bool:
        found = self._definition(function, file)
        if found is None:
            return False
        home, node = found
        if isinstance(node, ast.ClassDef):
            return any(self._method(holder, cls, {"__init__", *methods}) for holder, cls in self._classes(home, node))
        return self._once(home, node.name) and self._runs(node, home, ())

    def _method(self, file: _File, cls: ast.ClassDef, names: set[str]) -> bool:
        """Whether one of the methods of a class trains, or one that it inherits of a trainer of a library."""
        every = list(self._classes(file, cls))
        if names & _FITS and any(self._inherits_trainer(holder, one) for holder, one in every):
            return True
        inner = [node for node in cls.body if isinstance(node, _DEFINITIONS[:2])]
        return any(
            node.name in names and self._once(file, f"{cls.name}.{node.name}") and self._runs(node, file, every)
            for node in inner
        )

    def _inherits_trainer(self, file: _File, cls: ast.ClassDef) -> bool:
        if not self.uses(file.source.text):
            return False
        bases = (ast.unparse(base).rpartition(".")[2] for base in cls.bases if self._definition(base, file) is None)
        return any(base.endswith("Trainer") for base in bases)

    def _classes(self, file: _File, cls: ast.ClassDef) -> Iterator[tuple[_File, ast.ClassDef]]:
        """A class of the project, and those that it extends."""
        yield file, cls
        for base in cls.bases[:4]:
            found = self._definition(base, file)
            if found is not None and isinstance(found[1], ast.ClassDef) and found[1] is not cls:
                yield found[0], found[1]

    def _once(self, file: _File, name: str) -> bool:
        """Whether a piece is new, and not one too many."""
        at = (file.source.path, name)
        if at in self._seen or len(self._seen) >= MOST_PIECES:
            return False
        self._seen.add(at)
        return True

    # --- names --------------------------------------------------------------------------------------------------------

    def _definition(self, function: ast.expr, file: _File) -> tuple[_File, Definition] | None:
        """Where a function or class is written that is called by its name, or by its module's: `package.main()`."""
        if isinstance(function, ast.Name):
            return self._named(function.id, file)
        if isinstance(function, ast.Attribute):
            module, _, inner = ast.unparse(function.value).partition(".")
            if module not in file.imported or not _FOLDER.fullmatch(inner or "a"):
                return None
            home, name = file.imported[module]
            dotted = ".".join(part for part in (home.rstrip(".") and home, name, inner) if part)
            dotted = dotted if home.rstrip(".") else home + dotted
            for found in self._modules(dotted, file):
                return self._named(function.attr, found)
        return None

    def _named(self, name: str, file: _File, hops: int = 4) -> tuple[_File, Definition] | None:
        if name in file.definitions:
            return file, file.definitions[name]
        if name not in file.imported or hops == 0:
            return None
        module, there = file.imported[name]
        found = (self._named(there, one, hops - 1) for one in self._modules(module, file) if there)
        return next((one for one in found if one is not None), None)

    def _modules(self, module: str, file: _File) -> Iterator[_File]:
        """The files of the project that a module of that name may be."""
        here = posixpath.dirname(file.source.path)
        dots = len(module) - len(module.lstrip("."))
        stem = module.lstrip(".").replace(".", "/")
        up = "/".join([here, *[".."] * (dots - 1)])
        bases = (up,) if dots else (here, "", "src", posixpath.dirname(here), *file.folders)
        for base in dict.fromkeys(bases):
            for ending in (".py", "/__init__.py"):
                path = posixpath.normpath(posixpath.join(base, stem + ending)).removeprefix("/")
                found = None if path.startswith("..") or path == file.source.path else self._file(path)
                if found is not None:
                    yield found
                    return

    # --- files --------------------------------------------------------------------------------------------------------

    def _file(self, path: str) -> _File | None:
        if path not in self._files:
            self._files[path] = None
            if len(self._files) < 8 * MOST_FILES and self.project.exists(path):
                with suppress(UnreadableFile):  # the check of that file reports it
                    self._files[path] = self._read(self.project.source(path))
        return self._files[path]

    def _read(self, source: Source) -> _File | None:
        if sum(one is not None for one in self._files.values()) >= MOST_FILES:
            return None
        try:
            body = parse_module(source.text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        definitions = {node.name: node for node in body if isinstance(node, _DEFINITIONS)}
        imported = dict(_imported(ast.walk(_plain(body))))
        return _File(source, body, definitions, imported, tuple(self._folders(source, body)))

    def _folders(self, source: Source, body: Sequence[ast.stmt]) -> Iterator[str]:
        """Folders that the texts of a file name, if it changes where Python looks for modules."""
        if "sys.path" not in source.text:
            return
        here = posixpath.dirname(source.path)
        inner = (node for statement in body for node in ast.walk(statement))
        texts = (node.value for node in inner if isinstance(node, ast.Constant))
        for text in dict.fromkeys(one for one in texts if isinstance(one, str) and _FOLDER.fullmatch(one)):
            for base in (here, posixpath.dirname(here), ""):
                folder = posixpath.normpath(posixpath.join(base, text))
                if not folder.startswith(("..", "/")) and folder != "." and self.project.is_dir(folder):
                    yield folder


_STARTERS = frozenset(
    {"submit", "map_array", "spawn", "start_processes", "notebook_launcher", "Process", "run_function"}
)
"""Functions of submitit, torch.multiprocessing, accelerate and the standard library that call what they are given."""


def _handed_on(call: ast.Call) -> Iterator[ast.expr]:
    """The functions that a call starts in another process or job: `executor.submit(main, arguments)`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = [*call.args[:1], *(one.value for one in call.keywords if one.arg in ("target", "fn", "function"))]
    if name in _STARTERS:
        yield from (one for one in given if isinstance(one, (ast.Name, ast.Attribute)))


def _plain(body: Sequence[ast.stmt]) -> ast.Module:
    """The statements that run when a file starts, without its functions and classes."""
    return ast.Module([node for node in body if not isinstance(node, _DEFINITIONS)], [])


def _imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            yield from ((one.asname or one.name, (home, one.name)) for one in node.names)
        elif isinstance(node, ast.Import):
            for one in node.names:
                head = one.name.partition(".")[0]
                yield one.asname or head, (one.name if one.asname else head, "")
