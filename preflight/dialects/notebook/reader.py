"""Reader of Jupyter notebooks: the code cells in their order are one training program.

The program's text takes the place of the file in a copy of the project, and is read as any program is. All places are
then those of the notebook. No fix is offered: a text in a JSON string is not edited.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from preflight.dialects.notebook.cells import Notebook
from preflight.dialects.notebook.commands import plain
from preflight.dialects.notebook.places import PARAMETERS, View, view_of, with_origins
from preflight.dialects.program.find import trains
from preflight.frameworks.calls import IDENTITIES
from preflight.program.bindings import constant
from preflight.program.loaders import is_loader, validates
from preflight.program.loops import backwards
from preflight.python.objects import CallRecord
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Call, Rank, Reading
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Const, Origin, Span, origins, unknown

NAME = "notebook"

_WORTH_READING = re.compile(
    r"\b(?:torch|transformers|trl|ultralytics|lightning|accelerate|timm|deepspeed|diffusers|peft"
    r"|unsloth|sentence_transformers|open_clip|python[\d.]*|import|bash|sh|%run)\b"
)
_GPU_KEYS = (("colab", "gpuType"), ("kaggle", "accelerator"))
_KAGGLE = re.compile(r"nvidia(?:Tesla)?(?P<name>\w+)")


def recognises(source: Source, project: Project) -> bool:
    """Whether the kernel runs Python, and the cells train a model or start a program of the project."""
    if '"cell_type"' not in source.text or _WORTH_READING.search(source.text) is None:
        return False
    view = view_of(source, project)
    if not view.notebook.is_python:
        return False
    return bool(view.started.links or view.started.unread) or _trains(source, view)


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """The reading of the cells as a program, with links to what they start. Raises DocumentError."""
    from preflight.dialects.program import reader as program

    view = view_of(source, project)
    gpu = tuple(_gpu(view.notebook, source))
    found = Reading(source.path, NAME, bindings=gpu, trains=False)
    unread = view.started.unread
    if unread is not None:
        doubts = tuple(Binding(field, unread, Rank.read, unread.origin) for field in ("model.name", "train.batch_size"))
        found = replace(found, bindings=(*doubts, *gpu), trains=True)
    if _trains(source, view):
        text = Source(source.path, view.python.text)
        own = program.read(text, call, view.project)
        calls = program.calls_of(text, call, view.project)
        own = with_origins(own, lambda origin: view.in_file(origin, source.path))
        found = replace(own, dialect=NAME, bindings=(*_certain(own.bindings, calls, view, source), *gpu))
    links = with_origins(tuple(view.started.links), lambda origin: _without_edits(origin, source))
    return replace(
        found,
        links=(*found.links, *links),
        trains_itself=found.trains and bool(links),
    )


def _without_edits(origin: Origin, source: Source) -> Origin:
    return replace(origin, editable=False) if origin.path == source.path else origin


def _trains(source: Source, view: View) -> bool:
    return trains(Source(source.path, view.python.text), view.project)


# --- what is certain --------------------------------------------------------------------------------------------------


def _certain(
    bindings: tuple[Binding, ...], calls: Sequence[CallRecord], view: View, source: Source
) -> Iterator[Binding]:
    """The bindings without what another cell may decide: a notebook's reader cannot tell which of them was run last."""
    if view.gap is not None:
        place = Origin(source.path, view.gap.text.span(), editable=False)
        words = "a cell that is not followed may set it"
        for binding in bindings:
            yield replace(binding, expr=unknown(words, place), origin=place)
        return
    decided = _decided_twice(bindings, view, source) | _fed_twice(calls, view, source)
    for binding in bindings:
        cells = decided.get(binding.field)
        if cells is None:
            yield _as_parameter(binding)
        else:
            words = f"code cells {_listed(cells)} set it differently"
            yield replace(binding, expr=unknown(words, binding.origin, Cause.run_time), others=())


