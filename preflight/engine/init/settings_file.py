"""The settings that `preflight init` writes: `[tool.preflight]` of pyproject.toml, or preflight.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from preflight.engine.init.computer import Found
from preflight.engine.init.planned import Plan, Planned, Tree, appended, ending
from preflight.engine.settings import FILE, parse, toml_of
from preflight.vocabulary.errors import SettingsError, UsageError
from preflight.vocabulary.settings import Settings

CLUSTER = "cluster.toml"
"""The name of the machine file that is written for a cluster."""
SHARED = "pyproject.toml"
WHAT = "the settings"
_TABLE = re.compile(r"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*preflight[ \t]*\][ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)", re.MULTILINE)
_NOTHING = '# gpu = "A100 80GB"   # the GPU of jobs that name none; preflight machine list shows the names\n'


def plan(tree: Tree, folder: str, settings: Settings, file: Path | None, found: Found) -> Plan:
    """The settings of a project whose files lie in `folder` (relative to the root of the checkout, "" for itself).

    `settings` and `file`: those that hold now. Raises UsageError or SettingsError where a file is malformed.
    """
    if file is not None:
        name = _name(tree, file)
        if settings.gpu is not None or settings.machine is not None or "machine.gpu" in settings.set:
            return Plan(notes=(f"settings: {name or file} states the GPU already",))
        if name is None:
            return Plan(notes=(f"settings: {file} holds for this folder, and is outside of the checkout",))
        if found.gpu is None and found.cluster is None:
            return Plan(notes=(f"settings: {name} is there; no GPU was found that could be added", *found.notes))
    else:
        shared = f"{folder}{SHARED}"
        name = shared if tree.there(shared) else f"{folder}{FILE}"
    companions, stated = _statements(tree, name.removesuffix(Path(name).name), found)
    path, old, text = tree.read(name)
    new = _with(text, name, stated)
    if new is None:
        lines = " ".join(line for line in stated.splitlines() if not line.startswith("#"))
        return Plan(notes=(f"settings: {name} has a form that is not edited; add to [tool.preflight]: {lines}",))
    return Plan((Planned(name, path, old, new, WHAT, companions),), found.notes)


def _name(tree: Tree, file: Path) -> str | None:
    """The path of the file in the checkout; None if it is outside."""
    return file.relative_to(tree.root).as_posix() if file.is_relative_to(tree.root) else None


def _statements(tree: Tree, folder: str, found: Found) -> tuple[tuple[Planned, ...], str]:
    """The machine file of a cluster, and the lines of the settings."""
    if found.cluster is not None:
        from preflight.machines.cluster_dump import dump_machine

        name = f"{folder}{CLUSTER}"
        path, old, _ = tree.read(name)
        line = f'machine = "{CLUSTER}"   # from {found.source}\n'
        if old is not None:  # it may have been completed by hand
            return (), line
        return (Planned(name, path, None, dump_machine(found.cluster), "the machine file"),), line
    if found.gpu is not None:
        return (), f'gpu = "{found.gpu.name}"   # {found.source}; for jobs that name none\n'
    return (), _NOTHING


def _with(text: str, name: str, stated: str) -> str | None:
    """The text with the lines of the settings, proved; None where no place is found that means the same. Raises
    SettingsError where it is not valid."""
    base = Path(name).name
    old = toml_of(text, name)
    added = _added(stated)
    for new in _candidates(text, base, stated):
        try:
            now = toml_of(new, name)
        except SettingsError:
            continue
        if now == _expected(old, base, added):
            if base == FILE:
                parse(new, name)
            return new
    return None


def _candidates(text: str, base: str, stated: str) -> Iterator[str]:
    lines = stated.replace("\n", ending(text))
    if base == FILE:
        yield lines + text
        return
    match = _TABLE.search(text)
    if match is not None:
        gap = "" if match[0].endswith("\n") else ending(text)
        yield text[: match.end()] + gap + lines + text[match.end() :]
    blank = "\n" if text.strip() else ""
    yield appended(text, f"{blank}[tool.preflight]\n{stated}")


def _added(stated: str) -> Mapping[str, object]:
    return toml_of(stated, "the settings")


def _expected(old: Mapping[str, object], base: str, added: Mapping[str, object]) -> Mapping[str, object]:
    """The tables of the file with the settings added, and nothing else changed."""
    if base == FILE:
        return {**old, **added}
    tool = old.get("tool", {})
    if not isinstance(tool, dict) or not isinstance(own := tool.get("preflight", {}), dict):
        raise UsageError("pyproject.toml: tool.preflight is no table; nothing was written")
    return {**old, "tool": {**tool, "preflight": {**own, **added}}}
