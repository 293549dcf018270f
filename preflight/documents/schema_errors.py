"""Validation of a document by a pydantic schema: errors with their route and a message for the user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from preflight.vocabulary.values import Route

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

_EXPECTED = {
    "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number", "string_type": "text",
    "bool_type": "true or false", "list_type": "a list", "tuple_type": "a list", "dict_type": "a mapping",
    "model_type": "a mapping", "model_attributes_type": "a mapping", "mapping_type": "a mapping",
    "finite_number": "a finite number",
}  # fmt: skip


class SchemaError(Struct, frozen=True):
    """`route` leads to the wrong value, or to the mapping without a required key. `key` is set for an unknown key, and
    `meant` for the known key that it looks like."""

    route: Route
    message: str
    key: str | None = None
    meant: str | None = None


def nearest(key: str, known: Iterable[str]) -> str | None:
    """The known key that is most similar to `key`, None if none is similar."""
    from difflib import get_close_matches

    found = get_close_matches(key, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def check(schema: type[BaseModel], value: object, route: Route = ()) -> Iterator[SchemaError]:
    """The errors of `value`, which is at `route` of its document."""
    from pydantic import ValidationError

    try:
        schema.model_validate(value, strict=True)
    except ValidationError as error:
        yield from _errors(error, schema, route)


def _errors(error: ValidationError, schema: type[BaseModel], route: Route) -> Iterator[SchemaError]:
    seen: set[Route] = set()
    for item in error.errors(include_url=False):
        at = (*route, *item["loc"])
        if at in seen:  # the members of a union each complain about the same value
            continue
        seen.add(at)
        name = at[-1] if at else "the document"
        if item["type"] == "extra_forbidden":
            key = str(name)
            guess = nearest(key, _keys(schema, item["loc"][:-1]))
            yield SchemaError(at, f"unknown key {key!r}" + (f"; did you mean {guess!r}?" if guess else ""), key, guess)
        elif item["type"] == "missing":
            yield SchemaError(at[:-1], f"{name!r} is missing")
        else:
            said = _EXPECTED.get(item["type"])
            yield SchemaError(
                at, f"{name}: {_shown(item['input'])} is not {said}" if said else _sentence(at, item["msg"])
            )


def _sentence(at: Route, message: str) -> str:
    subject = ".".join(str(part) for part in at[-1:]) or "the document"
    return f"{subject}: {message[0].lower()}{message[1:]}"


def _shown(value: object) -> str:
    text = "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, (list, tuple)) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _keys(schema: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The keys that the schema has at a place, also in nested models."""
    model: object = schema
    for part in loc:
        fields = getattr(model, "model_fields", {})
        inner = fields[part].annotation if part in fields else None
        model = next((a for a in (inner, *getattr(inner, "__args__", ())) if hasattr(a, "model_fields")), None)
    fields = getattr(model, "model_fields", {})
    return [info.alias or name for name, info in fields.items()]
