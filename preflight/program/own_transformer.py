"""A transformer that the program builds itself -> model.architecture and model.config.* of the family it resembles.

Recognised when its parts are: a token embedding, attention, and dimensions under names that people give them, either as
arguments of the model's class, in a configuration object, or in the layers of torch.nn it is made of. A decoder with
LayerNorm and a GELU feed-forward keeps what GPT-2 keeps; with RMSNorm and a gated SiLU one, what Llama keeps; an
encoder with a head, what BERT keeps. Anything else stays unknown, also a model with layers that no family has.

A model that only resembles a family is an assumption: the fact `resembles` names the family.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from preflight.program.bindings import bind, constant, fold, is_unknown, same
from preflight.program.call_site import is_module, targets, words
from preflight.program.names import field_for
from preflight.python.module import load_module
from preflight.python.objects import CallRecord, ClassValue, Instance, is_expr, to_expr
from preflight.vocabulary.caches import regex
from preflight.vocabulary.project import Project
from preflight.vocabulary.python_grammar import parse_module
from preflight.vocabulary.reading import Binding, Fact, Rank
from preflight.vocabulary.values import Const, Expr, Op, Origin, Value

_KEYS = {
    "gpt2": {"vocab_size": "vocab_size", "hidden_size": "n_embd", "num_hidden_layers": "n_layer",
             "num_attention_heads": "n_head", "intermediate_size": "n_inner", "max_position_embeddings": "n_positions"},
    "llama": {key: key for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                                   "num_key_value_heads", "intermediate_size", "max_position_embeddings")},
    "bert": {key: key for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                                  "intermediate_size", "max_position_embeddings")},
}  # fmt: skip
"""Dimension -> the key of the family's Hugging Face configuration."""
_SAME = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
         "n_inner": "intermediate_size"}  # fmt: skip
_NEEDED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
_LENGTHS = frozenset({"block_size", "context_length", "context_len", "max_len", "max_seq_len", "max_length",
                      "max_seq_length", "seq_len", "sequence_length", "seq_length", "ctx_len", "n_ctx"})  # fmt: skip
_ATTENTION = ("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer",
              "scaled_dot_product_attention")  # fmt: skip
_HEADS = frozenset({"head", "lm", "out", "output", "fc", "proj", "classifier"})
"""Words in names of a model's last layer."""
_OF_NO_FAMILY = regex(r"\b(?:Conv(?:Transpose)?[123]d|LSTM|GRU|RNN|Bilinear|Triangle\w*|Outer\w*Mean|Mamba\w*)\(")
"""Layers with activations that GPT-2, Llama and BERT do not have. A model with one of them needs another law."""
FEED_FORWARD = 2048
"""torch.nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward=2048)."""


_DROPPED = ("resid_pdrop", "embd_pdrop", "attn_pdrop")
"""The probabilities of dropout in the configuration of a GPT-2."""
_DROPOUT, _OF_A_LAYER = 0.5, 0.1
"""torch.nn.Dropout(p=0.5), torch.nn.TransformerEncoderLayer(dropout=0.1); torch.nn.MultiheadAttention has none."""
_ACTIVATION = regex(r"\b(?:nn|F|functional)\.(gelu|relu|silu)\(", re.IGNORECASE)
"""An activation of one kernel. A GPT-2 writes its own out, which leaves five tensors more in each layer."""


class _Found(Struct):
    """Dimensions by their Hugging Face names, and the kind of transformer."""

    dimensions: dict[str, Expr] = field(default_factory=dict)
    attention: bool = False
    length: Expr | None = None
    """The length of its samples: that of its block, or of its learnt positions."""
    text: str = ""
    head: Expr | None = None
    dropouts: list[Expr] = field(default_factory=list)
    """The probabilities of dropout in the layers of torch.nn."""


