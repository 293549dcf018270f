"""Words and values as the shell makes them: split at white space, joined, expanded; each piece has its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence

from msgspec.structs import replace

from preflight.documents.shell_reader import ShellCommand
from preflight.vocabulary.argv import ALL_ARGUMENTS
from preflight.vocabulary.budgets import LOOP_ROUNDS, WORD_CHARACTERS
from preflight.vocabulary.reading import Word
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Ref, Span, Unknown, names, substitute, unknown

PART = 64
"""Each part of a value counts for this many characters, so that doubling a variable in a loop ends."""

BUILT_IN = frozenset(["export", "declare", "local", "readonly", "unset", "set", "echo", "printf", "test", "[", "[["])
"""Commands of the shell that start no program."""


def literal_word(text: str, origin: Origin) -> Word:
    """A word of known text, split at its first `=`, so that the value has its own place."""
    head, equals, tail = text.partition("=")
    if not equals:
        return Word(text, None, origin) if text.startswith("-") else Word("", Const(text, origin), origin)
    length = origin.span.end - origin.span.start
    start = origin.span.start + len(head) + 1 + (length == len(text) + 2)
    exact = origin.editable and length in (len(text), len(text) + 2)
    place = Origin(origin.path, Span(start, start + len(tail)), editable=True) if exact else origin
    return Word(head + equals, Const(tail, place), origin)


def word_text(word: Word) -> str | None:
    """A word as the program sees it, None if its value is unknown."""
    if word.value is None:
        return word.prefix
    if isinstance(word.value, Const) and not isinstance(word.value.value, Unknown):
        return f"{word.prefix}{word.value.value}"
    return None


def with_installed_program(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words of a command. `$HOME/miniconda3/bin/python` is the program of that name, wherever the folder is."""
    head = words[0].value if words else None
    end = operands_of(head)[-1] if isinstance(head, Op) and head.operator == "concat" else None
    text = end.value if isinstance(end, Const) and isinstance(end.value, str) and not words[0].prefix else ""
    folder, slash, name = text.rpartition("/")
    if not slash or not name or folder.rpartition("/")[2] not in ("bin", "Scripts"):
        return words
    return (Word("", Const(name, words[0].origin), words[0].origin), *words[1:])


def of_value(value: Expr, origin: Origin) -> Word:
    if isinstance(value, Const) and isinstance(value.value, str):
        found = literal_word(value.value, value.origin or origin)
        return Word(found.prefix, found.value, origin)
    if isinstance(value, Op) and value.operator == "concat" and isinstance(value.operands[0], Const):
        first = value.operands[0]
        head, equals, tail = str(first.value).partition("=")
        if equals and isinstance(first.value, str):  # "--bs=" next to something that is not a constant
            rest = (Const(tail, first.origin), *value.operands[1:]) if tail else value.operands[1:]
            return Word(head + equals, rest[0] if len(rest) == 1 else Op("concat", rest, value.origin), origin)
    return Word("", value, origin)


def tidy(expr: Expr) -> Expr:
    """Removes a continued line before `$NAME` that the grammar reads as part of the name."""
    if isinstance(expr, Ref) and "$" in expr.name:
        return Ref(expr.name.rpartition("$")[2].strip("{}"), expr.origin)
    if isinstance(expr, Op):
        return Op(expr.operator, tuple(tidy(operand) for operand in expr.operands), expr.origin)
    return expr


def split(value: Expr, origin: Origin, script: Source) -> Iterator[Word]:
    """Splits an unquoted value into words at white space. `script` is the file with most of its text."""
    pieces: list[Expr] = []
    for part in _flat(value):
        if not (isinstance(part, Const) and isinstance(part.value, str)):
            pieces.append(part)
            continue
        place_of = _places_within(part, script)
        for match in re.finditer(r"\s+|\S+", part.value):
            if not match.group().isspace():
                pieces.append(Const(match.group(), place_of(match.start(), match.end())))
            elif pieces:
                yield of_value(_side_by_side(pieces), origin)
                pieces = []
    if pieces:
        yield of_value(_side_by_side(pieces), origin)


def items(value: Expr, origin: Origin, script: Source) -> Iterator[Word]:
    """The words of an array. An unquoted expansion in it is split at white space."""
    for operand in operands_of(value):
        cut = isinstance(operand, Op) and operand.operator == "words"
        inner = operands_of(operand)[0] if cut else operand
        place = operand.origin or origin
        if is_tuple(inner):
            yield from items(inner, place, script)
        elif cut and has_blank(inner):
            yield from split(inner, place, script)
        elif not (cut and isinstance(inner, Const) and inner.value == ""):
            yield of_value(inner, inner.origin or place)


