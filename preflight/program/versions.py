"""Versions that a project pins (`torch==2.4.0`, a lock file) -> software.*.

Packages that its modules import -> data.imports; a framework other than PyTorch makes the model unknown.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from preflight.program.bindings import bind
from preflight.python.module import load_module
from preflight.vocabulary.caches import CacheKind, regex
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Origin, Span, Unknown

_PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "trl",
    "accelerate",
    "lightning",
    "pytorch-lightning",
    "ultralytics",
    "timm",
)
_PIN = regex(
    rf"""^[\s"']*(?P<name>{"|".join(_PACKAGES)})\s*==\s*(?P<version>\d+(?:\.\d+)*[\w.+]*)""",
    re.MULTILINE | re.IGNORECASE,
)
_CONDA = regex(
    rf"""^\s*-\s*["']?(?:[\w-]+::)?(?P<name>{"|".join((*_PACKAGES, "pytorch"))})"""
    r"""\s*={1,2}\s*(?P<version>\d+(?:\.\d+)+[\w.+]*)""",
    re.MULTILINE | re.IGNORECASE,
)
_LOCKED = regex(
    rf"""^name = "(?P<name>{"|".join(_PACKAGES)})"\s*\nversion = "(?P<version>\d+(?:\.\d+)*[\w.+]*)\"""", re.MULTILINE
)
_BOUNDED = regex(
    rf"""^[\s"']*(?P<name>{"|".join(_PACKAGES)})(?:\[[\w,-]*\])?(?:\s*=\s*["'])?[\s(]*"""
    r"""(?P<bounds>(?:(?:[<>]=?|~=|\^)\s*\d[\d.]*[\s,]*)+)""",
    re.MULTILINE | re.IGNORECASE,
)
"""`trl>=0.24,<1`, and poetry's `trl = "^0.24"`."""
_NAMES = {"pytorch-lightning": "lightning", "pytorch": "torch"}
_IMPORTED: CacheKind[frozenset[str]] = CacheKind("packages that a file imports")
_HEAVY = frozenset({
    "torch", "transformers", "trl", "peft", "sentence_transformers", "setfit", "lightning", "pytorch_lightning",
    "datasets", "tensorflow", "ultralytics", "timm", "torchvision", "diffusers", "cv2", "scipy", "pandas",
    "accelerate", "PIL",
})  # fmt: skip
"""Packages whose import takes much memory."""
_FILES = {
    "requirements.txt": _PIN, "requirements/base.txt": _PIN, "requirements/train.txt": _PIN, "requirement.txt": _PIN,
    "pyproject.toml": _PIN, "setup.py": _PIN, "setup.cfg": _PIN, "constraints.txt": _PIN,
    "environment.yml": _CONDA, "environment.yaml": _CONDA, "conda.yml": _CONDA, "conda.yaml": _CONDA, "env.yml": _CONDA,
    "uv.lock": _LOCKED, "poetry.lock": _LOCKED, "pdm.lock": _LOCKED,
}  # fmt: skip


def pinned(program: str, project: Project) -> Iterator[Binding]:
    """Bindings of software.NAME, from files in the project's root, in the program's folder and in its parent.

    A nearer folder wins. A version is unknown where files of one folder, or a lock file, have several.
    """
    here = posixpath.dirname(program)
    for folder in dict.fromkeys(("", posixpath.dirname(here), here)):
        found: dict[str, list[Const]] = {}
        for name, pattern in _FILES.items():
            path = posixpath.normpath(posixpath.join(folder, name))
            if project.exists(path):
                for package, version in _pins(path, pattern, project):
                    found.setdefault(package, []).append(version)
        for package, versions in found.items():
            yield bind(f"software.{package}", _agreed(package, versions), Rank.read)


