"""repositories.toml: the public repositories, each at one commit, and the folders that hold what is made of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

from platformdirs import user_cache_dir
from pydantic import BaseModel, ConfigDict, Field

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
FILE = HERE / "repositories.toml"


Group = Literal["dev", "held", "last", "field", "blind", "fresh", "stated", "unseen"]
GROUPS: tuple[Group, ...] = get_args(Group)


class Repository(BaseModel):
    """One public repository. `kind`: what its programs train with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    kind: str
    stars: Literal["few", "many"]
    group: Group

    @property
    def folder(self) -> str:
        """The name of its files here: OWNER+NAME."""
        return self.name.replace("/", "+")


class _Listed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    repository: tuple[Repository, ...]


class UnknownName(Exception):
    """A name that the list does not have."""


def toml(path: Path) -> dict[str, object]:
    """A TOML file as plain data."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def listed(file: Path = FILE) -> tuple[Repository, ...]:
    """Every repository of the list. Raises pydantic.ValidationError."""
    return _Listed.model_validate(toml(file)).repository


def chosen(repositories: Sequence[Repository], names: Sequence[str], group: str | None = None) -> list[Repository]:
    """Those of some names (OWNER/NAME, or NAME alone) and of a group; without names, all. Raises UnknownName."""
    wanted = {name.lower() for name in names}
    found = [each for each in repositories if not wanted or wanted & {each.name.lower(), _short(each)}]
    known = {name for each in found for name in (each.name.lower(), _short(each))}
    if missing := sorted(wanted - known):
        raise UnknownName(f"{missing[0]}: no repository of {FILE.name} has this name")
    return [each for each in found if group in (None, each.group)]


def _short(repository: Repository) -> str:
    return repository.name.lower().partition("/")[2]


def cache() -> Path:
    """The folder of checkouts and results: PREFLIGHT_PUBLIC, else one in the user's cache."""
    return Path(os.environ.get("PREFLIGHT_PUBLIC") or user_cache_dir("preflight-public"))


def checkout(repository: Repository) -> Path:
    """Where the files of its commit lie."""
    return cache() / "checkouts" / f"{repository.folder}@{repository.commit[:12]}"


def result(repository: Repository, gpu: str = "") -> Path:
    """Where the result of its run lies, with no GPU stated or with one."""
    with_gpu = f"~{gpu.lower().replace(' ', '-')}" if gpu else ""
    return cache() / "results" / f"{repository.folder}@{repository.commit[:12]}{with_gpu}.json"
