"""Parts of a model that get no gradients -> train.frozen: prefixes of module names.

`for p in model.vision_model.parameters(): p.requires_grad = False` and `model.vision_model.requires_grad_(False)`, for
models that a library made (their module names are known). A whole model that is frozen is not a part of it: adapters
or a new head say what trains then.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from preflight.dialects.reading import Binding
from preflight.libraries.common import bind, constant, under
from preflight.libraries.surroundings import parents
from preflight.project import Project
from preflight.python.records import CallRecord
from preflight.values import Const

_LIBRARIES = ("transformers.", "torchvision.", "timm.", "open_clip.")


def frozen_bindings(records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """One binding with every frozen part; none where no part is frozen."""
    parts = [(part, record) for record in records if (part := _part(record, project)) is not None]
    if not parts:
        return []
    names = tuple(dict.fromkeys(part for part, _ in parts))
    last = parts[-1][1]
    return list(under(last.conditions, [bind("train.frozen", Const(names, last.origin), 2)]))


def _part(record: CallRecord, project: Project) -> str | None:
    """The module path that the call freezes, None where it freezes none."""
    if record.receiver is None or not record.receiver.startswith(_LIBRARIES):
        return None
    if record.method == "requires_grad_":
        wanted = constant(record.argument("requires_grad", 0))
        path = record.name.split(".")[:-1] if wanted is False else []
    elif record.method in ("parameters", "named_parameters") and _clears_gradients(record, project):
        path = record.name.split(".")[:-1]
    else:
        return None
    inner = path[2:] if path[:1] == ["self"] else path[1:]
    return ".".join(inner) or None


def _clears_gradients(record: CallRecord, project: Project) -> bool:
    """Whether the call is what a `for` goes over whose body sets `requires_grad = False` for all of it."""
    loop = parents(record.path, project).get(record.node)
    if not isinstance(loop, ast.For) or loop.iter is not record.node:
        return False
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and node.value.value is False
        and any(isinstance(target, ast.Attribute) and target.attr == "requires_grad" for target in node.targets)
        for node in loop.body
    )
