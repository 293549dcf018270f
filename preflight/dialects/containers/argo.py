"""Values of the variables of Argo's templates: `{{workflow.parameters.x}}`, `{{inputs.parameters.x}}`, `{{item}}`.

What starts a template gives its inputs: the object its entry point, a step or a task of another template the rest. The
default of an input holds where nothing is given. A template that is started several times has values for each time.

Source: Argo Workflows 3.6, "Workflow Inputs", "Workflow Variables", "Loops".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from preflight.dialects.containers.reader import filled
from preflight.documents.yaml import YamlDocument
from preflight.vocabulary.budgets import MANIFEST_OBJECTS, TEMPLATE_DEPTH
from preflight.vocabulary.values import Cause, Const, Expr, Route, Value, unknown

_ARGO = "argoproj.io/"
Values = dict[str, Expr]


def is_argo(document: YamlDocument) -> bool:
    return document.has(("apiVersion",)) and str(document.value(("apiVersion",))).startswith(_ARGO)


class Templates:
    """The templates of an object, with what starts each of them."""

    def __init__(self, document: YamlDocument) -> None:
        self.document = document
        whole: Route = ("spec",)
        for key in ("workflowTemplateSpec", "workflowSpec"):
            whole = ("spec", key) if document.has(("spec", key)) else whole
        self._given = _parameters(document, (*whole, "arguments", "parameters"))
        self._workflow = {f"workflow.parameters.{name}": value for name, value in self._given.items()}
        starts = ((*whole, one) for one in ("entrypoint", "onExit"))
        self._starts = [document.value(route) for route in starts if document.has(route)]
        self._steps: dict[Value, list[tuple[Route, Route, Mapping[str, Value]]]] = {}
        """Template -> the steps and tasks that start it: the template that they are in, their place, what they say."""
        listed = document.value((*whole, "templates")) if document.has((*whole, "templates")) else ()
        for number, template in enumerate(listed if isinstance(listed, tuple) else ()):
            caller = (*whole, "templates", number)
            for route, step in _mappings(template, caller):
                if isinstance(name := step.get("template"), str):
                    self._steps.setdefault(name, []).append((caller, route, step))
        self._known: dict[Route, list[Values]] = {}

    def values(self, template: Route, depth: int = 0) -> list[Values]:
        """The values of the variables in a template, for each time that something starts it. Nothing is known of the
        inputs of one that starts itself, or that starts it from too far away."""
        if template not in self._known:
            if depth >= TEMPLATE_DEPTH:
                return [self._workflow]
            self._known[template] = [self._workflow]
            self._known[template] = [
                {**self._workflow, **{f"inputs.parameters.{key}": value for key, value in one.items()}}
                for one in self._inputs(template, depth)
            ]
        return self._known[template]

    def _inputs(self, template: Route, depth: int) -> list[Values]:
        document = self.document
        own = _parameters(document, (*template, "inputs", "parameters"))
        name = document.value((*template, "name")) if document.has((*template, "name")) else None
        found = []
        if name in self._starts:
            found.append({**own, **{key: value for key, value in self._given.items() if key in own}})
        for caller, route, step in self._steps.get(name, ()):
            for outer, item in product(self.values(caller, depth + 1), _items(document, route, step)):
                given = _parameters(document, (*route, "arguments", "parameters"), {**outer, **item})
                found.append({**own, **{key: value for key, value in given.items() if key in own}})
                if len(found) > MANIFEST_OBJECTS:
                    return [dict.fromkeys(own, unknown(f"it is {MANIFEST_OBJECTS.over}", cause=Cause.budget))]
        return found or [own]


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
