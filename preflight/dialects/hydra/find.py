"""The Hydra application of a file: its configuration folder, its primary configuration, and its programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from preflight.dialects.hydra.programs import MAX_LEVELS, programs, unresolved
from preflight.dialects.hydra.repository import package_header, parsed, read_entries
from preflight.dialects.hydra.tree import Entry
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project, UnreadableFile
from preflight.vocabulary.settings import matches
from preflight.vocabulary.text import DocumentError
from preflight.vocabulary.values import Origin

_ENTRIES: CacheKind[list[Entry]] = CacheKind("entries of a file's defaults list")
_PRIMARIES: CacheKind[tuple[str, ...]] = CacheKind("primary configurations of a folder")

_FOLDER: CacheKind[tuple[str, str]] = CacheKind("folder and name of a primary configuration")
_USING: CacheKind[tuple[tuple[int, int, str], ...]] = CacheKind("primary configurations that use a group", of_many=True)

_SELECTED: CacheKind[tuple[str, str, str] | None] = CacheKind("the override that selects a file", of_many=True)

_DEFAULTS = re.compile(r"^defaults[ \t]*:", re.M)
_HYDRA = re.compile(r"^hydra[ \t]*:", re.M)
_HYDRA_KEYS = frozenset({
    "run", "sweep", "sweeper", "launcher", "job", "job_logging", "hydra_logging", "mode", "searchpath", "output_subdir",
    "verbose", "callbacks", "help", "env", "runtime", "overrides",
})  # fmt: skip
"""Keys of Hydra's own configuration (hydra.conf.HydraConf, 1.3)."""


class Application(Struct, frozen=True):
    """`folder` holds the configurations, `name` is the primary one ("config")."""

    folder: str
    name: str
    programs: tuple[str, ...] = ()
    option: tuple[str, str] | None = None
    """(group, option) of the file in question; None if it is the primary configuration."""
    certain: bool = False
    """Whether a program, or the user's roots, name the primary configuration: what Hydra refuses then is an error."""

    @property
    def primary(self) -> str:
        return f"{self.folder}/{self.name}.yaml" if self.folder else f"{self.name}.yaml"


def is_primary(path: str, project: Project) -> bool:
    """Whether a file looks like a primary configuration: a defaults list, or settings for Hydra itself."""
    try:
        text = project.source(path).text
        if not (_DEFAULTS.search(text) or _HYDRA.search(text)):
            return False
        document = parsed(path, project)
    except (DocumentError, UnreadableFile):
        return False
    top = document.value()
    if not isinstance(top, dict):
        return False
    if isinstance(top.get("defaults"), tuple) and top["defaults"]:
        complaints: list[tuple[str, Origin]] = []
        found = list(read_entries(document, complaints))
        return len(found) > len(complaints) and not _is_fragment(path, text, found)
    return isinstance(top.get("hydra"), dict) and not _HYDRA_KEYS.isdisjoint(top["hydra"])


def _is_fragment(path: str, text: str, found: list[Entry]) -> bool:
    """Whether a defaults list only changes another list: an experiment, or an option of Hydra's own groups."""
    if "hydra" in PurePosixPath(path).parts[:-1]:
        return True
    adds = any(not entry.override and entry.option != "_self_" for entry in found)
    elsewhere = any(entry.override and not (entry.group or "").lstrip("/").startswith("hydra/") for entry in found)
    overrides = any(entry.override for entry in found)
    return not adds and (elsewhere or (overrides and package_header(text) is not None))


def application(path: str, project: Project) -> Application | None:
    """The application of a file, which is an option of a group or the primary configuration."""
    found = _by_group(path, project)
    if found is not None:
        return found
    if not is_primary(path, project) or _is_option(path, project):
        return None
    folder, name = config_folder(path, project)
    found_programs = programs(folder, name, project)
    return Application(folder, name, found_programs, None, bool(found_programs) or _in_roots(path, project))