def not_set(variable: Ref) -> Const:
    """The value of a variable that the script does not set."""
    if variable.name in ("@", "*"):
        return Const(ALL_ARGUMENTS, variable.origin)
    given = variable.name.isdigit()
    words = "is an argument of the script, and nothing that was read gives it" if given else "is not set in the script"
    return unknown(f"${variable.name} {words}", variable.origin, Cause.not_set)


def given_at_start(origin: Origin) -> Word:
    """`"$@"` of a script that nobody is seen to start."""
    return Word("", Const(ALL_ARGUMENTS, origin), origin)


def hands_all_on(command: ShellCommand) -> bool:
    """Whether a command has the arguments of the script, and no others: `main "$@"`."""
    pieces = command.words[1].pieces if len(command.words) == 2 else ()
    return any(piece.expr is not None and is_all_arguments(piece.expr) for piece in pieces)


def _flat(value: Expr) -> Iterator[Expr]:
    """The parts of a value, also of values inside it: `CMD="$LAUNCHER $ARGS"`."""
    if isinstance(value, Op) and value.operator == "concat":
        for operand in value.operands:
            yield from _flat(operand)
    else:
        yield value


def _side_by_side(pieces: list[Expr]) -> Expr:
    return pieces[0] if len(pieces) == 1 else Op("concat", tuple(pieces), pieces[0].origin)


def _places_within(part: Const, script: Source) -> Callable[[int, int], Origin | None]:
    """Gives the place of each piece of a constant by its start and end. The text of the file is compared once, not
    for every piece. A place is editable only if the file has exactly this text."""
    origin = part.origin
    if origin is None:
        return lambda start, end: None
    text, at, length = str(part.value), origin.span.start, origin.span.end - origin.span.start
    if origin.path != script.path:
        if not (origin.editable and length == len(text)):
            return lambda start, end: origin
        return lambda start, end: replace(origin, span=Span(at + start, at + end), route=None)
    places = _places(text, script.text[at : origin.span.end])
    elsewhere = replace(origin, route=None, editable=False)

    def in_script(start: int, end: int) -> Origin:
        if places is None or places[end - 1] - places[start] != end - 1 - start:
            return elsewhere
        span = Span(at + places[start], at + places[end - 1] + 1)
        return replace(origin, span=span, route=None, editable=True)

    return in_script


def _places(text: str, raw: str) -> list[int] | None:
    """The offset of each character of a constant in its text in the file; None if they do not match."""
    found: list[int] = []
    at, end = 0, len(raw)
    if end >= 2 and raw[0] in "\"'" and raw[-1] == raw[0] and len(text) <= end - 2:
        at, end = 1, end - 1
    while at < end:
        if raw[at] == "\\" and at + 1 < end and len(text) != len(raw):
            if raw[at + 1] != "\n":
                found.append(at + 1)
            at += 2
            continue
        found.append(at)
        at += 1
    return (
        found if len(found) == len(text) and all(raw[i] == char for i, char in zip(found, text, strict=True)) else None
    )


def whole(word: Word) -> Expr:
    if word.value is None:
        return Const(word.prefix, word.origin)
    return word.value if not word.prefix else Op("concat", (Const(word.prefix), word.value), word.origin)


def joined(words: tuple[Word, ...]) -> Expr:
    parts: list[Expr] = []
    for word in words:
        parts += [Const(" "), whole(word)] if parts else [whole(word)]
    return parts[0] if len(parts) == 1 else Op("concat", tuple(parts))


def brace_words(text: str, origin: Origin) -> tuple[Word, ...]:
    """The words of `{0..4}` or `{a,b}`; none for any other text."""
    numbers = re.fullmatch(r"\{(-?\d{1,6})\.\.(-?\d{1,6})\}", text)
    if numbers is not None:
        first, last = int(numbers[1]), int(numbers[2])
        step = 1 if last >= first else -1
        return tuple(
            Word("", Const(str(n), origin), origin) for n in range(first, last + step, step)[: LOOP_ROUNDS + 1]
        )
    listed = re.fullmatch(r"\{([^{},\s]+(?:,[^{},\s]+)+)\}", text)
    return tuple(Word("", Const(one, origin), origin) for one in listed[1].split(",")) if listed is not None else ()


def size_of(expr: Expr) -> int:
    """The size of a value in characters and parts, counted up to WORD_CHARACTERS."""
    total, queue = 0, [expr]
    while queue and total <= WORD_CHARACTERS:
        one = queue.pop()
        total += PART + (len(one.value) if isinstance(one, Const) and isinstance(one.value, str) else 0)
        if isinstance(one, Op):
            queue += one.operands
    return total


