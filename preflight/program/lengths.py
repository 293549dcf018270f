"""Tokenizer calls -> train.seq_len, train.target_len, train.text_len and how sequences are padded."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from preflight.program.bindings import bind, constant, first_origin, is_constant, is_unknown, same, under
from preflight.program.call_site import chain_of, evaluates, targets, words
from preflight.program.grouped_texts import bounded, grouped
from preflight.python.objects import CallRecord, kinds_of
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_METHODS = ("encode_plus", "batch_encode_plus", "__call__", "pad")
_OF_TARGETS = frozenset(
    {"label", "labels", "target", "targets", "tgt", "trg", "summary", "summaries", "highlights", "decoder", "answer"}
    | {"answers", "output", "outputs", "response", "responses", "completion"}
)
_OF_SOURCES = frozenset({"source", "sources", "src", "input", "inputs", "article", "articles", "document", "documents"})
"""Words in the names of tokens and texts that a model with an encoder and a decoder writes, and reads."""
CLIP_POSITIONS = 77
"""transformers.CLIPTextConfig.max_position_embeddings; CLIP's own tokenizer pads to it."""


def length_bindings(records: Sequence[CallRecord], task: str | None, project: Project) -> list[Binding]:
    """The length of sequences, by the tokenizer calls of training. Those of an evaluation say nothing of it."""
    found: list[Binding] = []
    for record in records:
        if _is_tokenizer(record) and not (evaluates(record) or _asks_for_an_answer(record)):
            found += under(record.conditions, _call(record, task, project))
    found = _of_one_length(found)
    found = [*found, *grouped(records)]  # what is cut into pieces has their length, whatever the tokenizer made
    if not found:
        found = _declared(records)
    if task == "contrastive":
        length = Const(CLIP_POSITIONS)
        found = [bind("train.text_len", length, Rank.default), *found]
    return found


def _is_tokenizer(record: CallRecord) -> bool:
    """Whether a call turns text into tokens."""
    if record.name in ("clip.tokenize", "open_clip.tokenize"):
        return True
    if record.method in ("from_pretrained", "save_pretrained", "decode", "batch_decode"):
        return False
    called = record.callee if record.receiver_object is None else record.receiver_object
    made = " ".join((record.receiver or "", *kinds_of(called)))
    own = record.method in _METHODS or record.receiver is None or record.method == record.name.rpartition(".")[2]
    if ("Tokenizer" in made or "Processor" in made) and own and "max_length" in record.kwargs:
        return True
    said = words(record.name)
    return bool(said & {"tokenizer", "tokeniser", "tok", "processor"}) and "max_length" in record.kwargs


def _asks_for_an_answer(record: CallRecord) -> bool:
    """Whether the tokens are a prompt, which the model shall answer: of a generation, and not of training."""
    return constant(record.argument("add_generation_prompt")) is True


def _of_one_length(bindings: Sequence[Binding]) -> list[Binding]:
    """Lengths that are always used, and differ, are parts of a sample, or of different samples: which is not known."""
    found = list(bindings)
    for field in ("train.seq_len", "train.target_len"):
        own = [one.expr for one in bindings if one.field == field and not is_unknown(one.expr)]
        always = [one for one in own if not (isinstance(one, Op) and one.operator == "if")]
        if any(not same(one, always[0]) for one in always):
            words_ = "the program makes tokens of several lengths, and which of them one sample has is not known"
            unknown = Const(Unknown(words_, Cause.not_modelled), first_origin(always[-1]))
            found = [one for one in found if one.field != field]
            found.append(bind(field, unknown, Rank.read))
    return found


def _is_target(record: CallRecord, project: Project) -> bool:
    """Whether the tokens are what a model with a decoder shall write: as labels, or as text of a target."""
    if any(context.method == "as_target_tokenizer" for context in record.contexts):
        return True
    for one in reversed(chain_of(record)):
        given = [ast.unparse(argument) for argument in getattr(one.node, "args", ())[:1]]
        for said in (" ".join(targets(one, project)), *given):
            if words(said) & (_OF_TARGETS | _OF_SOURCES):
                return not words(said) & _OF_SOURCES
    return False


def _call(record: CallRecord, task: str | None, project: Project) -> list[Binding]:
    if record.name in ("clip.tokenize", "open_clip.tokenize"):
        return [bind("train.text_len", Const(CLIP_POSITIONS, record.origin)), _padding("exact", record)]
    length = record.argument("max_length")
    if length is None or constant(length) is None:
        return []
    target = "text_target" in record.kwargs or "target" in words(record.name)
    target = target or (task == "seq2seq-lm" and _is_target(record, project))
    has_images = task in ("contrastive", "diffusion")
    field = "train.target_len" if target else "train.text_len" if has_images else "train.seq_len"
    found = [bind(field, bounded(length))]
    if not target:
        found.append(_sequences(record))
    return found


def _sequences(record: CallRecord) -> Binding:
    """Padded to the maximum: exact. Truncated to it: a bound. Neither: as long as the text is."""
    padding = record.argument("padding") or record.argument("pad_to_max_length")
    truncation = record.argument("truncation", None)
    if padding is not None and not is_constant(padding):
        exact = Op("==", (padding, Const("max_length")), padding.origin)
        return bind("train.sequences", Op("if", (exact, Const("exact"), Const("bound"))), Rank.read, record.origin)
    padded = constant(padding) if padding is not None else False
    if padded == "max_length" or (padded is True and "pad_to_max_length" in record.kwargs):
        return _padding("exact", record, padding)
    cut = constant(truncation) if truncation is not None else False
    if isinstance(cut, Unknown) or cut not in (False, None, "do_not_truncate"):
        return _padding("bound", record, truncation)
    return _padding("dynamic", record)


def _padding(kind: str, record: CallRecord, expr: Expr | None = None) -> Binding:
    return bind("train.sequences", Const(kind, first_origin(expr) or record.origin), Rank.read)


def _declared(records: Sequence[CallRecord]) -> list[Binding]:
    """`AutoTokenizer.from_pretrained(name, model_max_length=...)`."""
    for record in records:
        length = record.argument("model_max_length")
        if record.method == "from_pretrained" and length is not None and constant(length) is not None:
            return [bind("train.seq_len", length)]
    return []