def config_folder(path: str, project: Project) -> tuple[str, str]:
    """Folder and name of a primary configuration. `conf/exp/base.yaml` may be "exp/base" of `conf`: the folder with
    most of its defaults decides; of equal folders, the closest."""
    return project.remembered.get(_FOLDER, lambda: _config_folder(path, project), path)


def _config_folder(path: str, project: Project) -> tuple[str, str]:
    pure = PurePosixPath(path)
    best, folder = -1, pure.parent
    entries = _entries(path, project)
    for candidate in list(pure.parents)[:3]:
        hits = sum(1 for entry in entries if _resolves(entry, candidate, pure.parent, project))
        if hits > best:
            best, folder = hits, candidate
    name = pure.relative_to(folder).with_suffix("").as_posix()
    return ("" if folder.as_posix() == "." else folder.as_posix()), name


def _resolves(entry: Entry, folder: PurePosixPath, beside: PurePosixPath, project: Project) -> bool:
    """Whether an entry of a file in folder `beside` exists if `folder` is the root of the configurations."""
    if entry.option in (None, "_self_", "???") or isinstance(entry.option, tuple) or entry.override:
        return False
    name = f"{entry.group}/{entry.option}" if entry.group else str(entry.option)
    base = folder if name.startswith("/") else beside
    return project.exists((base / name.lstrip("/")).as_posix() + ".yaml")


def _entries(path: str, project: Project) -> list[Entry]:
    def found() -> list[Entry]:
        try:
            return list(read_entries(parsed(path, project), []))
        except (DocumentError, UnreadableFile):
            return []

    return project.remembered.get(_ENTRIES, found, path)


def _by_group(path: str, project: Project) -> Application | None:
    """The application whose primary configuration is in a folder above and uses this file's group.

    Of several, the one that takes the file: an experiment that overrides a group is written for a primary
    configuration that has this group.
    """
    found = []
    for at, name, group in _above(path, project):
        started = programs(at, name, project)
        if started or _in_roots(f"{at}/{name}.yaml".lstrip("/"), project):
            found.append(Application(at, name, started, (group, PurePosixPath(path).stem), not unresolved(at, project)))
            if not any(entry.override for entry in _entries(path, project)):
                break  # nothing in it asks for a group
    if len(found) < 2 and all(one.certain for one in found):
        return found[0] if found else None
    taken = next((one for one in found if _takes(one, project)), found[0])
    if taken.certain or _takes(taken, project):
        return taken
    return replace(taken, programs=())  # it may be written for a program whose configuration is not known


def _takes(found: Application, project: Project) -> bool:
    """Whether Hydra composes the primary configuration with the option."""
    from preflight.dialects.hydra.compose import compose
    from preflight.dialects.hydra.overrides import parse_override
    from preflight.dialects.hydra.repository import Repository

    sign, group, option = selection(found, project) or ("", "", "")
    given = parse_override(f"{sign}{group}={option}", None, None, []) if group else None
    composed = compose(Repository(project, (found.folder,)), found.name, () if given is None else (given,))
    return all(problem.severity != "error" for problem in composed.problems)


def selection(found: Application, project: Project) -> tuple[str, str, str] | None:
    """The override (sign, group, option) that selects a file, if the primary configuration does not select it.

    `experiment/small/run.yaml` is "small/run" of a group `experiment` in the defaults list. Without such a group it is
    added as the option of the folder to which the names in its own defaults list are relative.
    """
    if found.option is None:
        return None
    option = found.option
    return project.remembered.get(
        _SELECTED, lambda: _selection(found, option, project), found.folder, found.name, option
    )


def _selection(found: Application, option: tuple[str, str], project: Project) -> tuple[str, str, str] | None:
    from preflight.dialects.hydra.compose import compose
    from preflight.dialects.hydra.repository import Repository

    plain = compose(Repository(project, (found.folder,)), found.name, ())
    folder, name = option
    path = f"{found.folder}/{folder}/{name}.yaml".lstrip("/")
    if path in plain.files:
        return None
    # by the folder: Hydra knows a group that is put elsewhere as "actor@actor_rollout_ref.actor"
    known = {choice.split("@")[0]: choice for choice in sorted(plain.groups, reverse=True)}
    parts = folder.split("/")
    cuts = ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]
    group = next((cut for cut in cuts if cut in known), "")
    chosen = group or max(cuts, key=lambda cut: _hits(path, f"{found.folder}/{cut}".lstrip("/"), project))
    return "" if group else "+", known.get(group, chosen), f"{folder}/{name}".removeprefix(f"{chosen}/")


