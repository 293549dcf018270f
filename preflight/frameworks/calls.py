"""Reads a Job from the calls of a program: bindings of its fields, facts, links to files, problems."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from preflight.frameworks.deepspeed import one_process, parallel_bindings, settings_links
from preflight.frameworks.late_checkpoints import late_checkpoints
from preflight.frameworks.library_defaults import shrinks_itself
from preflight.frameworks.lightning import TRAINER_DEFAULTS, is_lightning_trainer, lightning_bindings
from preflight.frameworks.table import bindings_of_calls, load
from preflight.frameworks.transformers_trainer import (
    ARGUMENT_CLASSES,
    FP32,
    NO,
    Use,
    adapters_of_model_config,
    from_command_line,
    from_flags,
    loading_of_model_config,
    model_config_parameters,
    parameters,
    quantization_of_model_config,
    training_arguments,
)
from preflight.frameworks.trl import is_old_ppo, old_ppo
from preflight.frameworks.ultralytics import is_training, ultralytics_bindings
from preflight.frameworks.used_arguments import (
    ARGUMENT_PACKAGES,
    as_used,
    beside_each_other,
    flavour_of,
    passed,
    passed_reference,
    takes,
    trains_adapters,
    used,
)
from preflight.program import loaders
from preflight.program.adaptations import liger_bindings, loaded_as_saved
from preflight.program.adapters import adapter_bindings, applied
from preflight.program.arguments import Arguments
from preflight.program.arguments_from_configuration import with_configuration
from preflight.program.bindings import bind, constant, first_origin, is_constant, settled, under
from preflight.program.call_site import words
from preflight.program.checkpoints import checkpoint_bindings, checkpoint_facts, makes_model
from preflight.program.dataset_kinds import dataset_kind
from preflight.program.datasets import objects_in_memory, opened_files
from preflight.program.devices import device_bindings
from preflight.program.evaluation import evaluation
from preflight.program.freezing import frozen_bindings
from preflight.program.images import image_bindings
from preflight.program.kept_weights import kept_weights
from preflight.program.lengths import length_bindings
from preflight.program.loaders import is_loader, loader_bindings, loader_problems
from preflight.program.loops import backwards, loop_bindings, loss_facts, until_trained
from preflight.program.made_inputs import made_input_bindings
from preflight.program.model_configurations import vocabulary_bindings
from preflight.program.models import batch_norm, beside_what_is_trained, extended_facts, is_part, model_bindings
from preflight.program.optimizers import optimizer_bindings, own_optimizer
from preflight.program.own_modules import own_module_bindings
from preflight.program.own_transformer import handwritten_bindings, resemblance
from preflight.program.passes import sequence_bindings
from preflight.program.precision import autocast_binding, weights_dtype
from preflight.program.remote_code import remote_code_bindings
from preflight.program.remote_resources import resource_bindings
from preflight.program.resuming import resume_bindings
from preflight.program.runs import in_turns, runs_of
from preflight.program.switches import switch_bindings
from preflight.program.unread_calls import changed_by_facts
from preflight.python.objects import CallRecord, ClassValue, Container, leaves, to_expr
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import OPEN_ARGUMENTS, Binding, Fact, Link, Parameter, Problem, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Scalar, Unknown

_TOKEN_TASKS = frozenset({"causal-lm", "masked-lm", "token-classification", "seq2seq-lm", "speech-seq2seq"})
_ACCUMULATING = frozenset({"transformers-trainer", "trl", "lightning"})
"""Frameworks whose trainer accumulates gradients when it is told to."""
_MAPPINGS = ("fsdp_config", "deepspeed", "liger_kernel_config")
_TRAINERS = ("Trainer", "Seq2SeqTrainer", "SFTTrainer", "DPOTrainer", "GRPOTrainer", "RewardTrainer", "KTOTrainer",
             "ORPOTrainer", "CPOTrainer", "RLOOTrainer", "PPOTrainer", "SentenceTransformerTrainer",
             "CrossEncoderTrainer", "SparseEncoderTrainer")  # fmt: skip


_REFERENCE = "train.copies.reference"

Versions = tuple["str | None", "str | None", frozenset[tuple[str, str]]]
"""Of transformers and of TRL, where they are stated."""


class CallFacts(Struct, frozen=True):
    """The result for the calls of one program. `trains`: whether the program trains a model."""

    bindings: tuple[Binding, ...] = ()
    facts: tuple[Fact, ...] = ()
    problems: tuple[Problem, ...] = ()
    links: tuple[Link, ...] = ()
    trains: bool = False
    parameters: tuple[Parameter, ...] = ()
    """Arguments that calls take from a configuration by name."""


def read_calls(
    calls: Sequence[CallRecord],
    project: Project,
    version: str | None = None,
    parameters: Collection[str] = (),
    trl: str | None = None,
    between: frozenset[tuple[str, str]] = frozenset(),
) -> CallFacts:
    """Everything that the calls say. `version` is of transformers (None: the newest) and `trl` of TRL, which may only
    be known to lie `between` others; `parameters` are the names that the program can be given.

    Calls that the program reaches count; those of functions that nothing calls (hooks of a framework: a
    `train_dataloader`, a `model_init`) count for Job fields that no reached call sets. Fields that differ between the
    trainings of one program are unknown.
    """
    names = frozenset(parameters)
    reached = [record for record in calls if record.reached]
    found = _read(reached, project, (version, trl, between), names)
    runs = [_read(run, project, (version, trl, between), names).bindings for run in runs_of(reached)]
    if runs:
        found = replace(found, bindings=in_turns(found.bindings, runs))
    if len(reached) < len(calls):
        found = _joined(found, _read(calls, project, (version, trl, between), names))
    return _with_unseen(replace(found, facts=(*found.facts, *late_checkpoints(calls))))


_MADE_BY_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "hand-written": ("train.optimizer",),
    "accelerate": ("train.optimizer",),
    "lightning": ("train.optimizer", "data.workers"),
}
"""Framework -> what a program that trains with it makes itself. If no such call was seen, it was not followed."""


def _with_unseen(said: CallFacts) -> CallFacts:
    """What the program makes somewhere and no call that was read shows, as unknown."""
    framework = next((fact for fact in said.facts if fact.name == "framework"), None)
    if framework is None or not said.trains:
        return said
    seen = {one.field for one in said.bindings}
    why = Unknown("the call that makes it was not found", Cause.not_read)
    fields = [field for field in _MADE_BY_PROGRAMS.get(str(framework.value), ()) if field not in seen]
    more = [bind(field, Const(why, framework.origin), Rank.not_followed) for field in fields]
    return replace(said, bindings=(*more, *said.bindings))


OF_STEPS = "model.activation_bytes"
"""Of the step that was interpreted with the samples of a loader, wherever that is made: never of another model."""
IDENTITIES = ("model.name", "model.path", "model.target", "model.architecture")
"""Fields of which one says which model it is."""


def _joined(first: CallFacts, everything: CallFacts) -> CallFacts:
    """Results of the reached calls. Other calls add only fields and facts that those do not set."""
    fields = {binding.field for binding in first.bindings if binding.rank != Rank.default}
    names = {fact.name for fact in first.facts}
    more = [b for b in everything.bindings if b.field not in fields and b not in first.bindings]
    if fields & set(IDENTITIES):  # the model that the program makes is not another one that a function would make
        more = [b for b in more if not b.field.startswith("model.") or b.field == OF_STEPS]
    return CallFacts(
        (*more, *first.bindings),
        (*first.facts, *(fact for fact in everything.facts if fact.name not in names)),
        tuple(dict.fromkeys((*first.problems, *everything.problems))),
        first.links or everything.links,
        first.trains or everything.trains,
        (*everything.parameters, *first.parameters),
    )


def _read(calls: Sequence[CallRecord], project: Project, versions: Versions, names: Collection[str]) -> CallFacts:
    calls, parameters = _filled(calls, project)
    calls = applied(calls)
    training = until_trained(calls, project)
    weights = weights_dtype(training)
    before = training if any(map(makes_model, training)) else calls  # what is loaded behind the training is used
    models = [*model_bindings(before, project, names), *bindings_of_calls("unsloth", calls)]
    named = any(b.field in IDENTITIES and not is_part(b) for b in models)
    own = [] if named else handwritten_bindings(calls, project)
    counted = [] if named or own else own_module_bindings(calls, project)
    if any(b.field in ("model.parameters", "model.least_parameters") for b in counted):
        models = [b for b in models if not is_part(b)]  # the count says more of the class than that it has a part
    models += own or counted or ([] if named else beside_what_is_trained(calls))
    models += adapter_bindings(calls)
    models += kept_weights(calls, models, project)
    models += [*vocabulary_bindings(calls), *loaded_as_saved(calls, versions[0])]
    if weights is not None:
        models.append(bind("train.weights_dtype", weights))
    if any(r.method == "ModelConfig" and r.name.startswith("trl.") and from_command_line(r) for r in calls):
        parameters = (*parameters, *model_config_parameters(versions[1]))
        made = {record.method for record in calls}
        models += loading_of_model_config(versions[1])
        models += adapters_of_model_config(versions[1]) if "get_peft_config" in made else []
        models += quantization_of_model_config() if "get_quantization_config" in made else []
    stored = _last(models, "train.weights_dtype")
    task = _task(models)
    loops, loop_facts = loop_bindings(calls, project)
    yolo, yolo_facts = ultralytics_bindings(calls, project)
    evaluated = evaluation(calls, project)
    trained = _trainers(calls, stored, versions, task)
    trained = _checkpoints_as_told(trained, models)
    if any(b.field == _REFERENCE for b in trained):  # the trainer knows what it keeps of the models that are loaded
        models = [b for b in models if b.field != _REFERENCE]
    paths = tuple(dict.fromkeys(record.path for record in calls))
    kept, kept_facts = objects_in_memory(paths, project)
    bindings = [
        *made_input_bindings(calls),
        *loader_bindings(calls, project),
        *sequence_bindings(calls, project),
        *models,
        *frozen_bindings(calls, project),
        *remote_code_bindings(calls),
        *image_bindings(calls, project),
        *switch_bindings(paths, project),
        *device_bindings(calls, project),
        *kept,
        *checkpoint_bindings(calls),
        *resume_bindings(calls, project),
        *bindings_of_calls("arguments", calls),
        *optimizer_bindings(calls, project),
        *([bind("train.precision", stored, Rank.read)] if stored is not None and not trained else []),
        *autocast_binding(calls, stored),
        *bindings_of_calls("accelerate", calls),
        *lightning_bindings(calls, stored),
        *length_bindings(training, task, project),
        *loops,
        *parallel_bindings(calls),
        *resource_bindings(calls),
        *bindings_of_calls("lightning", calls),
        *liger_bindings(calls),
        *evaluated.bindings,
        *trained,
        *yolo,
    ]
    facts = [
        *_framework(calls),
        *loss_facts(calls, project),
        *loop_facts,
        *resemblance(own),
        *extended_facts(calls, models),
        *evaluated.facts,
        *_shrinking(calls),
        *one_process(calls),
        *batch_norm(models, calls),
        *yolo_facts,
        *kept_facts,
        *opened_files(paths, project),
        *checkpoint_facts(calls),
        *dataset_kind(calls, project),
        *changed_by_facts(calls),
        *_open_arguments(calls),
    ]
    even = any(binding.field == "train.batch_size" for binding in models)  # cut out of one text: all of one length
    facts = _consistent([*facts, *([] if even else _token_mean(calls, task))], task)
    problems = tuple(loader_problems(calls))
    return CallFacts(tuple(settled(bindings)), tuple(facts), problems, tuple(_links(calls)), _trains(calls), parameters)


def _filled(calls: Sequence[CallRecord], project: Project) -> tuple[list[CallRecord], tuple[Parameter, ...]]:
    """The calls; those that take arguments from a configuration as a whole get them by name."""
    found: list[CallRecord] = []
    named: dict[str, Parameter] = {}
    for record in map(as_used, calls):
        defaults = None if record.complete else _defaults(record)
        if defaults is not None:
            record, more = with_configuration(record, calls, defaults, project)
            named |= {parameter.name: parameter for parameter in more}
        found.append(record)
    return found, tuple(named.values())


def _defaults(record: CallRecord) -> Mapping[str, Scalar] | None:
    """Arguments that decide memory, with their defaults, of calls that may take a configuration as a whole."""
    if is_loader(record):
        return loaders.DEFAULTS
    if is_lightning_trainer(record):
        return TRAINER_DEFAULTS
    if is_training(record):
        return load("ultralytics").defaults
    flavour = ARGUMENT_CLASSES.get(record.method)
    if flavour is not None and not from_command_line(record):
        return {p.name: p.default.value for p in parameters(flavour) if isinstance(p.default, Const)}  # type: ignore[misc]
    return None


def _last(bindings: Sequence[Binding], field: str) -> Expr | None:
    return next((binding.expr for binding in reversed(bindings) if binding.field == field), None)


def _task(bindings: Sequence[Binding]) -> str | None:
    ranked = sorted((b for b in bindings if b.field == "task"), key=lambda b: b.rank)
    value = constant(ranked[-1].expr) if ranked else None
    return value if isinstance(value, str) else None


def _token_mean(calls: Sequence[CallRecord], task: str | None) -> list[Fact]:
    """The program's own loop trains a language model of the hub: its loss is the mean over the tokens of the batch."""
    passes = backwards(calls)
    return [Fact("token_mean_loss", True, passes[0].origin)] if passes and task in _TOKEN_TASKS else []


