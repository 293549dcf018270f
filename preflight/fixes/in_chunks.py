"""An evaluation of all texts in one call, as a call for each chunk: the results are the same.

`model(**encoded).logits` becomes `torch.cat([model(**{...}).logits for start in range(...)])`, where the texts were
tokenised to tensors of one length, the model was loaded as a classifier, and runs in evaluation mode without gradients.
`model.generate(**encoded, ...)` becomes `[row for start in range(...) for row in model.generate(**{...}, ...)]`, where
nothing is drawn at random, and all that is done with the rows is to decode them without special tokens: the rows of a
chunk end when its longest does, and what follows is padding.
No other shape is edited: a model that compares its samples, or normalises over them, would say something else.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from preflight.documents.layout import newline_of
from preflight.documents.python import PythonDocument, parse_python
from preflight.fixes.python_names import (
    SCOPES,
    Parents,
    above,
    binds,
    called,
    imports_torch,
    indent_at,
    parents_of,
    within,
)
from preflight.vocabulary.project import Project
from preflight.vocabulary.study import Study
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Value

FACT = "eval_unbatched"

_MOVES = ("to", "cuda", "eval", "float", "half", "bfloat16")
"""Methods of a model or an encoding that return itself."""
_TOKENISED = frozenset({"text", "padding", "truncation", "max_length", "return_tensors", "add_special_tokens",
                        "return_attention_mask", "return_token_type_ids"})  # fmt: skip
"""Arguments of a tokenizer after which every tensor has a row for each text."""
_OWN = ("key", "value", "start", "row")
_CLASSIFIERS = ("ForSequenceClassification",)
_WRITERS = ("ForCausalLM", "ForSeq2SeqLM", "ForConditionalGeneration", "LMHeadModel")
_PER_ROW = frozenset({"max_new_tokens", "max_length", "min_new_tokens", "num_beams", "pad_token_id", "eos_token_id",
                      "early_stopping", "use_cache", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
                      "num_return_sequences"})  # fmt: skip
"""Arguments of generate that say the same of each row."""


def in_chunks(size: Value, study: Study, project: Project) -> tuple[Edit, ...] | None:
    """The edit of the call; None for any other shape. Raises DocumentError."""
    origin = study.facts[FACT].origin
    if origin is None or not isinstance(size, int) or not origin.path.endswith(".py"):
        return None
    document = parse_python(project.source(origin.path))
    parents = parents_of(document)
    calls = [node for node in parents if isinstance(node, ast.Call) and document.span(node) == origin.span]
    call = calls[0] if len(calls) == 1 else None
    if call is None or not imports_torch(document.tree):
        return None
    generates = isinstance(call.func, ast.Attribute) and call.func.attr == "generate"
    names = _names(call, generates)
    if names is None or not _is_encoding(names[1], call, parents, document):
        return None
    around, used = list(above(call, parents)), parents[call]
    if generates:
        if not _is_loaded(names[0], _WRITERS, call, parents) or not _evaluates(names[0], call, around, document, True):
            return None
        return (_rows_edit(document, call, names, size),) if _is_decoded(call, parents) else None
    if not (isinstance(used, ast.Attribute) and used.attr == "logits"):
        return None
    known = _is_loaded(names[0], _CLASSIFIERS, call, parents)
    return (_edit(document, used, names, size),) if known and _evaluates(names[0], call, around, document) else None


def _rows_edit(document: PythonDocument, call: ast.Call, names: tuple[str, str], size: int) -> Edit:
    (model, encoded), span = names, document.span(call)
    indent = indent_at(document, span.start)
    others = "".join(f", {ast.unparse(keyword)}" for keyword in call.keywords if keyword.arg is not None)
    rows = f"{{key: value[start : start + {size}] for key, value in {encoded}.items()}}"
    lines = [
        "[",
        f"{indent}    row",
        f'{indent}    for start in range(0, len({encoded}["input_ids"]), {size})',
        f"{indent}    for row in {model}.generate(**{rows}{others})",
        f"{indent}]",
    ]
    return Edit(document.source.path, span, newline_of(document.source.text, span.start).join(lines))


def _is_decoded(call: ast.Call, parents: Parents) -> bool:
    """Whether the rows are only decoded, without special tokens: `tokenizer.batch_decode(rows, ...)`."""
    used = parents[call]
    if not isinstance(used, ast.Assign):
        return _decodes(used, call)
    target = used.targets[0] if len(used.targets) == 1 else None
    if not isinstance(target, ast.Name):
        return False
    scope = next((one for one in above(call, parents) if isinstance(one, (*SCOPES, ast.Module))), None)
    named = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == target.id] if scope else []
    reads = [node for node in named if node is not target]
    return bool(reads) and all(_decodes(parents[node], node) for node in reads)


def _decodes(node: ast.AST, rows: ast.expr) -> bool:
    given = {one.arg: one.value for one in node.keywords} if isinstance(node, ast.Call) else {}
    skips = given.get("skip_special_tokens")
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "batch_decode"
        and node.args[:1] == [rows]
        and isinstance(skips, ast.Constant)
        and skips.value is True
    )


def _edit(document: PythonDocument, used: ast.Attribute, names: tuple[str, str], size: int) -> Edit:
    (model, encoded), span = names, document.span(used)
    indent = indent_at(document, span.start)
    lines = [
        "torch.cat([",
        f"{indent}    {model}(**{{key: value[start : start + {size}] for key, value in {encoded}.items()}}).logits",
        f'{indent}    for start in range(0, len({encoded}["input_ids"]), {size})',
        f"{indent}])",
    ]
    return Edit(document.source.path, span, newline_of(document.source.text, span.start).join(lines))


def _names(call: ast.Call, generates: bool) -> tuple[str, str] | None:
    """The names of `model(**encoded)`, or of `model.generate(**encoded, ...)` with arguments that hold for each row."""
    encodings = [one.value for one in call.keywords if one.arg is None]
    others = [one for one in call.keywords if one.arg is not None]
    if call.args or len(encodings) != 1 or (others and not generates) or not all(map(_per_row, others)):
        return None
    model, encoded = call.func.value if isinstance(call.func, ast.Attribute) else call.func, encodings[0]
    if not isinstance(model, ast.Name) or not isinstance(encoded, ast.Name) or {model.id, encoded.id} & {*_OWN}:
        return None
    return (model.id, encoded.id) if generates or isinstance(call.func, ast.Name) else None


def _per_row(one: ast.keyword) -> bool:
    if one.arg == "do_sample":
        return isinstance(one.value, ast.Constant) and one.value.value is False
    plain = all(isinstance(node, (ast.Constant, ast.Name, ast.Attribute, ast.Load)) for node in ast.walk(one.value))
    return one.arg in _PER_ROW and plain


def _assigned(name: str, call: ast.AST, parents: Parents) -> list[ast.expr]:
    """The values that a name is given in the innermost scope around a call that has it, each by an assignment of it
    alone; empty if it gets values in another way."""
    for scope in above(call, parents):
        if not isinstance(scope, (*SCOPES, ast.Module)):
            continue
        own = list(within(scope))
        stores = [node for node in own if binds(node, name)]
        found = [
            node.value
            for node in own
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and node.targets[0] in stores
        ]
        if stores:
            return found if len(found) == len(stores) else []
    return []


def _plain(value: ast.expr) -> ast.expr:
    """A value without the methods that only move it."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
        value = value.func.value
    return value


