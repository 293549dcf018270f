"""`sbatch` in a script: its options, the job script that it submits, and the variables that the job gets.

Source: sbatch(1), 25.05: "--export", "--wrap", INPUT ENVIRONMENT VARIABLES.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from preflight.dialects.shell.values import whole, word_text
from preflight.documents.directives import option_at
from preflight.vocabulary.project import VARIABLES
from preflight.vocabulary.reading import Word
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown, evaluate, unknown

_HOLE = "{unread}"
"""Stands for a value that is not known where the options are told apart. It is no option and not empty."""
_SUBMITS_NOTHING = ("test-only", "help", "usage", "version")
_OF_SCHEDULER = ("SLURM_", "SBATCH_", "SRUN_", "CUDA_VISIBLE_DEVICES")
"""Variables that SLURM sets anew for a job."""


class Submission(Struct, frozen=True):
    """The words of one `sbatch`. `script` names the job script; without one `text` is the script, if it is stated."""

    options: tuple[Word, ...]
    script: Word | None = None
    words: tuple[Word, ...] = ()
    text: Expr | None = None


def taken_apart(words: tuple[Word, ...], given: Expr | None) -> Submission:
    """The options, the script and its arguments. `given` is the text of the standard input, which is a script too."""
    texts = [shown(word) for word in words]
    at = 0
    wrapped: Expr | None = None
    while at < len(words):
        whole_word = word_text(words[at]) is None and not words[at].prefix
        if texts[at].startswith("-") and texts[at] != "--":
            found, used = option_at(texts, at)
            if any(one.name in _SUBMITS_NOTHING for one in found):
                return Submission(words)
            if any(one.name == "wrap" for one in found):
                wrapped = _value(words[at], words[at + 1 : at + 1 + used])
            at += 1 + used
        elif whole_word and _names_no_file(words[at], words[at + 1 :]):
            at += 1  # `$OPTIONS` in front of the script
        else:
            at += texts[at] == "--"
            break
    options, rest = words[:at], words[at:]
    if wrapped is not None:
        return Submission(options, text=wrapped)
    if rest:
        return Submission(options, rest[0], rest[1:])
    return Submission(options, text=given)


def _names_no_file(word: Word, behind: tuple[Word, ...]) -> bool:
    """Whether an unknown word stands for options: an option or a script follows it."""
    end = whole(word)
    while isinstance(end, Op) and end.operator == "concat":
        end = end.operands[-1]
    if isinstance(end, Const) and isinstance(end.value, str):
        return False  # `$DIR/job.sh`
    texts = [shown(one) for one in behind]
    return any(
        text.startswith("--") or text.endswith((".sh", ".bash", ".zsh", ".sbatch", ".slurm", ".job")) for text in texts
    )


def shown(word: Word) -> str:
    """The text of a word, with a mark for each part that is not known."""
    return word.prefix + ("" if word.value is None else "".join(_texts(word.value)))


def _texts(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Op) and expr.operator == "concat":
        for operand in expr.operands:
            yield from _texts(operand)
        return
    value = evaluate(expr)
    yield _HOLE if isinstance(value, Unknown) else str(value)


def unread(word: Word) -> Unknown | None:
    """Why a word is not known; None if it is."""
    value = None if word.value is None else evaluate(word.value)
    return value if isinstance(value, Unknown) else None


def _value(word: Word, following: tuple[Word, ...]) -> Expr:
    """The value of an option: behind its `=`, or the next word."""
    if following:
        return whole(following[0])
    return word.value if word.value is not None else Const("")


def from_environment(environment: Mapping[str, Expr]) -> Iterator[Word]:
    """The options that variables of sbatch stand for, in the order in which it reads them."""
    for name, option in VARIABLES.items():
        if name in environment:
            expr = environment[name]
            yield Word(f"--{option}=", expr, expr.origin)


def exported(options: tuple[Word, ...], environment: Mapping[str, Expr]) -> dict[str, Expr]:
    """The variables that a job gets: those of the submitting shell, unless `--export` says otherwise."""
    given: Expr | None = None
    texts = [shown(word) for word in options]
    at = 0
    while at < len(options):
        found, used = option_at(texts, at) if texts[at].startswith("-") else ((), 0)
        if any(one.name == "export" for one in found):
            given = _value(options[at], options[at + 1 : at + 1 + used])
        at += 1 + used
    own = {name: expr for name, expr in environment.items() if not name.startswith(_OF_SCHEDULER)}
    if given is None:
        return own
    taken: dict[str, Expr] = {}
    every = False
    for item in _items(given):
        first = item[0]
        head, equals, tail = (
            first.value.partition("=") if isinstance(first, Const) and isinstance(first.value, str) else ("", "", "")
        )
        if not equals and (not head or len(item) > 1):
            why = unknown("--export is not known: it may set this variable", given.origin, Cause.run_time)
            return dict.fromkeys(own, why)
        if equals:
            rest = [Const(tail, first.origin), *item[1:]] if tail or len(item) == 1 else item[1:]
            taken[head] = rest[0] if len(rest) == 1 else Op("concat", tuple(rest), first.origin)
        elif head.upper() == "ALL":
            every = True
        elif head in own:
            taken[head] = own[head]
    return {**own, **taken} if every else taken


def _items(expr: Expr) -> Iterator[list[Expr]]:
    """The parts of a list between its commas."""
    item: list[Expr] = []
    for part in _flat(expr):
        if not (isinstance(part, Const) and isinstance(part.value, str)):
            item.append(part)
            continue
        first, *more = part.value.split(",")
        item += [Const(first, part.origin)] if first else []
        for text in more:
            if item:
                yield item
            item = [Const(text, part.origin)] if text else []
    if item:
        yield item


def _flat(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Op) and expr.operator == "concat":
        for operand in expr.operands:
            yield from _flat(operand)
    else:
        yield expr
