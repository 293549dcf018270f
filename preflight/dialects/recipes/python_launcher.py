"""Reader of Python scripts that start programs: `subprocess.run(["python", "train.py", "--bs", str(bs)])`, `os.system`.

The script is evaluated, never run, and each call that is reached is a command line for the shell. A word that is not
known stays an unknown word.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from msgspec.structs import replace

from preflight.dialects.recipes.reader import Recipe, joined, reading, starts
from preflight.python.interpreter import Interpreter
from preflight.python.objects import CallRecord, Container, External, to_expr
from preflight.python.subprocesses import STARTERS
from preflight.vocabulary.argv import bind
from preflight.vocabulary.budgets import OverBudget
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Reading
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import (
    Cause,
    Const,
    Expr,
    Op,
    Origin,
    Unknown,
    evaluate,
    names,
    origins,
    substitute,
    unknown,
)

NAME = "python_launcher"
_READ: CacheKind[Reading] = CacheKind("a Python script that starts programs, read")

_STARTS = re.compile(r"\bsubprocess\b|\bos\.system\b|\bPopen\b")
_STARTING = ("subprocess", "os.system", "Popen")
"""Each match of `_STARTS` has one of these texts, which are found in a tenth of its time."""
_PROGRAMS = re.compile(r"\.py\b|\.sh\b|\btorchrun\b|\bsbatch\b|\baccelerate\b|\bdeepspeed\b|[\"' ]-m[\"' ]")
_TESTS = re.compile(r"(^|/)(tests?|testing)/|(^|/)(test_[^/]*|[^/]*_test|conftest|setup)\.py$")
"""Files whose commands try programs out."""


def recognises(source: Source, project: Project) -> bool:
    """Whether a script starts a program of the project, or may start one beyond a budget."""
    text = source.text
    if not any(one in text for one in _STARTING) or not (_STARTS.search(text) and _PROGRAMS.search(text)):
        return False
    if _TESTS.search(source.path):
        return False
    return starts(lambda: read(source, None, project), project)


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """Links to the programs that the script starts. Raises DocumentError."""
    if call is not None:
        return _read(source, call, project)
    return project.remembered.get(_READ, lambda: _read(source, None, project), source.path)


def _read(source: Source, call: Call | None, project: Project) -> Reading:
    interpreter = Interpreter(project)
    try:
        interpreter.run(source.path)
    except OverBudget as error:  # kept: a script is read to recognise it, and then again
        return Reading.over(error.budget, source.path, NAME)
    parameters = tuple(interpreter.parameters.values())
    given: dict[str, Expr] = {one.name: one.default for one in parameters}
    if call is not None:
        given.update(bind(parameters, call.words).values)
    calls = [record for record in interpreter.calls if record.name in STARTERS and record.reached]
    recipes = (recipe for turn, record in _turns(calls) for recipe in _recipes(record, turn, given))
    reads = tuple(path for path in interpreter.reads if path != source.path)
    return reading(source, NAME, recipes, project, reads)


def _turns(calls: list[CallRecord]) -> Iterator[tuple[int, CallRecord]]:
    """The calls, each with its number among those of the same place: a loop makes several."""
    seen: Counter[Origin | None] = Counter()
    for record in calls:
        yield seen[record.origin], record
        seen[record.origin] += 1


def _recipes(record: CallRecord, turn: int, given: Mapping[str, Expr]) -> Iterator[Recipe]:
    """The command line of one call."""
    argument = record.object("args", 0) or record.object("command", 0)
    if isinstance(argument, Container) and argument.is_sequence:
        items = list(argument.items.values())
        words = [_word(Const("python") if isinstance(item, External) else to_expr(item), given) for item in items]
        if argument.open:
            words.append([unknown("words of the command are not known", record.origin, Cause.not_read)])
        parts = [part for number, word in enumerate(words) for part in ([Const(" "), *word] if number else word)]
    elif argument is not None:
        parts = list(_parts(to_expr(argument), given))
    else:
        return
    if not parts or not any(isinstance(part, Const) for part in parts):
        return
    folder = record.object("cwd")
    directory = "." if folder is None else _directory(to_expr(folder))
    turns = _elsewhere(tuple(place for part in parts for place in origins(part)), record.origin)
    if turn and record.origin is not None:  # a value of a loop in an f-string has the place of the f-string
        turns = (*turns, replace(record.origin, route=(turn,)))
    yield Recipe((joined(parts, record.origin),), directory, turns=turns)


def _directory(expr: Expr) -> str | None:
    value = evaluate(expr)
    return PurePosixPath(value).as_posix() if isinstance(value, str) else None


def _elsewhere(places: tuple[Origin, ...], call: Origin | None) -> tuple[Origin, ...]:
    """The places outside a call, which tell its turns in a loop apart."""
    if call is None:
        return places
    inside = [one for one in places if one.path == call.path and call.span.start <= one.span.start < call.span.end]
    return tuple(one for one in places if one not in inside)


def _word(expr: Expr, given: Mapping[str, Expr]) -> list[Expr]:
    """One word of a command, as the shell would need it to be one."""
    parts = list(_parts(expr, given))
    text = "".join(str(part.value) for part in parts if isinstance(part, Const))
    if len(parts) == 1 and isinstance(parts[0], Const) and not isinstance(parts[0].value, Unknown):
        quoted = shlex.quote(text)
        return [parts[0] if quoted == text else Const(quoted, parts[0].origin)]
    return parts if shlex.quote(text) in (text, "''") else [Const('"'), *parts, Const('"')]


def _parts(expr: Expr, given: Mapping[str, Expr]) -> Iterator[Expr]:
    """A text as constants and parts that are not known."""
    if isinstance(expr, Op) and expr.operator in ("concat", "+"):
        for operand in expr.operands:
            yield from _parts(operand, given)
        return
    known = substitute(expr, given)
    value = evaluate(known)
    if isinstance(value, Unknown) or any(True for _ in names(known)):
        why = value if isinstance(value, Unknown) else Unknown("it is not known", Cause.run_time)
        yield unknown(why.words, expr.origin, why.cause)
    elif value is not None:
        inner = known.operands[0] if isinstance(known, Op) and known.operator == "str" else known
        place = inner.origin if isinstance(inner, Const) else None
        yield Const(str(value), place if place is not None else next(iter(origins(known)), expr.origin))
