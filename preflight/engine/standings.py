"""How each Job field of a study is known, and why not better: read, by name, a default that holds, assumed, or unknown.

A default holds where nothing that was not read can replace it:

- A library's default holds if the release in use is stated, or if every release that may be meant has the same one.
- A default of the Job holds if the program was read and no file or word that could set the field was left out.

`Bound.standing` says what the files that were read say. Here the gaps of a study are added: programs and configurations
that were not found, words of a command line that no parameter takes, and launches that nobody read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, product

from msgspec.structs import replace

from preflight.engine.fit.orders import SHARDED
from preflight.engine.named_models import FIELD, LEAST, says_only_a_name
from preflight.engine.worst_values import KEPT
from preflight.memory.device.positions import positions_of, saved_in_fp32
from preflight.memory.device.resolve import taken_by_law
from preflight.space.jobs import job_maker
from preflight.vocabulary.argv import bind
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.job import Job, build, fields, identity
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.reading import NOT_SEARCHED, OPEN_ARGUMENTS, Reading
from preflight.vocabulary.standing import Held, Standing
from preflight.vocabulary.study import Bound, Box, Source, Study
from preflight.vocabulary.tracing import Tracing
from preflight.vocabulary.values import Axis, Cause, Choices, Const, Expr, Op, Unknown, Value, evaluate, names

OWN_LAYOUT = ("hand-written", "lightning", "ultralytics")
"""Frameworks whose programs say themselves how a model is sharded; with the others the launch may say it."""

CONFIGURING = ("accelerate", "deepspeed")
"""Launchers that take the sharding from a file of theirs, accelerate from one in the user's home if none is named."""

STARTING = ("wandb", "slurm", "kubernetes", "compose", "shell", "hydra")
"""Dialects of files that start or configure a program and train nothing themselves."""

OF_THE_LAUNCH = (
    "parallel.trials_per_gpu", "parallel.nodes", "parallel.gpus_per_node", "parallel.ranks_per_node",
    "machine.accelerator",
)  # fmt: skip
"""Fields that nothing sets but the launch, so that no file that was left out replaces their default."""

GPUS = "parallel.gpus_per_node"
"""How many GPUs a node has: accelerate takes it from its file, too."""

STRATEGY = "parallel.strategy"
LAYOUT = (STRATEGY,)
"""Fields that a launch decides, and that raise the need where it does."""

OF_THE_TRAINER = ("train.sequences_per_sample",)
"""Fields that only the choice of a trainer decides, so that a program that was read has stated them."""

WEIGHTS = "train.precision"
LOAD = "model.load"
AUTO_DTYPE = (5,)
"""From this release on transformers loads a checkpoint in the type that it was saved in (migration guide of v5,
`dtype="auto"`); before it, in fp32."""


NOBODY_COUNTS = "no file that was read says how many GPUs share the model"

IN_THE_TREE = Held(Standing.assumed, "its file lies in the checked tree; --trust accepts it")

CAPACITIES = (
    "machine.gpu_memory", "machine.context", "machine.node_memory", "machine.memory_limit", "machine.shm",
    "machine.swap", "model.parameters",
)  # fmt: skip
"""Figures that a verdict compares, or that replace what is computed."""
SETTINGS_FILES = ("preflight.toml", "pyproject.toml")
STATED_BY_THE_TREE = Held(Standing.assumed, "the settings of the checked tree state it; --trust accepts their file")

CHANGEABLE = (
    "train.gradient_checkpointing", "train.attention", "train.compile", "train.precision", "train.weights_dtype",
    "train.quantization.type", "train.peft.method", "train.loss", "train.activation_offload",
    "train.optimizer_in_backward", "train.copies.ema", "train.copies.reference",
)  # fmt: skip
"""Fields that code may set which gets the model."""

SWITCHES = (*CHANGEABLE, "train.frozen", "train.fused_kernels")
"""Fields that a program sets or leaves alone. Others have a value in any case: of a call that was not followed, where
none was seen."""

IMAGES = "train.images"
MOST_MODELS = 32
"""Models of a search that are looked up: a field that is open for one of them is not known of the search."""

IDENTITIES = ("model.name", "model.path")
"""Fields that say whose weights a model has."""

SHARED = ("machine.gpu_memory", "machine.memory_limit")
"""What a job gets of the GPU and of the node: less, if another program runs beside it."""

Accepted = Callable[[str], bool]
"""Whether the user accepts a law file of the checked tree, by its path."""


