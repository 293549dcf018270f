"""Arguments that a call takes from a configuration as a whole: `DataLoader(data, **cfg.dataloader.params)`.

The evaluator knows that such a call has further arguments, not which. A configuration is asked by name: each argument
that decides memory becomes a parameter of the program, with what the call would have without the configuration (a
literal of the call, the library's default) as its default.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from preflight.program.call_site import assigned_values, scope_of
from preflight.python.objects import CallRecord
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Parameter, ParameterKind
from preflight.vocabulary.values import Const, Expr, Ref, Scalar

_ROOTS = frozenset({"cfg", "config", "conf", "hparams", "hydra_cfg", "configs"})
MAX_HOPS = 5


def with_configuration(
    record: CallRecord, calls: Sequence[CallRecord], defaults: Mapping[str, Scalar], project: Project
) -> tuple[CallRecord, tuple[Parameter, ...]]:
    """The call with arguments from the configuration as names, and these names as parameters of the program."""
    if record.complete or not isinstance(record.node, ast.Call):
        return record, ()
    prefix = _prefix(record, project)
    kind: ParameterKind = "hydra"
    if prefix is None or not any(call.name.startswith("hydra.") for call in calls):
        if not any(call.name.startswith("wandb.") for call in calls):
            return (record, ()) if prefix is None else _named(record, prefix, kind, defaults)
        prefix, kind = "", "wandb"
    return _named(record, prefix, kind, defaults)


def _named(
    record: CallRecord, prefix: str, kind: ParameterKind, defaults: Mapping[str, Scalar]
) -> tuple[CallRecord, tuple[Parameter, ...]]:
    node = record.node
    written = {keyword.arg for keyword in node.keywords} if isinstance(node, ast.Call) else set()
    kwargs: dict[str, Expr] = dict(record.kwargs)
    parameters: list[Parameter] = []
    for name, default in defaults.items():
        if name in written:
            continue
        key = f"{prefix}.{name}" if prefix else name
        below = record.kwargs.get(name, Const(default))
        kwargs[name] = Ref(key)
        if not (isinstance(below, Ref) and below.name == key):
            parameters.append(Parameter(key, below, (), kind))
    return replace(record, kwargs=kwargs, complete=True), tuple(parameters)


def _prefix(record: CallRecord, project: Project) -> str | None:
    """The path of `**cfg.dataloader.params` within the configuration; None if it is not a part of one."""
    node = record.node
    mappings = [keyword.value for keyword in node.keywords if keyword.arg is None] if isinstance(node, ast.Call) else []
    for mapping in mappings:
        found = _path(mapping, record, project, 0)
        if found:
            return found
    return None


def _path(node: ast.expr, record: CallRecord, project: Project, hops: int) -> str | None:
    """Dotted keys below a configuration's root, followed through local names and conversions to a dict."""
    if hops > MAX_HOPS:
        return None
    if isinstance(node, ast.Call) and node.args:  # dict(cfg.x), OmegaConf.to_container(cfg.x, resolve=True)
        return _path(node.args[0], record, project, hops + 1)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        inner = _path(node.value, record, project, hops + 1)
        return None if inner is None else f"{inner}.{node.slice.value}".lstrip(".")
    if isinstance(node, ast.Attribute):
        if node.attr in _ROOTS:  # self.cfg
            return ""
        inner = _path(node.value, record, project, hops + 1)
        return None if inner is None else f"{inner}.{node.attr}".lstrip(".")
    if isinstance(node, ast.Name):
        if node.id in _ROOTS:
            return ""
        value = _assigned(node.id, record, project)
        return None if value is None else _path(value, record, project, hops + 1)
    return None


def _assigned(name: str, record: CallRecord, project: Project) -> ast.expr | None:
    scope = scope_of(record, project)
    if scope is None:
        return None
    values = assigned_values(name, scope)
    return values[0] if len(values) == 1 else None
