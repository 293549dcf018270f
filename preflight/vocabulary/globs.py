"""Globs as people write them in ignore files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_TOKENS = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[!?[^\]]+\]|[^*?\[]+|\[")


@lru_cache(maxsize=512)
def compiled(pattern: str) -> re.Pattern[str]:
    """A glob as a regular expression over paths with `/`.

    `*` and `?` stay within one path component, `**` crosses them. A pattern without `/` matches a file or directory of
    that name at any depth; one that matches a directory matches everything in it.
    """
    anchored = "/" in pattern.rstrip("/")
    body = "".join(_regex(token) for token in _TOKENS.findall(pattern.strip("/").removeprefix("./")))
    return re.compile(("" if anchored else "(?:.*/)?") + body + "(?:/.*)?", re.DOTALL)


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
