"""Evaluation: forward or generate calls on a whole set at once, and generated lengths.

A call is unbatched when its input is put together from all samples: stacked from a list that was filled in a loop or a
comprehension, tokenised from a whole list, or a tensor that is named for a set - and neither the call nor that tensor
stands in a loop that goes over slices or batches of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from msgspec import Struct

from preflight.program.bindings import bind, constant, is_unknown
from preflight.program.call_site import (
    ROLES,
    assigned_values,
    enclosing_function,
    evaluates,
    is_module,
    loops_around,
    scope_of,
    words,
)
from preflight.program.loops import is_forward
from preflight.python.objects import CallRecord, Container, FunctionValue, Instance
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Fact, Rank
from preflight.vocabulary.values import Const, Expr

_STACKING = frozenset({"stack", "vstack", "cat", "concat", "concatenate", "tensor", "as_tensor", "array", "asarray",
                       "from_numpy", "pad_sequence", "LongTensor", "FloatTensor"})  # fmt: skip
_TOKENIZING = frozenset({"tokenizer", "tokeniser", "processor", "tok", "batch_encode_plus"})
_NEW_TOKENS = ("max_new_tokens", "steps", "num_steps", "n_steps", "num_tokens", "n_tokens")
_NUMBERS = frozenset(
    {"len", "int", "float", "str", "max", "min", "sum", "mean", "range", "size", "dim", "item", "numel"}
)
"""Calls that make a number, or a few, of whatever they are given."""
_BATCHES = frozenset({"batch", "chunk", "minibatch", "loader", "dataloader"})
_SETS = frozenset(
    {"x", "data", "set", "inputs", "images", "features", "tokens", "texts", "samples", "prompts", "ids", "tensor"}
    | {"all", "sentences", "questions", "captions", "documents", "articles", "examples"}
)


class Evaluation(Struct, frozen=True):
    """The bindings of the evaluation, and the fact that it is not batched."""

    bindings: tuple[Binding, ...] = ()
    facts: tuple[Fact, ...] = ()


def evaluation(records: Sequence[CallRecord], project: Project) -> Evaluation:
    """Generation and unbatched calls among evaluation's model calls."""
    bindings: list[Binding] = []
    facts: list[Fact] = []
    computes_loss = any((is_forward(one) and evaluates(one)) or one.name.endswith("Trainer") for one in records)
    for record in records:
        generating = _generates(record)
        if not generating and not (is_forward(record) and evaluates(record)):
            continue
        if generating:
            bindings += _generation(record)
            bindings.append(bind("validation.loss", Const(computes_loss, record.origin), Rank.default))
        chunk = _chunk(record.node)
        if chunk is not None:
            bindings.append(bind("validation.batch_size", Const(chunk, record.origin), Rank.read))
        whole = _whole_set(record, project) if _is_of_torch(record) else None
        if whole is not None and not facts and not _trains_on_all(records, record.path, project):
            facts.append(Fact("eval_unbatched", True, record.origin))
            samples = _samples(record, whole, records, project)
            if samples is not None:
                bindings += [
                    bind("validation.batch_size", samples, Rank.read),
                    bind("validation.samples", samples, Rank.read),
                ]
                known = constant(samples)
                facts += [Fact("eval_samples", known, record.origin)] if isinstance(known, int) else []
    return Evaluation(tuple(bindings), tuple(facts))


def _trains_on_all(records: Sequence[CallRecord], path: str, project: Project) -> bool:
    """Whether a step of the training takes a whole set as well, `for epoch in range(n): model(x)`: evaluating one like
    it takes less."""
    return any(
        _same_each_round(one.node, loops_around(one, project))
        for one in records
        if one.path == path and isinstance(one.node, ast.Call) and is_forward(one) and not evaluates(one)
    )


def _same_each_round(call: ast.Call, loops: Sequence[ast.For | ast.While | ast.AsyncFor]) -> bool:
    """Whether a call in a loop gets what was there before the loop."""
    changed = _different_each_round(loops) | {
        part.id
        for loop in loops
        for node in ast.walk(loop)
        for target in _targets(node)
        for part in ast.walk(target)
        if isinstance(part, ast.Name)
    }
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    plain = all(isinstance(one, ast.Name) for one in given)
    return bool(loops) and bool(given) and plain and not any(_varies(one, changed) for one in given)


