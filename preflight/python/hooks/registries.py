"""timm's registry of models: `create_model(name)` calls the function of the project that `@register_model` registered
under the name, before one of timm's own (timm 0.4 to 1.0, `models/_registry.py`: later registrations win)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from preflight.python.evaluator import Evaluator, Hook
from preflight.python.imports import module_attribute
from preflight.python.objects import Abstract, CallRecord, ModuleValue
from preflight.vocabulary.budgets import PROGRAM_STEPS, OverBudget
from preflight.vocabulary.values import Cause, Const, Unknown, names, unknown

MODEL_STEPS = 6_000
"""Steps that making a registered model may take: what it computes must not end the reading of the program."""
_OF_TIMM = frozenset(
    {"model_name", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir", "scriptable"}
    | {"exportable", "no_jit"}
)
"""Arguments that `create_model` keeps for itself."""


def _create_model(record: CallRecord, ev: Evaluator) -> Abstract | None:
    own = dict(_registered(ev))
    name = record.argument("model_name", 0)
    if not own or name is None:
        return None
    value = ev.value_of(name)
    if isinstance(value, Unknown):
        ev.chosen_by |= set(names(name))
        return unknown("the program may register a model of that name itself", record.origin, Cause.not_modelled)
    module = own.get(str(value))
    if module is None:
        return None
    given = {key: one for key, one in record.keywords.items() if key not in _OF_TIMM and one != Const(None)}
    left, depth, position = ev.steps_left, ev.depth, ev.position
    kept = left - min(left, MODEL_STEPS)
    ev.steps_left -= kept
    try:
        return ev.call(module_attribute(ev, module, str(value)), (), given)
    except OverBudget as error:
        if error.budget is not PROGRAM_STEPS:
            raise
        ev.depth, ev.position, ev.steps_left = depth, position, 0
        return unknown(f"{value} is a model of the program's own, which computes much when it is made", record.origin)
    finally:
        ev.steps_left += kept


def _registered(ev: Evaluator) -> Iterator[tuple[str, ModuleValue]]:
    """The names of functions with `@register_model` in the modules that the program imports."""
    for module in list(ev.modules.values()):
        if "register_model" not in module.module.source.text:
            continue
        for node in module.module.tree.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            if any(ast.unparse(one).endswith("register_model") for one in node.decorator_list):
                yield node.name, module


HOOKS: Mapping[str, Hook] = dict.fromkeys(
    ("timm.create_model", "timm.models.create_model", "timm.models.factory.create_model"), _create_model
)
