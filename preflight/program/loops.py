"""Hand-written training loops: accumulation, schedulers, outputs that stay alive, the kind of the loss.

Read from the calls and from the syntax around them (is the variable still bound when backward runs?).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from preflight.program.bindings import bind, first_origin, is_unknown, same
from preflight.program.call_site import (
    assigned_values,
    chain_of,
    enclosing_function,
    evaluates,
    is_module,
    loops_around,
    scope_of,
    words,
)
from preflight.program.loop_loss import undivided
from preflight.python.module import load_module
from preflight.python.objects import CallRecord, Instance, kinds_of
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Fact, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Unknown

_CONTRASTIVE_NAMES = (
    "infonce", "info_nce", "ntxent", "nt_xent", "supcon", "supervisedcontrastive", "contrastiveloss",
    "contrastive_loss", "cliploss", "clip_loss", "siglip_loss", "multiplenegativesranking", "npairs", "tripletloss",
    "triplet_loss", "multisimilarityloss",
)  # fmt: skip
_IMAGES, _TEXTS = (
    frozenset({"image", "images", "img", "visual", "vision"}),
    frozenset({"text", "texts", "txt", "caption"}),
)
_VIEWS = (
    (_IMAGES, _TEXTS),
    (_TEXTS, _IMAGES),
    (frozenset({"z1"}), frozenset({"z2"})),
    (frozenset({"query", "queries"}), frozenset({"passage", "passages", "document", "documents", "doc"})),
)
"""Names of the two sides that a contrastive loss compares."""
INDENT = 4
"""Columns of one level (PEP 8)."""
_OF_MAKERS = frozenset({"get", "build", "create", "make", "load", "save", "init"})
"""Words in names of functions that make or keep a model and do not run it."""
_MODEL_WORDS = frozenset({"model", "net", "network", "encoder", "unet", "transformer", "lm", "gpt", "engine"})


def is_backward(record: CallRecord) -> bool:
    """loss.backward(), accelerator.backward(loss), scaler.scale(loss).backward(), or timm's scaler."""
    if _scales_and_steps(record):
        return True
    return record.method in ("backward", "manual_backward") and "autograd" not in record.name


_SCALERS = ("NativeScaler", "ApexScaler")


def _scales_and_steps(record: CallRecord) -> bool:
    """`loss_scaler(loss, optimizer, ...)` of timm.utils: it computes the gradients, and steps the optimizer."""
    made = record.callee.made_by if isinstance(record.callee, Instance) else ""
    return made.startswith("timm.") and made.rpartition(".")[2] in _SCALERS


def backwards(records: Sequence[CallRecord]) -> list[CallRecord]:
    """Every backward pass of the program."""
    return [record for record in records if is_backward(record)]


def until_trained(records: Sequence[CallRecord], project: Project) -> list[CallRecord]:
    """The calls up to the last step of the training, and later ones that a loop around both may repeat before it: the
    cast of a trained model and the prompts that it answers say nothing of its training."""
    steps = [at for at, record in enumerate(records) if is_backward(record) or starts_trainer(record)]
    if not steps:
        return list(records)
    end = records[steps[-1]]
    rounds = loops_around(end, project)
    called_in_rounds = end.in_loop and not rounds

    def repeated(record: CallRecord) -> bool:
        if (record.path, record.function) != (end.path, end.function):
            return record.in_loop
        return called_in_rounds or any(one in rounds for one in loops_around(record, project))

    return [one for at, one in enumerate(records) if at <= steps[-1] or not one.reached or repeated(one)]


def runs_on_pieces(end: CallRecord, project: Project) -> bool:
    """Whether each round of the loop around a backward pass gets a piece of a batch: `for part in batch.split(8)`,
    `for minibatch in progress(minibatches)`. Rounds that are counted accumulate, and are read as such."""
    loop = next((loop for one in reversed(chain_of(end)) for loop in loops_around(one, project)), None)
    if not isinstance(loop, ast.For):
        return False
    calls = [node for node in ast.walk(loop.iter) if isinstance(node, ast.Call)]
    if any(isinstance(one.func, ast.Attribute) and one.func.attr in _CUTS and _cuts_tensor(one) for one in calls):
        return True
    given = words(ast.unparse(loop.iter))
    return bool((given | words(ast.unparse(loop.target))) & _PIECES) and not given & _WHOLE