_WITH_MODELS = ("transformers.", "peft.", "unsloth.", "trl.", "torch.", "torchvision.", "timm.", "diffusers.",
                "sentence_transformers.", "optimum.", "accelerate.", "deepspeed.")  # fmt: skip
"""Libraries whose objects are modules of torch: they run what they are given at once."""


def _is_of_torch(record: CallRecord) -> bool:
    """Whether the receiver is a module of torch, or nobody knows. An engine (vLLM's LLM, a client of a server) makes
    batches itself."""
    holder = record.receiver_object if record.receiver_object is not None else record.callee
    if isinstance(holder, Instance) and holder.cls is not None:
        return is_module(holder.cls)
    made_by = record.receiver or (holder.made_by if isinstance(holder, Instance) else "")
    return not made_by or made_by.startswith(_WITH_MODELS)


def _generates(record: CallRecord) -> bool:
    said = words(record.name)
    return record.method == "generate" and (
        bool(said & {"model", "net", "lm", "gpt", "self", "module", "transformer"})
        or record.receiver_object is not None
    )


def _generation(record: CallRecord) -> list[Binding]:
    """Arguments of `generate`, the program's own function or a library's."""
    found = [bind("validation.generates", Const(True, record.origin), Rank.read)]
    given = {**_named(record), **record.kwargs}
    for names, field in ((_NEW_TOKENS, "validation.max_new_tokens"), (("num_beams",), "validation.beams")):
        expr = next((given[name] for name in names if name in given), None)
        if expr is not None and constant(expr) is not None and not is_unknown(expr):
            found.append(bind(field, expr))
    return found


def _named(record: CallRecord) -> dict[str, Expr]:
    """Positional arguments of one of the program's own functions, by the names they have there."""
    callee = record.callee
    if not isinstance(callee, FunctionValue):
        return {}
    names = [argument.arg for argument in callee.node.args.args]
    skipped = 1 if names[:1] == ["self"] else 0
    return dict(zip(names[skipped:], record.args, strict=False))


def _samples(record: CallRecord, whole: ast.expr, records: Sequence[CallRecord], project: Project) -> Expr | None:
    """The number of samples: items of a known list, or n of the `range(n)` that fills it, as the caller gives n."""
    for value in (*record.arguments, *record.keywords.values()):
        if isinstance(value, Container) and value.is_sequence and not value.open and len(value.items) > 1:
            return Const(len(value.items), record.origin)
    function = enclosing_function(record, project)
    if function is None:
        return None
    counts = {ast.unparse(count) for name in _sources(whole, function) for count in _counts(name, function)}
    if len(counts) != 1:
        return None
    text = counts.pop()
    if text.isdecimal():
        return Const(int(text), record.origin)
    for call in records:
        if isinstance(call.callee, FunctionValue) and call.callee.node is function:
            expr = {**_named(call), **call.kwargs}.get(text)
            if expr is not None and not is_unknown(expr):
                return expr
    return None


