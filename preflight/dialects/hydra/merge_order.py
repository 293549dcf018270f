"""The order in which Hydra merges the files of a composition, kept for other texts with the same defaults lists.

An edit of a value (most fixes are one) changes no defaults list. Then Hydra's algorithm would find the same order
again, and it is the slowest part of a composition.
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


_ORDERS: CacheKind[MergeOrder] = CacheKind("orders of merging")


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


def keep_order(
    repository: Repository,
    name: str,
    overrides: Sequence[GivenOverride],
    parts: Sequence[tuple[str, str]],
    choices: Mapping[str, str],
    groups: frozenset[str],
) -> None:
    """Keeps the order of a composition that Hydra accepts as it is: no file is missing or broken."""
    words = _words(overrides)
    if words is not None and repository.complete:
        lists = {path: _list_of(file) for path, file in repository.files.items()}
        order = MergeOrder(tuple(parts), dict(choices), groups, lists, _registered(repository))
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