def _cuts_tensor(call: ast.Call) -> bool:
    """Whether a call of `split` is not that of a text."""
    return bool(call.args) and not (isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str))


_CUTS = frozenset({"split", "chunk", "tensor_split"})
_PIECES = frozenset({
    "micro", "microbatch", "microbatches", "mini", "minibatch", "minibatches", "chunk", "chunks", "subbatch",
    "subbatches", "mb", "mbs",
})  # fmt: skip
"""Words in the names of the pieces of a batch, and of one of them."""
_WHOLE = frozenset({"range", "loader", "loaders", "dataloader", "dataloaders", "dl", "dataset", "datasets"})
"""Words of loops that count, and of those over the loader, whatever a batch of it is called."""


def starts_trainer(record: CallRecord) -> bool:
    """`trainer.train()`, `Trainer(...).fit(model)`; `model.train()` only changes the mode."""
    made = (record.receiver or "").endswith("Trainer") or "trainer" in words(record.name.rpartition(".")[0])
    return record.method in ("train", "fit") and made


def in_turns(
    record: CallRecord, others: Sequence[CallRecord], records: Sequence[CallRecord], project: Project
) -> list[CallRecord]:
    """A call and those of the same expression in other rounds of a loop that trains in each round:
    `for size in (128, 224): train(loader(size))`."""
    way = [one.node for one in chain_of(record)]
    same = [one for one in others if [caller.node for caller in chain_of(one)] == way]
    if len(same) < 2:
        return [record]
    rounds = {loop for one in chain_of(record) for loop in loops_around(one, project)}
    ends = (one for end in backwards(records) for one in chain_of(end))
    return same if any(loop in rounds for one in ends for loop in loops_around(one, project)) else [record]


def loop_bindings(records: Sequence[CallRecord], project: Project) -> tuple[list[Binding], list[Fact]]:
    """Bindings and facts of a hand-written loop; empty without a backward pass."""
    passes = backwards(records)
    if not passes:
        return [], []
    bindings, facts = _accumulation(records, project)
    if any(fact.name == "accumulation_supported" and fact.value is True for fact in facts):
        whole = undivided(passes, records, project)
        facts += [whole] if whole is not None else []
    kept = _outputs_kept(passes, records, project)
    if kept is not None:
        bindings.append(kept[0])
        facts += [Fact("kept_outputs", kept[1], kept[0].origin)] if kept[1] else []
    every = _every(records, "empty_cache") or _each_round(records, passes, "empty_cache", project)
    if every is not None:
        bindings.append(bind("train.empty_cache_every", every))
    return bindings, facts


# --- accumulation ---------------------------------------------------------------------------------------------------


_DIFFERENT = Unknown(
    "the program trains more than once, and accumulates over different numbers of batches", Cause.not_read
)


def _accumulation(records: Sequence[CallRecord], project: Project) -> tuple[list[Binding], list[Fact]]:
    """`if (step + 1) % n == 0: optimizer.step()`; a step without it is one per backward pass."""
    stepping = [record for record in records if _is_optimizer_step(record)]
    own = next(
        (r for r in records if r.method == "accumulate" and "accelerat" in (r.name + (r.receiver or "")).lower()), None
    )
    if own is not None:
        return [], [Fact("accumulation_supported", True, own.origin)]
    passes = backwards(records)
    counted = [list(_moduli(record, passes)) for record in stepping]
    turns = [n for found in counted for n in found if n is not None]
    if turns and _each_round(records, passes, "zero_grad", project) is not None:
        turns, counted = [], []  # optimizers that take turns: no gradient outlives its round
    every = turns[0] if turns else _rounds(records, stepping, project)
    at_once = any(None in found and len(found) > found.count(None) for found in counted)  # the step of another training
    if turns and (at_once or not all(same(one, turns[0]) for one in turns)):
        every = Const(_DIFFERENT, turns[0].origin)
    if every is None:
        one = [bind("train.grad_accum", Const(1), Rank.read)] if stepping else []
        return one, [Fact("accumulation_supported", False, stepping[0].origin)] if stepping else []
    facts = [Fact("accumulation_supported", True, first_origin(every) or next((one.origin for one in stepping), None))]
    scheduled = (r for r in records if r.method == "step" and _is_scheduler(r) and r.in_loop and _modulus(r) is None)
    often = next((record for record in scheduled if _same_loop(record, stepping)), None)
    if often is not None:
        facts.append(Fact("scheduler_per_micro_batch", True, often.origin))
    return [bind("train.grad_accum", every)], facts