def standings(study: Study, box: Box, accepted: Accepted, tracing: Tracing) -> dict[str, Held]:
    """How each field of a box is known. Fields that have no value and no statement are left out."""
    gap, launch = _gap(study), _launch(study)
    found = {}
    for name, bound in box.fields.items():
        held = _of(bound)
        if launch and _of_an_unread_launch(name, bound, study, box):
            held = Held(Standing.assumed, launch if name in LAYOUT or study.links else NOBODY_COUNTS)
        elif _by_default(bound) and gap and name not in (OF_THE_TRAINER if study.program else ()) + OF_THE_LAUNCH:
            held = Held(Standing.assumed, gap, unsaid=True)
        elif name == "model.architecture" and _only_resembles(bound, study):
            held = Held(Standing.assumed, "it is a class of the program, and only resembles this family", similar=True)
        elif name in IDENTITIES and "extends" in study.facts and held.standing is Standing.read:
            extends = f"it is {study.facts['extends'].value}, and may keep more or less"
            held = Held(Standing.assumed, extends, similar=True)
        elif name in (FIELD, LEAST) and (why := says_only_a_name(bound)) is not None:
            held = Held(Standing.assumed, why)
        elif _lies_in_the_tree(name, bound, held, accepted):
            held = IN_THE_TREE
        elif name in CAPACITIES and bound.source is Source.settings and not any(map(accepted, SETTINGS_FILES)):
            held = STATED_BY_THE_TREE
        found[name] = held
    unsaid = all(name not in box.fields or box.fields[name].default for name in (GPUS, STRATEGY))
    if unsaid and (fact := study.facts.get("one_process")) is not None:
        why = f"{fact.value} shares the model among all GPUs that the process sees, and no file says how many"
        found |= dict.fromkeys((GPUS, STRATEGY), Held(Standing.assumed, why))
    if (fact := study.facts.get("changed_by")) is not None:
        for name in CHANGEABLE:
            if name not in found or (box.fields[name].default and found[name].standing.holds):
                found[name] = Held(Standing.assumed, str(fact.value), unsaid=True)
    if study.unread_beside:
        why = f"{', '.join(study.unread_beside)} runs at the same time, and nothing is known of its memory"
        found |= dict.fromkeys(SHARED, Held(Standing.assumed, why))
    open_images = IMAGES in box.fields and _by_default(box.fields[IMAGES])
    known = found.keys() - ({IMAGES} if open_images else set())
    jobs = list(_each_model(box))
    for job in jobs:
        found |= _taken(_unstated(job, "images") if open_images else job, known, tracing)
    if WEIGHTS in found and _may_load_in_half(box, jobs):
        why = (
            f"transformers {AUTO_DTYPE[0]} loads weights in the type that they were saved in, and no release is stated"
        )
        by_default = _in_fp32_by_default(box.fields[WEIGHTS])
        found[WEIGHTS if by_default else "train.weights_dtype"] = Held(Standing.assumed, why, ("bf16",))
    if LOAD in found and _value(box.fields, LOAD) == "from-pretrained" and not _release_of_transformers(box.fields):
        why = f"transformers before {AUTO_DTYPE[0]} makes a copy of the weights on the host, and no release is stated"
        found[LOAD] = Held(Standing.assumed, why, ("from-pretrained-cast",))
    return found


def _each_model(box: Box) -> Iterator[Job]:
    """A Job of the box for each model, and for the first value of every other axis."""
    axes = {axis.name: axis for axis in box.memory_axes}
    domains = {name: one.domain.values for name, one in axes.items() if isinstance(one.domain, Choices)}
    domains = {name: values if _of_model(axes[name]) else values[:1] for name, values in domains.items()}
    for point in islice(product(*domains.values()), MOST_MODELS):
        yield job_maker(box).at(dict(zip(domains, point, strict=True))).job


def _unstated(job: Job, name: str) -> Job:
    """The job, with a field of its training that nothing states."""
    train = job.train.model_copy()
    train.__pydantic_fields_set__.discard(name)
    return job.model_copy(update={"train": train})


def _of_model(axis: Axis) -> bool:
    return any(field.startswith("model.") for field in axis.fields)


def _taken(job: Job, known: Collection[str], tracing: Tracing) -> dict[str, Held]:
    """Fields that nothing states, and that the law of the model takes a value for."""
    if tracing.time is None:  # of no check: what is on this machine may be another model the next time
        taken = taken_by_law(job, tracing)
    else:
        key = tracing, identity(job, _IDENTITIES)
        taken = _TAKEN.get(tracing.time, key, lambda: taken_by_law(job, tracing))
    return {name: Held(Standing.unknown, why) for name, why in taken.items() if name not in known}


_TAKEN: BoundedCache[Mapping[str, str]] = BoundedCache(256)
"""By the check (its time for traces) and the job: a model is looked up once for all studies that train it alike."""
_IDENTITIES: BoundedCache[str] = BoundedCache(256)


def _lies_in_the_tree(name: str, bound: Bound, held: Held, accepted: Accepted) -> bool:
    """Whether the value is of a law or a dry run whose file is in the checked tree, and that nobody accepted."""
    if bound.source is Source.dry_run:
        return bound.where != ""
    return name == "model.law" and held.standing is Standing.read and not _accepted(bound, accepted)


