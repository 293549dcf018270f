"""Values of the variables of Argo's templates: `{{workflow.parameters.x}}`, `{{inputs.parameters.x}}`, `{{item}}`.

What starts a template gives its inputs: the object its entry point, a step or a task of another template the rest. The
default of an input holds where nothing is given. A template that is started several times has values for each time.

Source: Argo Workflows 3.6, "Workflow Inputs", "Workflow Variables", "Loops".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.dialects.containers.reader import filled
from preflight.documents.yaml import YamlDocument
from preflight.vocabulary.budgets import MANIFEST_OBJECTS, TEMPLATE_DEPTH
from preflight.vocabulary.values import Cause, Const, Expr, Route, Value, unknown

_ARGO = "argoproj.io/"
Values = dict[str, Expr]


def is_argo(document: YamlDocument) -> bool:
    return document.has(("apiVersion",)) and str(document.value(("apiVersion",))).startswith(_ARGO)


def values_of_template(document: YamlDocument, template: Route) -> list[Values]:
    """The values of the variables in a template, for each time that something starts it."""
    whole = ("spec", "workflowTemplateSpec") if document.has(("spec", "workflowTemplateSpec")) else ("spec",)
    whole = ("spec", "workflowSpec") if document.has(("spec", "workflowSpec")) else whole
    given = _parameters(document, (*whole, "arguments", "parameters"))
    workflow = {f"workflow.parameters.{name}": value for name, value in given.items()}
    found = list(_started(document, whole, template, given, workflow, 0))
    if len(found) <= MANIFEST_OBJECTS:
        return found
    over = Const(unknown(f"it is {MANIFEST_OBJECTS.over}", cause=Cause.budget).value, document.key_origin(template))
    return [{**dict.fromkeys(found[0], over), **workflow}]


def _started(
    document: YamlDocument, whole: Route, template: Route, given: Values, workflow: Values, depth: int
) -> Iterator[Values]:
    own = _parameters(document, (*template, "inputs", "parameters"))
    name = document.value((*template, "name")) if document.has((*template, "name")) else None
    starts = [document.value((*whole, key)) for key in ("entrypoint", "onExit") if document.has((*whole, key))]
    sets = [{**own, **{key: value for key, value in given.items() if key in own}}] if name in starts else []
    for caller, route, step in _steps(document, whole, name):
        if depth >= TEMPLATE_DEPTH:
            sets.append({key: unknown(f"it is {TEMPLATE_DEPTH.over}", cause=Cause.budget) for key in own})
            break
        for outer in _started(document, whole, caller, given, workflow, depth + 1):
            for item in _items(document, route, step):
                arguments = _parameters(document, (*route, "arguments", "parameters"), {**outer, **item})
                sets.append({**own, **{key: value for key, value in arguments.items() if key in own}})
            if len(sets) > MANIFEST_OBJECTS:
                break
    for one in sets or [own]:
        yield {**workflow, **{f"inputs.parameters.{key}": value for key, value in one.items()}}


def _steps(document: YamlDocument, whole: Route, name: Value) -> Iterator[tuple[Route, Route, Mapping[str, Value]]]:
    """The steps and tasks that start a template: the template that they are in, their place, and what they say."""
    listed = document.value((*whole, "templates")) if document.has((*whole, "templates")) else ()
    for number, template in enumerate(listed if isinstance(listed, tuple) else ()):
        caller = (*whole, "templates", number)
        for route, step in _mappings(template, caller):
            if name is not None and step.get("template") == name:
                yield caller, route, step


def _mappings(value: Value, route: Route) -> Iterator[tuple[Route, Mapping[str, Value]]]:
    if isinstance(value, Mapping):
        yield route, value
        for key, inner in value.items():
            yield from _mappings(inner, (*route, str(key)))
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from _mappings(inner, (*route, index))


def _items(document: YamlDocument, route: Route, step: Mapping[str, Value]) -> Iterator[Values]:
    """`{{item}}` and `{{item.x}}` in each round of a step; without a value where only the run knows the items."""
    listed = step.get("withItems")
    for number, one in enumerate(listed if isinstance(listed, tuple) else ()):
        place = document.origin((*route, "withItems", number))
        parts = {f"item.{key}": value for key, value in one.items()} if isinstance(one, Mapping) else {"item": one}
        yield {key: Const(str(value), place) for key, value in parts.items()}
    if not isinstance(listed, tuple):
        yield {}


def _parameters(document: YamlDocument, route: Route, values: Values | None = None) -> Values:
    """Parameters by name: their values or defaults, with `values` in them; unknown where neither is written."""
    listed = document.value(route) if document.has(route) else None
    found: Values = {}
    for index, one in enumerate(listed if isinstance(listed, tuple) else ()):
        if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
            continue
        key = next((key for key in ("value", "default") if one.get(key) is not None), None)
        place = document.origin((*route, index, key)) if key is not None else document.origin((*route, index))
        unsaid = unknown("what starts the workflow gives it", place, Cause.not_set)
        text = str(one[key]) if key is not None else ""
        given = filled(document, (*route, index, key), text, values or {}) if key is not None else unsaid
        found[str(one["name"])] = given or Const(text, place)
    return found
