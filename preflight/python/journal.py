"""Writes to variables, attributes and items, kept so that those of a branch can be undone and merged."""

from __future__ import annotations

from typing import TypeAlias

from preflight.python.objects import Abstract, Container, Key
from preflight.vocabulary.values import Cause, Const, Unknown

MISSING = Const(Unknown("not set", Cause.not_set))
"""The value of a key that its scope does not have."""

Scope: TypeAlias = dict[Key, Abstract]
Changes: TypeAlias = dict[tuple[int, Key], tuple[Scope, Key, Abstract, bool]]
"""Scope, key, value, and whether the scope is a container older than the branch."""


class Journal:
    """The values that were overwritten in each open branch."""

    def __init__(self) -> None:
        self.branches: list[list[tuple[Scope, Key, Abstract]]] = []
        """For each open branch, the innermost last: scope, key, and the value before the write."""
        self.containers: dict[int, Container] = {}
        """Containers that were written to, by the id of their items."""

    def write(self, scope: Scope, key: Key, value: Abstract) -> None:
        """Set a variable, attribute or item."""
        if self.branches:
            self.branches[-1].append((scope, key, scope.get(key, MISSING)))
        scope[key] = value

    def remove(self, scope: Scope, key: Key) -> None:
        """Remove a variable, attribute or item."""
        if key in scope:
            if self.branches:
                self.branches[-1].append((scope, key, scope[key]))
            del scope[key]

    def write_item(self, container: Container, key: Key, value: Abstract) -> None:
        """Set an item of a container."""
        self.containers[id(container.items)] = container
        self.write(container.items, key, value)

    def begin(self) -> int:
        """Start a branch; the number is for `undo`."""
        self.branches.append([])
        return Container("list").serial

    def undo(self, start: int) -> Changes:
        """End the innermost branch, undo its writes and return its changes."""
        changes: Changes = {}
        written = self.branches.pop()
        for scope, key, _ in written:
            known = self.containers.get(id(scope))
            older = known is not None and known.serial < start
            changes[(id(scope), key)] = (scope, key, scope.get(key, MISSING), older)
        for scope, key, old in reversed(written):
            if old is MISSING:
                scope.pop(key, None)
            else:
                scope[key] = old
        return changes

    def apply(self, changes: Changes) -> None:
        """Write the changes of one branch again."""
        for scope, key, value, _ in changes.values():
            self.set(scope, key, value)

    def set(self, scope: Scope, key: Key, value: Abstract) -> None:
        """As `write`; MISSING removes the key."""
        if value is MISSING:
            self.remove(scope, key)
        else:
            self.write(scope, key, value)