def _of(bound: Bound) -> Held:
    """How a field is known, according to the files that were read."""
    standing = bound.standing
    if standing is Standing.unknown:
        value = evaluate(bound.expr)
        may = _values(bound.expr) if bound.field == KEPT else ()
        return Held(standing, value.words if isinstance(value, Unknown) else "no file states it", may)
    if standing is Standing.by_name:
        return Held(standing, f"only the name of the setting {bound.setting} suggests it")
    if standing is Standing.assumed:
        newest = "it is the default of the newest release, and no release is stated"
        return Held(standing, bound.why_others or newest, bound.others)
    if standing is Standing.read and bound.perhaps and bound.field in SWITCHES:
        return Held(Standing.assumed, "only a run decides whether the program sets it")
    if standing is Standing.read and bound.origin is not None and bound.origin.unless and not bound.stated_by_user:
        name = bound.origin.unless
        shown = f"argument {name}" if name.isdecimal() else f"the variable {name}"
        return Held(Standing.assumed, f"it is the default of {shown}, which whoever starts {bound.origin.path} may set")
    return Held(standing)


def _values(expr: Expr) -> tuple[Value, ...]:
    """The values that conditions which are not known choose from; empty: it may have any."""
    if isinstance(expr, Op) and expr.operator == "if":
        yes, no = (_values(operand) for operand in expr.operands[1:])
        return tuple(dict.fromkeys((*yes, *no))) if yes and no else ()
    value = evaluate(expr)
    return () if isinstance(value, Unknown) or value is None or isinstance(value, (tuple, dict)) else (value,)


def _only_resembles(bound: Bound, study: Study) -> bool:
    """Whether the program's own class was compared with families, and nothing else states the architecture."""
    fact = study.facts.get("resembles")
    return fact is not None and bound.origin == fact.origin


def _by_default(bound: Bound) -> bool:
    """Whether the field has the Job's default, since nothing that was read speaks of it."""
    return bound.default and bound.source is Source.preflight and not isinstance(evaluate(bound.expr), Unknown)


def _in_fp32_by_default(bound: Bound) -> bool:
    """Whether no file states a precision, and fp32 is taken: preflight's default, or that of a library."""
    return _by_default(bound) or (bound.default and evaluate(bound.expr) == "fp32")


def _accepted(bound: Bound, accepted: Accepted) -> bool:
    """Whether the user named the law or accepts it."""
    value = evaluate(bound.expr)
    return bound.source is Source.command_line or (isinstance(value, str) and accepted(value))


def _may_load_in_half(box: Box, jobs: Sequence[Job]) -> bool:
    """Whether the release of transformers decides in which type the weights of the box's models are loaded."""
    fields = box.fields
    if all(saved_in_fp32(job.model.name) for job in jobs):
        return False
    stated = _value(fields, "software.transformers")
    return (
        _value(fields, LOAD) == "from-pretrained"
        and _value(fields, "train.weights_dtype") is None
        and not isinstance(stated, Unknown)
        and (stated is None or (release(str(stated)) or NEWEST) >= AUTO_DTYPE)
    )


def _release_of_transformers(fields: Mapping[str, Bound]) -> str:
    """The release that is stated; "" if none is known."""
    stated = _value(fields, "software.transformers")
    return "" if stated is None or isinstance(stated, Unknown) else str(stated)


def _value(fields: Mapping[str, Bound], name: str) -> Value:
    bound = fields.get(name)
    return None if bound is None or any(True for _ in names(bound.expr)) else evaluate(bound.expr)


# --- gaps of a study -------------------------------------------------------------------------------------------------


def _gap(study: Study) -> str:
    """What was not read of a study and could set any field, in words; empty if nothing was left out."""
    return next(_gaps(study), "")


def _gaps(study: Study) -> Iterator[str]:
    leaf = study.readings[-1] if study.readings else None
    if leaf is not None and study.program is None and leaf.dialect in STARTING:
        yield "the program was not read"
    for reading in study.readings:
        for link in reading.links:
            if link.kind == "config" and link.target and link.target not in study.paths:
                yield f"{link.target} was not read"
    for box in study.boxes:
        for name, bound in box.fields.items():
            value = bound.expr.value if isinstance(bound.expr, Const) else None
            if isinstance(value, Unknown) and value.cause is Cause.file_not_found:
                yield f"{name} is in a file that was not found: {value.words}"
    yield from (str(study.facts[name].value) for name in (NOT_SEARCHED, OPEN_ARGUMENTS) if name in study.facts)
    yield from _left_words(study)