def handwritten_bindings(records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """Bindings of a transformer that the program defines; empty if none is recognised."""
    classes = [record for record in records if isinstance(record.callee, ClassValue)]
    modules = [record for record in classes if _is_module(record)]
    if not modules:
        return []
    found = _Found(text=_text_of(modules, project))
    for record in classes:
        if record in modules or _is_configuration(record):
            for name, expr in _named(record):
                _take(found, name, expr)
    _layers(records, found, project)
    found.attention = found.attention or any(name in found.text for name in _ATTENTION) or "softmax" in found.text
    if not found.attention or any(key not in found.dimensions for key in _NEEDED):
        return []
    if _OF_NO_FAMILY.search(found.text) or (_kind(found)[0] == "bert" and found.head is None):
        return []
    return [
        *_bindings(found, modules[0].origin),
        *_token_batches(records, found.dimensions.get("max_position_embeddings")),
    ]


def resemblance(bindings: Sequence[Binding]) -> Iterator[Fact]:
    """The fact that a model is estimated as one of the family that it resembles, of `handwritten_bindings`."""
    for binding in bindings:
        if binding.field == "model.architecture":
            yield Fact("resembles", str(constant(binding.expr)), binding.origin)


def _token_batches(records: Sequence[CallRecord], positions: Expr | None) -> list[Binding]:
    """`tokens[i:j].view(B, T)`: batch and length of a program that cuts batches out of one long text itself, in rows
    as long as the model has positions."""
    shapes = [shape for record in records if (shape := _two_dimensions(record, positions)) is not None]
    if not shapes or not all(same(a[0], shapes[0][0]) for a in shapes):
        return []
    return [bind("train.batch_size", shapes[0][0], Rank.default), bind("train.seq_len", shapes[0][1], Rank.read)]


def _two_dimensions(record: CallRecord, positions: Expr | None) -> tuple[Expr, Expr] | None:
    """(batch, length) of data in rows of the model's length; views of activations do not count."""
    if record.method != "view" or len(record.args) != 2 or not record.reached or positions is None:
        return None
    if (record.receiver or "").startswith("torch.nn") or "forward" in (record.function or ""):
        return None
    rows, columns = record.args
    if is_unknown(rows) or is_unknown(columns) or not (same(columns, positions) or _equal(columns, positions)):
        return None
    count = constant(rows)
    return None if isinstance(count, int) and count < 1 else (rows, columns)


def _equal(one: Expr, other: Expr) -> bool:
    value = constant(one)
    return isinstance(value, int) and value == constant(other)


def _is_module(record: CallRecord) -> bool:
    return isinstance(record.callee, ClassValue) and is_module(record.callee)


def _is_configuration(record: CallRecord) -> bool:
    callee = record.callee
    return isinstance(callee, ClassValue) and bool(words(callee.name) & {"config", "args", "cfg", "params", "hparams"})


def _text_of(modules: Sequence[CallRecord], project: Project) -> str:
    """The source of the classes (and of the files they are in, for layers that are made elsewhere)."""
    paths = dict.fromkeys(r.callee.module.path for r in modules if isinstance(r.callee, ClassValue))
    sources = (load_module(path, project) for path in paths)
    return "\n".join(module.source.text for module in sources if module is not None)


def _named(record: CallRecord) -> Iterator[tuple[str, Expr]]:
    """Arguments of a class by name, positional ones included; a dataclass's values with its defaults."""
    callee = record.callee
    if not isinstance(callee, ClassValue):
        return
    if isinstance(record.value, Instance) and (callee.annotations or not record.args):
        attributes = record.value.attributes
        yield from ((str(key), to_expr(value)) for key, value in attributes.items() if is_expr(value))
    yield from zip(_parameters(callee), record.args, strict=False)
    yield from record.kwargs.items()
    yield from ((name, expr) for name, expr in _defaults(callee) if name not in record.kwargs)


def _initialiser(cls: ClassValue) -> tuple[ast.FunctionDef | None, ClassValue]:
    for one in cls.lineage():
        for node in one.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                return node, one
    return None, cls


def _parameters(cls: ClassValue) -> list[str]:
    function, _ = _initialiser(cls)
    return list(cls.annotations) if function is None else [argument.arg for argument in function.args.args[1:]]


def _defaults(cls: ClassValue) -> Iterator[tuple[str, Expr]]:
    """Literal defaults of the initialiser; `_take` replaces them by the arguments of the call."""
    function, owner = _initialiser(cls)
    if function is not None:
        given = function.args
        named = given.args[len(given.args) - len(given.defaults) :]
        pairs = [*zip(named, given.defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
        for argument, default in pairs:
            if isinstance(default, ast.Constant) and isinstance(default.value, (int, float, str)):
                yield argument.arg, Const(default.value, owner.module.origin(default))


def _take(found: _Found, name: str, expr: Expr) -> None:
    """Keep an argument that names a dimension; an earlier one (the outermost module's) wins."""
    if is_unknown(expr) or isinstance(constant(expr), (str, bool)) or constant(expr) is None:
        return
    plain, dimensions = name.rpartition(".")[2].lstrip("_"), found.dimensions
    if plain in _LENGTHS:
        dimensions.setdefault("max_position_embeddings", expr)
        found.length = found.length or expr
    known = field_for(plain)
    if known is not None and known.startswith("model.config."):
        key = known.removeprefix("model.config.")
        dimensions.setdefault(_SAME.get(key, key), expr)


def _layers(records: Sequence[CallRecord], found: _Found, project: Project) -> None:
    """Dimensions from layers of torch.nn that the program builds."""
    for record in records:
        if not record.name.startswith("torch.nn."):
            continue
        if record.method == "Embedding":
            _embedding(record, found, project)
        elif record.method in ("TransformerEncoderLayer", "TransformerDecoderLayer"):
            found.attention = True
            _set(found, "hidden_size", record.argument("d_model", 0))
            _set(found, "num_attention_heads", record.argument("nhead", 1))
            _set(found, "intermediate_size", record.argument("dim_feedforward", 2) or Const(FEED_FORWARD))
            found.dropouts.append(record.argument("dropout", 3) or Const(_OF_A_LAYER))
        elif record.method in ("TransformerEncoder", "TransformerDecoder"):
            _set(found, "num_hidden_layers", record.argument("num_layers", 1))
        elif record.method == "MultiheadAttention":
            found.attention = True
            _set(found, "num_attention_heads", record.argument("num_heads", 1))
            found.dropouts.append(record.argument("dropout", 2) or Const(0.0))
        elif record.method == "Dropout":
            found.dropouts.append(record.argument("p", 0) or Const(_DROPOUT))
        elif record.method == "Linear" and words(" ".join(targets(record, project))) & _HEADS:
            found.head = record.argument("out_features", 1)


def _embedding(record: CallRecord, found: _Found, project: Project) -> None:
    said = words(" ".join(targets(record, project)))
    if said & {"pos", "position", "positional", "positions", "wpe"}:
        _set(found, "max_position_embeddings", record.argument("num_embeddings", 0))
        found.length = found.dimensions.get("max_position_embeddings")
    elif not said & {"segment", "type", "time", "label"}:
        _set(found, "vocab_size", record.argument("num_embeddings", 0))
        _set(found, "hidden_size", record.argument("embedding_dim", 1))


def _set(found: _Found, key: str, expr: Expr | None) -> None:
    if expr is not None and not is_unknown(expr):
        found.dimensions[key] = expr


def _kind(found: _Found) -> tuple[str, str]:
    """The family it resembles, and its task."""
    gated = "RMSNorm" in found.text and ("silu" in found.text.lower() or "swiglu" in found.text.lower())
    causal = any(
        mark in found.text for mark in ("is_causal", "tril(", "triu(", "causal", "generate_square_subsequent_mask")
    )
    head = found.head
    same = head is not None and (
        head == found.dimensions["vocab_size"] or _value(head) == _value(found.dimensions["vocab_size"])
    )
    if gated:
        return "llama", "causal-lm"
    if causal or same:
        return "gpt2", "causal-lm"
    return "bert", "sequence-classification"


def _value(expr: Expr) -> object:
    value = constant(expr)
    return value if isinstance(value, int) else expr


def _bindings(found: _Found, place: Origin) -> list[Binding]:
    architecture, task = _kind(found)
    dimensions: Mapping[str, Expr] = found.dimensions
    bindings = [
        bind("model.architecture", Const(architecture), Rank.read, place),
        bind("task", Const(task), Rank.default, place),
    ]
    bindings += [
        bind(f"model.config.{key}", dimensions[name]) for name, key in _KEYS[architecture].items() if name in dimensions
    ]
    if "intermediate_size" not in dimensions and architecture == "bert":
        wide: Expr = fold(Op("*", (Const(4), dimensions["hidden_size"])))
        bindings.append(bind("model.config.intermediate_size", wide, Rank.default))
    if architecture == "gpt2":
        bindings += [bind(f"model.config.{key}", Const(value), Rank.read, place) for key, value in _kept(found).items()]
    tied = _is_tied(found.text)
    bindings.append(bind("model.config.tie_word_embeddings", Const(tied), Rank.read, place))
    if found.length is not None:  # rotary positions are computed for more than anyone trains with
        bindings.append(bind("train.seq_len", found.length, Rank.default))
    return bindings


def _kept(found: _Found) -> dict[str, Value]:
    """What decides which tensors a layer keeps, where the program differs from a GPT-2: no dropout, and an activation
    of one kernel."""
    code = re.sub(r"#.*", "", found.text)
    none = all(constant(p) == 0 for p in found.dropouts) if found.dropouts else "dropout" not in code.lower()
    activations = {name.lower() for name in _ACTIVATION.findall(code)}
    kept: dict[str, Value] = dict.fromkeys(_DROPPED, 0.0) if none else {}
    if len(activations) == 1:
        kept["activation_function"] = activations.pop()
    return kept


def _is_tied(text: str) -> bool:
    """Whether the output layer uses the embedding's weight: assigned to it, or multiplied with it."""
    try:
        tree = parse_module(text)
    except SyntaxError:
        return False
    return any(_ties(node) for node in ast.walk(tree))


def _ties(node: ast.AST) -> bool:
    """`self.head.weight = self.tok_emb.weight`, `F.linear(x, self.wte.weight)`, `x @ self.wte.weight.T`."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr == "weight":
        return any(isinstance(target, ast.Attribute) and target.attr == "weight" for target in node.targets)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("linear") and len(node.args) > 1:
        return _is_embedding_weight(ast.unparse(node.args[1]))
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.MatMult)
        and _is_embedding_weight(ast.unparse(node.right))
    )


def _is_embedding_weight(text: str) -> bool:
    return ".weight" in text and bool(words(text) & {"emb", "embedding", "embed", "wte", "tok", "token"})
