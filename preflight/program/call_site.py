"""The surroundings of a call in its file: the target of its assignment, its enclosing blocks, and the words nearby."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from preflight.python.module import load_module
from preflight.python.objects import CallRecord, ClassValue
from preflight.vocabulary.budgets import keep_time
from preflight.vocabulary.caches import BoundedCache, CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.values import Expr, Op

ROLES = {
    "validation": frozenset({"val", "valid", "validation", "eval", "evaluation", "evaluate", "dev", "validate"}),
    "test": frozenset({"test", "testing", "predict", "inference", "infer"}),
    "train": frozenset({"train", "training", "trn", "fit"}),
}
"""Words that programmers use for the purpose of a loader or a function."""
_NO_GRAD = ("no_grad", "inference_mode")


@lru_cache(maxsize=4096)
def words(text: str) -> frozenset[str]:
    """`valLoader`, `self.val_loader` -> {"val", "loader", ...}, lower case."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
    return frozenset(word for word in re.split(r"[^a-z0-9]+", split.lower()) if word)


def role_of(text: str) -> str | None:
    """train, validation or test, where the words of `text` say exactly one of them."""
    found = [role for role, names in ROLES.items() if words(text) & names]
    return found[0] if len(found) == 1 else None


def is_evaluation(text: str) -> bool:
    """Whether the words of `text` say validation, test or both (`inference_on_eval_data`), and not training."""
    said = words(text)
    return bool(said & (ROLES["validation"] | ROLES["test"])) and not said & ROLES["train"]


_PARENTS: CacheKind[dict[ast.AST, ast.AST]] = CacheKind("each node's parent in a Python file")


def parents(path: str, project: Project) -> dict[ast.AST, ast.AST]:
    """Each node of a file -> the node around it; cached per project."""
    return project.remembered.get(_PARENTS, lambda: _parents(path, project), path)


def _parents(path: str, project: Project) -> dict[ast.AST, ast.AST]:
    module = load_module(path, project)
    tree = module.tree if module is not None else ast.Module([], [])
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def around(record: CallRecord, project: Project) -> Iterator[ast.AST]:
    """The nodes around a call, the nearest first, up to the file."""
    keep_time()
    table = parents(record.path, project)
    node: ast.AST | None = table.get(record.node)
    while node is not None:
        yield node
        node = table.get(node)


def targets(record: CallRecord, project: Project) -> tuple[str, ...]:
    """The text of the target that the call's value is assigned to (or of its keyword or key)."""
    inner: ast.AST = record.node
    for node in around(record, project):
        if isinstance(node, ast.Assign):
            return _assigned(node, inner)
        if isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            return (ast.unparse(node.target),)
        if isinstance(node, ast.keyword) and node.arg:
            return (node.arg,)
        if isinstance(node, ast.Dict):
            keys = [key for key, value in zip(node.keys, node.values, strict=True) if value is inner]
            return tuple(str(key.value) for key in keys if isinstance(key, ast.Constant))
        if isinstance(node, (ast.stmt, ast.Lambda)):
            return ()
        inner = node
    return ()


def _assigned(node: ast.Assign, value: ast.AST) -> tuple[str, ...]:
    """`a, b = f(), g()`: the target that stands where the value stands."""
    for target in node.targets:
        pairs = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and value is not node.value
        if pairs and isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and value in node.value.elts:
            return (ast.unparse(target.elts[node.value.elts.index(value)]),)
    return tuple(ast.unparse(target) for target in node.targets)


def assigned_values(name: str, scope: ast.AST) -> list[ast.expr]:
    """All values that a name is assigned in a function or a file."""
    return _VALUES.get(scope, None, lambda: _values_by_name(scope)).get(name, [])


def _values_by_name(scope: ast.AST) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            for name in {target.id: None for target in node.targets if isinstance(target, ast.Name)}:
                found.setdefault(name, []).append(node.value)
    return found


