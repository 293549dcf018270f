"""Rendering of a new value in the style of the old text: quotes, spelling of numbers, units."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Literal, NoReturn

from preflight.documents.scalars import plain_tag
from preflight.vocabulary.text import CannotEdit
from preflight.vocabulary.values import Unknown, Value

Language = Literal["yaml", "json", "python", "bash", "hydra", "slurm-size"]
"""The language of a text. "hydra" is the right side of an override; "slurm-size" is an amount of memory for `--mem`,
whose value is in bytes."""

_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?\Z")
_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*\Z")
_SIZE = re.compile(r"([0-9]+)([KMGTkmgt]?)([bB]?)\Z")
_BARE_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./~-]+\Z")
_CALL = re.compile(r"([A-Za-z_]\w*)\((.*)\)\Z", re.S)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_BOOLEANS = (("true", "false"), ("yes", "no"), ("on", "off"), ("y", "n"), ("1", "0"))


def render(
    old: str,
    value: Value,
    language: Language,
    yaml_version: Literal["1.1", "1.2", "omegaconf"] = "1.1",
    flow: bool = False,
) -> str:
    """`value` as text of `language`, in the style of `old` if possible (quotes, `1_000`, `1e-4`, `True`, `GB`).

    `yaml_version` is the version in which the tool reads the file (1.1 reads `1e-05` as text, so `1.0e-05` is written);
    `flow` means inside brackets. Raises CannotEdit for a value that the language cannot express.
    """
    return _RENDERERS[language](old.strip(), value, yaml_version, flow)


def language_of(path: str) -> Language:
    """The language of a file by its name; a job script for all other names."""
    for ending, language in ((".yaml", "yaml"), (".yml", "yaml"), (".json", "json"), (".py", "python")):
        if path.lower().endswith(ending):
            return language  # type: ignore[return-value]
    return "bash"


# --- numbers --------------------------------------------------------------------------------------------------------


def _number(old: str, value: int | float, point: bool) -> str:
    """A number as digits; `point`: an exponent needs a point before it and a sign (YAML 1.1)."""
    number = _NUMBER.match(old) is not None
    if isinstance(value, float) and not math.isfinite(value):
        raise CannotEdit(f"{value} cannot be written here")
    if isinstance(value, float) and _INTEGER.match(old) and value.is_integer():
        value = int(value)
    elif isinstance(value, int) and number and not _INTEGER.match(old) and abs(value) < 2**53:
        value = float(value)
    grouped = "_" in old and number
    if isinstance(value, int):
        return f"{value:_}" if grouped else str(value)
    text = repr(value)
    if "e" not in text:
        return f"{value:_}" if grouped and abs(value) >= 1000 else text
    mantissa, _, exponent = text.partition("e")
    unpadded = re.search(r"[eE][-+]?[1-9]", old)
    if unpadded:
        exponent = re.sub(r"^([-+]?)0+", r"\1", exponent)
    if point and "." not in mantissa:
        mantissa += ".0"
    if point and exponent[0] not in "+-":
        exponent = "+" + exponent
    return f"{mantissa}{'E' if 'E' in old else 'e'}{exponent}"


def _boolean(old: str, value: bool, pairs: tuple[tuple[str, str], ...], default: tuple[str, str]) -> str:
    for pair in pairs:
        if old.lower() in pair:
            word = pair[0 if value else 1]
            return word.upper() if old.isupper() else word.capitalize() if old[:1].isupper() else word
    return default[0 if value else 1]


def _refuse(value: Unknown) -> NoReturn:
    raise CannotEdit(f"the new value is unknown: {value.words}")


# --- languages ------------------------------------------------------------------------------------------------------


def _yaml(old: str, value: Value, version: Literal["1.1", "1.2", "omegaconf"], flow: bool) -> str:
    if isinstance(value, Unknown):
        _refuse(value)
    if isinstance(value, Mapping):
        inner = (f"{_yaml('', k, version, True)}: {_yaml('', v, version, True)}" for k, v in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(_yaml("", v, version, True) for v in value) + "]"
    quote = old[:1] if old[:1] in ("'", '"') and len(old) > 1 else ""
    if isinstance(value, str):
        return _yaml_string(value, quote, version, flow)
    if value is None:
        return "~" if old == "~" else "null"
    if isinstance(value, bool):
        bare = old.strip("'\"") if quote else old
        text = _boolean(bare, value, _BOOLEANS[:3] if version != "1.2" else _BOOLEANS[:1], ("true", "false"))
    elif isinstance(value, float) and not math.isfinite(value):
        text = ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    else:
        digits = old.strip("'\"") if quote else old
        text = _number(digits.replace("_", "") if version == "1.2" else digits, value, version == "1.1")
    return f"{quote}{text}{quote}"


def _yaml_string(value: str, quote: str, version: Literal["1.1", "1.2", "omegaconf"], flow: bool) -> str:
    if not value.isprintable() or any(0xD800 <= ord(c) <= 0xDFFF for c in value):
        return '"' + "".join(_escaped(c) for c in value) + '"'
    if quote == "'":
        return "'" + value.replace("'", "''") + "'"
    if quote == '"' or not _plain(value, flow):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return value


def _escaped(char: str) -> str:
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\\": "\\\\", '"': '\\"'}
    if char in known or char.isprintable():
        return known.get(char, char)
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _plain(value: str, flow: bool) -> bool:
    """Whether every version of YAML reads the text, unquoted, as this string."""
    if (
        not value
        or value != value.strip()
        or value[0] in "-?:,[]{}#&*!|>'\"%@`"
        or value.startswith(("...", "<<", "="))
    ):
        return False
    if ": " in value or " #" in value or value.endswith(":") or (flow and re.search(r"[,\[\]{}:]", value)):
        return False
    return all(plain_tag(value, version) == "str" for version in ("1.1", "1.2", "omegaconf"))


def _json(old: str, value: Value, *_: object) -> str:
    if isinstance(value, Unknown):
        _refuse(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_json('', k)}: {_json('', v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(_json("", v) for v in value) + "]"
    if isinstance(value, bool) or value is None:
        text = json.dumps(value)
    elif isinstance(value, str):
        return json.dumps(value, ensure_ascii=not value.isprintable())
    else:
        text = _number(old.strip('"'), value, False)
    return f'"{text}"' if old.startswith('"') and value is not None else text


def _python(old: str, value: Value, *_: object) -> str:
    if isinstance(value, Unknown):
        _refuse(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_python('', k)}: {_python('', v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        inner = ", ".join(_python("", v) for v in value)
        return f"({inner}{',' if len(value) == 1 else ''})" if old.startswith("(") else f"[{inner}]"
    if isinstance(value, str):
        text = repr(value)
        if old.lstrip("rRuUbBfF")[:1] == '"' and '"' not in value and text[0] == "'":
            text = '"' + text[1:-1].replace("\\'", "'") + '"'
        return text
    if isinstance(value, (bool, type(None))):
        return repr(value)
    return _number(old, value, False)


def _words(old: str, value: Value) -> str:
    """A value as a command line or an override has it, before quoting."""
    if isinstance(value, Unknown):
        _refuse(value)
    if isinstance(value, Mapping):
        raise CannotEdit("a mapping is not written into a command line")
    if isinstance(value, tuple):
        inner = ",".join(_words("", v) for v in value)
        call = _CALL.match(old)
        if call:
            return f"{call[1]}({inner})"
        return f"[{inner}]" if old.startswith("[") else inner
    if value is None:
        return "None" if old == "None" else "null"
    if isinstance(value, bool):
        return _boolean(old, value, _BOOLEANS, ("True", "False"))
    return value if isinstance(value, str) else _number(old, value, False)


def _hydra(old: str, value: Value, *_: object) -> str:
    quote = old[:1] if old[:1] in ("'", '"') and len(old) > 1 else ""
    if quote and isinstance(value, str):
        return quote + value.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote
    text = _words(old, value)
    if isinstance(value, str) and not _BARE_WORD.match(text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return text


def _bash(old: str, value: Value, *_: object) -> str:
    quote = old[:1] if old[:1] in ("'", '"') and old[-1:] == old[:1] and len(old) > 1 else ""
    text = _words(old[1:-1] if quote else old, value)
    if any(char < " " or char == "\x7f" for char in text):
        raise CannotEdit("a shell word cannot hold a control character")
    if quote == '"':
        return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'
    bare = text.replace("[", "").replace("]", "") if "[" in old else text  # an unquoted Hydra list
    if quote == "'" or not _BARE_WORD.match(bare):
        return "'" + text.replace("'", "'\\''") + "'"
    return text


def _slurm_size(old: str, value: Value, *_: object) -> str:
    """Bytes as sbatch reads memory (proc_args.c: a whole number with K, M, G or T and an optional B; bare is MiB).

    The number is rounded up in the unit of the old text; a smaller unit is used if rounding would add over 1 %.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise CannotEdit("an amount of memory is a number of bytes")
    match = _SIZE.match(old)
    unit, suffix = (match[2], match[3]) if match else ("G", "")
    order = "TGMK"
    for name in order[order.index(unit.upper() or "M") :]:
        count = math.ceil(value / _UNITS[name])
        if count * _UNITS[name] <= value * 1.01 or name == "M":
            break
    if not unit:
        return str(count)
    return f"{count}{name.lower() if unit.islower() else name}{suffix}"


_RENDERERS: dict[str, Callable[..., str]] = {
    "yaml": _yaml, "json": _json, "python": _python, "bash": _bash, "hydra": _hydra, "slurm-size": _slurm_size,
}  # fmt: skip
