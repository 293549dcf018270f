"""What the user could state, as questions with the lines of settings that answer them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.reports.streams import clean
from preflight.reports.style import Look, columns, wrap
from preflight.vocabulary.outcome import Outcome, Question
from preflight.vocabulary.words import plural, setting_text

_GAP = 7
"""Blanks before a line of settings, so that it stands apart and can be copied alone."""
_MORE = "-v: all the evidence; --explain: every value and its source; preflight rule NAME: what a rule is"


def after(outcome: Outcome, look: Look) -> str:
    """What follows a report: how to see more of its findings, and the questions; "" without either."""
    found = any(outcome.counts.values())
    lines = [look.paint(wrap(_MORE, look.width, "  "), "dim")] if found and look.detail == "short" else []
    if outcome.questions:
        total = sum(1 for _ in outcome.studies())
        lines += ["", *_lines(outcome.questions, total, look)]
    return "".join(f"{line}\n" for line in lines)


def _lines(questions: Sequence[Question], total: int, look: Look) -> Iterator[str]:
    """Each question, and below it the line of settings with a gap for the answer.

    The line can be copied as it is: what is said about it is a comment of TOML.
    """
    head = "What no file says, a line of settings can say"
    where = "(preflight.toml, or [tool.preflight] in pyproject.toml; --ask asks for them and writes them):"
    yield look.paint(head, "bold cyan") + " " + wrap(where, look.width, "  ", len(head) + 1)
    for number, question in enumerate(questions, 1):
        yield f"  {number}. {wrap(words_of(question, total), look.width, '     ', 5)}"
        line = f"{' ' * _GAP}{look.paint(question.line, 'bold')}"
        hint = _hint(question)
        if hint:
            used = _GAP + columns(question.line) + len("  # ")
            line += look.paint(f"  # {wrap(clean(hint), look.width, '         # ', used)}", "dim")
        yield line


def words_of(question: Question, total: int) -> str:
    """The question, and how many studies it is worth."""
    return question.words + (f" [{question.studies:,} of {plural(total, 'study')}]" if total > 1 else "")


def _hint(question: Question) -> str:
    """What an answer changes beside what was asked, what it may be, and where to look for it."""
    said = []
    if question.replaces:
        others = "the other study" if question.replaces == 1 else f"{question.replaces:,} other studies"
        said.append(f"replaces the value of {others}, too; for one file alone: --set {question.field}=VALUE")
    if question.assumed is not None:
        said.append(f"{setting_text(question.assumed)} is assumed")
    if question.kind == "choice":
        said.append(f"one of {', '.join(question.choices)}")
    if question.hint:
        said.append(question.hint)
    return "; ".join(said)
