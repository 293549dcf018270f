"""Data sets that keep Python objects in memory: a list that `__init__` builds and `__getitem__` reads.

-> the fact dataset_held with the place of the list, and data.in_memory_kind. How much it takes is in the data, not in
the program. Lists of file names are left out: they are small.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import partial

from preflight.program.bindings import bind
from preflight.python.module import Module, load_module
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Fact, Rank
from preflight.vocabulary.values import Const, Origin

_OBJECTS = ("load", "loads", "to_dict", "tolist", "safe_load")
"""json.load, pickle.load, DataFrame.to_dict, ndarray.tolist, yaml.safe_load: lists and dicts of Python objects."""
_STRINGS = ("readlines", "splitlines")
_ARRAYS = frozenset({"torch", "numpy", "np", "joblib", "h5py", "zarr", "safetensors"})
"""Whose `load` gives arrays."""
_CONTAINERS = ("list", "sorted", "dict", "tuple")
_NAMES = ("glob", "rglob", "listdir", "iterdir", "scandir", "walk")

_HELD: CacheKind[tuple[str, Origin] | None] = CacheKind("the objects that a file's data sets keep")
_SAMPLES: CacheKind[Binding | None] = CacheKind("how a file's data sets make their samples")


def objects_in_memory(paths: Sequence[str], project: Project) -> tuple[list[Binding], list[Fact]]:
    """Bindings and facts of data sets in these files: Python objects that they keep, samples that they return."""
    given = sample_bindings(paths, project)
    for path in paths:
        held = project.remembered.get(_HELD, partial(_held, path, project), path)
        if held is not None:
            kind, origin = held
            binding = bind("data.in_memory_kind", Const(kind, origin), Rank.read)
            return [binding, *given], [Fact("dataset_held", kind, origin)]
    return given, []


_OPENS: CacheKind[Origin | None] = CacheKind("where a file's data sets open a file of arrays for a sample")
_READERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("np", "numpy", "torch", "nib", "nibabel"), ("load",)),
    "h5py": ("File",), "zarr": ("open", "open_group", "load"), "tifffile": ("imread", "TiffFile"),
    "sitk": ("ReadImage",), "SimpleITK": ("ReadImage",), "rasterio": ("open",), "openslide": ("OpenSlide",),
    "xarray": ("open_dataset",), "xr": ("open_dataset",),
}  # fmt: skip
"""Package -> its functions that open a file of arrays of any size: volumes, scenes, slides, bags of features."""


def opened_files(paths: Sequence[str], project: Project) -> list[Fact]:
    """The fact sample_files, where a data set opens a file for each sample."""
    for path in paths:
        origin = project.remembered.get(_OPENS, partial(_opens, path, project), path)
        if origin is not None:
            return [Fact("sample_files", True, origin)]
    return []


def _opens(path: str, project: Project) -> Origin | None:
    module = load_module(path, project)
    calls = (call for cls in module.nodes for call in _made_for_samples(cls)) if module is not None else ()
    opened = (call for call in calls if _last(call) in _READERS.get(_first(call), ()))
    return next((module.origin(call) for call in opened if module is not None), None)


def _made_for_samples(cls: ast.AST) -> Iterator[ast.Call]:
    """The calls in `__getitem__` of a class that is a data set."""
    if isinstance(cls, ast.ClassDef) and any("Dataset" in ast.unparse(base) for base in cls.bases):
        read = (one for one in cls.body if isinstance(one, ast.FunctionDef) and one.name == "__getitem__")
        yield from (call for function in read for call in ast.walk(function) if isinstance(call, ast.Call))


def _held(path: str, project: Project) -> tuple[str, Origin] | None:
    module = load_module(path, project)
    return next(_lists(module), None) if module is not None else None


def _lists(module: Module) -> Iterator[tuple[str, Origin]]:
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Dataset") for base in node.bases):
            methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
            made, read = methods.get("__init__"), methods.get("__getitem__")
            if made is None or read is None:
                continue
            used = {one.attr for one in ast.walk(read) if isinstance(one, ast.Attribute) and _is_self(one)}
            for name, value in _assigned(made):
                kind = _kind(name, value, made) if name in used else None
                if kind is not None:
                    yield kind, module.origin(value)


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """`self.NAME = value` in a function."""
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and _is_self(target) and isinstance(node, (ast.Assign, ast.AnnAssign)):
                assert node.value is not None
                yield target.attr, node.value


def _kind(name: str, value: ast.expr, function: ast.FunctionDef) -> str | None:
    """objects or strings; None if the value is neither, or not known."""
    called = [one for one in ast.walk(value) if isinstance(one, ast.Call)]
    if any(_last(call) in _NAMES for call in called):
        return None
    for call in called:
        if _last(call) in _OBJECTS and _first(call) not in _ARRAYS:
            return "objects"
    if any(_last(call) in _STRINGS for call in called):
        return "strings"
    if isinstance(value, ast.List) and not value.elts:
        return _appended(name, function)
    if isinstance(value, (ast.ListComp, ast.DictComp)):
        return _element(value.elt if isinstance(value, ast.ListComp) else value.value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _CONTAINERS and value.args:
        inner = value.args[0]
        return _element(inner.elt) if isinstance(inner, ast.GeneratorExp) else None
    return None


def _appended(name: str, function: ast.FunctionDef) -> str | None:
    """What `self.NAME.append(...)` in a loop puts into an empty list."""
    for loop in (node for node in ast.walk(function) if isinstance(node, (ast.For, ast.While))):
        for call in (node for node in ast.walk(loop) if isinstance(node, ast.Call)):
            where = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "append" else None
            if isinstance(where, ast.Attribute) and _is_self(where) and where.attr == name and call.args:
                return _element(call.args[0])
    return None


def _element(value: ast.expr) -> str | None:
    """The kind of a list's elements: "objects" for parsed or constructed values, "strings" for lines of a text."""
    if isinstance(value, (ast.Dict, ast.Tuple, ast.List)):
        return "objects"
    if isinstance(value, ast.Call):
        if _last(value) in _OBJECTS and _first(value) not in _ARRAYS:
            return "objects"
        if _last(value) in ("strip", "rstrip", "lstrip"):
            return "strings"
    return None


