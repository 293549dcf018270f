"""Texts that are made up: how long they are, and how an error of a model corrects that."""

from __future__ import annotations

import re
from typing import Any

WORDS = 600
"""Words of a made-up text: longer than most programs cut them, so that a stated length decides."""
SHORT = 16
"""Words of the shortest that are tried."""
_SPECIAL = 8
"""Tokens that a tokenizer adds to a text (Whisper: five)."""
_TOO_LONG = (
    re.compile(r"(?P<got>\d+) cannot exceed the maximum allowed length of (?P<most>\d+)"),
    re.compile(r"The size of tensor a \((?P<got>\d+)\) must match the size of tensor b \((?P<most>\d+)\)"),
    re.compile(r"The expanded size of the tensor \((?P<got>\d+)\) must match the existing size \((?P<most>\d+)\)"),
)
"""Errors of models whose tables of positions end: Whisper's, and those of BERT's buffers."""


_WORDS = ("the", "of", "and", "to", "in", "is", "it", "for")


class Texts:
    """The texts of this run."""

    length = WORDS
    """Words of each of them: fewer, once a model has ended with as many."""
    many = False
    """Whether there are more of them: a part of them was empty, or a program took more than there were."""


def text(number: int = 0) -> str:
    """A text of as many words as the texts of this run have. Samplers that leave out what is there twice look at the
    whole of it: by its first words, each of a token, a text is like no other of the first thousands."""
    first = [_WORDS[number >> shift & 7] for shift in (9, 6, 3, 0)]
    return " ".join([*first, *["word"] * (Texts.length - len(first))])


def answers() -> dict[str, Any]:
    """The columns of SQuAD, for programs that name them: questions about a text, with the places of their answers."""
    return {
        "id": "0",
        "context": text(),
        "question": "which word is it",
        "answers": {"text": ["word"], "answer_start": [0]},
    }


def talk(name: str) -> list[dict[str, str]] | None:
    """A column that holds a talk, by the names that trl and axolotl read."""
    roles = {"messages": ("role", "user", "assistant", "content"), "conversations": ("from", "human", "gpt", "value")}
    if name not in roles:
        return None
    role, asks, answers_, said = roles[name]
    return [{role: one, said: text()} for one in (asks, answers_)]


def shorter(error: str) -> int | None:
    """The words of texts that a model takes which ended with this error; None where it says something else.

    Only a length near that of the made-up texts is theirs: other tensors have sizes that do not fit as well.
    """
    for pattern in _TOO_LONG:
        found = pattern.search(error)
        if found is not None:
            got, most = int(found["got"]), int(found["most"])
            made = Texts.length <= got <= Texts.length + 2 * _SPECIAL and _SPECIAL < most < got
            return most - _SPECIAL if made else None
    return None
