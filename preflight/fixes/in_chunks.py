"""A classifier's evaluation of all texts in one call, as a call for each chunk: the results are the same.

`model(**encoded).logits` becomes `torch.cat([model(**{...}).logits for start in range(...)])`, where the texts were
tokenised to tensors of one length, the model was loaded as a classifier, and runs in evaluation mode without gradients.
No other shape is edited: a model that compares its samples, or normalises over them, would say something else.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from preflight.documents.layout import newline_of
from preflight.documents.python import PythonDocument, parse_python
from preflight.fixes.python_names import SCOPES, Parents, above, binds, called, indent_at, parents_of, within
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
_OWN = ("key", "value", "start")


def in_chunks(size: Value, study: Study, project: Project) -> tuple[Edit, ...] | None:
    """The edit of the call; None for any other shape. Raises DocumentError."""
    origin = study.facts[FACT].origin
    if origin is None or not isinstance(size, int) or not origin.path.endswith(".py"):
        return None
    document = parse_python(project.source(origin.path))
    parents = parents_of(document)
    calls = [node for node in parents if isinstance(node, ast.Call) and document.span(node) == origin.span]
    call = calls[0] if len(calls) == 1 else None
    names = _names(call)
    used = parents[call] if call is not None else None
    if call is None or names is None or not (isinstance(used, ast.Attribute) and used.attr == "logits"):
        return None
    known = _is_classifier(names[0], call, parents) and _is_encoding(names[1], call, parents, document)
    evaluates = _evaluates(names[0], call, list(above(call, parents)), document)
    if not known or not evaluates or not _imports_torch(document.tree):
        return None
    return (_edit(document, used, names, size),)


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


def _names(call: ast.Call | None) -> tuple[str, str] | None:
    """The names of `model(**encoded)`."""
    if call is None or call.args or len(call.keywords) != 1 or call.keywords[0].arg is not None:
        return None
    model, encoded = call.func, call.keywords[0].value
    if not isinstance(model, ast.Name) or not isinstance(encoded, ast.Name) or {model.id, encoded.id} & {*_OWN}:
        return None
    return model.id, encoded.id


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


def _is_classifier(name: str, call: ast.Call, parents: Parents) -> bool:
    """Whether a name is only what `...ForSequenceClassification.from_pretrained` loads."""
    values = [_plain(value) for value in _assigned(name, call, parents)]
    loaded = [value for value in values if isinstance(value, ast.Call) and _is_loading(value.func)]
    same = [value for value in values if isinstance(value, ast.Name) and value.id == name]
    return bool(loaded) and len(loaded) + len(same) == len(values)


def _is_loading(node: ast.expr) -> bool:
    made = node.value if isinstance(node, ast.Attribute) and node.attr == "from_pretrained" else None
    named = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
    return named.endswith("ForSequenceClassification")


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


def _imports_torch(tree: ast.Module) -> bool:
    imported = any(
        isinstance(statement, ast.Import) and any(a.name == "torch" and a.asname is None for a in statement.names)
        for statement in tree.body
    )
    bound = any(isinstance(node, (ast.Name, ast.arg)) and binds(node, "torch") for node in ast.walk(tree))
    return imported and not bound


def _evaluates(name: str, call: ast.Call, around: Sequence[ast.AST], document: PythonDocument) -> bool:
    """Whether the call is made without gradients, and the model was told to evaluate by the last statement that says
    so in one of the blocks around it."""
    managed = [item.context_expr for node in around if isinstance(node, ast.With) for item in node.items]
    decorated = [one for node in around if isinstance(node, ast.FunctionDef) for one in node.decorator_list]
    if not any(called(one) in ("no_grad", "inference_mode") for one in (*managed, *decorated)):
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
