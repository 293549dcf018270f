"""Configurations of transformers' models in a program -> model.architecture, model.config.*, train.vocab_size.

A configuration is made by its class (`LlamaConfig(hidden_size=64)`) or read from the hub, and the program may change it
before it makes a model of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from preflight.program.bindings import bind, constant, is_unknown, under
from preflight.program.names import dimensions
from preflight.python.objects import (
    Attribute,
    CallRecord,
    ClassValue,
    Container,
    Either,
    External,
    Instance,
    alternatives,
    to_expr,
)
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_HEADS = frozenset({"hidden_size", "num_attention_heads"})
_NO_SIZE = ("_id", "_ids", "labels", "return_dict")
"""Endings of whole numbers in a configuration that size nothing."""
_OF_LOADING = frozenset(
    {"revision", "subfolder", "force_download", "local_files_only", "trust_remote_code", "use_cache"}
)
FEW_TOKENS = 256
"""Tokens that a program may add before they matter: under one per cent of a small vocabulary of 32,000."""


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """The shipped names."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("models.json").read_bytes())
    return loaded


def is_dimension(expr: Expr) -> bool:
    """Whether it may size a model: a plain value, or one that depends on parameters."""
    value = constant(expr)
    return isinstance(value, (int, float, str, bool)) or (isinstance(value, Unknown) and not isinstance(expr, Const))


def configuration(config: object, records: Sequence[CallRecord]) -> list[Binding]:
    """The bindings of a model made of a configuration object; empty if the object is not known."""
    if isinstance(config, Either):
        sides = ((config.condition, config.then), (Op("not", (config.condition,)), config.otherwise))
        return [one for condition, side in sides for one in under((condition,), configuration(side, records))]
    made = config.record if isinstance(config, Instance) else None
    if made is None:
        return []
    if (by_type := _looked_up(made)) is not None:
        return [*_of_class(by_type), *_changed(config, records)]
    if made.method == "from_pretrained":
        identity = made.argument("pretrained_model_name_or_path", 0)
        return [] if identity is None else [bind("model.name", identity), *changes(config, records)]
    kind, own_class = made.method.removesuffix("Config"), isinstance(made.callee, ClassValue)
    if not own_class and (not made.method.endswith("Config") or not kind):
        return []
    if own_class or not made.complete:
        own = f"{made.method} is a class of the project"
        reason = own if own_class else "not all arguments of the configuration are known"
        unread = Const(Unknown(reason, Cause.not_read), made.origin)
        return [Binding("model.architecture", unread, Rank.literal, made.origin)]
    of_class = _of_class(Const(table()["model_types"].get(kind, kind.lower()), made.origin))
    given = [*made.kwargs.items(), *set_later(config, records)]
    sizes = [bind(f"model.config.{key}", expr) for key, expr in given if is_dimension(expr)]
    return [of_class[0], *sizes] if given or made.args else of_class


def _of_class(kind: Expr) -> list[Binding]:
    """A configuration of a class of transformers of which nothing is set: `GPT2Config()` has the class's defaults."""
    return [bind("model.architecture", kind), bind("model.config.model_type", kind, Rank.default)]


def _looked_up(made: CallRecord) -> Expr | None:
    """`CONFIG_MAPPING[args.model_type]()`: the type of a model whose configuration has its class's defaults."""
    item = made.callee if isinstance(made.callee, Attribute) else None
    mapping = item.receiver if item is not None and item.key is not None else None
    known = isinstance(mapping, External) and mapping.name.rpartition(".")[2] == "CONFIG_MAPPING"
    kind = to_expr(item.key) if known and item is not None and item.key is not None else None
    return None if kind is None or is_unknown(kind) or made.args or made.kwargs or not made.complete else kind


def _changed(config: object, records: Sequence[CallRecord]) -> Iterator[Binding]:
    """What the program sets in such a configuration: what a text sets, is not known."""
    for record in records:
        if record.method == "update_from_string" and record.receiver_object is config:
            why = Unknown("the program changes the configuration by a text", Cause.not_read)
            change = Binding("model.architecture", Const(why, record.origin), Rank.literal, record.origin)
            yield from under(record.conditions, [change])
    given = set_later(config, records)
    sizes = ((key, expr) for key, expr in given if is_dimension(expr) or key in dimensions())
    yield from (bind(f"model.config.{key}", expr) for key, expr in sizes)


