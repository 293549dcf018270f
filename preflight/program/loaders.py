"""torch.utils.data.DataLoader calls -> train.batch_size, data.* (the bytes of a sample too), validation.*.

Of several loaders, what they are assigned to, the function around them, their dataset and `shuffle` say which one
trains. A default of the loader beats an alias by name: `DataLoader(ds)` has no workers whatever a config says.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from preflight.program.bindings import bind, constant, same, under
from preflight.program.call_site import chain_of, evaluates, exclude_each_other, loops_around, role_of, targets
from preflight.program.loops import backwards, in_turns, runs_on_pieces
from preflight.program.made_inputs import sample_shape_bindings
from preflight.program.names import field_for
from preflight.python.hooks.loaders import SAMPLES, Samples
from preflight.python.objects import CallRecord, ClassValue, Instance, alternatives
from preflight.python.steps import step_of
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Problem, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Scalar, Unknown, unknown

_LOADERS = ("DataLoader", "StatefulDataLoader", "ThreadDataLoader")
_POSITIONS = {"batch_size": 1, "shuffle": 2, "sampler": 3, "batch_sampler": 4, "num_workers": 5, "pin_memory": 7,
              "multiprocessing_context": 11}  # fmt: skip
DEFAULTS: dict[str, Scalar] = {"batch_size": 1, "shuffle": False, "num_workers": 0, "pin_memory": False,
                                "persistent_workers": False, "prefetch_factor": 2}  # fmt: skip
"""Signature of torch.utils.data.DataLoader (2.13); prefetch_factor is 2 as soon as there are workers."""
_FIELDS = {
    "train": {"batch_size": "train.batch_size", "num_workers": "data.workers", "prefetch_factor": "data.prefetch",
              "persistent_workers": "data.persistent_workers", "pin_memory": "data.pin_memory",
              "shuffle": "data.shuffle"},
    "validation": {"batch_size": "validation.batch_size", "num_workers": "data.validation_workers",
                   "persistent_workers": "data.validation_persistent"},
}  # fmt: skip


_IN_TURNS = "the program trains with several values one after the other"
_HELD = "the data set keeps data whose size is not known"
_MAY_BE_ADDED = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")


def keywords_of_fields() -> dict[str, str]:
    """Job field -> the loader's keyword that states it, for those that a fix may add to a call."""
    return {_FIELDS["train"][name]: name for name in _MAY_BE_ADDED}


def is_loader(record: CallRecord) -> bool:
    """Whether the call makes a DataLoader (of torch, or a class that keeps its name and arguments)."""
    return record.method in _LOADERS and "." in record.name


