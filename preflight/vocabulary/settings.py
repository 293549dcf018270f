"""Settings of a project (`[tool.preflight]`), and the globs in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from preflight.vocabulary.caches import regex
from preflight.vocabulary.errors import SettingsError


class RuleSettings(BaseModel):
    """`[tool.preflight.rules.NAME]`: options of every rule. A rule checks its own options in the same table."""

    model_config = ConfigDict(extra="allow", defer_build=True)
    severity: Literal["error", "warning", "info"] | None = None
    fix: Literal["safe", "unsafe", "never"] | None = None


class Settings(BaseModel):
    """The settings of a project."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, defer_build=True)
    gpu: str | None = Field(default=None, description="The GPU that jobs run on when the files do not say.")
    machine: str | None = Field(default=None, description="A machine by name, or the path of a cluster file.")
    roots: list[str] = Field(
        default=[], description="Files that start jobs (globs): a file given alone finds its study here."
    )
    exclude: list[str] = Field(default=[], description="Globs that are never checked.")
    select: list[str] = Field(default=[], description="Only these rules.")
    ignore: list[str] = Field(default=[], description="Not these rules.")
    per_file_ignores: dict[str, list[str]] = Field(default={}, alias="per-file-ignores", description="Glob -> rules.")
    map: dict[str, str] = Field(default={}, description="A project's own spelling -> Job field.")
    set: dict[str, Any] = Field(default={}, description="Job field -> value, where the files cannot say it.")
    constraints: dict[str, str] = Field(
        default={}, description="Name -> an inequality over the project's own settings."
    )
    rules: dict[str, RuleSettings] = Field(
        default={}, description="Per rule: severity, fix, and the rule's own options."
    )
    interpreter: str | None = Field(
        default=None, description="A Python with torch, to trace models that no shipped law knows; started if trusted."
    )
    trace: bool = Field(default=True, description="Trace unknown models when torch is there.")

    @field_validator("map", "set", mode="before")
    @classmethod
    def _dotted(cls, table: object) -> object:
        """TOML reads `data.sample_bytes = 1` as a table in a table; both spellings mean the dotted name."""
        return dict(_flat(table, "")) if isinstance(table, dict) else table


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict) and prefix + key + "." not in MAPPINGS:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


MAPPINGS = ("software.", "model.config.", "model.kwargs.", "train.peft.options.")


# Globs as people write them in ignore files.

_TOKENS = regex(r"\*\*/|\*\*|\*|\?|\[!?[^\]]+\]|.", re.DOTALL)

_Takes = Callable[[str], bool]
_REMEMBERED = 4096
"""Size of a glob's cache: about as many moves as the names of one checkout need."""


class Glob:
    """A glob over paths with `/`, as an automaton: time grows with the path's length alone, whatever the glob.

    `*` and `?` stay within one path component, `**` crosses them. A pattern without `/` matches a file or directory of
    that name at any depth; one that matches a directory matches everything in it.
    """

    def __init__(self, pattern: str) -> None:
        self._moves: list[list[tuple[_Takes, int]]] = [[]]
        self._skips: list[list[int]] = [[]]
        anchored = "/" in pattern.rstrip("/")
        tokens = _TOKENS.findall(pattern.strip("/").removeprefix("./"))
        try:
            for token in [*([] if anchored else ["**/"]), *tokens, "/**"]:
                self._add(token)
        except re.error as error:
            raise SettingsError(f"the glob {pattern} cannot be read: {error.msg}") from error
        self._end = len(self._moves) - 1
        self._start = self._closed([0])
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, path: str) -> bool:
        """Whether the whole path matches."""
        places = self._start
        for character in path:
            after = self._known.get((places, character))
            if after is None:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                moves = (move for place in places for move in self._moves[place])
                after = self._closed([to for takes, to in moves if takes(character)])
                self._known[places, character] = after
            if not after:
                return False
            places = after
        return self._end in places

    def _add(self, token: str) -> None:
        """The places of one token, behind the last one."""
        here = len(self._moves) - 1
        if token in ("**/", "/**"):  # nothing; or anything with a slash behind it, or before it
            inside, end = self._place(), self._place()
            self._moves[inside].append((_any, inside))
            self._skips[here].append(end)
            if token == "**/":
                self._skips[here].append(inside)
                self._moves[inside].append((_slash, end))
            else:
                self._moves[here].append((_slash, inside))
                self._skips[inside].append(end)
            return
        end = self._place()
        if token in ("*", "**"):
            self._moves[here].append((_any if token == "**" else _no_slash, here))
            self._skips[here].append(end)
        else:
            self._moves[here].append((_one(token), end))

    def _place(self) -> int:
        self._moves.append([])
        self._skips.append([])
        return len(self._moves) - 1

    def _closed(self, places: Iterable[int]) -> frozenset[int]:
        """Places, and those that are reached from them without a character."""
        found, waiting = set[int](), list(places)
        while waiting:
            place = waiting.pop()
            if place not in found:
                found.add(place)
                waiting += self._skips[place]
        return frozenset(found)


def _any(_: str) -> bool:
    return True


def _slash(character: str) -> bool:
    return character == "/"


def _no_slash(character: str) -> bool:
    return character != "/"


def _one(token: str) -> _Takes:
    """Which characters a token of one character takes."""
    if token == "?":
        return _no_slash
    if len(token) == 1:
        return lambda character: character == token
    inside = token[1:-1].replace("\\", "\\\\").replace("[", "\\[")
    of_class = re.compile(f"[^/{inside[1:]}]" if inside.startswith("!") else f"(?!/)[{inside}]", re.DOTALL)
    return lambda character: of_class.match(character) is not None


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Glob:
    """A glob, ready to match. Raises SettingsError for one that cannot be read."""
    return Glob(pattern)


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path (relative, with `/`) matches one of the globs."""
    return any(compiled(pattern).matches(path) for pattern in patterns)
