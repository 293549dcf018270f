"""`preflight check --ask`: asks at a terminal what no file states, and writes the answers into the settings file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from preflight.engine.answers import Answer, settings_file, written
from preflight.reports import streams
from preflight.reports.questions import words_of
from preflight.vocabulary.errors import PreflightError, UsageError
from preflight.vocabulary.outcome import GPU, Question
from preflight.vocabulary.words import plural, setting_text

_MODEL = "model.name"


def need_terminal() -> None:
    """Raises UsageError if nobody can be asked."""
    if not (streams.terminal(sys.stdin) and streams.terminal(sys.stdout)):
        raise UsageError("--ask: there is no terminal to ask at; without --ask, the report shows the lines of settings")


def ask(questions: Sequence[Question], total: int, root: Path, read: Callable[[], str] | None = None) -> None:
    """Ask the questions one by one. An empty answer leaves one open. Raises UsageError where the file has no place."""
    if not questions:
        streams.show("There is nothing to ask.\n")
        return
    path = settings_file(root)
    streams.show(f"\n{plural(len(questions), 'question')}; Enter leaves one open. Answers go to {path.name}.\n")
    answers = []
    for question in questions:
        answer = _one(question, total, read or sys.stdin.readline)
        if answer is not None:
            answers.append((question, answer))
    if not answers:
        streams.show("Nothing was written.\n")
        return
    written(root, answers)
    lines = "".join(f"  {question.key} = {setting_text(answer)}\n" for question, answer in answers)
    streams.show(f"{path.name} has {plural(len(answers), 'line')} more:\n{lines}The next check reads them.\n")


def _one(question: Question, total: int, read: Callable[[], str]) -> Answer | None:
    """The answer to a question; None where it stays open. A value that the field cannot have is asked for again."""
    choices = f" ({', '.join(question.choices)})" if question.choices else ""
    while True:
        others = f"\n(replaces the value of {question.replaces} more)" if question.replaces else ""
        streams.show(f"\n{words_of(question, total)}{choices}{others}\n{question.key} = ")
        text = read()
        if not text.strip():
            if not text.endswith("\n"):
                streams.show("\n")
            return None
        try:
            return _value(question, text.strip())
        except PreflightError as error:
            streams.show(f"{streams.clean(str(error))}\n")


def _value(question: Question, text: str) -> Answer:
    """An answer as the value of its field. Raises UsageError."""
    if question.field == GPU:
        from preflight.engine.target import gpu_named

        return gpu_named(text, "--gpu").name
    from preflight.commands.options import parse_set

    [value] = parse_set([f"{question.field}={text}"]).values()
    if question.field == _MODEL:
        from preflight.engine.estimator import refuse_unknown_model

        refuse_unknown_model({_MODEL: text}, _MODEL, UsageError)
        return text
    if not isinstance(value, (str, int, float, bool)):
        raise UsageError(f"{text}: write one value")
    return value
