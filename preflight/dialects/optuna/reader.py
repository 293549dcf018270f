"""Reader of Optuna studies in Python: `trial.suggest_*` calls become a search space. Nothing is run.

https://optuna.readthedocs.io/en/stable/reference/generated/optuna.trial.Trial.html: both bounds are inclusive, an
integer's step defaults to 1, `n_jobs` runs trials in threads of one process.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from preflight.python.module import load_module
from preflight.vocabulary.caches import regex
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Call, Fact, Reading
from preflight.vocabulary.text import Source

if TYPE_CHECKING:
    from preflight.dialects.optuna.explore import Exploration

NAME = "optuna"

_MENTION = regex(r"\boptuna\b|\.suggest_\w+\(|\.hyperparameter_search\(")
_WORDS = ("optuna", "suggest_", "hyperparameter_search")
"""One of them is in every text that the pattern finds; to look for them takes a thousandth of the time."""
_SUGGEST = regex(r"suggest_(int|float|categorical|uniform|loguniform|discrete_uniform)")


def recognises(source: Source, project: Project) -> bool:
    """Whether a file suggests values, or starts a study with an objective of another file."""
    if not any(word in source.text for word in _WORDS) or not _MENTION.search(source.text):
        return False
    module = load_module(source.path, project)
    if module is None:
        return False
    imported = starts = False
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if _SUGGEST.fullmatch(node.func.attr):
                return True
            starts = starts or node.func.attr in ("optimize", "hyperparameter_search", "ask")
        elif isinstance(node, ast.Import):
            imported = imported or any(alias.name.partition(".")[0] == "optuna" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported = imported or (node.module or "").partition(".")[0] == "optuna"
    return imported and starts


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """The search space, the Job fields it feeds, and whether a trial that runs out of memory is handled."""
    from preflight.dialects.optuna.explore import Explorer, branches, clashing, jobs
    from preflight.dialects.optuna.handling import handles_oom
    from preflight.dialects.optuna.pruning import prunes_all
    from preflight.frameworks.launch import launch_links
    from preflight.python.subprocesses import subprocess_links

    explorer = Explorer(source.path, project, call)
    found = explorer.run({})
    if not found.space.axes and call is None:  # `--tune` may be off by default: read it with the search
        explorer.defaults = False
        found = explorer.run({})
    calls = found.evaluator.calls
    started = tuple(subprocess_links(calls, project))
    if not found.facts.trains and not started:
        return Reading(source.path, NAME, trains=False, reads=_reads(found, source))
    boxes = branches(explorer, found)
    shared = jobs(found.space)
    own: tuple[Binding, ...] = () if shared is None else (shared,)
    facts = list(found.facts.facts)
    if found.space.axes:
        place = found.space.optimize[0].origin if found.space.optimize else None
        facts = [Fact("search", NAME, place), *handles_oom(found.evaluator, found.space), *facts]
    module = load_module(source.path, project)
    pruned = prunes_all(calls, found.space.axes, module.tree) if module is not None and not boxes else ()
    parameters = found.evaluator.parameters
    if parameters:
        facts.append(Fact("reads_config", True))
    return Reading(
        path=source.path,
        dialect=NAME,
        parameters=tuple(p for name, p in parameters.items() if name not in found.space.axes),
        bindings=(*found.bindings, *own) if not boxes else own,
        axes=tuple(found.space.axes.values()) if not boxes else (),
        branches=boxes,
        links=(*launch_links(call, project), *found.facts.links, *started),
        facts=tuple(facts),
        problems=(*found.facts.problems, *clashing(boxes), *pruned),
        reads=_reads(found, source),
        trains=found.facts.trains,
    )


def _reads(found: Exploration, source: Source) -> tuple[str, ...]:
    return tuple(path for path in found.evaluator.reads if path != source.path)