def _is_loaded(name: str, classes: tuple[str, ...], call: ast.Call, parents: Parents) -> bool:
    """Whether a name is only what `from_pretrained` of such a class loads."""
    values = [_plain(value) for value in _assigned(name, call, parents)]
    loaded = [value for value in values if isinstance(value, ast.Call) and _is_loading(value.func, classes)]
    same = [value for value in values if isinstance(value, ast.Name) and value.id == name]
    return bool(loaded) and len(loaded) + len(same) == len(values)


def _is_loading(node: ast.expr, classes: tuple[str, ...]) -> bool:
    made = node.value if isinstance(node, ast.Attribute) and node.attr == "from_pretrained" else None
    named = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
    return named.endswith(classes)


def _is_encoding(name: str, call: ast.Call, parents: Parents, document: PythonDocument) -> bool:
    """Whether a name is what one call of a tokenizer made, before the call, as tensors of one length."""
    values = [_plain(value) for value in _assigned(name, call, parents)]
    if len(values) != 1 or not isinstance(values[0], ast.Call):
        return False
    made = values[0]
    given = {keyword.arg: keyword.value for keyword in made.keywords}
    tensors = given.get("return_tensors")
    return (
        isinstance(made.func, ast.Name)
        and "token" in made.func.id.lower()
        and given.keys() <= _TOKENISED
        and len(made.args) <= 1
        and isinstance(tensors, ast.Constant)
        and tensors.value == "pt"
        and document.span(made).end < document.span(call).start
    )


def _evaluates(
    name: str, call: ast.Call, around: Sequence[ast.AST], document: PythonDocument, generates: bool = False
) -> bool:
    """Whether the call is made without gradients, as `generate` is, and the model was told to evaluate by the last
    statement that says so in one of the blocks around it."""
    managed = [item.context_expr for node in around if isinstance(node, ast.With) for item in node.items]
    decorated = [one for node in around if isinstance(node, ast.FunctionDef) for one in node.decorator_list]
    if not generates and not any(called(one) in ("no_grad", "inference_mode") for one in (*managed, *decorated)):
        return False
    modes = [
        (document.span(node).start, called(node), any(one in around for one in _beside(node, document.tree)))
        for node in ast.walk(document.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("eval", "train")
        if isinstance(node.func.value, ast.Name) and node.func.value.id == name
    ]
    before = [mode for mode in modes if mode[0] < document.span(call).start]
    return bool(before) and max(before)[1:] == ("eval", True)


def _beside(call: ast.Call, tree: ast.Module) -> list[ast.stmt]:
    """The statements behind the one that consists of a call, in its block."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            for at, statement in enumerate(block if isinstance(block, list) else ()):
                if isinstance(statement, ast.Expr) and statement.value is call and isinstance(block, list):
                    return block[at + 1 :]
    return []
