"""Overrides of a Hydra command line, parsed by Hydra: values, sweeps as domains, and Hydra's flags."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct, field

from preflight.vocabulary.budgets import CHOICES
from preflight.vocabulary.reading import Problem, Word
from preflight.vocabulary.values import (
    Cause,
    Choices,
    Const,
    Domain,
    Expr,
    Origin,
    Range,
    Span,
    Unbounded,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


class GivenOverride(Struct, frozen=True):
    """One override: parsed if its text is known, else a key with an expression."""

    key: str
    origin: Origin | None
    override: Override | None = None
    expr: Expr | None = None
    value_origin: Origin | None = None
    sign: str = ""
    package: str | None = None

    @property
    def sweeps(self) -> bool:
        return self.override is not None and self.override.is_sweep_override()


class HydraCommandLine(Struct):
    """The command line of a Hydra application: its overrides and Hydra's flags."""

    overrides: list[GivenOverride] = field(default_factory=list)
    multirun: bool = False
    config_name: str | None = None
    config_path: str | None = None
    config_dirs: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


_VALUED = {
    "--config-name": "name", "-cn": "name", "--config-path": "path", "-cp": "path", "--config-dir": "dir", "-cd": "dir",
    "--package": "", "-p": "", "--info": "", "-i": "", "--cfg": "", "-c": "", "--experimental-rerun": "",
}  # fmt: skip
"""Hydra's own flags that take a value (hydra._internal.utils.get_args_parser, 1.3)."""


def command_line(words: Sequence[Word]) -> HydraCommandLine:
    """Reads the words of a command line."""
    line, queue = HydraCommandLine(), list(words)
    while queue:
        one = queue.pop(0)
        flag = one.prefix.rstrip("=") if one.prefix.startswith("-") else _text(one) or ""
        if flag in ("-m", "--multirun"):
            line.multirun = True
        elif flag in _VALUED:
            value = one if one.value is not None and one.prefix else (queue.pop(0) if queue else None)
            text = _text_of(value.value) if value is not None else None
            _flag(line, _VALUED[flag], text)
        elif flag.startswith("-") and not one.hydra_prefix:
            continue  # a flag of Hydra's that changes no value, or a launcher's (--local_rank)
        else:
            given = _given(one, line.problems)
            if given is not None:
                line.overrides.append(given)
    return line


def _flag(line: HydraCommandLine, kind: str, text: str | None) -> None:
    if text is None:
        return
    if kind == "name":
        line.config_name = text.removesuffix(".yaml")
    elif kind == "path":
        line.config_path = text
    elif kind == "dir":
        line.config_dirs.append(text)


def _text_of(expr: Expr | None) -> str | None:
    if isinstance(expr, Const) and not isinstance(expr.value, Unknown):
        return _spelled(expr.value)
    return None


def _spelled(value: Value) -> str:
    """A value as a shell passes it to Hydra."""
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return "[" + ",".join(_spelled(item) for item in value) + "]"
    return str(value)


def _text(one: Word) -> str | None:
    if one.value is None:
        return one.hydra_prefix + one.prefix
    value = _text_of(one.value)
    return None if value is None else f"{one.hydra_prefix}{one.prefix}{value}"


def _given(one: Word, problems: list[Problem]) -> GivenOverride | None:
    text = _text(one)
    if text is not None:
        origin = one.value.origin if one.prefix and isinstance(one.value, Const) else None
        return parse_override(text, one.origin, origin, problems)
    sign, key = _signed(one.hydra_prefix + one.prefix.rstrip("="))
    if not key or one.value is None or (isinstance(one.value, Const) and not one.prefix):
        return None  # an unknown word ("$@"): what it overrides is unknown
    name, _, package = key.partition("@")
    at = one.value.origin if one.value.origin is not None else one.origin
    return GivenOverride(name, one.origin, None, one.value, at, sign, package or None)


def _signed(key: str) -> tuple[str, str]:
    bare = key.lstrip("+~")
    return key[: len(key) - len(bare)], bare


_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_PLAIN = re.compile(rf"(\+{{0,2}})({_NAME}(?:/{_NAME})*)=({_NAME})")
"""`group=option` with plain names: the only override of most launches, and of every option that is read by itself."""
_NO_NAMES = frozenset({"null", "true", "false", "inf", "nan"})
"""Words that are values to Hydra's grammar, in any case (hydra/grammar/OverrideLexer.g4, 1.3)."""


@lru_cache(maxsize=8192)
def _parsed(text: str) -> Override:
    """One override, by Hydra's grammar. The same is read for a file and for the program that composes it, and again for
    every fix. Names need no grammar: to parse them takes longer than to compose the files."""
    match = _PLAIN.fullmatch(text)
    if match is not None and match[3].lower() not in _NO_NAMES:
        from hydra.core.override_parser.types import Override, OverrideType, ValueType

        kinds = {"": OverrideType.CHANGE, "+": OverrideType.ADD, "++": OverrideType.FORCE_ADD}
        return Override(kinds[match[1]], match[2], ValueType.ELEMENT, match[3], input_line=text)
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(text)