_VALUES: BoundedCache[dict[str, list[ast.expr]]] = BoundedCache(64)
"""The values of all names of a function or a file, which are asked for one by one."""


def chain_of(record: CallRecord) -> list[CallRecord]:
    """The calls that lead to a call, the outermost first, and itself."""
    found = [record]
    while found[-1].caller is not None:
        found.append(found[-1].caller)
    return found[::-1]


def calls_around(record: CallRecord) -> Iterator[tuple[CallRecord, int]]:
    """The calls that entered the function in which a call is made, each with the call's number there."""
    if record.caller is not None:
        yield record.caller, record.number
    yield from record.callers_again.values()


def frames_of(record: CallRecord) -> Iterator[CallRecord]:
    """All calls of functions in which a call is made, directly or through others: one that is made again in other calls
    of its function is recorded once."""
    keep_time()
    seen: set[int] = set()
    left = [record]
    while left:
        one = left.pop()
        for caller, _ in calls_around(one):
            if id(caller) not in seen:
                seen.add(id(caller))
                left.append(caller)
                yield caller


def enclosing_function(record: CallRecord, project: Project) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The `def` that the call is written in."""
    for node in around(record, project):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return node
    return None


def scope_of(record: CallRecord, project: Project) -> ast.AST | None:
    """The function around the call, else its file."""
    function = enclosing_function(record, project)
    if function is not None:
        return function
    module = load_module(record.path, project)
    return None if module is None else module.tree


def loops_around(record: CallRecord, project: Project) -> list[ast.For | ast.While | ast.AsyncFor]:
    """The loops around the call within its own function, the nearest first."""
    found: list[ast.For | ast.While | ast.AsyncFor] = []
    for node in around(record, project):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            break
        if isinstance(node, (ast.For, ast.While, ast.AsyncFor)):
            found.append(node)
    return found


_MODULES = ("Module", "PreTrainedModel")


def is_module(cls: ClassValue | None) -> bool:
    """Whether a class of the project derives from torch.nn.Module, LightningModule, PreTrainedModel or the like."""
    return cls is not None and any(base.endswith(_MODULES) for base in cls.external_bases)


def without_gradients(record: CallRecord) -> bool:
    """Whether the call is made under torch.no_grad() or inference_mode()."""
    return no_grad_blocks(record) > 0


def no_grad_blocks(record: CallRecord) -> int:
    """How many blocks and decorators around the call, and around those that led to it, switch gradients off."""
    return sum(context.method in _NO_GRAD for context in record.contexts)


def evaluates(record: CallRecord) -> bool:
    """Whether the call belongs to an evaluation: no gradients, or a function that says so."""
    if without_gradients(record):
        return True
    return is_evaluation((record.function or "").rpartition(".")[2])


_NAMES: CacheKind[frozenset[str]] = CacheKind("names and attributes that a Python file reads or sets")


def names_of(path: str, project: Project) -> frozenset[str]:
    """The names and attributes of a file, collected once: a program has thousands of calls in functions."""
    return project.remembered.get(_NAMES, lambda: _names(path, project), path)


def _names(path: str, project: Project) -> frozenset[str]:
    module = load_module(path, project)
    nodes = module.nodes if module is not None else ()
    named = (node.id if isinstance(node, ast.Name) else getattr(node, "attr", None) for node in nodes)
    return frozenset(name for name in named if name is not None)


def exclude_each_other(record: CallRecord, other: CallRecord) -> bool:
    """Whether two calls are made in different branches of an `if`: only one of them is."""
    pairs = [(mine, theirs) for mine in record.conditions for theirs in other.conditions]
    return any(_is_opposite(mine, theirs) or _is_opposite(theirs, mine) for mine, theirs in pairs)


def _is_opposite(one: Expr, other: Expr) -> bool:
    return isinstance(other, Op) and other.operator == "not" and other.operands == (one,)