def is_tuple(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.operator == "tuple"


def operands_of(expr: Expr) -> tuple[Expr, ...]:
    return expr.operands if isinstance(expr, Op) else ()


def is_all_arguments(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.operator == "all" and expr.operands == (Ref("@", expr.origin),)


def is_unknown(expr: Expr) -> bool:
    return isinstance(expr, Const) and isinstance(expr.value, Unknown)


def has_hole(expr: Expr) -> bool:
    """Whether a part of a value is unknown."""
    return is_unknown(expr) or any(has_hole(operand) for operand in operands_of(expr))


def rests_on_default(expr: Expr, known: Container[str], assumed: Container[str]) -> bool:
    """Whether an expression has the default of a variable that is not known (`${X:-d}`), or one of the `assumed`."""
    if isinstance(expr, Ref):
        return expr.name in assumed
    if not isinstance(expr, Op):
        return False
    if expr.operator in ("default", "alternative"):
        name = expr.operands[0]
        if isinstance(name, Ref) and name.name not in known:
            return True
    return any(rests_on_default(operand, known, assumed) for operand in expr.operands)


def has_blank(expr: Expr) -> bool:
    """Whether a value has white space at which the shell would split it."""
    if isinstance(expr, Const):
        return isinstance(expr.value, str) and bool(re.search(r"\s", expr.value))
    return isinstance(expr, Op) and expr.operator == "concat" and any(has_blank(operand) for operand in expr.operands)


def perhaps_longer(name: str, before: Expr | None, after: Expr, assigned: Sequence[Expr] = ()) -> Expr:
    """A variable that a branch may have set: unknown, or its old value with words that may follow.

    If words were only added (`ARGS+=(--debug)`, `CMD="$CMD --batch 1"`), the words before them stay known, and the
    added flags get unknown values. So do the flags of all branches (`assigned`) if these set nothing but flags.
    """
    doubt = unknown(f"{name} is set under a condition", after.origin, Cause.run_time)
    if before is None or not isinstance(after, Op):
        return _some_options([*([before] if before is not None else []), *assigned, after], doubt)
    if is_tuple(before) and is_tuple(after):
        kept = operands_of(before)
        texts = [_text(operand) for operand in after.operands[len(kept) :]]
        if after.operands[: len(kept)] == kept and None not in texts:
            added = _doubtful([text for text in texts if text is not None], doubt)
            return Op("tuple", (*kept, *added), before.origin)
    if after.operator == "concat" and after.operands[0] == before:
        texts = [_text(operand) for operand in after.operands[1:]]
        if None not in texts and "".join(text or "" for text in texts)[:1].isspace():
            added = _doubtful("".join(text or "" for text in texts).split(), doubt)
            parts = [part for word in added for part in (Const(" "), *_parts(word))]
            return Op("concat", (before, *parts), after.origin)
    return _some_options([before, *assigned, after], doubt)


_HOLE = "\0"
"""The place of an unknown part in the text of a value."""


def _some_options(values: Sequence[Expr], doubt: Const) -> Expr:
    """The options of all values, each with an unknown value, if they are nothing but options; else `doubt`."""
    found: list[str] = []
    for value in values:
        written = _written(value)
        if written is None:
            return doubt
        found += written
    return Op("tuple", tuple(_doubtful(found, doubt)), doubt.origin) if found else doubt


def _written(value: Expr) -> list[str] | None:
    """The words of a text of options, with a mark for each unknown part; None if an unknown part may be an option."""
    if is_tuple(value):
        return None
    parts = [_HOLE if (text := _text(part)) is None else text for part in _flat(value)]
    words = "".join(parts).split()
    alone = [at for at, word in enumerate(words) if _HOLE in word.partition("=")[0]]
    known = all(at > 0 and words[at] == _HOLE and words[at - 1].startswith("-") for at in alone)
    return words if known and (not words or words[0].startswith("-")) else None


def _text(expr: Expr) -> str | None:
    return expr.value if isinstance(expr, Const) and isinstance(expr.value, str) else None


def _parts(word: Expr) -> tuple[Expr, ...]:
    return word.operands if isinstance(word, Op) and word.operator == "concat" else (word,)


def _doubtful(words: list[str], doubt: Const) -> list[Expr]:
    """Words of a branch that may not run: flags with unknown values, and unknown words."""
    found: list[Expr] = []
    for word, following in zip(words, [*words[1:], "-"], strict=True):
        head, equals, _ = word.partition("=")
        if word.startswith("-") and not equals and not following.startswith("-"):
            found.append(Const(word, doubt.origin))  # its value is the next word
        elif word.startswith("-") or equals:
            found.append(Op("concat", (Const(f"{head}=", doubt.origin), doubt), doubt.origin))
        else:
            found.append(doubt)
    return found


def without_arguments(test: Expr, arguments: Sequence[Word] | None) -> Expr:
    """The test, with an empty text for each argument that the script is known not to have."""
    count = len(arguments) if arguments is not None else None
    beyond = {name for name in names(test) if count is not None and name.isdecimal() and int(name) > count}
    return substitute(test, dict.fromkeys(beyond, Const(""))) if beyond else test