def _consistent(facts: Sequence[Fact], task: str | None) -> list[Fact]:
    """One fact per name, the first that was found; a contrastive model has a contrastive loss."""
    found: dict[str, Fact] = {}
    for fact in facts:
        found.setdefault(fact.name, fact)
    if task == "contrastive":
        found.setdefault("contrastive_loss", Fact("contrastive_loss", True))
    return list(found.values())


def _trainers(calls: Sequence[CallRecord], stored: Expr | None, versions: Versions, task: str | None) -> list[Binding]:
    """Bindings of TrainingArguments and similar classes, as the Trainer uses them."""
    trainers = [record for record in calls if _makes_trainer(record)]
    metrics = next((record for record in trainers if _given(record, "compute_metrics")), None)
    use = Use(
        evaluates=any(record.method in ("evaluate", "predict") and _is_trainer(record) for record in calls),
        compute_metrics=Const(True, metrics.keyword_origins.get("compute_metrics")) if metrics is not None else NO,
        reduces_logits=any(_given(record, "preprocess_logits_for_metrics") for record in trainers),
        peft=trains_adapters(trainers, calls),
        reference=passed_reference(trainers),
        base=_base(stored),
        task=task,
    )
    own = own_optimizer(trainers)
    made = [r for r in calls if r.method in ARGUMENT_CLASSES and r.name.startswith(ARGUMENT_PACKAGES)]
    taken = used(made, trainers, calls)
    groups: list[list[Binding]] = []
    for record in taken:
        if ARGUMENT_CLASSES[record.method] == "ppo" and is_old_ppo(record.kwargs):
            groups.append(list(under(record.conditions, old_ppo(Arguments(record.kwargs, rank=None), use.base))))
            continue
        bindings = _of_arguments(record, [one for one in trainers if takes(one, record)], use, versions)
        bindings = [b for b in bindings if own is None or not b.field.startswith("train.optimizer")]
        stated = [b for b in bindings if record.complete or b.rank != Rank.default]
        groups.append(list(under(record.conditions, stated)))
    return [*beside_each_other(taken, groups), *(own or ()), *_other_models(trainers)]


