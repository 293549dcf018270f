"""Binding an argv to a program's parameters, as argparse, click and HfArgumentParser do."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from msgspec import Struct

from preflight.vocabulary.reading import FALSE, SWITCHES, TRUE, Parameter, Word, convert, word
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Unknown, evaluate, names, unknown

_ARGV = ("argparse", "click", "dataclass")
ALL_ARGUMENTS = Unknown("they are given when the script is started", Cause.not_set)
"""`"$@"` of a script that nobody is seen to start: any number of words."""
_SEVERAL = (Cause.file_not_found, Cause.not_read)
"""Why the output of a command is not known: a line of a file, as a rule."""
_SWEPT = "wandb"
"""The kind of a parameter that no command line sets."""


class BoundArguments(Struct, frozen=True):
    """A parsed argv: parameter -> expression, and the words that no parameter takes.

    `unread` is the last word that may be any option. Each parameter that no later word sets is unknown then.
    """

    values: Mapping[str, Expr]
    left: tuple[Word, ...] = ()
    unread: Word | None = None


def bind_words(parameters: Sequence[Parameter], words: Sequence[Word]) -> dict[str, Expr]:
    """Parameter name -> the expression that the argv gives it; the last occurrence wins."""
    return dict(bind(parameters, words).values)


def bind(parameters: Sequence[Parameter], words: Sequence[Word]) -> BoundArguments:
    """The same, with the words that are left over. Values keep their place; text is converted by type."""
    argv = [p for p in parameters if p.kind in _ARGV]
    keyed = {p.name: p for p in parameters if p.kind not in _ARGV}
    flags = {flag: p for p in argv for flag in p.flags}
    positionals = [p for p in argv if not p.flags and p.kind != "dataclass"]
    values: dict[str, Expr] = {}
    left: list[Word] = []
    unread: Word | None = None
    queue = list(_split(words))
    at = 0
    while at < len(queue):
        item = queue[at]
        at += 1
        if not item.prefix.startswith("-"):
            key = item.prefix.rstrip("=")
            if key in keyed and item.value is not None:
                values[key] = convert(item.value, keyed[key].type, keyed=True)
            elif not item.prefix and item.value is not None and positionals and not _may_be_several(item.value):
                at = _positional(positionals, queue, at, values)
            else:
                if may_be_options(item, left[-1] if left and at > 1 and left[-1] is queue[at - 2] else None):
                    values, unread = {}, item
                    positionals = []
                left.append(item)
            continue
        found = _option(item, flags)
        if found is None:
            left.append(item)
            continue
        parameter, value = found
        values[parameter.name], at = _take(parameter, item, value, queue, at)
    if unread is not None:
        doubt = unread_words(unread)
        values = {**{p.name: doubt for p in parameters if p.kind != _SWEPT}, **values}
    return BoundArguments(values, tuple(left), unread)


def may_be_options(item: Word, before: Word | None, switches: Container[str] = ()) -> bool:
    """Whether a word whose text is unknown may set any option: `$EXTRA_ARGS`, `"$@"`, `@arguments.txt`.

    `before` is the word before it: behind an option that nobody knows stands the value of that option. `switches` are
    known to have no value.
    """
    if item.prefix or item.value is None:
        return False
    option = before is not None and before.prefix.startswith("-") and before.value is None
    if before is not None and option and before.prefix != "--" and before.prefix not in switches:
        return False
    if isinstance(item.value, Const) and isinstance(item.value.value, str):
        return item.value.value.startswith("@") and len(item.value.value) > 1
    return isinstance(evaluate(item.value), Unknown) and (_has_unknown(item.value) or not any(names(item.value)))


def _may_be_several(value: Expr) -> bool:
    """Whether an unknown word may be more than the one that a positional argument takes: `"$@"`, `$(cat options.txt)`,
    but not `$DATA` or `$(pwd)/data`."""
    found = evaluate(value)
    alone = not (isinstance(value, Op) and value.operator == "concat")
    return alone and isinstance(found, Unknown) and (found == ALL_ARGUMENTS or found.cause in _SEVERAL)


def _has_unknown(expr: Expr) -> bool:
    """Whether a part of a value is unknown, whatever the axes in it are."""
    if isinstance(expr, Op):
        return any(_has_unknown(operand) for operand in expr.operands)
    return isinstance(expr, Const) and isinstance(expr.value, Unknown)


def unread_words(item: Word) -> Const:
    """The value of every option that such a word may set."""
    value = None if item.value is None else evaluate(item.value)
    if isinstance(value, Unknown):
        words, cause = f"words of the command line may set it, and they are not known: {value.words}", value.cause
    else:
        words, cause = f"the file of arguments {value} may set it", Cause.not_read
    return Const(Unknown(words, cause), item.origin)


def until_unread_words(words: Sequence[Word]) -> tuple[tuple[Expr, ...], bool]:
    """The words as a program sees them, up to the first that may be several; and whether these are all."""
    found: list[Expr] = []
    for at, item in enumerate(words):
        if may_be_options(item, words[at - 1] if at else None):
            return tuple(found), False
        found.append(_whole(item))
    return tuple(found), True


def _whole(item: Word) -> Expr:
    text = f"{item.hydra_prefix}{item.prefix}"
    if item.value is None:
        return Const(text, item.origin)
    if isinstance(item.value, Const) and not isinstance(item.value.value, Unknown):
        return Const(f"{text}{item.value.value}", item.value.origin if not text else item.origin)
    return Op("concat", (Const(text), item.value), item.origin) if text else item.value


def behind_unread_words(words: Sequence[Word], switches: Container[str] = ()) -> tuple[Word | None, tuple[Word, ...]]:
    """The last word that may be any option, and the words behind it; None, and all words, if there is none.

    For tools whose parameters are not listed.
    """
    for at in range(len(words) - 1, -1, -1):
        if may_be_options(words[at], words[at - 1] if at else None, switches):
            return words[at], tuple(words[at + 1 :])
    return None, tuple(words)


def _split(words: Sequence[Word]) -> Iterator[Word]:
    """Words as the program sees them: a value that is itself a flag (an unquoted expansion) is one."""
    for item in words:
        value = item.value
        if not item.prefix and isinstance(value, Const) and isinstance(value.value, str):
            text = value.value
            if text.startswith("--") and len(text) > 2:
                yield word(text, value.origin)
                continue
        yield item


def _option(item: Word, flags: Mapping[str, Parameter]) -> tuple[Parameter, Expr | None] | None:
    """The parameter that a flag means, with the value in the same word: `--bs=16`, `-b16`, an abbreviation."""
    name = item.prefix.rstrip("=")
    if name in flags:
        return flags[name], item.value
    if name.startswith("--"):
        dashed = {flag.replace("_", "-"): p for flag, p in flags.items() if p.kind == "dataclass"}
        if name.replace("_", "-") in dashed:  # HfArgumentParser takes both spellings of a long flag
            return dashed[name.replace("_", "-")], item.value
        close = {p.name: p for flag, p in flags.items() if flag.startswith(name) and p.kind != "click"}
        return (next(iter(close.values())), item.value) if len(close) == 1 else None
    short = name[:2]
    if short in flags and len(name) > 2 and flags[short].type not in SWITCHES:
        return flags[short], Const(name[2:], _tail(item.origin, 2))
    return None


def _tail(origin: Origin | None, skipped: int) -> Origin | None:
    if origin is None:
        return None
    start = min(origin.span.start + skipped, origin.span.end)
    return Origin(origin.path, type(origin.span)(start, origin.span.end), None, origin.via, origin.editable)


def _take(parameter: Parameter, item: Word, value: Expr | None, queue: list[Word], at: int) -> tuple[Expr, int]:
    """The value of a flag, and where the argv goes on."""
    name, switch = item.prefix.rstrip("="), _is_switch(parameter)
    if switch and value is None:
        off = parameter.type == "no-flag" or (name.startswith("--no") and _negates(name, parameter))
        return Const(not off, _presence(item.origin)), at
    if value is not None:
        return convert(value, parameter.type), at
    if parameter.type == "list":
        items, at = _values(queue, at)
        return Op("tuple", tuple(items), item.origin), at
    following = _value(queue[at]) if at < len(queue) else None
    if following is not None and not (parameter.type == "bool" and not _is_bool(following)):
        return convert(following, parameter.type), at + 1
    if parameter.type in ("bool", None):  # `--bf16` alone: nargs="?" with const=True
        return Const(True, _presence(item.origin)), at
    return unknown(f"{name} is given no value", item.origin, Cause.not_set), at


def _is_switch(parameter: Parameter) -> bool:
    negated = any(flag.startswith("--no-") and _negates(flag, parameter) for flag in parameter.flags)
    return parameter.type in SWITCHES or (parameter.type == "bool" and negated and parameter.kind != "dataclass")


def _negates(flag: str, parameter: Parameter) -> bool:
    bare = flag.removeprefix("--no-").removeprefix("--no_")
    return any(other.removeprefix("--").replace("-", "_") == bare.replace("-", "_") for other in parameter.flags)


def _presence(origin: Origin | None) -> Origin | None:
    """A flag's own text is not its value."""
    return None if origin is None else Origin(origin.path, origin.span, origin.route, origin.via, editable=False)


