"""Values that suit a pydantic model as they stand, taken without pydantic's validator.

Building the validators of the schemas costs a quarter of a check's time, and nearly every file has values of the right
shape. So models put their build off (`defer_build`), and the usual value is recognised here by its exact type. Whatever
is not plain (a number written as text, a key that nobody knows, a wrong value) is left to pydantic, errors included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

Model = TypeVar("Model", bound=BaseModel)

_NO: Any = object()
"""Not plain: pydantic may still take it."""


def plain(schema: type[Model], values: Mapping[str, object]) -> Model | None:
    """What `schema.model_validate(values)` gives (strict or not) for plain values; None where pydantic has to say."""
    if schema.__pydantic_decorators__.model_validators:
        return None
    checked = {name for one in schema.__pydantic_decorators__.field_validators.values() for name in one.info.fields}
    ignores = schema.model_config.get("extra", "ignore") == "ignore"
    by_key = {info.alias or name: name for name, info in schema.model_fields.items()}
    given: dict[str, Any] = {}
    for key, value in values.items():
        if key not in by_key:
            if not ignores or key in schema.model_fields:
                return None
            continue
        name = by_key[key]
        info = schema.model_fields[name]
        given[key] = _NO if name in checked else _suiting(info.annotation, info.metadata, value)
        if given[key] is _NO:
            return None
    if any(info.is_required() and key not in given for key, info in _by_key(schema, by_key)):
        return None
    return schema.model_construct(**given)


def assign(part: BaseModel, name: str, value: object) -> None:
    """`part.name = value`, checked as pydantic does. Raises pydantic.ValidationError."""
    info = type(part).model_fields.get(name)
    found = _NO if info is None else _suiting(info.annotation, info.metadata, value)
    if found is _NO:
        setattr(part, name, value)
    else:
        part.__dict__[name] = found
        part.__pydantic_fields_set__.add(name)


def _by_key(schema: type[BaseModel], by_key: Mapping[str, str]) -> Iterable[tuple[str, FieldInfo]]:
    return ((key, schema.model_fields[name]) for key, name in by_key.items())


def _suiting(annotation: Any, metadata: Iterable[object], value: object) -> Any:
    """The value as the model holds it, or _NO."""
    left = []
    for one in metadata:
        if isinstance(one, FieldInfo):
            left += one.metadata
        else:
            left.append(one)
    if any(isinstance(one, BeforeValidator) for one in left):
        before, *left = left
        if not isinstance(before, BeforeValidator):
            return _NO
        try:
            value = before.func(value)  # type: ignore[call-arg]
        except (ValueError, AssertionError):
            return _NO
    found = _typed(annotation, value)
    return found if found is not _NO and all(_within(bound, found) for bound in left) else _NO


def _within(bound: object, value: Any) -> bool:
    """Whether a value keeps a bound; a kind of bound that is not known here is not kept."""
    if isinstance(bound, Ge):
        return bool(value >= bound.ge)
    if isinstance(bound, Gt):
        return bool(value > bound.gt)
    if isinstance(bound, Le):
        return bool(value <= bound.le)
    return isinstance(bound, MinLen) and len(value) >= bound.min_length


def _typed(annotation: Any, value: object) -> Any:
    origin = get_origin(annotation)
    if annotation is Any:
        return value
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        return _suiting(inner, metadata, value)
    if origin in (Union, UnionType):
        found = [one for one in (_typed(member, value) for member in get_args(annotation)) if one is not _NO]
        return found[0] if len(found) == 1 else _NO
    if origin is Literal:
        return value if any(type(one) is type(value) and one == value for one in get_args(annotation)) else _NO
    if origin is list:
        return _all(get_args(annotation)[0], value) if type(value) is list else _NO
    if origin is dict:
        return _mapping(get_args(annotation), value) if type(value) is dict else _NO
    return _scalar(annotation, value) if isinstance(annotation, type) else _NO


def _all(member: Any, values: Iterable[object]) -> Any:
    found = [_typed(member, value) for value in values]
    return _NO if any(one is _NO for one in found) else found


def _mapping(kinds: tuple[Any, ...], table: Mapping[object, object]) -> Any:
    found = {_typed(kinds[0], key): _typed(kinds[1], value) for key, value in table.items()}
    return _NO if _NO in found or any(one is _NO for one in found.values()) else found


def _scalar(kind: type, value: object) -> Any:
    if kind is NoneType:
        return None if value is None else _NO
    if issubclass(kind, BaseModel):
        made = plain(kind, value) if type(value) is dict else value if type(value) is kind else None
        return _NO if made is None else made
    if kind is float and type(value) is int:
        return float(value)
    if kind is str and type(value) is str and not value.isascii():
        return _NO  # a lone surrogate is no text to pydantic
    return value if type(value) is kind else _NO
