"""An argv bound to a program's parameters, as argparse would."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.dialects.reading import Parameter, Word, word
from preflight.python.objects import Container, to_expr
from preflight.values import Const, Expr, Op, Unknown, Value


def plain_words(words: Container) -> list[Word]:
    """The items of a list in the program's text, as argv words."""
    made: list[Word] = []
    for item in words.items.values():
        expr = to_expr(item)
        if isinstance(expr, Const) and isinstance(expr.value, str):
            made.append(word(expr.value, expr.origin))
        else:
            made.append(Word("", Op("str", (expr,))))
    return made


def bind_words(words: Sequence[Word], parameters: Sequence[Parameter]) -> dict[str, Expr]:
    """Parameter name -> what the argv gives it, converted to the parameter's type; the last occurrence wins.

    Positional words fill the parameters without flags in order. Words that no parameter takes are left out.
    """
    flags = {flag: parameter for parameter in parameters for flag in parameter.flags}
    positional = [parameter for parameter in parameters if not parameter.flags and parameter.kind == "argparse"]
    found: dict[str, Expr] = {}
    index = 0
    while index < len(words):
        current = words[index]
        index += 1
        parameter = _flagged(current.prefix.removesuffix("="), flags)
        if parameter is None:
            if not current.prefix and current.value is not None and positional:
                target = positional.pop(0)
                found[target.name] = convert(current.value, target.type)
            continue
        if current.prefix.endswith("=") and current.value is not None:
            found[parameter.name] = convert(current.value, parameter.type)
        elif parameter.type in ("flag", "no-flag"):
            found[parameter.name] = Const(parameter.type == "flag", current.origin)
        else:
            values = []
            while index < len(words) and not words[index].prefix and words[index].value is not None:
                values.append(words[index].value or Const(None))
                index += 1
                if parameter.type != "list":
                    break
            found[parameter.name] = _value(values, parameter, current)
    return found


def _flagged(text: str, flags: dict[str, Parameter]) -> Parameter | None:
    if text in flags or not text.startswith("--"):
        return flags.get(text)
    matches = {parameter.name: parameter for flag, parameter in flags.items() if flag.startswith(text)}
    return next(iter(matches.values())) if len(matches) == 1 else None  # argparse takes an unambiguous prefix


def _value(values: list[Expr], parameter: Parameter, current: Word) -> Expr:
    if not values:
        return (
            Const(True, current.origin)
            if parameter.type == "bool"
            else Const(Unknown("no value is given"), current.origin)
        )
    if parameter.type == "list":
        return Op("tuple", tuple(values))
    return convert(values[0], parameter.type)


def convert(value: Expr, kind: str | None) -> Expr:
    """A word's text as the parameter's type; text that does not convert is unknown."""
    if not isinstance(value, Const) or not isinstance(value.value, str):
        return Op(kind, (value,)) if kind in ("int", "float") else value
    converted: Value = value.value
    try:
        if kind in ("int", "float"):
            converted = int(value.value) if kind == "int" else float(value.value)
        elif kind == "bool":
            converted = value.value.lower() in ("1", "true", "yes", "y", "t", "on")
    except ValueError:
        converted = Unknown(f"{value.value!r} is no {kind}")
    return Const(converted, value.origin)