def _hits(path: str, folder: str, project: Project) -> int:
    """How many names of a file's defaults list are files if they are relative to a folder; the file itself is none."""
    found = 0
    for entry in _entries(path, project):
        if isinstance(entry.option, str) and not entry.override and entry.option not in ("_self_", "???"):
            name = f"{entry.group}/{entry.option}" if entry.group else entry.option
            inside = f"{folder}/{name}.yaml"
            found += 0 if name.startswith("/") else -1 if inside == path else project.exists(inside)
    return found


def _is_option(path: str, project: Project) -> bool:
    """Whether a file is an option of a group that a configuration uses, even if no program is known."""
    return next(_above(path, project), None) is not None


def _above(path: str, project: Project) -> Iterator[tuple[str, str, str]]:
    """(folder, name, group) of primary configurations above a file that use its group, the most likely first."""
    headed = _has_package(path, project)
    pure = PurePosixPath(path)
    for folder in list(pure.parent.parents)[:MAX_LEVELS]:
        group = pure.parent.relative_to(folder).as_posix()
        if group.startswith("."):
            return
        at = "" if folder.as_posix() == "." else folder.as_posix()
        ranked = ((min(rank, 2) if headed else rank, role, name) for rank, role, name in _using(at, group, project))
        yield from ((at, name, group) for rank, _, name in sorted(ranked) if rank < _STRANGER)


def _has_package(path: str, project: Project) -> bool:
    """Whether a file has a package header: then some configuration includes it."""
    try:
        return package_header(project.source(path).text) is not None
    except UnreadableFile:
        return False


def _using(folder: str, group: str, project: Project) -> tuple[tuple[int, int, str], ...]:
    """(closeness, role, name) of the primary configurations of a folder, as seen from the files of a group."""

    def found() -> tuple[tuple[int, int, str], ...]:
        names = _primaries(folder, project)
        return tuple((_knows(f"{folder}/{name}.yaml".lstrip("/"), group, project), _role(name), name) for name in names)

    return project.remembered.get(_USING, found, folder, group)


def _role(name: str) -> int:
    """Rank of a configuration among those that use a group: the one for training first."""
    if "train" in name:
        return 0
    return 2 if any(word in name for word in ("eval", "test", "predict", "infer", "sample", "debug")) else 1


def _primaries(folder: str, project: Project) -> tuple[str, ...]:
    prefix = f"{folder}/" if folder else ""

    def found() -> tuple[str, ...]:
        names = [name for name in project.listdir(folder or ".") if name.endswith(".yaml")]
        return tuple(name[:-5] for name in names if is_primary(prefix + name, project))

    return project.remembered.get(_PRIMARIES, found, folder)


_STRANGER = 3


def _knows(primary: str, group: str, project: Project) -> int:
    """How closely a primary configuration is related to a group: 0 if the group is in its defaults list, 1 if a part of
    the group is, else 3. (2: the file has a package header, see `_above`.)"""
    top = group.split("/")[0]
    best = _STRANGER
    for entry in _entries(primary, project):
        names = entry.option if isinstance(entry.option, tuple) else (str(entry.option),)
        for name in [entry.group] if entry.group else names:
            plain = (name or "").lstrip("/")
            if (entry.group and plain == group) or (not entry.group and plain.rpartition("/")[0] == group):
                return 0
            if plain.split("/")[0] == top and (entry.group or "/" in plain):
                best = 1
    return best


def _in_roots(primary: str, project: Project) -> bool:
    return matches(primary, project.settings.roots)
