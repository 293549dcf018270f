"""The schema of a file of GPUs: of preflight's own `gpus.json`, and of files that other distributions add.

Added files are checked when they are read. A test checks preflight's own file, so that this costs no time at the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from preflight.system.entry_points import AddedEntry
from preflight.vocabulary.extensions import resource, wrong

Bytes = tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]]
"""Low, expected and high, in GiB."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FamilyRow(_Strict):
    """Memory that a process loses on each card of a family. `note`: where the figures come from."""

    context: Bytes
    nccl: Bytes
    note: str = Field(min_length=1)

    @field_validator("context", "nccl")
    @classmethod
    def _in_order(cls, value: Bytes) -> Bytes:
        if list(value) != sorted(value):
            raise ValueError("low, expected and high must be in ascending order")
        return value


class GpuRow(_Strict):
    """One GPU. `source`: where its capacity was measured or read."""

    name: str = Field(min_length=1)
    capacity_gib: float = Field(gt=0)
    family: str
    compute_capability: tuple[int, int]
    aliases: list[str] = []
    source: str = Field(min_length=1)
    partial: bool = False


class GpuFile(_Strict):
    """A whole file. A GPU may be of a family in the file or of preflight's own."""

    about: str = ""
    windows: str = ""
    families: dict[str, FamilyRow] = {}
    gpus: list[GpuRow] = Field(min_length=1)


def read(one: AddedEntry, families: Mapping[str, object]) -> GpuFile:
    """The file of an entry point. `families`: preflight's own. Raises ExtensionError."""
    try:
        found = GpuFile.model_validate_json(resource(one))
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        raise wrong(one, f"{'.'.join(map(str, details['loc'])) or 'the file'}: {details['msg']}") from error
    for problem in _problems(found, families):
        raise wrong(one, problem)
    return found


def _problems(file: GpuFile, families: Mapping[str, object]) -> Iterator[str]:
    yield from (f"the family {name} is one of preflight's own" for name in file.families if name in families)
    for row in file.gpus:
        if row.family not in {*families, *file.families}:
            yield f"{row.name}: there is no family {row.family}"
