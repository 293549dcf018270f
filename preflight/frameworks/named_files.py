"""Files of settings that a program, a tool or a launch names: where they lie, and what is unknown without them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from preflight.program.bindings import bind, constant
from preflight.vocabulary.project import Project, without_dots
from preflight.vocabulary.reading import Binding, Call, Link, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Unknown

SHARDING = ("parallel.strategy", "parallel.offload")
"""What a file of DeepSpeed, FSDP or accelerate says, whatever program it configures."""

PROCESSES = ("parallel.nodes", "parallel.gpus_per_node", "parallel.ranks_per_node")


def folders(path: str, call: Call | None) -> tuple[str, ...]:
    """Where a relative name may start, the most likely first: the directory that the program is started in, the
    project's root, and the folders above the files that name it."""
    started = [call.directory] if call is not None and call.directory is not None else []
    beside = [one for file in (path, call.caller if call is not None else path) for one in _above(file)]
    return tuple(dict.fromkeys([*started, ".", *beside]))


def _above(path: str) -> list[str]:
    found, folder = [], posixpath.dirname(path)
    while folder:
        found.append(folder)
        folder = posixpath.dirname(folder)
    return found


def name_in(expr: Expr) -> str | None:
    """The name of a file; of one behind an unknown folder (`$ROOT/configs/x.yaml`) the rest; None if it is unknown."""
    value = constant(expr)
    if isinstance(value, str):
        return value
    last = expr.operands[-1] if isinstance(expr, Op) and expr.operator == "concat" else None
    if isinstance(last, Const) and isinstance(last.value, str) and last.value.startswith("/"):
        return last.value.lstrip("/")
    return None


def located(name: str, project: Project, starts: Sequence[str]) -> str | None:
    """The project's file of that name. An absolute name may match by its end, with one folder at least."""
    if not name or "\n" in name or len(name) > 1024:
        return None
    if name.startswith(("/", "~")):
        parts = (without_dots(name) or "").split("/")
        return next((one for at in range(len(parts) - 1) if project.exists(one := "/".join(parts[at:]))), None)
    for folder in starts:
        path = without_dots(f"{folder}/{name}")
        if path and project.exists(path):
            return path
    return None


def joined(links: Iterable[Link], project: Project, starts: Sequence[str]) -> tuple[list[Link], list[Link]]:
    """The links to configurations that are in the project, and those that lead nowhere."""
    found: list[Link] = []
    missing: list[Link] = []
    for link in links:
        if link.kind != "config" or project.exists(link.target):
            found.append(link)
            continue
        path = located(link.target, project, starts)
        (found if path else missing).append(replace(link, target=path or link.target))
    return found, missing


def without_file(
    name: str, origin: Origin | None, fields: Sequence[str] = SHARDING, rank: Rank = Rank.read
) -> list[Binding]:
    """The fields that a file would set, unknown since it is not there. `name` is empty if the name is not known."""
    if name:
        why = Unknown(f"{name} says it, and is not in the project", Cause.file_not_found)
    else:
        why = Unknown("a file says it whose name is not known", Cause.not_set)
    return [bind(field, Const(why, origin), rank, origin) for field in fields]
