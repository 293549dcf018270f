"""The loss that a loop with accumulation adds up, and does not divide by the number of batches that it adds.

Said only where it is certain: one value of a loss function or of a model's own loss goes to `backward` as it is, and
nothing in the file is divided by that number or multiplied with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from preflight.program.call_site import loops_around, words
from preflight.python.module import load_module
from preflight.python.objects import CallRecord, Instance
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Fact

UNDIVIDED = "loss_undivided"
_SCALING = (ast.Div, ast.Mult, ast.FloorDiv, ast.Pow)
_SCALING_CALLS = frozenset({"div", "div_", "divide", "mul", "mul_", "multiply", "true_divide"})


def undivided(passes: Sequence[CallRecord], records: Sequence[CallRecord], project: Project) -> Fact | None:
    """The fact whose value is the number, as the file has it, and whose place is the loss that is not divided by it."""
    nodes = {one.node for one in passes}
    if len(nodes) != 1:
        return None
    backward = passes[0]
    module, loops = load_module(backward.path, project), loops_around(backward, project)
    if module is None or not loops:
        return None
    number = _number(loops[0])
    loss = _loss(backward.node, loops[0]) if number is not None else None
    if number is None or loss is None or any(_scaled(node, number) for node in ast.walk(module.tree)):
        return None
    calls = {record.node: record for record in records}
    mean = _is_mean(loss, loops[0], calls) or _is_own_mean(loss, module.tree)
    return Fact(UNDIVIDED, ast.unparse(number), module.origin(loss)) if mean else None


def _number(loop: ast.AST) -> ast.expr | None:
    """The n of the only `if ... % n == 0` of a loop around an optimizer's step."""
    found = [
        part.right
        for node in ast.walk(loop)
        if isinstance(node, ast.If) and any(_steps(one) for one in ast.walk(node))
        for part in ast.walk(node.test)
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod)
    ]
    plain = len(found) == 1 and isinstance(found[0], (ast.Name, ast.Attribute, ast.Constant))
    return found[0] if plain else None


def _steps(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"


def _loss(call: ast.expr, loop: ast.AST) -> ast.expr | None:
    """What goes to `loss.backward()` or `scaler.scale(loss).backward()`: the only value that its name gets in the loop,
    or the expression itself."""
    if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Attribute):
        return None
    given = call.func.value
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "scale":
        given = given.args[0] if len(given.args) == 1 and not given.keywords else given
    if not isinstance(given, ast.Name):
        return given
    bound = [
        node
        for node in ast.walk(loop)
        if isinstance(node, ast.Name) and node.id == given.id and not isinstance(node.ctx, ast.Load)
    ]
    values = [
        node.value
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign) and node.targets == bound and len(bound) == 1
    ]
    return values[0] if len(values) == 1 else None


def _scaled(node: ast.AST, number: ast.expr) -> bool:
    """Whether a node divides or multiplies by the number, or by what may be a copy of it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, _SCALING):
        sides: list[ast.AST] = [node.left, node.right]
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, _SCALING):
        sides = [node.value]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SCALING_CALLS:
        sides = [*node.args]
    else:
        return False
    return any(_may_be(part, number) for side in sides for part in ast.walk(side))


def _may_be(part: ast.AST, number: ast.expr) -> bool:
    if isinstance(number, ast.Constant):
        return isinstance(part, ast.Constant) and part.value == number.value
    name = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
    own = number.id if isinstance(number, ast.Name) else getattr(number, "attr", "")
    return bool(name) and (name == own or bool(words(name) & {"accum", "accumulation", "accumulate", "accumulations"}))


def _is_mean(loss: ast.expr, loop: ast.AST, calls: dict[ast.expr, CallRecord]) -> bool:
    """Whether a value is a loss function's of torch, or the loss that a library's model returns."""
    if isinstance(loss, ast.Call):
        record = calls.get(loss)
        return record is not None and (_of_torch(record) and not record.kwargs.keys() & {"reduction"})
    if not isinstance(loss, ast.Attribute) or loss.attr != "loss":
        return False
    return any(isinstance(one, ast.Call) and _is_librarys(calls.get(one)) for one in _values(loss.value, loop))


def _is_own_mean(loss: ast.expr, tree: ast.Module) -> bool:
    """Whether a function of the file returns nothing but means: of torch's loss functions, added up or not."""
    name = loss.func.id if isinstance(loss, ast.Call) and isinstance(loss.func, ast.Name) else ""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    values = [node.value for one in found for node in ast.walk(one) if isinstance(node, ast.Return)]
    return len(found) == 1 and bool(values) and all(value is not None and _adds_means(value) for value in values)


def _adds_means(value: ast.expr) -> bool:
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _adds_means(value.left) and _adds_means(value.right)
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Div, ast.Mult)):
        return isinstance(value.right, ast.Constant) and _adds_means(value.left)
    given = {one.arg for one in value.keywords} if isinstance(value, ast.Call) else {"reduction"}
    named = ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
    return named in _MEANS and "reduction" not in given


_MEANS = frozenset({"cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
                    "binary_cross_entropy", "binary_cross_entropy_with_logits"})  # fmt: skip
"""Functions of torch.nn.functional that return a mean unless they are told otherwise."""


def _values(node: ast.expr, loop: ast.AST) -> Iterator[ast.expr]:
    if not isinstance(node, ast.Name):
        yield node
        return
    for one in ast.walk(loop):
        if isinstance(one, ast.Assign) and any(isinstance(to, ast.Name) and to.id == node.id for to in one.targets):
            yield one.value


def _of_torch(record: CallRecord) -> bool:
    made = record.callee.made_by if isinstance(record.callee, Instance) else record.name
    return made.startswith(("torch.nn.functional.", "torch.nn."))


def _is_librarys(record: CallRecord | None) -> bool:
    """A model of transformers: its loss is a mean, unless it is given the number of items to divide by."""
    if record is None or not isinstance(record.callee, Instance) or "num_items_in_batch" in record.kwargs:
        return False
    return "from_pretrained" in record.callee.made_by or record.callee.made_by.startswith("transformers.")