def changes(config: object, records: Sequence[CallRecord]) -> list[Binding]:
    """What a program changes of a configuration that it read: model.config.KEY, for keys that may size the model."""
    made = config.record if isinstance(config, Instance) else None
    if made is None or made.method != "from_pretrained":
        return []
    given = {key: expr for key, expr in made.kwargs.items() if key != "pretrained_model_name_or_path"}
    later = dict(set_later(config, records))
    found = {key: expr for key, expr in {**given, **later}.items() if _sizes(key, expr)}
    bindings = [bind(f"model.config.{key}", expr, Rank.literal) for key, expr in found.items()]
    if _HEADS & set(later) and "head_dim" not in found:
        # transformers computes it in __init__ of newer releases, from the sizes before the change
        words = (
            "whether the width of a head follows a change of the configuration depends on the release of transformers"
        )
        bindings.append(Binding("model.config.head_dim", Const(Unknown(words, Cause.not_modelled)), Rank.literal))
    return bindings


def set_later(config: object, records: Sequence[CallRecord]) -> Iterator[tuple[str, Expr]]:
    """`config.hidden_size = 64`, `config.update({"hidden_size": 64})`."""
    if not isinstance(config, Instance):
        return
    for record in records:
        if record.method == "update" and record.receiver_object is config and record.arguments:
            given = record.arguments[0]
            if isinstance(given, Container) and not given.is_sequence:
                yield from ((str(key), to_expr(value)) for key, value in given.items.items())
    yield from ((str(key), to_expr(value)) for key, value in config.attributes.items())


def _sizes(key: str, expr: Expr) -> bool:
    """Whether a setting of a configuration may size the model."""
    if key.startswith("_") or key in _OF_LOADING or key.endswith(_NO_SIZE):
        return False
    value = constant(expr)
    if key in dimensions() or key == "tie_word_embeddings":
        return True
    return isinstance(value, int) and not isinstance(value, bool)


# --- vocabularies that the program changes ---------------------------------------------------------------------------


def vocabulary_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """train.vocab_size of `model.resize_token_embeddings(n)`.

    `len(tokenizer)` is unknown, and so is the vocabulary, unless the program adds a few tokens at most.
    """
    found: list[Binding] = []
    for record in records:
        size = record.argument("new_num_tokens", 0)
        if record.method != "resize_token_embeddings" or size is None:
            continue
        if is_unknown(size):
            if _adds_few(records):
                continue
            words = "the program adds tokens to the vocabulary, and how many is not known"
            size = Const(Unknown(words, Cause.not_read), record.origin)
            found += under(record.conditions, [Binding("train.vocab_size", size, Rank.literal, record.origin)])
        elif record.argument("pad_to_multiple_of", 1) is None:
            found += under(record.conditions, [bind("train.vocab_size", size, Rank.literal, record.origin)])
    return found


def _adds_few(records: Sequence[CallRecord]) -> bool:
    """Whether every list of tokens that the program adds is known and short."""
    counts = [_count(record) for record in records if record.method in ("add_tokens", "add_special_tokens")]
    return all(count is not None and count <= FEW_TOKENS for count in counts)


def _count(record: CallRecord) -> int | None:
    given = record.arguments[0] if record.arguments else next(iter(record.keywords.values()), None)
    kinds = list(alternatives(given)) if given is not None else []
    counts = [_items(one) for one in kinds]
    return max((count for count in counts if count is not None), default=None) if None not in counts else None


def _items(value: object) -> int | None:
    if isinstance(value, Const):
        return 1 if isinstance(value.value, str) else None
    if not isinstance(value, Container) or value.open:
        return None
    if value.is_sequence:
        return len(value.items)
    counts = [_items(one) for one in value.items.values()]
    return sum(count for count in counts if count is not None) if None not in counts else None
