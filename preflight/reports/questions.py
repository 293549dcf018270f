"""What the user could state, as questions with the lines of settings that answer them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.reports.streams import clean
from preflight.reports.style import Look, columns, wrap
from preflight.vocabulary.outcome import Outcome
from preflight.vocabulary.questions import Question
from preflight.vocabulary.words import plural, setting_text

_MORE = "-v: all the evidence; --explain: every value and its source; preflight rule NAME: what a rule is"


def after(outcome: Outcome, look: Look) -> str:
    """What follows a report: how to see more of its findings, and the questions; "" without either."""
    lines = []
    if look.detail == "short" and any(outcome.counts.values()):
        lines.append(look.paint(wrap(_MORE, look.width, "  "), "dim"))
    if outcome.questions:
        lines += ["", *_lines(outcome.questions, len(list(outcome.studies())), look)]
    return "".join(f"{line}\n" for line in lines)


def _lines(questions: Sequence[Question], total: int, look: Look) -> Iterator[str]:
    head = "What no file says, a line of settings can say"
    where = "(preflight.toml, or [tool.preflight] in pyproject.toml; --ask asks for them and writes them):"
    yield look.paint(head, "bold cyan") + " " + wrap(where, look.width, "  ", len(head) + 1)
    for number, question in enumerate(questions, 1):
        yield f"  {number}. {wrap(words_of(question, total), look.width, '     ', 5)}"
        line = f"       {look.paint(question.line, 'bold')}"
        hint = _hint(question)
        if hint:
            used = 11 + columns(question.line)
            line += look.paint(f"  # {wrap(clean(hint), look.width, '         # ', used)}", "dim")
        yield line


def words_of(question: Question, total: int) -> str:
    """The question, and how many studies it is worth."""
    return question.words + (f" [{question.studies:,} of {plural(total, 'study')}]" if total > 1 else "")


def _hint(question: Question) -> str:
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