def _sources(node: ast.expr, scope: ast.AST, depth: int = 0) -> Iterator[str]:
    """Names that an expression is made of, followed through assignments."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and depth < 6:
            yield part.id
            value = _assigned(part.id, scope, 10**9)
            if value is not None and value is not node:
                yield from _sources(value, scope, depth + 1)


def _counts(name: str, scope: ast.AST) -> Iterator[ast.expr]:
    """The n of every `for ... in range(n)` that appends to the name."""
    for loop in ast.walk(scope):
        over = loop.iter if isinstance(loop, ast.For) else None
        counted = isinstance(over, ast.Call) and ast.unparse(over.func) == "range" and len(over.args) == 1
        if counted and isinstance(over, ast.Call) and any(_appends(node, name) for node in ast.walk(loop)):
            yield over.args[0]


def _whole_set(record: CallRecord, project: Project) -> ast.expr | None:
    """The argument that holds every sample; None if the call is batched, or might be."""
    if not isinstance(record.node, ast.Call):
        return None
    scope = scope_of(record, project)
    loop_names = _different_each_round(loops_around(record, project))
    for argument in [*record.node.args, *(keyword.value for keyword in record.node.keywords)]:
        if isinstance(argument, ast.Starred):
            argument = argument.value
        if scope is not None and _holds_all(argument, scope, loop_names, getattr(record.node, "lineno", 0), 0):
            return argument
    return None


def _chunk(node: ast.expr) -> int | None:
    """The n of `model(**{key: value[start : start + n] for key, value in encoded.items()})`: rows of an encoding."""
    given = [keyword.value for keyword in node.keywords if keyword.arg is None] if isinstance(node, ast.Call) else []
    sliced = given[0].value if len(given) == 1 and isinstance(given[0], ast.DictComp) else None
    rows = sliced.slice if isinstance(sliced, ast.Subscript) else None
    if not isinstance(rows, ast.Slice) or not isinstance(rows.lower, ast.Name) or not isinstance(rows.upper, ast.BinOp):
        return None
    first, size = rows.upper.left, rows.upper.right
    counted = isinstance(rows.upper.op, ast.Add) and isinstance(first, ast.Name) and first.id == rows.lower.id
    return size.value if counted and isinstance(size, ast.Constant) and isinstance(size.value, int) else None


def _different_each_round(loops: Sequence[ast.For | ast.While | ast.AsyncFor]) -> set[str]:
    """The names of the loops, and all names that the loops make of them."""
    found = {name for loop in loops for name in _loop_names(loop)}
    made = [
        (node.value, [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)])
        for loop in loops
        for node in ast.walk(loop)
        if (targets := _targets(node)) and isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value
    ]
    while True:
        more = {name for value, names in made if _varies(value, found) for name in names} - found
        if not more:
            return found
        found |= more


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, (ast.AnnAssign, ast.NamedExpr)) else []


def _loop_names(loop: ast.For | ast.While | ast.AsyncFor) -> Iterator[str]:
    """Names that take another value in every round: the targets, and (for `while`) whatever the body counts up."""
    nodes = ast.walk(loop.target) if isinstance(loop, (ast.For, ast.AsyncFor)) else _counted(loop)
    yield from (node.id for node in nodes if isinstance(node, ast.Name))


def _counted(loop: ast.While) -> Iterator[ast.AST]:
    yield from (node.target for node in ast.walk(loop) if isinstance(node, ast.AugAssign))


def _holds_all(node: ast.expr, scope: ast.AST, rounds: set[str], line: int, depth: int) -> bool:
    """Whether an expression is made of all samples: followed through assignments of the same function."""
    if depth > 6 or _varies(node, rounds):
        return False
    if any(isinstance(part, ast.Slice) and (part.lower or part.upper) for part in ast.walk(node)):
        return False  # a slice: the program makes batches
    stacked = next((call for call in _data(node) if isinstance(call, ast.Call) and _puts_together(call)), None)
    if stacked is not None and any(_is_collection(arg, scope, rounds, line, depth + 1) for arg in stacked.args):
        return True
    for name in _data(node):
        value = _assigned(name.id, scope, line) if isinstance(name, ast.Name) else None
        if value is not None and value is not node and _holds_all(value, scope, rounds, value.lineno, depth + 1):
            return True
    plain = node
    while (
        isinstance(plain, ast.Call)
        and isinstance(plain.func, ast.Attribute)
        and plain.func.attr in ("to", "cuda", "float", "long")
    ):
        plain = plain.func.value
    if isinstance(plain, ast.Name) and _is_written_out(_assigned(plain.id, scope, line)):
        return False
    return isinstance(plain, (ast.Name, ast.Attribute)) and _names_a_set(ast.unparse(plain))


def _is_written_out(node: ast.expr | None) -> bool:
    """Whether all items stand in the program: a few prompts, and no data set. An empty list is filled later."""
    return isinstance(node, (ast.List, ast.Tuple)) and bool(node.elts)


def _data(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression whose values its own value holds: `len(x)` and `x.shape` hold nothing of x."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _NUMBERS:
            return
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "ndim", "dtype", "device"):
        return
    yield node
    for inner in ast.iter_child_nodes(node):
        yield from _data(inner)


def _varies(node: ast.expr, rounds: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in rounds for part in ast.walk(node))


def _puts_together(call: ast.Call) -> bool:
    name = (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )
    return name in _STACKING or bool(words(name) & _TOKENIZING)


def _is_collection(node: ast.expr, scope: ast.AST, rounds: set[str], line: int, depth: int) -> bool:
    """Whether an expression is a list over many samples: a comprehension, or a name filled by append in a loop."""
    if depth > 6 or _varies(node, rounds):
        return False
    if any(isinstance(part, ast.Slice) and (part.lower or part.upper) for part in ast.walk(node)):
        return False
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return all(_is_all(generator.iter, scope, rounds, line, depth) for generator in node.generators)
    if isinstance(node, ast.Call):
        parts = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        return any(_is_collection(part, scope, rounds, line, depth + 1) for part in parts)
    if isinstance(node, ast.Subscript):  # data["test"]["text"]: a column of a whole split
        return _names_a_split(node)
    if isinstance(node, ast.Name):
        value = _assigned(node.id, scope, line)
        if _is_written_out(value):
            return False
        if _appended(node.id, scope) or _names_a_set(node.id):
            return True
        return value is not None and _is_collection(value, scope, rounds, value.lineno, depth + 1)
    return False


def _is_all(node: ast.expr, scope: ast.AST, rounds: set[str], line: int, depth: int) -> bool:
    """Whether a comprehension goes over all samples. What a caller hands over may be a batch."""
    if _varies(node, rounds) or _is_batch(node):
        return False
    if isinstance(node, ast.Call):
        return not (isinstance(node.func, ast.Name) and node.func.id == "range")
    if not isinstance(node, ast.Name):
        return True
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = scope.args
        if node.id in {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}:
            return _names_a_set(node.id)
    return _assigned(node.id, scope, line) is None or _is_collection(node, scope, rounds, line, depth + 1)


def _names_a_split(node: ast.Subscript) -> bool:
    inner = node.value.value if isinstance(node.value, ast.Subscript) else None
    if isinstance(inner, ast.Subscript) and not isinstance(node.slice, ast.Constant):
        return False  # data["test"][column][i]: one sample
    slices = [part.slice for part in ast.walk(node) if isinstance(part, ast.Subscript)]
    keys = [key.value for key in slices if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return any(words(key) & (ROLES["validation"] | ROLES["test"]) for key in keys) and not _is_batch(node)


def _is_batch(node: ast.expr) -> bool:
    return bool(words(ast.unparse(node)) & _BATCHES)


def _appended(name: str, scope: ast.AST) -> bool:
    """`name.append(...)` inside a loop of the function, the loop not going over batches of a loader."""
    loops = (loop for loop in ast.walk(scope) if isinstance(loop, (ast.For, ast.AsyncFor)))
    return any(
        not _is_batch(loop.iter) and not _is_fixed(loop.iter) and any(_appends(node, name) for node in ast.walk(loop))
        for loop in loops
    )


def _is_fixed(node: ast.expr) -> bool:
    """`range(100)`: as many samples as the program says, however large the set is."""
    is_range = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
    return isinstance(node, ast.Call) and is_range and all(isinstance(one, ast.Constant) for one in node.args)


def _appends(node: ast.AST, name: str) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    return (
        node.func.attr in ("append", "extend") and isinstance(node.func.value, ast.Name) and node.func.value.id == name
    )


def _assigned(name: str, scope: ast.AST, line: int) -> ast.expr | None:
    """The value that the name was last given before the line, in the function's own text."""
    values = [value for value in assigned_values(name, scope) if value.lineno <= line]
    return max(values, key=lambda value: value.lineno, default=None)


def _names_a_set(text: str) -> bool:
    """`X_val`, `self.test_images`: a name that says both which set and that it is the data."""
    said = words(text)
    return bool(said & (ROLES["validation"] | ROLES["test"])) and bool(said & _SETS) and not said & _BATCHES
