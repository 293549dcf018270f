"""The form of a file of GPUs: preflight's own `gpus.json`, and those that other distributions add (`preflight.gpus`).

The checks are made of files that are added; a test makes them of preflight's own, so that no start pays for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from preflight.system.entry_points import Added
from preflight.vocabulary.extensions import resource, wrong

Bytes = tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]]
"""Low, expected and high, in GiB."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FamilyRow(_Strict):
    """What one process loses of each card of a family. The note says where the figures are from."""

    context: Bytes
    nccl: Bytes
    note: str = Field(min_length=1)

    @field_validator("context", "nccl")
    @classmethod
    def _in_order(cls, value: Bytes) -> Bytes:
        if list(value) != sorted(value):
            raise ValueError("low, expected and high must not fall")
        return value


class GpuRow(_Strict):
    """One GPU. The source says where its capacity was read."""

    name: str = Field(min_length=1)
    capacity_gib: float = Field(gt=0)
    family: str
    compute_capability: tuple[int, int]
    aliases: list[str] = []
    source: str = Field(min_length=1)
    partial: bool = False


class GpuFile(_Strict):
    """A whole file. A family may be one of preflight's own."""

    about: str = ""
    windows: str = ""
    families: dict[str, FamilyRow] = {}
    gpus: list[GpuRow] = Field(min_length=1)


def read(one: Added, families: Mapping[str, object]) -> GpuFile:
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
    yield from (f"the family {name} is preflight's own" for name in file.families if name in families)
    for row in file.gpus:
        if row.family not in {*families, *file.families}:
            yield f"{row.name}: there is no family {row.family}"
