"""The order in which Hydra merges the files of a composition, kept for compositions in which it is the same again.

Hydra's algorithm is the slowest part of a composition. An edit of a value, as most fixes are, changes no list.
And the experiments of a tree have lists that differ in the options that they choose, not in the groups: what was found
for one of them holds for the others, with other names.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from msgspec import Struct

from preflight.dialects.hydra.overrides import GivenOverride
from preflight.dialects.hydra.repository import Repository
from preflight.dialects.hydra.tree import ConfigFile
from preflight.vocabulary.caches import CacheKind


class MergeOrder(Struct, frozen=True):
    """What Hydra's algorithm found for a primary configuration and overrides, and the defaults lists that it read."""

    parts: tuple[tuple[str, str], ...]
    """(configuration, package) in the order of merging."""
    choices: Mapping[str, str]
    groups: frozenset[str]
    lists: Mapping[str, Hashable]
    """Every configuration that was read -> its defaults list and package."""
    registered: Hashable
    """The same of the configurations that programs register."""


class _Choice(Struct, frozen=True):
    """One option on the command line, and the options that its file chooses in the place of others."""

    sign: str
    options: tuple[tuple[str, str], ...]
    """(group, option), that of the command line first."""
    shape: Hashable
    """What Hydra's algorithm reads of the files of these options, without their names."""

    @property
    def paths(self) -> list[str]:
        return [f"{group}/{option}" for group, option in self.options]


_ORDERS: CacheKind[MergeOrder] = CacheKind("orders of merging")
_PATTERNS: CacheKind[tuple[_Choice, MergeOrder]] = CacheKind("orders of merging, for options alike", of_many=True)


def kept_order(repository: Repository, name: str, overrides: Sequence[GivenOverride]) -> MergeOrder | None:
    """The order that was found before, if all defaults lists that it depends on are the same in this project."""
    words = _words(overrides)
    if words is None:
        return None
    found = repository.project.remembered.known(_ORDERS, repository.folders, name, words)
    if found is None or found.registered != _registered(repository):
        return None
    same = all(_list_of(repository.file(path)) == stated for path, stated in found.lists.items())
    return found if same and repository.complete else None


def order_alike(repository: Repository, name: str, overrides: Sequence[GivenOverride]) -> MergeOrder | None:
    """The order that was found for another option of the same group, whose file has a defaults list of the same shape,
    with the names of this one; None where more than names may differ."""
    choice = _choice(repository, overrides)
    if choice is None:
        return None
    group = choice.options[0][0]
    found = repository.project.remembered.known(_PATTERNS, repository.folders, name, choice.sign, group, choice.shape)
    if found is None:
        return None
    pattern, order = found
    renamed = dict(zip(pattern.paths, choice.paths, strict=True))
    parts = tuple((renamed.get(path, path), package) for path, package in order.parts)
    if len({path for path, _ in parts}) != len(parts):
        return None  # Hydra takes no file twice
    for path in order.lists:  # as Hydra reads them: problems of files have their order
        repository.file(renamed.get(path, path))
    lists = {path: _list_of(file) for path, file in repository.files.items()}
    made = MergeOrder(parts, {**order.choices, **dict(choice.options)}, order.groups, lists, order.registered)
    _keep(repository, name, overrides, made)
    return made


def _choice(repository: Repository, overrides: Sequence[GivenOverride]) -> _Choice | None:
    """The only override, if it chooses an option whose file chooses options of other groups and has no other entries;
    and if the files of those have none."""
    given = overrides[0] if len(overrides) == 1 else None
    option = given.override.value() if given is not None and given.override is not None else None
    if given is None or given.package is not None or given.expr is not None or not _is_plain(option):
        return None
    beside = Repository(repository.project, repository.folders)  # what is looked at here is not yet read
    file = beside.file(f"{given.key}/{option}")
    if file is None or not _has_plain_package(file) or given.key.startswith("hydra"):
        return None
    options, shape = [(given.key, str(option))], list[Hashable]([file.package])
    for entry in file.entries:
        if entry.group is None and entry.option == "_self_" and entry.package is None:
            shape.append("_self_")
            continue
        group = (entry.group or "").removeprefix("/")
        if not entry.override or entry.group != f"/{group}" or entry.package is not None or group.startswith("hydra"):
            return None
        chosen = beside.file(f"{group}/{entry.option}") if _is_plain(entry.option) else None
        if chosen is None or chosen.entries or not _has_plain_package(chosen):
            return None
        options.append((group, str(entry.option)))
        shape.append((group, entry.optional, chosen.package))
    if len(options) == 1 or len(dict(options)) != len(options):
        return None
    return _Choice(given.sign, tuple(options), tuple(shape))


def _is_plain(option: object) -> bool:
    """Whether an option is the name of one file in the folder of its group."""
    return isinstance(option, str) and option not in ("", "???", "null") and not {"/", "$", "."} & set(option)


def _has_plain_package(file: ConfigFile) -> bool:
    """Whether the package of a file does not depend on its name."""
    return file.package is None or ("_name_" not in file.package and "$" not in file.package)


def _may_be_pattern(repository: Repository, choice: _Choice, order: MergeOrder) -> bool:
    """Whether each option is merged at one place, is the choice of its group, and nothing is named after a choice."""
    merged = [path for path, _ in order.parts]
    if any(merged.count(path) != 1 for path in {*merged, *choice.paths}):
        return False
    if any(order.choices.get(group) != option for group, option in choice.options):
        return False
    entries = [entry for file in repository.files.values() for entry in file.entries]
    return not any("$" in f"{entry.group} {entry.option} {entry.package}" for entry in entries)


def keep_order(
    repository: Repository,
    name: str,
    overrides: Sequence[GivenOverride],
    parts: Sequence[tuple[str, str]],
    choices: Mapping[str, str],
    groups: frozenset[str],
) -> None:
    """Keeps the order of a composition that Hydra accepts as it is: no file is missing or broken."""
    if not repository.complete:
        return
    lists = {path: _list_of(file) for path, file in repository.files.items()}
    order = MergeOrder(tuple(parts), dict(choices), groups, lists, _registered(repository))
    _keep(repository, name, overrides, order)
    choice = _choice(repository, overrides)
    if choice is not None and _may_be_pattern(repository, choice, order):
        where = repository.folders, name, choice.sign, choice.options[0][0], choice.shape
        repository.project.remembered.put(_PATTERNS, (choice, order), *where)


def _keep(repository: Repository, name: str, overrides: Sequence[GivenOverride], order: MergeOrder) -> None:
    words = _words(overrides)
    if words is not None:
        repository.project.remembered.put(_ORDERS, order, repository.folders, name, words)


def _words(overrides: Sequence[GivenOverride]) -> tuple[str, ...] | None:
    """The texts of overrides; None if one of them is not known as a text."""
    found = [one.override.input_line if one.override is not None else None for one in overrides]
    return tuple(text for text in found if text is not None) if None not in found else None


def _registered(repository: Repository) -> Hashable:
    return tuple((name, _list_of(file)) for name, file in repository.registered.items())


def _list_of(file: ConfigFile | None) -> Hashable:
    """What Hydra's algorithm reads of a file, without the places in the text."""
    if file is None:
        return None
    entries = ((one.group, one.option, one.package, one.optional, one.override) for one in file.entries)
    return file.path, file.package, tuple(entries)
