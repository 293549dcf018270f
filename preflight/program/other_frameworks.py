"""Programs of frameworks other than PyTorch: what they train is not modelled, whatever their settings are called."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from preflight.python.module import load_module
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Origin, Unknown

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
        for node in ast.walk(module.tree) if module is not None else ():
            if isinstance(node, ast.Import) and module is not None:
                for alias in node.names:
                    yield alias.name.partition(".")[0], module.origin(node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level and module is not None:
                yield node.module.partition(".")[0], module.origin(node)