_CHECKPOINTING = "train.gradient_checkpointing"


def _checkpoints_as_told(trained: Sequence[Binding], calls: Sequence[Binding]) -> list[Binding]:
    """A Trainer's arguments switch checkpointing on and never off (trainer.py, `if args.gradient_checkpointing`): where
    they say False, a call of the program decides."""
    if all(one.field != _CHECKPOINTING for one in calls):
        return list(trained)
    asks = [one for one in trained if one.field == _CHECKPOINTING and one.rank > Rank.default]
    found = [one for one in trained if one not in asks]
    for one in asks:
        if constant(one.expr) is not False:
            on = replace(one, expr=Const(True, one.expr.origin), rank=Rank.literal)
            found += under((one.expr,), [on])
    return found


def _other_models(trainers: Sequence[CallRecord]) -> Iterator[Binding]:
    """A trainer of the project's own that gets a reference or a teacher: its loss decides how many samples each model
    sees at once, and no table has it. TRL's own trainers have rows of their own."""
    for record in trainers:
        cls = record.callee
        if not isinstance(cls, ClassValue) or any(base.startswith("trl.") for base in cls.external_bases):
            continue
        given = [name for name in record.kwargs if words(name) & _BESIDE and _given(record, name)]
        if given:
            why = f"{cls.name} is a trainer of the project, and its use of {given[0]} was not read"
            place = record.keyword_origins.get(given[0], record.origin)
            unread = Const(Unknown(why, Cause.not_read), place)
            yield from under(record.conditions, [bind(_REFERENCE, unread), bind("train.sequences_per_sample", unread)])


