"""Switches of a program that are assignments rather than calls: torch.backends, the allocator, checkpointing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import partial

from preflight.program.bindings import bind
from preflight.program.call_site import words
from preflight.python.module import Module, load_module
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.notation import allocator_settings
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Unknown


def switch_bindings(paths: Sequence[str], project: Project) -> list[Binding]:
    """`torch.backends.cudnn.benchmark = True` and the like, which are assignments rather than calls."""
    found: list[Binding] = []
    for path in paths:
        switched = project.remembered.get(_SWITCHED, partial(_switched, path, project), path)
        found += switched
    return found


def _switched(path: str, project: Project) -> tuple[Binding, ...]:
    module = load_module(path, project)
    return tuple(_switches(module)) if module is not None else ()


_SWITCHED: CacheKind[tuple[Binding, ...]] = CacheKind("the switches of torch.backends that a file sets")

_SWITCHES = {
    "cudnn.benchmark": "train.cudnn_benchmark",
    "cuda.matmul.allow_tf32": "train.tf32",
    "backends.cuda.matmul.allow_tf32": "train.tf32",
}


_CHECKPOINTING = ("gradient_checkpointing", "use_gradient_checkpointing", "grad_checkpointing", "use_checkpoint")
"""Attributes with which classes of libraries, and of programs, switch checkpointing on."""


def _switches(module: Module) -> Iterator[Binding]:
    for node in module.nodes:
        yield from _checkpointing(node, module)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and len(node.targets) == 1:
            text = ast.unparse(node.targets[0])
            field = next((field for name, field in _SWITCHES.items() if text.endswith(name)), None)
            if field is not None and isinstance(node.value.value, bool):
                decided = not node.value.value or not _under_condition(node, module)
                value = node.value.value if decided else Unknown(f"an if decides whether {text} is set", Cause.not_read)
                yield bind(field, Const(value, module.origin(node.value)), Rank.read)
            elif re.search(r"(CUDA|PYTORCH)_ALLOC_CONF", text) and isinstance(node.value.value, str):
                for name, setting in allocator_settings(node.value.value):
                    yield bind(name, Const(setting, module.origin(node.value)), Rank.read)


_ALWAYS = ("__name__", "cuda.is_available()")
"""Words of conditions that hold in a program that trains on a GPU."""


def _under_condition(node: ast.AST, module: Module) -> bool:
    """Whether a statement stands in a branch of an `if` that a training need not take."""
    for one in module.nodes:
        if isinstance(one, ast.If):
            taken = any(word in ast.unparse(one.test) for word in _ALWAYS)
            parts = one.orelse if taken else [*one.body, *one.orelse]
            if any(node is inner for part in parts for inner in ast.walk(part)):
                return True
    return False


def _checkpointing(node: ast.AST, module: Module) -> Iterator[Binding]:
    """`model.gradient_checkpointing = True` of a model that is not the class's own: whether its class reads the
    attribute is not known."""
    target: ast.expr | None = None
    value: ast.expr | None = None
    name: object = None
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):
        target, name, value = node.targets[0].value, node.targets[0].attr, node.value
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and len(node.args) == 3:
        target, value = node.args[0], node.args[2]
        name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
    of_class = target is None or (isinstance(target, ast.Name) and target.id in ("self", "cls"))
    of_settings = target is not None and words(ast.unparse(target)) & _SETTINGS and "model" not in ast.unparse(target)
    off = value is None or (isinstance(value, ast.Constant) and not value.value)
    if name in _CHECKPOINTING and not (of_class or of_settings or off):
        why = f"the program sets the attribute {name}, and whether the model reads it is not known"
        reason = Const(Unknown(why, Cause.not_modelled), module.origin(value or node))
        yield bind("train.gradient_checkpointing", reason, Rank.read)


_SETTINGS = frozenset({"args", "arguments", "cfg", "config", "opt", "opts", "params", "hparams", "settings"})
"""Words in the names of settings, which a program reads itself."""
