"""Settings: what a project tells preflight about itself, and the globs that it names files by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from preflight.vocabulary.errors import SettingsError


class RuleSettings(BaseModel):
    """`[tool.preflight.rules.NAME]`: a rule's own options stand beside these and are checked by the rule."""

    model_config = ConfigDict(extra="allow", defer_build=True)
    severity: Literal["error", "warning", "info"] | None = None
    fix: Literal["safe", "unsafe", "never"] | None = None


class Settings(BaseModel):
    """What a project tells preflight about itself."""

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


_TOKENS = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[!?[^\]]+\]|[^*?\[]+|\[")


@lru_cache(maxsize=512)
def compiled(pattern: str) -> re.Pattern[str]:
    """A glob as a regular expression over paths with `/`.

    `*` and `?` stay within one path component, `**` crosses them. A pattern without `/` matches a file or directory of
    that name at any depth; one that matches a directory matches everything in it.
    """
    anchored = "/" in pattern.rstrip("/")
    body = "".join(_regex(token) for token in _TOKENS.findall(pattern.strip("/").removeprefix("./")))
    try:
        return re.compile(("" if anchored else "(?:.*/)?") + body + "(?:/.*)?", re.DOTALL)
    except re.error as error:
        raise SettingsError(f"the glob {pattern} cannot be read: {error.msg}") from error


def _regex(token: str) -> str:
    if token == "**/":
        return "(?:.*/)?"
    if token in ("/**", "**"):
        return "(?:/.*)?" if token == "/**" else ".*"
    if token == "*":
        return "[^/]*"
    if token == "?":
        return "[^/]"
    if token.startswith("[") and token.endswith("]") and len(token) > 2:
        inside = token[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
    return re.escape(token)


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path (relative, with `/`) matches one of the globs."""
    return any(compiled(pattern).fullmatch(path) for pattern in patterns)