def _values(queue: list[Word], at: int) -> tuple[list[Expr], int]:
    items: list[Expr] = []
    while at < len(queue):
        value = _value(queue[at])
        if value is None or (items and may_be_options(queue[at], None)):
            break
        items.append(value)
        at += 1
    return items, at


def _positional(positionals: list[Parameter], queue: list[Word], at: int, values: dict[str, Expr]) -> int:
    """One positional takes the word before `at` (a list takes those that follow, too)."""
    parameter = positionals[0]
    value = queue[at - 1].value
    if parameter.type == "list":
        items, at = _values(queue, at - 1)
        values[parameter.name] = Op("tuple", tuple(items))
    elif value is not None:
        values[parameter.name] = convert(value, parameter.type)
    del positionals[0]
    return at


def _value(item: Word) -> Expr | None:
    """A word as the value of the flag before it; None if the word is a flag itself. A negative number is a value."""
    if item.prefix == "":
        return item.value
    if item.value is None and _is_number(item.prefix):
        return Const(item.prefix, item.origin)
    if not item.prefix.startswith("-") and isinstance(item.value, Const):  # `--set key=value`
        return Const(f"{item.prefix}{item.value.value}", item.origin)
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_bool(value: Expr) -> bool:
    return not isinstance(value, Const) or str(value.value).lower() in TRUE | FALSE