_BESIDE = frozenset({"ref", "reference", "teacher"})
"""Words in the names of arguments that are models beside the one that is trained."""


def _of_arguments(record: CallRecord, trainers: Sequence[CallRecord], use: Use, versions: Versions) -> list[Binding]:
    """Bindings of one object of arguments, as the trainers that are made with it take it."""
    version, trl, between = versions
    signs = {(one.method, name) for one in (record, *trainers) for name in one.kwargs if one.callee is None}
    signs |= {(record.method, name) for name in record.kwargs}
    flavour, trl = flavour_of(record, trainers, trl)
    values: dict[str, Expr] = {**record.kwargs, **_inside(record)}
    if from_command_line(record):
        values = {**from_flags(flavour, version, trl), **values}
    return training_arguments({**values, **passed(trainers, flavour)}, flavour, use, version, trl, between | signs)


def _base(stored: Expr | None) -> Expr:
    """The precision without autocast: the type of the weights, fp32 if none is stated."""
    if stored is None:
        return FP32
    return stored if is_constant(stored) else Op("or", (stored, FP32), stored.origin)


def _shrinking(calls: Sequence[CallRecord]) -> list[Fact]:
    """A Trainer that reduces the batch until it fits, by itself."""
    found = (shrinks_itself(record.kwargs) for record in calls if record.method in ARGUMENT_CLASSES)
    return [Fact("handles_oom", True, first_origin(expr)) for expr in found if expr is not None]


