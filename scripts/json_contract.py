"""The JSON of `check` and `estimate` as tables and as JSON schemas, made from preflight/reports/contract.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from pydantic import ConfigDict, TypeAdapter
from typing_extensions import is_typeddict

FOLDER = "docs/reference"
_JOBS = {"StudyJson": "worst", "EstimateJson": "job"}
"""Keys that hold a Job, by the object that has them."""
Schema = dict[str, object]


def schemas() -> Iterator[tuple[str, str]]:
    """Path and text of the JSON schema of each command."""
    for command, data in documents().items():
        yield f"{FOLDER}/{command}.schema.json", json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def documents(closed: bool = False) -> dict[str, Schema]:
    """The JSON schema of each command's document, by the name of the command. `closed` allows no other keys."""
    from preflight.reports import contract
    from preflight.vocabulary.job import Job

    for kind in vars(contract).values():
        if is_typeddict(kind):
            kind.__pydantic_config__ = ConfigDict(
                use_attribute_docstrings=True, extra="forbid" if closed else None, json_schema_extra=_inherited(kind)
            )
    of_job: Schema = Job.model_json_schema()
    made: dict[str, Schema] = {}
    for command, kind in (("check", contract.CheckJson), ("estimate", contract.EstimateJson)):
        data = TypeAdapter(kind).json_schema()
        objects = {**data.pop("$defs"), **of_job["$defs"]}  # type: ignore[dict-item]
        objects["Job"] = {key: value for key, value in of_job.items() if key != "$defs"}
        for name, key in _JOBS.items():
            owner = data if data["title"] == name else objects.get(name)
            if owner is not None:
                owner["properties"][key] = {"$ref": "#/$defs/Job", "description": "The Job."}
        made[command] = {"$schema": "https://json-schema.org/draft/2020-12/schema", **data, "$defs": objects}
    return made


def _inherited(kind: type) -> Callable[[Schema], None]:
    """Gives the keys of a base the meanings that they have there, which pydantic leaves out."""

    def add(data: Schema) -> None:
        for base in getattr(kind, "__orig_bases__", ()):
            if is_typeddict(base):
                for key, found in TypeAdapter(base).json_schema()["properties"].items():
                    data["properties"][key].setdefault("description", found["description"])  # type: ignore[index]

    return add


def tables() -> str:
    """A table for each object: its keys, their types and meanings, with the objects that hold it before it."""
    objects: dict[str, Mapping[str, object]] = {}
    for data in documents().values():
        _reached(data, data["$defs"], objects)  # type: ignore[arg-type]
    lines: list[str] = []
    for name, one in objects.items():
        lines += ["", f"## {_heading(name)}", "", " ".join(str(one["description"]).split()), ""]
        lines += ["| key | type | meaning |", "|---|---|---|"]
        properties: Mapping[str, Mapping[str, object]] = one["properties"]  # type: ignore[assignment]
        for key, kind in properties.items():
            absent = "" if key in one["required"] else ", or absent"  # type: ignore[operator]
            lines.append(f"| `{key}` | {_type(kind)}{absent} | {kind.get('description', '')} |")
    return "\n".join(lines[1:]) + "\n"


def _reached(
    one: Mapping[str, object], objects: Mapping[str, Mapping[str, object]], found: dict[str, Mapping[str, object]]
) -> None:
    """`one`, then the objects that its keys hold, each once. A Job has a page of its own."""
    name = str(one["title"])
    if name in found or name == "Job":
        return
    found[name] = one
    for target in _targets(one["properties"]):
        _reached(objects[target], objects, found)


def _targets(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for item in value.values():
            yield from _targets(item)
    elif isinstance(value, list):
        for item in value:
            yield from _targets(item)


def _heading(name: str) -> str:
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name.removesuffix("Json"))
    return words.strip().capitalize()


def _type(kind: Mapping[str, object]) -> str:
    """A type in words, with a link to the table of an object."""
    if "$ref" in kind:
        name = str(kind["$ref"]).rpartition("/")[2]
        heading = _heading(name)
        return "[Job](job.md)" if name == "Job" else f"[{heading.lower()}](#{heading.lower().replace(' ', '-')})"
    if "anyOf" in kind:
        return " or ".join(_type(one) for one in kind["anyOf"])  # type: ignore[attr-defined]
    if "enum" in kind:
        return ", ".join(f"`{one}`" for one in kind["enum"])  # type: ignore[attr-defined]
    if "const" in kind:
        return f"`{kind['const']}`"
    if kind.get("type") == "array":
        return f"list of {_type(kind['items'])}"  # type: ignore[arg-type]
    if kind.get("type") == "object":
        values = kind["additionalProperties"]
        return f"name to {_type(values) if isinstance(values, Mapping) else 'any value'}"
    return {"null": "`null`", "string": "text", "boolean": "true, false"}.get(
        str(kind.get("type")), str(kind.get("type", "any value"))
    )
