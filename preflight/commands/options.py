"""Options that several commands share."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import click

from preflight.vocabulary.caches import regex
from preflight.vocabulary.errors import SettingsError, UsageError, suggestion
from preflight.vocabulary.progress import OPTION, Deadline, Progress
from preflight.vocabulary.values import Value

F = TypeVar("F", bound=Callable[..., object])

_SIZE = regex(r"([\d.]+)\s*(?:([kmgt])(i?)b?|b)?", re.IGNORECASE)

LARGEST_SIZE = 2**63
"""More bytes than any computer has."""


class _Stated(click.types.StringParamType):
    """Text that is not empty: an empty variable of a script would silently ask for less, or trust the current
    directory."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if isinstance(value, str) and not value.strip(" \t\n,"):
            names = param.opts[-1:] if isinstance(param, click.Option) else ["a name on the command line"]
            raise UsageError(f"{names[0]}: it is empty")
        return str(value)


STATED = _Stated()


def set_option(function: F) -> F:
    """`--set FIELD=VALUE`."""
    help = "State a Job field that the files do not, as in train.batch_size=16. Repeatable."
    return click.option("--set", "-s", "assignments", multiple=True, type=STATED, metavar="FIELD=VALUE", help=help)(
        function
    )


def parse_at(assignments: Iterable[str]) -> dict[str, Value]:
    """Parameters of a search and their values from NAME=VALUE texts; values are read as YAML. Raises UsageError."""
    found: dict[str, Value] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--at {_short(text)}: write NAME=VALUE, as in batch_size=16")
        found[name.strip()] = _value(value, text, "--at")
    return found


def format_option(function: F) -> F:
    """`--output-format text|json`."""
    return click.option(
        "--output-format",
        "-f",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="How the answer is printed.",
    )(function)


def calibration_option(function: F) -> F:
    """`--no-calibration`."""
    help = "Do not use recorded runs: the figures are the law's alone."
    return click.option("--no-calibration", "calibration", is_flag=True, flag_value=False, default=True, help=help)(
        function
    )


def trust_option(function: F) -> F:
    """`--trust PATH`."""
    help = "Trust this file: rules, the interpreter of the settings, a law, or a machine file. Repeatable."
    return click.option("--trust", multiple=True, type=STATED, metavar="PATH", help=help)(function)


def _seconds(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Seconds, more than none. Raises UsageError."""
    if text is None:
        return None
    found = _number(text)
    if found is None or not 0 < found < math.inf:
        raise UsageError(f"{OPTION} {_short(text)}: write seconds, as in 30 or 0.5")
    return found


def time_limit_option(function: F) -> F:
    """`--time-limit SECONDS`."""
    limit = "End after this time with what is known by then; what is not is named."
    return click.option(OPTION, type=STATED, callback=_seconds, metavar="SECONDS", help=limit)(function)


def time_options(function: F) -> F:
    """`--time-limit SECONDS` and `--quiet`."""
    quiet = "Do not show on a terminal what is being done."
    return time_limit_option(click.option("--quiet", "-q", is_flag=True, help=quiet)(function))


def progress_of(time_limit: float | None = None, quiet: bool = False) -> Progress:
    """What is shown on standard error while a command works, and its deadline, from now on."""
    from preflight.reports.progress import shown_on

    deadline = Deadline.after(time_limit) if time_limit is not None else None
    return Progress(shown_on(sys.stderr, os.environ, quiet), deadline)


def parse_set(assignments: Iterable[str]) -> dict[str, Value]:
    """Job fields and values from FIELD=VALUE texts; values are read as YAML. Raises UsageError."""
    from preflight.engine.settings import check_values, is_field
    from preflight.vocabulary.job import fields

    found: dict[str, Value] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise UsageError(f"--set {_short(text)}: write FIELD=VALUE, as in train.batch_size=16")
        if not is_field(name):
            raise UsageError(f"--set {_short(text)}: {_short(name)} is not a Job field{suggestion(name, fields())}")
        read = _value(value, text, "--set")
        number = isinstance(read, (int, float)) and not isinstance(read, bool)
        found[name] = value.strip() if number and name.startswith("software.") else read  # 2.40 is not 2.4
    try:
        check_values(found, "--set")
    except SettingsError as error:
        raise UsageError(str(error)) from error
    return found


def _value(text: str, whole: str, option: str) -> Value:
    import yaml

    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a number of too many digits; too many brackets
        raise UsageError(f"{option} {_short(whole)}: the value is not valid YAML") from error
    if isinstance(value, str) and value == text.strip() and (number := _number(value)) is not None:
        return number  # YAML 1.1 reads 1e-5 as text
    return _frozen(value)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _frozen(value: object) -> Value:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        return {str(key): _frozen(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def page_file(text: str) -> Path:
    """The file of `--output html=FILE`. Raises UsageError."""
    name, _, path = text.partition("=")
    if name != "html" or not path:
        raise UsageError(f"--output {text}: write html=FILE")
    return Path(path)


def parse_bytes(text: str) -> int:
    """Bytes of "7.45GiB", "24 GB" (decimal), "512M" (binary, as nvidia-smi and SLURM mean it) or a number."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[1].count(".") > 1 or match[1] == ".":
        raise UsageError(f"{_short(text)}: not a size; write bytes, or 7.45GiB")
    unit = (match[2] or "").lower()
    decimal = bool(unit) and not match[3] and text.strip().lower().endswith("b")
    scale = (1000 if decimal else 1024) ** ("kmgt".index(unit) + 1) if unit else 1
    size = float(match[1]) * scale
    if size > LARGEST_SIZE:
        raise UsageError(f"{_short(text)}: no computer has so much memory")
    return round(size)
