"""`preflight model`: models that are known by name, and memory laws."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.commands.options import STATED, format_option, parse_set, progress_of, set_option
from preflight.reports import streams
from preflight.reports.style import look_for, table
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.tracing import Tracing
from preflight.vocabulary.values import Unknown, Value

if TYPE_CHECKING:
    from preflight.memory.device.law.law import Laws
    from preflight.memory.device.law.workload import Resolved
    from preflight.vocabulary.job import Job


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List models that are known by name, show their memory laws, and make laws for other models."""


@command.command("list")
@click.argument("words", nargs=-1, metavar="[WORD]...")
def list_models(words: tuple[str, ...]) -> None:
    """List the models that are known by name, grouped by architecture.

    With WORDs, only models with every WORD in a name, the architecture or the task.
    """
    from preflight.memory.device.law import catalogue

    names = catalogue.names(words)
    if not names:
        raise UsageError(f"no model has {' and '.join(words)} in its name, architecture or task")
    look = look_for(sys.stdout)
    wide = max(map(len, names))
    groups: dict[tuple[str, str], list[catalogue.CatalogueModel]] = {}
    for model in filter(None, map(catalogue.find, names)):
        groups.setdefault((model.architecture, model.task), []).append(model)
    for (architecture, task), models in groups.items():
        streams.show(f"{look.paint(architecture, 'bold')} {look.paint(task, 'dim')}\n")
        for model in models:
            streams.show(f"  {model.name:<{wide}}  {model.parameters or '':>7}".rstrip() + "\n")
    streams.show(f"{len(names)} models" + ("" if words else ": preflight model list WORD... shows fewer") + "\n")


@command.command()
@click.argument("name", type=STATED)
@set_option
@format_option
def show(name: str, assignments: tuple[str, ...], output_format: str) -> None:
    """Show the dimensions of a model from its public configuration, and its memory law as formulas.

    The law is that of a training step. --set states the setup, as in train.precision=bf16. Only moments of the step
    that are the largest for some batch and length are shown, with a table of where each is the largest.
    """
    from preflight.memory.device.law import catalogue

    model = catalogue.find(name)
    if model is None:
        raise UsageError(catalogue.unknown_words(name))
    data = {
        "name": model.name,
        "architecture": model.architecture,
        "task": model.task,
        "target": model.target,
        "aliases": list(model.aliases),
        "parameters": model.parameters,
        "unknown": model.unknown,
        "config": dict(model.config),
    }
    if output_format == "json":
        streams.show(json.dumps(data, indent=2) + "\n", "json")
        return
    for key, value in data.items():
        if key == "config":
            rows = [(option, f"{size:,}" if type(size) is int else str(size)) for option, size in model.config.items()]
            streams.show("".join(f"{line}\n" for line in table(rows, look_for(sys.stdout))))
        elif value:
            streams.show(f"{key}: {', '.join(value) if isinstance(value, list) else value}\n")
    from preflight.reports.law import law_lines

    try:
        job, resolved, found = _subject(name, {"train.precision": "bf16-mixed", **parse_set(assignments)})
    except UsageError as error:
        streams.show(f"\nno law can be shown: {streams.clean(str(error))}\n")
        return
    law = found.reading((job.train.grad_accum or 1) > 1, job.train.outputs_kept in ("step", "loop"))
    lines = law_lines(law, resolved.setup.wire(), resolved.all_dims, resolved.lengths, look_for(sys.stdout))
    streams.show("\n" + "\n".join(lines) + "\n")


@command.command()
@click.argument("name", type=STATED)
@set_option
@click.option("-o", "--output", type=STATED, metavar="FILE", help="Write the law as JSON here.")
def trace(name: str, assignments: tuple[str, ...], output: str | None) -> None:
    """Write the memory law of a training step: the shipped law, or one that is traced now (needs torch).

    NAME is the name of a model. --set states the setup, as in train.precision=bf16-mixed. A law is a list of moments.
    Each is a sum of terms: a coefficient, a product of dimensions, and the part of memory that it belongs to.
    """
    from preflight.reports.outputs import write_output

    found = _law(name, parse_set(assignments))
    rows = found["rows"]
    assert isinstance(rows, list)
    if output is not None:
        write_output(Path(output), _lines(found), "json")
    origin = "shipped" if found["shipped"] else "traced here"
    written = f", written to {output}" if output else ""
    streams.show(streams.clean(f"{found['name']}: {len(rows)} moments, {origin}{written}") + "\n")
    if output is None:
        for row in rows:
            streams.show(f"{row['phase']:<10} {row['where']}: {_formula(row['terms'])}\n")


def _subject(name: str, overrides: Mapping[str, Value]) -> tuple[Job, Resolved, Laws]:
    """The law of a training step of a model under a setup. Raises UsageError if there is none."""
    from preflight.memory.device import laws_of_job, resolve
    from preflight.memory.device.law import catalogue
    from preflight.vocabulary.job import build

    model = catalogue.find(name)
    if model is None and "/" not in name:
        raise UsageError(catalogue.unknown_words(name))
    task = {"task": model.task} if model is not None else {}
    stated = {"train.batch_size": 8, "train.seq_len": 128, "train.text_len": 64, "train.target_len": 64}
    job = build({**stated, "model.name": name, **task, **overrides})
    resolved = resolve.resolve(job)
    tracing = Tracing(progress=progress_of())
    found = resolved if isinstance(resolved, Unknown) else laws_of_job.laws_for(resolved, "train", tracing)
    if isinstance(resolved, Unknown) or isinstance(found, Unknown):
        raise UsageError(f"{name}: {found.words if isinstance(found, Unknown) else ''}")
    return job, resolved, found


def _law(name: str, overrides: Mapping[str, Value]) -> dict[str, object]:
    """A law as plain data. Raises UsageError if there is none."""
    from preflight.memory.device.law import law, store

    job, resolved, found = _subject(name, overrides)
    moments = law.rows(found.accumulating if (job.train.grad_accum or 1) > 1 else found.plain)
    return {
        "name": resolved.name,
        "setup": resolved.setup.wire(),
        "shipped": found.shipped,
        **store.law_file(store.key_of(resolved, "train"), found.made, dict(found.made_by)),
        "rows": [
            {"phase": row.phase, "where": row.where, "terms": [[c, dict(m), part] for c, m, part in row.terms]}
            for row in moments
        ],
    }


def _lines(found: Mapping[str, object]) -> str:
    """JSON with one row a line, so that two laws can be compared line by line."""
    rows = found["rows"]
    assert isinstance(rows, list)
    head = json.dumps({key: value for key, value in found.items() if key != "rows"})
    body = ",\n  ".join(json.dumps(row) for row in rows)
    return f'{head[:-1]}, "rows": [\n  {body}\n]}}\n'


def _formula(terms: list[list[object]]) -> str:
    """Terms as text: "4 b s V (logits) + ..."."""
    words = []
    for coefficient, dimensions, part in terms:
        assert isinstance(dimensions, dict)
        product = " ".join(name if power == 1 else f"{name}^{power}" for name, power in dimensions.items())
        words.append(f"{coefficient} {product} ({part})".replace("  ", " "))
    return " + ".join(words)