def _as_parameter(binding: Binding) -> Binding:
    """A binding whose value rests on a cell that is tagged as parameters says so itself."""
    place = binding.origin or binding.expr.origin
    if place is None or not any(one.unless == PARAMETERS for one in origins(binding.expr)):
        return binding
    place = replace(place, unless=PARAMETERS)
    return replace(binding, expr=replace(binding.expr, origin=place), origin=place)


_WHAT_TRAINS = ("train.peft.", "train.quantization.", "train.frozen", "train.weights_dtype", "model.")
"""Fields that say what is trained of a model. If one of them is unknown, so is the model."""


def _decided_twice(bindings: tuple[Binding, ...], view: View, source: Source) -> dict[str, list[int]]:
    """Fields that calls in several cells give different values, with the cells."""
    found: dict[str, dict[int, str]] = {}
    for one in bindings:
        place = next((each for each in (one.origin, *origins(one.expr)) if each and each.path == source.path), None)
        if one.rank >= Rank.read and place is not None:
            group, value = ("model", f"{one.field} ") if one.field in IDENTITIES else (one.field, "")
            found.setdefault(group, {})[view.notebook.cell_at(place.span.start)] = value + plain(one.expr)
    decided = {field: sorted(cells) for field, cells in found.items() if len(set(cells.values())) > 1}
    trained = next((field for field in decided if field.startswith(_WHAT_TRAINS)), None)
    if trained is not None:  # without its adapters, the model would be trained whole
        decided.setdefault("model", decided[trained])
    return {
        field: cells for group, cells in decided.items() for field in (IDENTITIES if group == "model" else (group,))
    }


_FED = ("train.batch_size", "data.workers", "data.prefetch", "data.pin_memory", "data.persistent_workers")


def _fed_twice(calls: Sequence[CallRecord], view: View, source: Source) -> dict[str, list[int]]:
    """What loaders decide, with the cells, if several cells make one to train on and their batches differ."""
    here = [one for one in calls if one.reached and one.path == source.path and one.origin is not None]
    loops = {_cell_of(one, view) for one in backwards(here)}
    batches: dict[int, set[str]] = {}
    for record in here:
        if not is_loader(record) or validates(record, view.project):
            continue
        if constant(record.argument("shuffle", 2)) is True or len(loops) > 1:
            batches.setdefault(_cell_of(record, view), set()).add(plain(record.argument("batch_size", 1)))
    if len(set().union(*batches.values())) < 2:
        return {}
    return {field: sorted(batches) for field in _FED}


def _cell_of(record: CallRecord, view: View) -> int:
    return view.notebook.cell_at(view.python.span(record.origin.span.start).start)


def _listed(cells: list[int]) -> str:
    numbers = [str(cell + 1) for cell in cells]
    if len(numbers) == 1:
        return numbers[0]
    return f"{', '.join(numbers[:-1])} and {numbers[-1]}"


# --- the GPU ----------------------------------------------------------------------------------------------------------


def _gpu(notebook: Notebook, source: Source) -> Iterator[Binding]:
    """The GPU that the metadata names: Colab's `gpuType`, Kaggle's `accelerator` ("nvidiaTeslaT4")."""
    metadata = notebook.metadata if isinstance(notebook.metadata, dict) else {}
    if metadata.get("accelerator", "GPU") != "GPU":  # Colab's word for a TPU, or for none
        return
    for home, key in _GPU_KEYS:
        known = metadata.get(home)
        name = known.get(key) if isinstance(known, dict) else None
        if not isinstance(name, str):
            continue
        kaggle = _KAGGLE.fullmatch(name)
        name = kaggle["name"] if kaggle else name if home == "colab" else ""
        span = notebook.metadata_span
        written = re.compile(rf'"{key}"\s*:\s*"([^"\\]*)"').search(source.text, span.start, span.end)
        if name and name != "none" and written is not None:
            place = Origin(source.path, Span(written.start(1), written.end(1)), editable=False)
            yield Binding("machine.gpu", Const(name, place), Rank.read, place)
            return