def _rounds(records: Sequence[CallRecord], stepping: Sequence[CallRecord], project: Project) -> Expr | None:
    """`for micro in range(n): (loss / n).backward()`, the step behind the loop: the n that the loss is divided by."""
    for record in records:
        if not (is_backward(record) or record.method == "scale"):
            continue
        inner = loops_around(record, project)[:1]
        if not inner or any(inner[0] in loops_around(step, project) for step in stepping if step.path == record.path):
            continue
        losses = [*record.args, *([record.receiver_object] if record.receiver_object is not None else [])]
        for loss in losses:
            if isinstance(loss, Op) and loss.operator == "/" and not is_unknown(loss.operands[1]):
                return loss.operands[1]
    return next(
        (found for record in records if is_backward(record) and (found := _turns(record, stepping, records, project))),
        None,
    )


def _turns(
    record: CallRecord, stepping: Sequence[CallRecord], records: Sequence[CallRecord], project: Project
) -> Expr | None:
    """The n of `for micro in range(n)` around a backward pass, if the step stands behind that loop, in the next one."""
    nests = loops_around(record, project)
    if len(nests) < 2 or not isinstance(nests[0], ast.For) or not isinstance(nests[0].iter, ast.Call):
        return None
    nearest, outer = nests[0], nests[1:]
    behind = any(
        step.path == record.path
        and step.function == record.function
        and loops_around(step, project)[:1] == outer[:1]
        and _line(step) > (nearest.end_lineno or 0)
        for step in stepping
    )
    within = any(nearest in loops_around(step, project) for step in stepping if step.path == record.path)
    counted = next((one for one in records if one.node is nearest.iter and one.name == "range"), None)
    return counted.args[0] if behind and not within and counted is not None and len(counted.args) == 1 else None


def _is_optimizer_step(record: CallRecord) -> bool:
    if _scales_and_steps(record):
        return True
    if record.method != "step" or _is_scheduler(record):
        return False
    made = " ".join((record.receiver or "", *kinds_of(record.receiver_object))).lower()
    if any(part in made for part in ("optim", "adam", "sgd", "gradscaler", "lion", "adafactor")):
        return True
    return bool(words(record.name) & {"optimizer", "optim", "opt", "scaler", "optimizers"})


def _is_scheduler(record: CallRecord) -> bool:
    made = " ".join((record.receiver or "", *kinds_of(record.receiver_object))).lower()
    said = words(record.name)
    return "sched" in made or "lr_scheduler" in made or bool(said & {"scheduler", "sched", "lr", "warmup"})


def _same_loop(record: CallRecord, stepping: Sequence[CallRecord]) -> bool:
    """Whether it is indented as deep as the optimizer's step, or as the `if` around it (per epoch is less deep)."""
    here = [step for step in stepping if step.path == record.path and step.function == record.function]
    columns = [getattr(step.node, "col_offset", 0) for step in here]
    return bool(columns) and getattr(record.node, "col_offset", 0) >= min(columns) - INDENT


def _shared(step: CallRecord, passes: Sequence[CallRecord]) -> list[Expr]:
    """Conditions that a step shares with the backward passes of its function: both run every n rounds, or neither."""
    beside = [one for one in passes if (one.path, one.function) == (step.path, step.function)] or passes
    return [one for one in step.conditions if all(one in other.conditions for other in beside)]


