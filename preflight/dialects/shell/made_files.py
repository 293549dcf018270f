"""Files that commands of a script write: `tee f`, `cp a f`, `sed -i ... f`. Redirections are read by `documents`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import PurePosixPath

from preflight.dialects.shell.outputs import Files, flat
from preflight.dialects.shell.values import whole, word_text
from preflight.vocabulary.reading import Word
from preflight.vocabulary.values import Const, Expr, Op, Origin, Span, evaluate

MadeFiles = Mapping[tuple[str, str | None], Expr | None]
"""(name, current directory) -> the text of a file that the script writes; None: the text is not known."""

_COPIES = ("cp", "mv", "install", "ln")
_IN_PLACE = ("sed", "perl", "yq", "gsed", "jq", "ruby")
"""Tools that write the files that they name, with `-i`."""
_EDITS = ("-i", "-pi", "--in-place", "--inplace")
_FETCH = {"wget": ("-O", "--output-document"), "curl": ("-o", "--output")}


def name_of(target: Expr) -> str | None:
    """The name of a written file; `$/rest` where its start is not known; None if nothing is."""
    known = evaluate(target)
    if isinstance(known, str):
        return known
    last = target.operands[-1] if isinstance(target, Op) and target.operator == "concat" else None
    if isinstance(last, Const) and isinstance(last.value, str) and "/" in last.value:
        return f"$/{last.value.partition('/')[2]}"
    return None


def written_by(
    name: str, words: tuple[Word, ...], texts: Mapping[str, Expr | None], files: Files
) -> Iterator[tuple[str, Expr | None]]:
    """The files that a command writes, with their text where it is known. `texts`: what was written before."""
    options = [word.prefix for word in words if word.prefix.startswith("-")]
    names = [one for word in words if not word.prefix.startswith("-") and (one := name_of(whole(word)))]
    if name in _COPIES and len(names) > 1:
        *sources, target = names
        for source in sources:
            if (text := _text(source, texts, files)) is None and name == "ln":
                continue  # a folder, or what the project lacks
            yield target, text
            yield f"{target.rstrip('/')}/{PurePosixPath(source).name}", text
    elif name == "tee" or (name in _IN_PLACE and any(one.startswith(_EDITS) for one in options)):
        yield from ((one, None) for one in names)
    elif name in _FETCH:
        for option, word in pairwise(words):
            if option.prefix in _FETCH[name] and (one := word_text(word)):
                yield one, None


def _text(name: str, texts: Mapping[str, Expr | None], files: Files) -> Expr | None:
    plain = PurePosixPath(name).as_posix()
    if plain in texts:
        return texts[plain]
    source = files(name)
    return None if source is None else Const(source.text, Origin(source.path, Span(0, len(source.text))))


def flat_text(expr: Expr | None) -> str | None:
    """The text of a written file; None if a part of it is not known."""
    found = None if expr is None else flat(expr)
    return None if found is None else str(found.value)
