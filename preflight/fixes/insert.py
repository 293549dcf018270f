"""Settings that are not written anywhere yet: added only where the consumer is known to accept them.

A keyword of a call whose signature is known (TrainingArguments, DataLoader, a Trainer), or a flag that the program's
own parser defines. An unknown flag kills an argparse program, so a name is never guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from preflight.documents.render import render
from preflight.fixes.insert_arguments import inserted
from preflight.vocabulary.findings import Change
from preflight.vocabulary.project import Project
from preflight.vocabulary.study import Study
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Origin, Ref, Span, Unknown, Value

if TYPE_CHECKING:
    from preflight.documents.python import PythonDocument
    from preflight.vocabulary.reading import Parameter

_ARGUMENTS: Mapping[str, str] = {
    "train.batch_size": "per_device_train_batch_size", "train.grad_accum": "gradient_accumulation_steps",
    "train.gradient_checkpointing": "gradient_checkpointing", "validation.batch_size": "per_device_eval_batch_size",
    "validation.eval_accumulation": "eval_accumulation_steps", "data.workers": "dataloader_num_workers",
    "data.prefetch": "dataloader_prefetch_factor", "data.persistent_workers": "dataloader_persistent_workers",
    "data.pin_memory": "dataloader_pin_memory", "train.empty_cache_every": "torch_empty_cache_steps",
}  # fmt: skip
"""Keywords of transformers.TrainingArguments (5.23) and of TRL's configurations, which inherit them."""

_LOADER: Mapping[str, str] = {
    "data.workers": "num_workers", "data.prefetch": "prefetch_factor",
    "data.persistent_workers": "persistent_workers", "data.pin_memory": "pin_memory",
}  # fmt: skip
"""Keywords of torch.utils.data.DataLoader."""

_CALLS: Mapping[str, tuple[frozenset[str], Mapping[str, str]]] = {
    "transformers-trainer": (frozenset({"TrainingArguments", "Seq2SeqTrainingArguments"}), _ARGUMENTS),
    "trl": (frozenset({"SFTConfig", "DPOConfig", "GRPOConfig", "RewardConfig", "KTOConfig", "ORPOConfig"}), _ARGUMENTS),
    "lightning": (frozenset({"Trainer"}), {"train.grad_accum": "accumulate_grad_batches"}),
    "ultralytics": (
        frozenset({"train"}),
        {"train.batch_size": "batch", "data.workers": "workers", "train.image_size": "imgsz"},
    ),
}
"""By the framework that the program uses: what its call is named, and the keyword for a field."""

_ANYWHERE: tuple[tuple[frozenset[str], Mapping[str, str]], ...] = ((frozenset({"DataLoader"}), _LOADER),)


def insertion(change: Change, study: Study, project: Project) -> tuple[Edit, ...] | None:
    """The edits that state a setting for the first time; None where nobody is known to accept it.

    Raises CannotEdit where the call has it already in a way that cannot be told.
    """
    if isinstance(change.value, (Unknown, Mapping, tuple)):
        return None
    found = _flag(change, study, project)
    if found is None:
        found = _keyword(change, study, project)
    return found if found is not None else inserted(change, study, project)


# --- keywords -------------------------------------------------------------------------------------------------------


def _keyword(change: Change, study: Study, project: Project) -> tuple[Edit, ...] | None:
    from preflight.documents.python import parse_python

    fact = study.facts.get("framework")
    known = _CALLS.get(str(fact.value)) if fact is not None else None
    tables = [*([known] if known is not None else []), *_ANYWHERE]
    for path in study.paths:
        if not path.endswith(".py"):
            continue
        document = parse_python(project.source(path))
        for called, keywords in tables:
            if change.field not in keywords:
                continue
            calls = [node for node in ast.walk(document.tree) if isinstance(node, ast.Call) and _name(node) in called]
            call = _meant(calls, document, study)
            if call is not None:
                text = render("", change.value, "python")
                return (document.insert_keyword(call, keywords[change.field], text),)
    return None


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _meant(calls: list[ast.Call], document: PythonDocument, study: Study) -> ast.Call | None:
    """The only call, else the one that the training batch or the workers are read from."""
    if len(calls) == 1:
        return calls[0]
    for name in ("train.batch_size", "data.workers"):
        for box in study.boxes:
            bound = box.fields.get(name)
            origin = bound.origin if bound is not None else None
            if origin is not None and origin.path == document.source.path:
                holding = [call for call in calls if _holds(document.span(call), origin.span)]
                if len(holding) == 1:
                    return holding[0]
    return None


def _holds(outer: Span, inner: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


# --- flags ----------------------------------------------------------------------------------------------------------


def _flag(change: Change, study: Study, project: Project) -> tuple[Edit, ...] | None:
    """A flag of the program's own parser, behind the last word of the line that launches it."""
    place, written = line_end(study), flag(change.field, change.value, study)
    if place is None or written is None:
        return None
    return (Edit(place.path, Span(place.span.end, place.span.end), f" {written}"),)


def flag(field: str, value: Value, study: Study) -> str | None:
    """The words by which the program's own parser takes a value; None where it has no flag for the field."""
    parameter = next(_parameters(field, study), None)
    return _written(parameter, value) if parameter is not None and parameter.flags else None


def _parameters(field: str, study: Study) -> Iterator[Parameter]:
    """Parameters that are all of a Job field, the innermost program's first."""
    for reading in reversed(study.readings):
        named = {parameter.name: parameter for parameter in reading.parameters if parameter.kind != "wandb"}
        for binding in reading.bindings:
            if binding.field == field and isinstance(binding.expr, Ref) and binding.expr.name in named:
                yield named[binding.expr.name]


def _written(parameter: Parameter, value: Value) -> str | None:
    longest = max(parameter.flags, key=len)
    negated = [flag for flag in parameter.flags if flag.startswith("--no-")]
    if parameter.type in ("flag", "no-flag"):
        return longest if value is (parameter.type == "flag") else None
    if negated and isinstance(value, bool):
        return next((flag for flag in parameter.flags if (flag in negated) is not value), None)
    return f"{longest} {render('', value, 'bash')}"


def line_end(study: Study) -> Origin | None:
    """The last word of the innermost launch line in a script."""
    if not study.links:
        return None
    link = study.links[-1]
    places = [word.origin for word in link.words if word.origin is not None]
    if not places or any(place.path.endswith((".yaml", ".yml", ".json", ".py")) for place in places):
        return None
    last = max(places, key=lambda place: place.span.end)
    return last if last.editable and len({place.path for place in places}) == 1 else None