def parse_override(
    text: str, origin: Origin | None, value_origin: Origin | None, problems: list[Problem]
) -> GivenOverride | None:
    """One override as Hydra reads its text; None and a problem if Hydra refuses it."""
    from hydra.errors import HydraException

    try:
        override = _parsed(text)
    except (HydraException, ValueError, RecursionError) as error:
        if origin is not None:
            said = " ".join(str(error).split("\n")[0].split())
            problems.append(Problem("invalid-config", f"Hydra cannot read the override {text[:60]!r}: {said}", origin))
        return None
    sign, _ = _signed(text)
    key = override.key_or_group
    return GivenOverride(key, origin, override, None, value_origin or origin, sign, override.package)


def domain(given: GivenOverride, options: Sequence[str], inclusive: bool = False) -> Domain | None:
    """The domain of a sweep, None if the override is not a sweep.

    `options` are the names from which a glob selects. `inclusive`: the stop of a range of whole numbers belongs to it
    (Optuna's sweeper makes an IntUniform of it; Hydra's sweeper stops before it).
    """
    from hydra.core.override_parser.types import ChoiceSweep, Glob, IntervalSweep, RangeSweep

    override = given.override
    if override is None:
        return None
    value = override._value
    if isinstance(value, Glob):
        return Choices(_selected(tuple(value.include), tuple(value.exclude), tuple(options)))
    if isinstance(value, ChoiceSweep):
        if len(value.list) > CHOICES:
            return Unbounded(CHOICES.over)
        found = tuple(plain(item) for item in value.list)
        return Choices(found, tuple(_places(given, len(found))))
    computed = None if given.value_origin is None else _uneditable(given.value_origin)
    if isinstance(value, IntervalSweep):
        low, high = float(value.start or 0), float(value.end or 0)
        whole = inclusive and isinstance(value.start, int) and isinstance(value.end, int)
        log = "log" in value.tags
        return Range(low, high, 1 if whole else None, whole, log, computed, computed)
    if isinstance(value, RangeSweep):
        return _range(value.start or 0, value.stop or 0, value.step or 1, inclusive, "log" in value.tags, computed)
    return None


@lru_cache(maxsize=64)
def _selected(include: tuple[str, ...], exclude: tuple[str, ...], options: tuple[str, ...]) -> tuple[str, ...]:
    """The options that a glob selects, which each file that is composed with it asks again."""
    from hydra.core.override_parser.types import Glob

    return tuple(Glob(list(include), list(exclude)).filter(list(options)))


def _range(start: float, stop: float, step: float, inclusive: bool, log: bool, origin: Origin | None) -> Domain:
    whole = all(isinstance(one, int) for one in (start, stop, step))
    if not step or not all(math.isfinite(one) for one in (start, stop, step, (stop - start) / step)):
        return Unbounded("a range without an end")
    size = math.floor((stop - start) / step) + 1 if inclusive else math.ceil((stop - start) / step - 1e-9)
    last = start + (size - 1) * step
    low, high = (start, last) if step > 0 else (last, start)
    if size <= 0:
        return Choices(())
    return Range(low, high, abs(step), whole, log, origin, origin)


def plain(value: object) -> Value:
    """The value of a parsed element, without Hydra's quotes."""
    from hydra.core.override_parser.types import Override

    converted: object = Override._convert_value(value)
    if isinstance(converted, list):
        return tuple(plain(item) for item in converted)
    if isinstance(converted, dict):
        return {str(key): plain(item) for key, item in converted.items()}
    if converted is None or isinstance(converted, (bool, int, float, str)):
        return converted
    return Unknown(f"a {type(converted).__name__} in an override is not read", Cause.not_read)


def _uneditable(origin: Origin) -> Origin:
    return Origin(origin.path, origin.span, origin.route, origin.via, editable=False)


def _places(given: GivenOverride, count: int) -> Iterator[Origin | None]:
    """The place of each value of `a,b,c` or `choice(a, b, c)`; none if the text in the file is another one."""
    origin, text = given.value_origin, given.override.get_value_string() if given.override is not None else ""
    if origin is None or origin.span.end - origin.span.start != len(text):
        return  # an escaped or computed word
    start, body = 0, text
    if text.startswith("choice(") and text.endswith(")"):
        start, body = len("choice("), text[len("choice(") : -1]
    spans = list(_split(body, start))
    if len(spans) == count:
        for low, high in spans:
            span = Span(origin.span.start + low, origin.span.start + high)
            yield Origin(origin.path, span, None, origin.via, origin.editable)


def _split(text: str, offset: int) -> Iterator[tuple[int, int]]:
    """Spans of the comma-separated parts of a text, with respect to brackets and quotes, without blanks around them."""
    depth, quote, start = 0, "", 0
    for at, char in enumerate([*text, ","]):
        end = at == len(text)
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and not end:
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and (depth == 0 or end):
            part = text[start:at]
            low = start + len(part) - len(part.lstrip())
            yield offset + low, offset + low + len(part.strip())
            start = at + 1