def bounds(program: str, project: Project) -> frozenset[tuple[str, str]]:
    """The packages of which the project says between which releases they are, with the words that say it."""
    here = posixpath.dirname(program)
    found: dict[str, set[tuple[str, str]]] = {}
    for folder in dict.fromkeys(("", posixpath.dirname(here), here)):
        paths = (posixpath.normpath(posixpath.join(folder, name)) for name, one in _FILES.items() if one is _PIN)
        said = [one for path in paths if project.exists(path) for one in _bounds(path, project)]
        found |= {package: {one for one in said if one[0] == package} for package, _ in said}
    return frozenset(one for several in found.values() for one in several)


def _bounds(path: str, project: Project) -> Iterator[tuple[str, str]]:
    try:
        text = project.source(path).text
    except UnreadableFile:
        return
    for match in _BOUNDED.finditer(text):
        yield match.group("name").lower(), match.group("bounds")


def _agreed(package: str, versions: Sequence[Const]) -> Const:
    """The version that all places say."""
    if len({version.value for version in versions}) == 1:
        return versions[0]
    said = " and ".join(dict.fromkeys(str(version.value) for version in versions))
    return Const(Unknown(f"the project pins {package} {said}", Cause.not_set), versions[0].origin)


def _pins(path: str, pattern: re.Pattern[str], project: Project) -> Iterator[tuple[str, Const]]:
    patterns = (pattern, _PIN) if pattern is _CONDA else (pattern,)  # a list of pip's is part of a conda environment
    try:
        text = project.source(path).text
    except UnreadableFile:
        return
    for one in patterns:
        for match in one.finditer(text):
            name = match.group("name").lower()
            place = Origin(path, Span(*match.span("version")))
            yield _NAMES.get(name, name), Const(match.group("version"), place)


def imported(paths: Iterable[str], project: Project) -> Binding | None:
    """data.imports: the packages that the files import, by their first names; None if that is torch alone."""
    found = (project.remembered.get(_IMPORTED, partial(_packages, path, project), path) for path in paths)
    heavy = frozenset({"torch"}).union(*found) & _HEAVY
    return bind("data.imports", Const(tuple(sorted(heavy))), Rank.read) if heavy != {"torch"} else None


def _packages(path: str, project: Project) -> frozenset[str]:
    """The packages that a file imports, by their first names."""
    return frozenset(package for package, _ in _imports([path], project))


# Programs of frameworks other than PyTorch: what they train is not modelled, whatever their settings are called.

OTHERS = {
    "jax": "JAX", "flax": "JAX", "equinox": "JAX", "haiku": "JAX", "optax": "JAX", "tensorflow": "TensorFlow",
    "keras": "Keras", "tf_keras": "Keras", "paddle": "PaddlePaddle", "mindspore": "MindSpore", "mxnet": "MXNet",
    "mlx": "MLX",
}  # fmt: skip
"""Packages that train without PyTorch."""
_TORCH = frozenset({
    "torch", "torchvision", "lightning", "pytorch_lightning", "accelerate", "trl", "timm", "ultralytics", "deepspeed",
    "unsloth", "peft", "bitsandbytes", "sentence_transformers", "open_clip",
})  # fmt: skip


def of_another_framework(paths: Iterable[str], project: Project) -> list[Binding]:
    """The model is unknown if the files import another framework, and none of them PyTorch."""
    other: tuple[str, Origin] | None = None
    for package, place in _imports(paths, project):
        if package in _TORCH:
            return []
        if package in OTHERS and other is None:
            other = OTHERS[package], place
    if other is None:
        return []
    name, place = other
    reason = Unknown(f"the program trains with {name}, whose memory is not modelled", Cause.not_modelled)
    return [Binding("model.name", Const(reason, place), Rank.literal, place)]


def _imports(paths: Iterable[str], project: Project) -> Iterator[tuple[str, Origin]]:
    for path in paths:
        module = load_module(path, project)
        for node in module.nodes if module is not None else ():
            if isinstance(node, ast.Import) and module is not None:
                for alias in node.names:
                    yield alias.name.partition(".")[0], module.origin(node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level and module is not None:
                yield node.module.partition(".")[0], module.origin(node)