def _moduli(step: CallRecord, passes: Sequence[CallRecord]) -> Iterator[Expr | None]:
    """The n of each training that makes a step every n rounds; None of one that makes it in each round."""
    for conditions in (step.conditions, *step.conditions_again):
        yield _modulus(replace(step, conditions=conditions), _shared(step, passes))


def _modulus(record: CallRecord, shared: Sequence[Expr] = ()) -> Expr | None:
    """The n of a condition `... % n == 0` that the call is made under, and what it belongs to is not."""
    for condition in reversed([one for one in record.conditions if one not in shared]):
        for op in _operations(condition):
            if op.operator == "%":
                divisor = op.operands[1]
                return None if is_unknown(divisor) else divisor
    return None


def _every(records: Sequence[CallRecord], method: str) -> Expr | None:
    for record in records:
        if record.method == method and record.in_loop and (found := _modulus(record)) is not None:
            return found
    return None


def _each_round(
    records: Sequence[CallRecord], passes: Sequence[CallRecord], method: str, project: Project
) -> Expr | None:
    """1, if a call stands in the loop of a backward pass itself, and is made as often."""
    for record in records:
        loop = loops_around(record, project)[:1] if record.method == method else []
        beside = [one for one in passes if loop and loops_around(one, project)[:1] == loop]
        if any(record.conditions == one.conditions for one in beside):
            return Const(1, record.origin)
    return None


def _operations(expr: Expr) -> Iterator[Op]:
    if isinstance(expr, Op):
        yield expr
        for operand in expr.operands:
            yield from _operations(operand)


# --- outputs that stay alive ----------------------------------------------------------------------------------------


def _outputs_kept(
    passes: Sequence[CallRecord], records: Sequence[CallRecord], project: Project
) -> tuple[Binding, str] | None:
    """Whether a variable still holds the model's outputs at backward (step) or at the next forward (loop); which do."""
    for backward in passes:
        function, loops = enclosing_function(backward, project), loops_around(backward, project)
        block: ast.AST | None = loops[0] if loops else function
        if block is None:
            continue
        forwards = {record.node for record in records if is_forward(record) and not evaluates(record)}
        outputs = [(name, node) for name, node in _assigned_outputs(block, forwards) if node.lineno <= _line(backward)]
        if not outputs:
            return bind("train.outputs_kept", Const("no"), Rank.read, backward.origin), ""
        lives = {name: _lifetime(block, name, assignment, _line(backward)) for name, assignment in outputs}
        kinds = set(lives.values())
        kind = next(kind for kind in ("loop", "step", "no") if kind in kinds)
        if not loops and kind == "loop":
            kind = "step"  # the function's own variable is gone when it returns
        holding = " ".join(name for name, life in lives.items() if life != "no")
        return bind("train.outputs_kept", Const(kind), Rank.read, backward.origin), holding
    return None


def _lifetime(block: ast.AST, name: str, assignment: ast.Assign, backward: int) -> str:
    """no, step or loop: how long the name keeps its value."""
    bound = bound_again(block, name, assignment)
    later = [line for line in bound if line > assignment.lineno]
    if later:
        return "no" if min(later) < backward else "step"
    return "step" if bound else "loop"  # at the head of the next round, before its forward pass


def _line(record: CallRecord) -> int:
    return getattr(record.node, "lineno", 0)


def is_forward(record: CallRecord) -> bool:
    """Whether a call runs a model: an object of a Module class or of a library's model, or a name that says so."""
    callee = record.callee
    if isinstance(callee, Instance) and (is_module(callee.cls) or "from_pretrained" in callee.made_by):
        return "Tokenizer" not in callee.made_by and "Processor" not in callee.made_by
    text = record.name.rpartition(".")[2] if "." in record.name else record.name
    return bool(words(text) & _MODEL_WORDS) and not words(text) & _OF_MAKERS


def _assigned_outputs(block: ast.AST, forwards: set[ast.expr]) -> Iterator[tuple[str, ast.Assign]]:
    """Names of the block that a forward call's value is assigned to as it is (not `.loss` of it)."""
    for node in ast.walk(block):
        if isinstance(node, ast.Assign) and node.value in forwards:
            for target in node.targets:
                names = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
                yield from (
                    (name.id, node)
                    for name in names
                    if isinstance(name, ast.Name) and not words(name.id) & {"loss", "losses", ""}
                )


