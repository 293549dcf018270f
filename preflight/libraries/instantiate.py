"""`_target_` nodes of a configuration as the calls that `hydra.utils.instantiate` would make of them.

    optimizer: {_target_: torch.optim.SGD, lr: 0.1, momentum: 0.9}      is      torch.optim.SGD(lr=0.1, momentum=0.9)

Nothing is imported or called: the target is text, and what such a call means is asked of `libraries.calls`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from preflight.dialects.reading import Binding
from preflight.libraries.calls import read_calls
from preflight.project import Project
from preflight.python.records import CallRecord
from preflight.values import Const, Expr, Origin, Span

_TARGET = "_target_"
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")


def instantiated(settings: Mapping[str, Expr], project: Project) -> tuple[Binding, ...]:
    """Bindings of every target among dotted settings; those of the project's own classes say nothing here."""
    return read_calls(list(records_of(settings).values()), project).bindings


def records_of(settings: Mapping[str, Expr]) -> dict[str, CallRecord]:
    """Key of a node -> the call that it stands for, with the node's other keys as keyword arguments."""
    found: dict[str, CallRecord] = {}
    for key, expr in settings.items():
        node, _, last = key.rpartition(".")
        target = expr.value if isinstance(expr, Const) else None
        if last == _TARGET and isinstance(target, str) and _DOTTED.fullmatch(target):
            found[node] = _record(node, target, expr.origin, settings)
    return found


def _record(node: str, target: str, place: Origin | None, settings: Mapping[str, Expr]) -> CallRecord:
    prefix = f"{node}." if node else ""
    inner = {key.removeprefix(prefix): expr for key, expr in settings.items() if key.startswith(prefix)}
    kwargs = {name: expr for name, expr in inner.items() if "." not in name and not name.startswith("_")}
    origin = place or Origin("", Span(0, 0))
    call = ast.parse(f"{target}()", mode="eval").body
    return CallRecord(
        target, None, target.rpartition(".")[2], (), kwargs, {}, origin.path, call, origin, function=node or None
    )