def _last(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _first(call: ast.Call) -> str:
    return ast.unparse(call.func).partition(".")[0]


# The results of a data set's `__getitem__`: views of an array in memory, copies of it, or arrays that numpy makes.
#
# -> data.copies_samples and data.samples_from, which decide what the heaps of workers keep. Only what is returned as it
# is made counts; a call of something else (a transform) says nothing.

_SHARE = ("from_numpy", "as_tensor")
"""torch functions whose tensor has the array's own memory."""
_COPY = ("tensor", "array")
"""Functions of torch and numpy that copy their argument."""
_COPIES = ("clone", "copy", "float", "half", "long", "astype")
"""Methods that copy their object (to another type, for casts)."""


def sample_bindings(paths: Sequence[str], project: Project) -> list[Binding]:
    """Bindings of samples, from the first data set that shows how it makes them."""
    for path in paths:
        found = project.remembered.get(_SAMPLES, partial(_samples, path, project), path)
        if found is not None:
            return [found]
    return []


def _samples(path: str, project: Project) -> Binding | None:
    module = load_module(path, project)
    return next(_told(module), None) if module is not None else None


def _told(module: Module) -> Iterator[Binding]:
    for node in module.nodes:
        if not isinstance(node, ast.ClassDef) or not any(ast.unparse(one).endswith("Dataset") for one in node.bases):
            continue
        read = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__getitem__"), None)
        for given in _returned(read) if read is not None else ():
            yield from _binding(given, module)


def _returned(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """The sample of what is returned: the first item of a tuple; a name is what it was last assigned."""
    assigned = {
        target.id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        given = node.value.elts[0] if isinstance(node.value, ast.Tuple) and node.value.elts else node.value
        yield assigned.get(given.id, given) if isinstance(given, ast.Name) else given


def _binding(given: ast.expr, module: Module) -> Iterator[Binding]:
    if not isinstance(given, ast.Call) or not isinstance(given.func, ast.Attribute):
        return
    origin, name = module.origin(given), given.func.attr
    inner = given.args[0] if name in (*_SHARE, *_COPY) and given.args else given.func.value
    if name in _SHARE and not _is_item(inner):
        yield bind("data.samples_from", Const("numpy", origin), Rank.read)
    elif name in (*_COPY, *_COPIES) and _is_item(inner):
        yield bind("data.copies_samples", Const(True, origin), Rank.read)


def _is_item(node: ast.expr) -> bool:
    """`self.NAME[...]`"""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and isinstance(node.value.value, ast.Name)
        and node.value.value.id == "self"
    )