def bound_again(block: ast.AST, name: str, assignment: ast.Assign) -> list[int]:
    """The lines where the name is deleted or bound to something else, by the block's own loop as well."""
    lines = []
    for node in ast.walk(block):
        again: list[ast.expr] = []
        if isinstance(node, ast.Delete):
            again = [t for target in node.targets for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
        elif isinstance(node, ast.Assign) and node is not assignment:
            again = node.targets
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            again = [part for part in ast.walk(node.target) if isinstance(part, ast.Name)]
        if any(isinstance(target, ast.Name) and target.id == name for target in again):
            lines.append(getattr(node, "lineno", 0))
    return lines


# --- the loss -------------------------------------------------------------------------------------------------------


def loss_facts(records: Sequence[CallRecord], project: Project) -> list[Fact]:
    """Whether the loss compares samples of one micro-batch, or averages over tokens."""
    facts: list[Fact] = []
    contrastive = next((record.origin for record in records if _is_contrastive(record, project)), None)
    if contrastive is None and backwards(records):
        contrastive = _similarities(tuple(dict.fromkeys(record.path for record in records)), project)
    if contrastive is not None:
        facts.append(Fact("contrastive_loss", True, contrastive))
    elif backwards(records):
        token = next((record for record in records if _is_token_mean(record)), None)
        if token is not None:
            facts.append(Fact("token_mean_loss", True, token.origin))
    return facts


def _is_contrastive(record: CallRecord, project: Project) -> bool:
    plain = record.name.rpartition(".")[2].lower().replace("-", "_")
    if any(name in plain or name in plain.replace("_", "") for name in _CONTRASTIVE_NAMES):
        return True
    returned = record.kwargs.get("return_loss")
    if isinstance(returned, Const) and returned.value is True and is_forward(record):
        return True
    if plain in ("cross_entropy", "crossentropyloss") or words(record.name) & {"criterion", "loss"}:
        return _labels_are_positions(record, project)
    return False


def _labels_are_positions(record: CallRecord, project: Project) -> bool:
    """cross_entropy(similarities, torch.arange(n)): each sample's class is its own place in the batch."""
    arguments = getattr(record.node, "args", [])
    if len(arguments) < 2:
        return False
    label = arguments[1]
    if "arange" in ast.unparse(label):
        return True
    scope = scope_of(record, project)
    if not isinstance(label, ast.Name) or scope is None:
        return False
    return any("arange(" in ast.unparse(value) for value in assigned_values(label.id, scope))


def _similarities(paths: Sequence[str], project: Project) -> Origin | None:
    """`image_features @ text_features.T`: every sample of the batch against every other."""
    for path in paths:
        found = project.remembered.get(_SIMILARITIES, partial(_similarities_in, path, project), path)
        if found is not None:
            return found
    return None


_SIMILARITIES: CacheKind[Origin | None] = CacheKind("where a file compares the samples of a batch")


def _similarities_in(path: str, project: Project) -> Origin | None:
    module = load_module(path, project)
    for node in module.nodes if module is not None else ():
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and module is not None:
            left, right = words(ast.unparse(node.left)), words(ast.unparse(node.right))
            if right & {"t", "transpose", "mt"} and any(left & a and right & b for a, b in _VIEWS):
                return module.origin(node)
    return None


def _is_token_mean(record: CallRecord) -> bool:
    """cross_entropy over flattened tokens with some of them ignored: each micro-batch has its own number of tokens."""
    if record.name.rpartition(".")[2] not in ("cross_entropy", "CrossEntropyLoss", "nll_loss"):
        return False
    return "ignore_index" in record.kwargs


def handled_oom(names: Sequence[str], text: str) -> bool:
    """Whether an `except` handles running out of memory: by the name of the error, or by its message."""
    if any(name.endswith("OutOfMemoryError") for name in names):
        return True
    return "RuntimeError" in names and "out of memory" in text.lower()