def _open_arguments(calls: Sequence[CallRecord]) -> list[Fact]:
    """A call that decides how the model trains takes a mapping that was not read: it may replace any default."""
    for record in calls:
        made = record.method in ARGUMENT_CLASSES and _of_hub(record.name) and not from_command_line(record)
        if record.reached and not record.complete and (made or is_lightning_trainer(record) or makes_model(record)):
            return [Fact(OPEN_ARGUMENTS, f"{record.method}() takes arguments that were not read", record.origin)]
    return []


def _inside(record: CallRecord) -> dict[str, Expr]:
    """The keys of dictionaries among the arguments, each with its place: `fsdp_config.version`."""
    found: dict[str, Expr] = {}
    for name in _MAPPINGS:
        given = record.object(name)
        if isinstance(given, Container):
            found |= {f"{name}.{key}": to_expr(value) for key, value in leaves(given)}
    return found


def _given(record: CallRecord, name: str) -> bool:
    """Whether an argument is passed and is not None."""
    expr = record.argument(name)
    return expr is not None and constant(expr) is not None


def _makes_trainer(record: CallRecord) -> bool:
    """Whether the call makes a Trainer of transformers or TRL, or of a class of the project that is one."""
    callee = record.callee
    if isinstance(callee, ClassValue):
        return any(base.rpartition(".")[2] in _TRAINERS and _of_hub(base) for base in callee.external_bases)
    return record.method in _TRAINERS and _of_hub(record.name)


