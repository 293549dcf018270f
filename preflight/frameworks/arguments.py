"""Arguments of a trainer from its files and its command lines, each with its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.documents.document import TreeDocument
from preflight.program.arguments import Arguments
from preflight.program.bindings import bind, constant, is_constant
from preflight.vocabulary.argv import behind_unread_words, unread_words
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank, Word
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Const, Expr, Op, Route, Value, evaluate

_JSON: CacheKind[TreeDocument] = CacheKind("a parsed JSON file")


def document_of(source: Source, project: Project) -> TreeDocument:
    """The parsed file, kept per project; YAML 1.1, as yaml.safe_load reads it. Raises DocumentError."""
    plain = not source.path.endswith((".yaml", ".yml"))
    if source.path.endswith(".json") or (plain and source.text.lstrip()[:1] == "{"):
        from preflight.documents.json import parse_json

        return project.remembered.get(_JSON, lambda: parse_json(source), source.path)
    from preflight.documents.yaml import yaml_of

    return yaml_of(source, project, "1.1")


def arguments_of(
    document: TreeDocument | None, top: Mapping[str, Value], given: Mapping[str, Expr] | None = None
) -> Arguments:
    """Arguments of a file; `given` are those of the command line, which win over the file."""
    found = {**_flat(document, top, ()), **(given or {})}
    empty = {name: expr.origin for name, expr in found.items() if constant(expr) is None}
    return Arguments({name: expr for name, expr in found.items() if name not in empty}, None, empty)


def _flat(document: TreeDocument | None, top: Mapping[str, Value], at: Route) -> dict[str, Expr]:
    found: dict[str, Expr] = {}
    for name, value in top.items():
        route = (*at, name)
        placed = document is not None and document.has(route)
        found[str(name)] = Const(value, document.origin(route) if document is not None and placed else None)
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": expr for key, expr in _flat(document, value, route).items()}
    return found


def given_by(words: Sequence[Word]) -> dict[str, Expr]:
    """The named arguments of a command line: `--a.b 1`, `--a=1`, `--flag`, `a.b=1`; several values make a list.

    Names have underscores for hyphens, as every parser of these tools has them; texts are read as YAML scalars.
    """
    found: dict[str, Expr] = {}
    last: str | None = None
    several: list[Expr] = []
    for word in words:
        name = word.prefix.lstrip("+-~").rstrip("=").replace("-", "_")
        if word.prefix.startswith("-") and name and not _is_number(word.prefix):
            last, several = name, []
            if word.value is not None:
                found[name] = _read(word.value)
                last = None
            else:
                found[name] = Const(True, word.origin)  # until a value follows
        elif word.prefix.endswith("=") and word.value is not None:
            found[name] = _read(word.value)
            last = None
        elif last is not None:
            several.append(_read(word.value if word.value is not None else Const(word.prefix, word.origin)))
            found[last] = several[0] if len(several) == 1 else Op("tuple", tuple(several), several[0].origin)
    return {name: _whole(expr) for name, expr in found.items()}


def _is_number(text: str) -> bool:
    return text[1:2].isdecimal()


def _whole(expr: Expr) -> Expr:
    """A list of constants as one constant."""
    if isinstance(expr, Op) and expr.operator == "tuple" and is_constant(expr):
        return Const(evaluate(expr), expr.origin)
    return expr


def _read(expr: Expr) -> Expr:
    """A word's text as a number, a yes or no, or text; an expression of the shell is not changed."""
    if not isinstance(expr, Const) or not isinstance(expr.value, str):
        return expr
    return Const(read_scalar(expr.value), expr.origin)


def read_scalar(text: str) -> Value:
    """`true`, `8`, `2e-5`, `null`, `[a, b]` as YAML has them; anything else is text."""
    import yaml

    if not text or text[0] in "!&*|>%@`'\"{" or len(text) > 4096:
        return text
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    if isinstance(value, list):
        plain = all(isinstance(one, (str, int, float, bool)) for one in value)
        return tuple(value) if plain else text
    return value if isinstance(value, (bool, int, float)) or value is None else text


# Command lines with words that nobody knows.

_SETTABLE = (
    "model.name", "train.batch_size", "train.grad_accum", "train.seq_len", "train.precision", "train.optimizer",
    "train.gradient_checkpointing", "train.peft.method", "train.quantization.type", "parallel.strategy",
    "parallel.offload",
)  # fmt: skip
"""Job fields that the command line of every trainer can set, beside those that it is seen to set."""


def after_unread_words(words: Sequence[Word], bindings: Sequence[Binding], behind: Sequence[Binding]) -> list[Binding]:
    """The bindings of a tool's file and command line; with unknown words in it, only what the words `behind` state."""
    unread, _ = behind_unread_words(words)
    if unread is None:
        return list(bindings)
    doubt = unread_words(unread)
    names = dict.fromkeys((*_SETTABLE, *(one.field for one in bindings)))
    stated = [one for one in behind if one.rank >= Rank.read and one.origin is not None]
    return [*(bind(name, doubt, Rank.read, doubt.origin) for name in names), *stated]
