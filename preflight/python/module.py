"""Python files of the project: parsed once, with spans in code points; and which file an import reads."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from pathlib import PurePosixPath

from msgspec import Struct, field

from preflight.vocabulary.budgets import PROGRAM_CHARACTERS
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.python_grammar import parse_module
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Origin, Span

_LINE_END = re.compile(r"\r\n|\r|\n")  # what Python's tokenizer ends a line at


class Module(Struct, eq=False, dict=True):
    """A parsed file. `name` is its dotted name from the project's root (or from `src/`)."""

    path: str
    name: str
    source: Source
    tree: ast.Module
    _generators: dict[ast.AST, bool] = field(default_factory=dict)
    _origins: dict[tuple[ast.AST, bool], Origin] = field(default_factory=dict)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_END.finditer(self.source.text))]

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node, in the order of `ast.walk`: some ten readers look for calls, classes or imports in a file."""
        return tuple(ast.walk(self.tree))

    def offset(self, line: int, column: int) -> int:
        """Code-point offset of a position as `ast` gives it: line from 1, column in UTF-8 bytes from 0."""
        start = self._starts[line - 1]
        end = self._starts[line] if line < len(self._starts) else len(self.source.text)
        text = self.source.text[start:end]
        if text.isascii():
            return start + column
        return start + len(text.encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.AST) -> Span:
        """The span of a node's own text."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line, end_column = getattr(node, "end_lineno", None), getattr(node, "end_col_offset", None)
        start = self.offset(line, column)
        if end_line is None or end_column is None:
            return Span(start, start)
        return Span(start, self.offset(end_line, end_column))

    def origin(self, node: ast.AST, editable: bool = True) -> Origin:
        """The place of a node's text."""
        found = self._origins.get((node, editable))
        if found is None:
            found = self._origins[node, editable] = Origin(self.path, self.span(node), editable=editable)
        return found

    def is_generator(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether a call of a function of this file gives a generator."""
        found = self._generators.get(function)
        if found is None:
            found = self._generators[function] = any(_yields(statement) for statement in function.body)
        return found


def _yields(statement: ast.stmt) -> bool:
    """Whether a statement has a `yield`, nested functions left out."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            pending.extend(ast.iter_child_nodes(node))
    return False


_MODULE: CacheKind[Module | None] = CacheKind("a parsed Python file")
_IMPORTED: CacheKind[str | None] = CacheKind("the file that an import reads, by name and level")


def module_name(path: str) -> str:
    """ "src/pkg/train.py" -> "pkg.train", "pkg/__init__.py" -> "pkg"."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if parts[:1] == ["src"] and len(parts) > 1:
        parts = parts[1:]
    if parts[-1:] == ["__init__"] and len(parts) > 1:
        parts = parts[:-1]
    return ".".join(parts)


_WHOLE_LIBRARIES = {
    "transformers": ("modeling_utils.py",), "diffusers": ("pipelines/__init__.py", "pipeline_utils.py"),
    "timm": ("models/registry.py", "models/_registry.py"), "torchvision": ("ops/__init__.py",), "torch": (),
    "peft": ("peft_model.py",), "trl": ("trainer/__init__.py",), "open_clip": ("factory.py",),
    "sentence_transformers": ("SentenceTransformer.py",), "segmentation_models_pytorch": ("base/__init__.py",),
    "accelerate": ("accelerator.py",), "deepspeed": ("runtime/engine.py",), "unsloth": ("models/__init__.py",),
    "ultralytics": ("engine/trainer.py",), "lightning": (), "pytorch_lightning": ("trainer/__init__.py",),
    "bitsandbytes": ("optim/__init__.py",), "optimum": (),
}  # fmt: skip
"""Libraries whose names say what a call means -> a file that only a copy of the whole library has."""


def _own_name(path: str, project: Project) -> str:
    """The name of a module. The own `transformers.py` of a project has another than the library."""
    name = module_name(path)
    head = name.partition(".")[0]
    folder = f"src/{head}" if path.startswith("src/") else head
    copied = any(project.exists(f"{folder}/{one}") for one in _WHOLE_LIBRARIES.get(head, ()))
    return f"project:{name}" if head in _WHOLE_LIBRARIES and not copied else name


def load_module(path: str, project: Project) -> Module | None:
    """The parsed file, cached per project; None where it cannot be read or is not Python."""
    return project.remembered.get(_MODULE, lambda: _parse(path, project), path)


def _parse(path: str, project: Project) -> Module | None:
    try:
        source = project.source(path)
        if len(source.text) > PROGRAM_CHARACTERS:
            return None
        tree = parse_module(source.text)
    except (UnreadableFile, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Module(path, _own_name(path, project), source, tree)


def resolve_import(name: str, level: int, importer: Module, project: Project) -> str | None:
    """The project file that `import name` (or `from ..name import`, `level` dots) reads; None: not of this project.

    Looked for as Python would when the importer is started as a script (its own directory), from the project's root,
    from `src/`, and from the folders between. A package without `__init__.py` (a namespace) has no file and is None.
    """
    return project.remembered.get(
        _IMPORTED, lambda: _resolve(name, level, importer, project), importer.path, name, level
    )


def _resolve(name: str, level: int, importer: Module, project: Project) -> str | None:
    parts = [part for part in name.split(".") if part]
    here = PurePosixPath(importer.path).parent
    if level:
        base = here
        for _ in range(level - 1):
            base = base.parent
        return _file(base, parts, project)
    for base in _bases(here, parts):
        found = _file(base, parts, project) if parts else None
        if found is not None and found != importer.path:
            return found
    return None


def file_in(folder: str, name: str, project: Project) -> str | None:
    """The file of a module in a folder that the program adds to where it looks for modules."""
    return _file(PurePosixPath(folder), [part for part in name.split(".") if part], project)


def _bases(here: PurePosixPath, parts: list[str]) -> tuple[PurePosixPath, ...]:
    """The folders that an import is looked for in, the most likely first.

    A project may lie in a folder of the repository, and be started there (`python -m src.train`, PYTHONPATH=.): a name
    of several parts is looked for in every folder above the importer, too. A name of one part would often be a library.
    """
    above = tuple(here.parents) if len(parts) > 1 else ()
    return tuple(dict.fromkeys((here, PurePosixPath("."), PurePosixPath("src"), here.parent, *above)))


def _file(base: PurePosixPath, parts: list[str], project: Project) -> str | None:
    stem = base.joinpath(*parts)
    candidates = [stem / "__init__.py"] if not parts else [stem.with_name(stem.name + ".py"), stem / "__init__.py"]
    for candidate in candidates:
        path = candidate.as_posix()
        if not path.startswith("..") and project.exists(path):
            return path
    return None


def is_package_dir(name: str, level: int, importer: Module, project: Project) -> str | None:
    """The directory of a namespace package of that name, None where there is none."""
    parts = [part for part in name.split(".") if part]
    here = PurePosixPath(importer.path).parent
    bases = _bases(here, parts)
    if level:
        base = here
        for _ in range(level - 1):
            base = base.parent
        bases = (base,)
    for base in bases:
        path = base.joinpath(*parts).as_posix()
        if parts and not path.startswith("..") and project.is_dir(path):
            return path
    return None