def loader_bindings(records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """Bindings of the training loader and of the validation loader, if there is one."""
    loaders = [record for record in records if is_loader(record)]
    by_role = _roles(loaders, project)
    unnamed = by_role[""]
    if not by_role["train"]:
        shuffled = [record for record in unnamed if constant(record.argument("shuffle", 2)) is True]
        first = (shuffled or unnamed)[:1]
        turns = [one for other in first for one in in_turns(other, unnamed, records, project)]
        by_role["train"] = [one for one in unnamed if one in turns or any(_instead(one, other) for other in first)]
        unnamed = [record for record in unnamed if record not in by_role["train"]]
    trainers = [] if by_role["train"] else [r for r in records if r.method.endswith("Trainer") and "." in r.name]
    validating = by_role["validation"] or unnamed or by_role["test"]
    found = [bind("data.start_method", r.args[0]) for r in records if r.method == "set_start_method" and r.args]
    found += [binding for record in trainers for binding in sample_bindings_of(record)]
    turns = by_role["train"] and in_turns(by_role["train"][0], by_role["train"], records, project)
    for role, chosen in (("train", by_role["train"]), ("validation", validating)):
        if role == "train":
            found += step_bindings(chosen)
        for record in chosen:
            bindings = _bindings(record, role, _changed(turns) if record in turns else ())
            why = _other_batches(record, records, project) if role == "train" else None
            if why is not None:
                one = unknown(why, record.origin)
                bindings = [bind(each.field, one) if each.field == "train.batch_size" else each for each in bindings]
            found += under(record.conditions, bindings)
    return [*found, *_largest_validation(by_role["validation"]), *_rows_in_batches(records, project)]


def _rows_in_batches(records: Sequence[CallRecord], project: Project) -> Iterator[Binding]:
    """Batches of a data set of the hub without a loader, around a backward pass: `for b in rows.iter(batch_size=4)`.
    A loop that prepares the rows goes over batches as well, of a size of its own."""
    given = [one for one in records if one.method == "iter" and "batch_size" in one.kwargs and not evaluates(one)]
    if not given:
        return
    trains = [loop for end in backwards(records) for one in chain_of(end) for loop in loops_around(one, project)]
    over = [node for loop in trains if not isinstance(loop, ast.While) for node in ast.walk(loop.iter)]
    names = {node.id for node in over if isinstance(node, ast.Name)}
    for record in given:
        if record.node in over or names.intersection(targets(record, project)):
            yield from under(record.conditions, [bind("train.batch_size", record.kwargs["batch_size"])])


def _largest_validation(records: Sequence[CallRecord]) -> Iterator[Binding]:
    """The batch of the largest of several loaders that validate, one beside the other."""
    batches = [record.argument("batch_size", 1) or Const(DEFAULTS["batch_size"]) for record in records]
    beside = all(record.conditions == records[0].conditions and record.complete for record in records)
    if not beside or all(same(one, batches[0]) for one in batches):
        return
    largest = Op("max", tuple(batches), records[0].origin)
    ranks = (bind("validation.batch_size", one).rank for one in batches)
    yield from under(records[0].conditions, [bind("validation.batch_size", largest, max(ranks))])


def _changed(turns: Sequence[CallRecord]) -> Collection[str]:
    """The arguments that differ between loaders of which each round of a loop trains with another."""
    given = {
        name: [one.argument(name, _POSITIONS.get(name)) or Const(None) for one in turns] for name in _FIELDS["train"]
    }
    return [name for name, values in given.items() if any(not same(value, values[0]) for value in values)]


def _other_batches(record: CallRecord, records: Sequence[CallRecord], project: Project) -> str | None:
    """Why the batch that trains is not the loader's."""
    if record.argument("batch_size", 1) is None and _is_batched_again(record, records):
        return "a class of the program makes batches of what the loader gives"
    if (given := _gives_batches(record)) is not None:
        return f"the data set is given {given}, and the loader takes one of its items at a time"
    if any(runs_on_pieces(end, project) for end in backwards(records)):
        return "the program splits what the loader gives into smaller batches"
    return None


def _gives_batches(record: CallRecord) -> str | None:
    """The argument by which a class of the program is told the size of the batches that its items are, where the loader
    adds nothing to them: `DataLoader(Batches(paths, batch_size=32), batch_size=1)`."""
    data, size = record.object("dataset", 0), record.argument("batch_size", 1)
    alone = size is None or constant(size) in (1, None)
    if not alone or not isinstance(data, Instance) or data.cls is None or data.record is None:
        return None
    return next((name for name in data.record.kwargs if field_for(name) == "train.batch_size"), None)


def _is_batched_again(record: CallRecord, records: Sequence[CallRecord]) -> bool:
    """Whether an iterable class of the program takes the loader, which hands out single samples."""
    return any(
        isinstance(other.callee, ClassValue)
        and any("__iter__" in cls.attributes for cls in other.callee.lineage())
        and any(one is record.value for given in other.arguments for one in alternatives(given))
        for other in records
    )


def _instead(record: CallRecord, other: CallRecord) -> bool:
    """Whether a loader is made in place of another: by a function that is called in both branches of an `if`."""
    return record.node is other.node and exclude_each_other(record, other)


def _role(record: CallRecord, project: Project) -> str:
    """The purpose of a loader: train, validation or test; "" if it is not known."""
    return _said(record, project, (record.function or "").rpartition(".")[2])


def _said(record: CallRecord, project: Project, *function: str) -> str:
    """The purpose that the words of a call say: of what it is assigned to, of a function, of its data set."""
    given = [*getattr(record.node, "args", ())[:1]]
    given += [k.value for k in getattr(record.node, "keywords", ()) if k.arg == "dataset"]
    said = (*targets(record, project), *function, *map(ast.unparse, given))
    return next((role for text in said if (role := role_of(text)) is not None), "")


def _roles(loaders: Sequence[CallRecord], project: Project) -> dict[str, list[CallRecord]]:
    """The loaders by purpose. One that a function makes for several callers has the purpose that its callers say. One
    that only stands in `train`, and is not shuffled, gives way to another that is or that says to be for training."""
    found: dict[str, list[CallRecord]] = {"train": [], "validation": [], "test": [], "": []}
    for record in loaders:
        role = _role(record, project)
        shared = any(one.node is record.node and one.caller is not record.caller for one in loaders)
        callers = reversed(chain_of(record)[:-1]) if shared and not role else ()
        role = role or next((said for one in callers if (said := _said(one, project))), "")
        found[role].append(record)
    placed = [one for one in found["train"] if _role(one, project) and not _said(one, project) and not indexes(one)]
    if len(placed) < len(found["train"]) or any(indexes(one) for one in found[""]):
        found["train"] = [one for one in found["train"] if one not in placed]
        found[""] += placed
    return found


def validates(record: CallRecord, project: Project) -> bool:
    """Whether the code around a loader says that it is for validation or testing."""
    return _role(record, project) in ("validation", "test")


def indexes(record: CallRecord) -> bool:
    """Whether a loader asks for indices: DataLoader refuses shuffle and samplers for a data set that is iterated."""
    shuffled = constant(record.argument("shuffle", _POSITIONS["shuffle"])) is True
    return shuffled or any(_given(record, name) for name in ("sampler", "batch_sampler"))


def _bindings(record: CallRecord, role: str, changed: Collection[str] = ()) -> list[Binding]:
    found: list[Binding] = []
    for name, field in _FIELDS[role].items():
        expr = record.argument(name, _POSITIONS.get(name))
        if name in changed:  # a name in the text says no more
            several = unknown(_IN_TURNS, record.origin, Cause.not_modelled)
            found.append(bind(field, several, Rank.literal))
            continue
        if name == "batch_size" and expr is None and _given(record, "batch_sampler"):
            expr = _sampled(record)
        if expr is None and not record.complete:
            expr = unknown("it may be among arguments that are passed on as a whole", record.origin)
        if expr is None or (name == "prefetch_factor" and constant(expr) is None):
            found.append(bind(field, Const(DEFAULTS[name]), Rank.default))
        else:
            found.append(bind(field, expr))
    if role == "train":
        found += [*_start_method(record), *sample_bindings_of(record)]
    elif (samples := samples_in(record)) is not None:
        found.append(bind("validation.samples", samples, Rank.read, record.origin))
    return found


# --- what the training loader hands out ------------------------------------------------------------------------------


def sample_bindings_of(record: CallRecord) -> list[Binding]:
    """Bindings of the samples of a training loader."""
    state = record.value.state if isinstance(record.value, Instance) else {}
    found = state.get(SAMPLES)
    said = list(_of_samples(found, record)) if isinstance(found, Samples) else []
    return [*said, *sample_shape_bindings(record)]


def step_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """What a step keeps of each sample, where the program's loop over a loader and its own layers say it."""
    loaders = (record for record in records if is_loader(record) and isinstance(record.value, Instance))
    found = [(record, size) for record in loaders if (size := step_of(record.value)) is not None]  # type: ignore[arg-type]
    return [bind("model.activation_bytes", size, Rank.read, record.origin) for record, size in found[:1]]


def samples_in(record: CallRecord) -> Expr | None:
    """How many samples a loader has."""
    state = record.value.state if isinstance(record.value, Instance) else {}
    found = state.get(SAMPLES)
    return found.count if isinstance(found, Samples) and constant(found.count) != 0 else None


def _of_samples(found: Samples, record: CallRecord) -> Iterator[Binding]:
    def read(field: str, expr: Expr) -> Binding:
        return bind(field, expr, Rank.read, record.origin)

    if found.bytes is not None and constant(found.bytes) != 0:
        yield read("data.sample_bytes", found.bytes)
    if found.count is not None and constant(found.count) != 0:
        yield read("data.samples", found.count)
    if found.held is None:
        yield read("data.in_memory_bytes", unknown(_HELD, record.origin, Cause.run_time))
    elif constant(found.held) != 0:
        yield read("data.in_memory_bytes", found.held)
        yield read("data.in_memory_kind", Const(found.kind, record.origin))
        if not found.views:
            yield read("data.copies_samples", Const(True, record.origin))
    if found.numpy:
        yield read("data.samples_from", Const("numpy", record.origin))


def _sampled(record: CallRecord) -> Expr:
    """The batch of a loader with a batch sampler: what torch's own sampler is told; others decide it as they run."""
    sampler = record.object("batch_sampler", _POSITIONS["batch_sampler"])
    made = sampler.record if isinstance(sampler, Instance) else None
    size = made.argument("batch_size", 1) if made is not None and made.qualified in _SAMPLERS else None
    return size or unknown("a batch sampler decides the batch size", record.origin, Cause.run_time)


_SAMPLERS = ("torch.utils.data.BatchSampler", "torch.utils.data.sampler.BatchSampler")


def _given(record: CallRecord, name: str) -> bool:
    expr = record.argument(name, _POSITIONS.get(name))
    return expr is not None and constant(expr) is not None


def _start_method(record: CallRecord) -> list[Binding]:
    context = record.argument("multiprocessing_context", _POSITIONS["multiprocessing_context"])
    return [] if context is None or constant(context) is None else [bind("data.start_method", context)]


def loader_problems(records: Sequence[CallRecord]) -> Iterator[Problem]:
    """Arguments that DataLoader refuses with a ValueError: options of workers without workers."""
    for record in records:
        if not is_loader(record) or not record.complete:
            continue
        workers = record.argument("num_workers", _POSITIONS["num_workers"])
        if workers is not None and constant(workers) != 0:
            continue
        for name in ("prefetch_factor", "persistent_workers"):
            value = constant(record.argument(name)) if record.argument(name) is not None else None
            if value is not None and value is not False and not isinstance(value, Unknown):
                place = record.keyword_origins.get(name, record.origin)
                yield Problem("invalid-config", f"DataLoader refuses {name}={value} without workers", place)