def _of_hub(name: str) -> bool:
    return name.startswith(("transformers.", "trl.", "unsloth", "sentence_transformers."))


def _is_trainer(record: CallRecord) -> bool:
    made = record.receiver or ""
    return made.rpartition(".")[2] in _TRAINERS or record.name.partition(".")[0] == "trainer"


def _framework(calls: Sequence[CallRecord]) -> list[Fact]:
    """The trainers, the most specific first."""
    tests: tuple[tuple[str, Callable[[CallRecord], bool]], ...] = (
        ("trl", lambda r: r.name.startswith("trl.") and r.method.endswith("Trainer")),
        ("transformers-trainer", _makes_trainer),
        ("lightning", is_lightning_trainer),
        ("ultralytics", is_training),
        ("accelerate", lambda r: r.name.startswith("accelerate.") and r.method == "Accelerator"),
    )
    for name, test in tests:
        first = next((record for record in calls if test(record)), None)
        if first is not None:
            supported = [Fact("accumulation_supported", True, first.origin)] if name in _ACCUMULATING else []
            return [Fact("framework", name, first.origin), *supported]
    passes = backwards(calls)
    return [Fact("framework", "hand-written", passes[0].origin)] if passes else []


def _trains(calls: Sequence[CallRecord]) -> bool:
    """Whether a model is trained: a backward pass, a framework's trainer, or arguments and loaders for one."""
    if backwards(calls) or any(is_training(record) or is_lightning_trainer(record) for record in calls):
        return True
    if any(_makes_trainer(record) for record in calls):
        return True
    if any(record.name in ("hydra.utils.instantiate", "hydra.utils.call") for record in calls):
        return True  # what trains is in the configuration
    arguments = any(r.method in ARGUMENT_CLASSES and _of_hub(r.name) for r in calls)
    trained = any(r.method.endswith("Trainer") or (r.method == "train" and _is_trainer(r)) for r in calls)
    return (arguments and trained) or any(_shuffles(record) for record in calls)


def _shuffles(record: CallRecord) -> bool:
    """A loader that shuffles is for training."""
    return is_loader(record) and constant(record.argument("shuffle", 2)) is True


def _links(calls: Sequence[CallRecord]) -> list[Link]:
    """Configuration files that calls name."""
    found = []
    for target, expr in settings_links(calls):
        found.append(Link("config", posixpath.normpath(target), origin=expr.origin))
    return found


_FITS = ("fit", "train", "learn", "run")
"""Methods that objects named by a configuration train with."""


def trains_with_configured_object(calls: Sequence[CallRecord]) -> bool:
    """Whether a program trains with an object that its configuration names: `instantiate(cfg.trainer).fit(model)`."""
    return any(record.method in _FITS and (record.receiver or "").endswith("instantiate") for record in calls)
