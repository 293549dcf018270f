"""Values of YAML scalars in three versions: PyYAML's safe loader (1.1), OmegaConf, and the core schema of YAML 1.2."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import yaml

from preflight.vocabulary.caches import regex
from preflight.vocabulary.values import Scalar

Version = Literal["1.1", "1.2", "omegaconf"]

_PREFIX = "tag:yaml.org,2002:"

# YAML 1.2.2, section 10.3.2, "Tag Resolution" of the core schema.
_CORE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("null", regex(r"(?:null|Null|NULL|~|)\Z")),
    ("bool", regex(r"(?:true|True|TRUE|false|False|FALSE)\Z")),
    ("int", regex(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")),
    ("float", regex(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")),
    ("float", regex(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")),
)

# OmegaConf adds floats without a point (`1e-5`), asks for digits around `_`, and has no dates (omegaconf 2.3).
_OMEGACONF_FLOAT = regex(
    r"""(?:[-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+)
        |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
        |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN))\Z""",
    re.X,
)


class BadScalar(ValueError):
    """A scalar that does not fit its tag, `!!int abc`. The message is for the user."""


def plain_tag(text: str, version: Version) -> str:
    """The short tag ("int", "str", ...) of an unquoted scalar that has no tag in the text."""
    if version == "1.2":
        return next((tag for tag, pattern in _CORE if pattern.match(text)), "str")
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers
    for tag, pattern in resolvers.get(text[:1], []) + resolvers.get(None, []):
        short = tag[len(_PREFIX) :]
        if (short != "timestamp" or version == "1.1") and pattern.match(text):
            return str(short)
    return "float" if version == "omegaconf" and _OMEGACONF_FLOAT.match(text) else "str"


def _bool(text: str) -> bool:
    try:
        return bool(yaml.SafeLoader.bool_values[text.lower()])
    except KeyError:
        raise BadScalar(f"{text!r} is not a boolean") from None


def _sexagesimal(digits: str, number: Callable[[str], float]) -> float:
    total: float = 0
    for part in digits.split(":"):
        total = total * 60 + number(part)
    return total


def _int_11(text: str) -> int:
    digits = text.replace("_", "")
    sign, digits = (-1 if digits.startswith("-") else 1), digits.lstrip("+-")
    if ":" in digits:
        return sign * int(_sexagesimal(digits, int))
    base = 2 if digits.startswith("0b") else 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    return sign * int(digits, base if digits != "0" else 10)


def _int_12(text: str) -> int:
    return int(text, 0) if text.startswith(("0o", "0x")) else int(text)


def _float(text: str) -> float:
    digits = text.replace("_", "").lower()
    sign, body = (-1.0 if digits.startswith("-") else 1.0), digits.lstrip("+-")
    if body in (".inf", ".nan"):
        return sign * float(body[1:])
    return sign * (_sexagesimal(body, float) if ":" in body else float(body))


def scalar(text: str, tag: str, version: Version) -> Scalar:
    """The value of a scalar with that short tag. Raises BadScalar if the text does not fit the tag.

    A date stays text, because no setting is a date.
    """
    try:
        if tag == "int":
            return _int_12(text) if version == "1.2" else _int_11(text)
        if tag == "float":
            return _float(text)
    except (ValueError, OverflowError):
        raise BadScalar(f"{text[:40]!r} is not a number") from None
    if tag == "bool":
        return _bool(text)
    if tag == "null":
        return None
    if tag in ("str", "timestamp", "merge", "value"):
        return text
    raise BadScalar(f"the tag !!{tag} is not read")


def short_tag(tag: str) -> str:
    """`tag:yaml.org,2002:int` as "int"; a foreign tag stays whole."""
    return tag.removeprefix(_PREFIX)
