"""The JSON schemas of the reference, made from the types of the code, describe what the commands print."""

from __future__ import annotations

import json
from functools import cache

import jsonschema
import pytest
from pages_of_the_guide import ROOT, script

SWEEP = str(ROOT / "examples" / "readme" / "sweep.yaml")
ARGUMENTS = {
    "check": ["check", SWEEP, "--output-format", "json"],
    "estimate": ["estimate", SWEEP, "--output-format", "json", "--measured", "12GiB"],
}


@cache
def printed(command: str) -> str:
    made: str = script("generate").run(ARGUMENTS[command])
    return made


@pytest.mark.parametrize("command", ARGUMENTS)
def test_a_document_has_the_keys_of_the_schema_and_no_others(command: str) -> None:
    jsonschema.validate(
        json.loads(printed(command)),
        script("json_contract").documents(closed=True)[command],
        cls=jsonschema.Draft202012Validator,
    )


@pytest.mark.parametrize("command", ARGUMENTS)
def test_a_program_that_reads_the_published_schema_accepts_keys_of_later_versions(command: str) -> None:
    schemas = script("json_contract")
    later = json.loads(printed(command)) | {"later": 1}
    assert jsonschema.Draft202012Validator(schemas.documents()[command]).is_valid(later)
    assert not jsonschema.Draft202012Validator(schemas.documents(closed=True)[command]).is_valid(later)


def test_every_key_has_a_meaning() -> None:
    assert "|  |" not in script("json_contract").tables()