def _left_words(study: Study) -> Iterator[str]:
    """Words of the command line that no parameter of the program takes."""
    link = study.links[-1] if study.links else None
    reading = _reading(study, link.target) if link is not None else None
    if link is None or reading is None or reading.dialect != "program":
        return
    kinds = {parameter.kind for parameter in reading.parameters if parameter.flags}
    if not kinds or not kinds <= {"argparse", "click"}:
        return  # a library's parser takes more arguments than those that decide memory
    for left in bind(reading.parameters, link.words).left:
        if left.prefix.startswith("--") and left.origin is not None:  # a launcher's own has no place
            yield f"the program takes {left.prefix.rstrip('=')}, which is not known"


def _reading(study: Study, path: str) -> Reading | None:
    return next((reading for reading in reversed(study.readings) if reading.path == path), None)


def _launch(study: Study) -> str:
    """Why the launch of a program was not read, where it may decide how the model is sharded; empty if it was."""
    framework = study.facts.get("framework")
    if study.program is not None and framework is not None and framework.value in OWN_LAYOUT:
        return ""
    if not study.links:
        return "no file that was read says how the model is sharded"
    if study.launch.launcher in CONFIGURING:
        return f"{study.launch.launcher} takes it from a file that was not read"
    return ""


def _of_an_unread_launch(name: str, bound: Bound, study: Study, box: Box) -> bool:
    """Whether a launch that was not read decides the field."""
    if name in LAYOUT:
        return _by_default(bound) or (bound.default and _left_to_accelerate(study))
    if name != GPUS or not _by_default(bound):
        return False
    return study.launch.launcher in CONFIGURING or _value(box.fields, STRATEGY) in SHARDED


def _left_to_accelerate(study: Study) -> bool:
    """Whether accelerate starts the program and no word says how the model is sharded. Several processes are then DDP,
    unless accelerate's file in the user's home says otherwise."""
    said = ("ACCELERATE_CONFIG_FILE", "ACCELERATE_USE_MULTI_GPU")
    return study.launch.launcher == "accelerate" and not any(name in study.launch.environment for name in said)


def by_hand(job: Job, stated: Collection[str], accepted: Accepted, tracing: Tracing) -> dict[str, Held]:
    """How the fields of a Job are known that was written by hand: what it states is read, and the rest are its
    defaults. Only a law is checked, because anybody can have written the file that holds it."""
    found = {
        name: Held(Standing.read if name in stated else Standing.default)
        for name in dict.fromkeys((*stated, *fields()))
        if name in stated or job.get(name) is not None
    }
    if job.model.law is not None and not accepted(job.model.law):
        found["model.law"] = IN_THE_TREE
    return found | _taken(job, stated, tracing)


def union(boxes: list[dict[str, Held]]) -> dict[str, Held]:
    """How fields are known in all boxes: the weaker where two differ, with all other values that it may have."""
    found: dict[str, Held] = {}
    for held in boxes:
        for name, one in held.items():
            other = found.get(name)
            if other is None or (other.standing.holds and not one.standing.holds):
                found[name] = one
            elif not one.standing.holds:
                both = tuple(dict.fromkeys((*other.others, *one.others))) if other.others and one.others else ()
                found[name] = replace(other, others=both)
    return found


# --- lengths that only a name suggests, and that the model cannot have

LENGTH = "train.seq_len"
MODEL = ("model.name", "model.architecture", "model.config")


def without_doubtful_lengths(study: Study) -> Study:
    """The study with an unknown length where a setting of that name is longer than the model has positions.

    A length that the program reads is another matter: the program fails with it, or stretches its positions.
    """
    boxes = tuple(_checked(box) for box in study.boxes)
    return (
        study if all(new is old for new, old in zip(boxes, study.boxes, strict=True)) else replace(study, boxes=boxes)
    )


def _checked(box: Box) -> Box:
    bound = box.fields.get(LENGTH)
    if bound is None or bound.standing is not Standing.by_name:
        return box
    length, usable = evaluate(bound.expr), _positions(box)
    if not isinstance(length, int) or usable is None or length <= usable:
        return box
    words = f"only the name of the setting {bound.setting} suggests {length:,}, and the model has {usable:,} positions"
    doubtful = replace(bound, expr=Const(Unknown(words, Cause.not_set, (LENGTH,)), bound.origin))
    return replace(box, fields={**box.fields, LENGTH: doubtful})


def _positions(box: Box) -> int | None:
    """The positions of the model, where the files state it."""
    stated: dict[str, str | int] = {}
    for name, bound in box.fields.items():
        value = evaluate(bound.expr) if name.startswith(MODEL) and bound.standing.holds else None
        if isinstance(value, (str, int)):
            stated[name] = value
    return _positions_of(tuple(stated.items()))


@lru_cache(maxsize=256)
def _positions_of(stated: tuple[tuple[str, str | int], ...]) -> int | None:
    found = positions_of(build(dict(stated)))
    return None if found is None else found.usable
