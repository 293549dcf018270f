"""A tool's command line with words that nobody knows: every setting that no word behind them states is unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.frameworks.arguments import arguments_of, given_by
from preflight.frameworks.table import read as read_table
from preflight.program.bindings import bind
from preflight.vocabulary.argv import behind_unread_words, unread_words
from preflight.vocabulary.reading import Binding, Rank, Word

_SETTABLE = (
    "model.name", "train.batch_size", "train.grad_accum", "train.seq_len", "train.precision", "train.optimizer",
    "train.gradient_checkpointing", "train.peft.method", "train.quantization.type", "parallel.strategy",
    "parallel.offload",
)  # fmt: skip
"""Job fields that the command line of every trainer can set, beside those that it is seen to set."""


def after_unread_words(kind: str, words: Sequence[Word], bindings: Sequence[Binding]) -> list[Binding]:
    """The bindings of a tool's file and command line, as far as `words` leave them known."""
    unread, behind = behind_unread_words(words)
    if unread is None:
        return list(bindings)
    doubt = unread_words(unread)
    stated = list(_stated(read_table(kind, arguments_of(None, {}, given_by(behind))).bindings))
    names = dict.fromkeys((*_SETTABLE, *(one.field for one in bindings)))
    return [*(bind(name, doubt, Rank.read, doubt.origin) for name in names), *stated]


def _stated(bindings: Sequence[Binding]) -> Iterator[Binding]:
    """Those that the words state, not the tool's defaults."""
    yield from (one for one in bindings if one.rank >= Rank.read and one.origin is not None)
