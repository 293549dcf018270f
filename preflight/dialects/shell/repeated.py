"""Commands that start other commands in a terminal of their own, or once for each of several values.

Sources: tmux(1) 3.4, screen(1) 4.9, parallel(1) 20240222, xargs(1) of findutils 4.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from msgspec.structs import replace

from preflight.dialects.shell.values import of_value, whole, word_text
from preflight.vocabulary.budgets import LOOP_ROUNDS
from preflight.vocabulary.reading import Word
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, unknown

Words = tuple[Word, ...]

DETACHED = ("tmux", "screen")
"""They return before the command that they start ends."""

_TMUX_STARTS = frozenset({"new", "new-session", "neww", "new-window", "splitw", "split-window", "respawn-pane"})
_TMUX_VALUES = frozenset("cefFlnstxy")
_TMUX_KEYS = frozenset({"C-m", "Enter", "ENTER", "KPEnter", "C-j"})
_SCREEN_VALUES = frozenset("SceghpsTtX")
_PARALLEL_VALUES = frozenset(
    re.findall(
        r"\S+",
        "-j --jobs -P --max-procs -n --max-args -N -C --colsep --joblog --delay --results -S --sshlogin --tmpdir -a "
        "--arg-file --env --timeout --retries --halt --memfree --load -I --workdir --wd --nice --tagstring",
    )
)
_XARGS_VALUES = frozenset(
    re.findall(
        r"\S+",
        "-n --max-args -L --max-lines -I --replace -P --max-procs -d --delimiter -a --arg-file -s --max-chars -E",
    )
)


def in_a_terminal(name: str, words: Words) -> Words | None:
    """The command that tmux or screen starts; None if they start none."""
    if name == "tmux":
        return _tmux(words)
    if name == "screen":
        _, rest = _options(words, _letters(_SCREEN_VALUES))
        return rest or None
    return None


def _tmux(words: Words) -> Words | None:
    _, words = _options(words, _letters(frozenset("LSfc")))
    verb = word_text(words[0]) if words else None
    if verb in _TMUX_STARTS:
        _, rest = _options(words[1:], _letters(_TMUX_VALUES))
        return None if not rest else _string(rest[0]) if len(rest) == 1 else rest
    if verb in ("send", "send-keys"):
        _, rest = _options(words[1:], _letters(frozenset("tN")))
        keys = tuple(word for word in rest if word_text(word) not in _TMUX_KEYS)
        return _string(keys[0]) if len(keys) == 1 and len(rest) > 1 else None
    return None


def _letters(values: frozenset[str]) -> frozenset[str]:
    return frozenset(f"-{letter}" for letter in values)


def _string(word: Word) -> Words:
    return (Word("", Const("bash")), Word("-c"), word)


def _options(words: Words, valued: frozenset[str]) -> tuple[dict[str, str], Words]:
    """The options at the start with their texts, and the words behind them. `-dmS name` has the value of `-S`."""
    found: dict[str, str] = {}
    while words and (text := word_text(words[0]) or "").startswith("-") and text != "-":
        words = words[1:]
        if text == "--":
            break
        name, equals, value = text.partition("=")
        short = not text.startswith("--")
        taking = next((at for at, letter in enumerate(text[1:], 1) if f"-{letter}" in valued), None) if short else None
        if taking is not None:
            name, value = f"-{text[taking]}", text[taking + 1 :]
        takes = not value if taking is not None else (name in valued and not equals)
        if takes and words:
            value, words = word_text(words[0]) or "", words[1:]
        found[name] = value
    return found, words


def repeated(name: str, words: Words) -> list[tuple[Words, tuple[Origin, ...]]] | None:
    """The commands that parallel or xargs start, each with the places of its values; None for other programs.

    Values of their input are unknown.
    """
    if name == "xargs":
        return [(_of_xargs(words), ())]
    return list(_of_parallel(words)) if name == "parallel" else None


def _of_xargs(words: Words) -> Words:
    options, rest = _options(words, _XARGS_VALUES)
    value = unknown("xargs reads it from its input", words[0].origin if words else None, Cause.run_time)
    mark = options.get("-I") or options.get("--replace")
    if mark:
        return tuple(_filled(word, {mark: value}) for word in rest)
    return (*rest, Word("", value, value.origin)) if rest else ()


def _of_parallel(words: Words) -> Iterator[tuple[Words, tuple[Origin, ...]]]:
    options, rest = _options(words, _PARALLEL_VALUES)
    at = next((index for index, word in enumerate(rest) if (word_text(word) or "").startswith(":::")), len(rest))
    template, lists = rest[:at], list(_lists(rest[at:]))
    jobs = next((options[name] for name in ("-j", "--jobs", "-P", "--max-procs") if name in options), "")
    combinations = 1
    for one in lists:
        combinations *= len(one)
    if not template:
        return
    if not lists or not 0 < combinations <= LOOP_ROUNDS or jobs == "1" or any(mark in options for mark in ("-N", "-n")):
        value = unknown("parallel gives it several values", template[0].origin, Cause.run_time)
        yield _command(template, [Word("", value, value.origin)], every=True), ()
        return
    for chosen in product(*lists):
        yield _command(template, list(chosen)), tuple(one.origin for one in chosen if one.origin is not None)


def _lists(words: Words) -> Iterator[Words]:
    """The values behind each `:::`. Those of `::::` and `:::+` are not followed."""
    starts = [index for index, word in enumerate(words) if (word_text(word) or "").startswith(":::")]
    if any(word_text(words[index]) != ":::" for index in starts):
        yield ()
        return
    for start, end in zip(starts, [*starts, len(words)][1:], strict=True):
        yield words[start + 1 : end]


def _command(template: Words, values: list[Word], every: bool = False) -> Words:
    """A command with its values. One word is a line for the shell."""
    marks: dict[str, Expr] = {f"{{{number}}}": whole(value) for number, value in enumerate(values, 1)}
    if every:
        marks = {f"{{{number}}}": whole(values[0]) for number in range(1, 10)}
    if len(values) == 1:
        marks["{}"] = whole(values[0])
    filled = tuple(_filled(word, marks) for word in template)
    if filled == template:
        filled = (*template, *values)
    return _string(filled[0]) if len(template) == 1 and " " in (word_text(template[0]) or "") else filled


def _filled(word: Word, marks: dict[str, Expr]) -> Word:
    """A word with the values of its marks (`{}`)."""
    text = word_text(word)
    if text is None or not any(mark in text for mark in marks):
        return word
    parts: list[Expr] = []
    for piece in re.split(f"({'|'.join(re.escape(mark) for mark in marks)})", text):
        if piece:
            parts.append(marks[piece] if piece in marks else Const(piece, word.origin))
    place = word.origin
    value = parts[0] if len(parts) == 1 else Op("concat", tuple(parts), place)
    return of_value(value, place) if place is not None else replace(Word("", value), origin=place)
