"""Calls that make models -> model.*, task, train.quantization, train.peft, train.attention, checkpointing, copies.

A model is known by what it was made with: a hub name, a configuration, a constructor of torchvision, timm or
open_clip. A second model that is called reference, teacher or EMA is a copy of the weights, not what is trained.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from preflight.program.adaptations import dtype_and_attention
from preflight.program.bindings import bind, constant, first_origin, fold, same, under, when
from preflight.program.call_site import around, exclude_each_other, is_module, targets, words
from preflight.program.checkpoints import makes_model
from preflight.program.library_parts import rebuilt_part
from preflight.program.model_configurations import changes, configuration, is_dimension, table
from preflight.program.rows import calls, read_call
from preflight.program.trained import Trained, reachable, trained
from preflight.python.access import class_attribute
from preflight.python.hooks.hub_classes import is_hub_class
from preflight.python.objects import CallRecord, ClassValue, External, FunctionValue, Instance, has_unknown, is_expr
from preflight.vocabulary.batch_statistics import of_target
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Fact, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Ref, Unknown, unknown

_HUB = ("transformers", "diffusers", "unsloth", "peft", "optimum", "trl")
_COPIES = {
    "train.copies.reference": {"ref", "reference", "teacher", "target", "frozen"},
    "train.copies.ema": {"ema", "averaged"},
}
_IDENTITIES = ("model.name", "model.path", "model.target", "model.architecture")
_DESCRIBING = (*_IDENTITIES, "model.config.", "model.kwargs.", "task")
_EMBEDDERS = ("SentenceTransformer", "CrossEncoder", "Transformer")
_OF_A_PART = ("model.name", "model.parameters")
"""What is not known of a class of the project that holds a library's model."""
_ASIDE = {"reward", "judge", "critic", "scorer", "metric", "evaluator"}


def task_of(class_name: str) -> str | None:
    """The task of a model class of transformers, by its name; None if the name does not tell."""
    tasks: dict[str, str] = table()["tasks"]
    class_name = class_name.removesuffix("WithValueHead")  # TRL's, around one of transformers
    if class_name in tasks:
        return tasks[class_name]
    return next(
        (task for suffix, task in tasks.items() if suffix.startswith(("For", "LM")) and class_name.endswith(suffix)),
        None,
    )


def _model_class(record: CallRecord) -> str | None:
    """The class of transformers or diffusers that a call makes a model of; None if it makes no model."""
    if (base := _extended(record)) is not None:
        return base
    if not record.name.startswith(_HUB) or record.receiver is not None:
        return None
    parts = record.name.split(".")
    name = parts[-2] if record.method in ("from_pretrained", "from_config", "_from_config") else parts[-1]
    if name.startswith(("Flax", "TF")):
        return None  # of JAX and TensorFlow
    if not name[:1].isupper() or name.endswith(tuple(table()["not_models"])):
        return None
    made = (
        record.method in ("from_pretrained", "from_config", "_from_config") or task_of(name) or name.endswith("Model")
    )
    return name if made else None


def _extended(record: CallRecord) -> str | None:
    """The class of transformers with a head that a class of the project extends, of a call that loads a model of it:
    `class Weighted(BertForSequenceClassification)`, `Weighted.from_pretrained(name)`."""
    cls = record.receiver_object
    if record.method != "from_pretrained" or not isinstance(cls, ClassValue):
        return None
    bases = [base.rpartition(".")[2] for base in cls.external_bases if base.startswith("transformers.")]
    return next((base for base in bases if task_of(base) is not None), None)


def extended_facts(records: Sequence[CallRecord], bindings: Sequence[Binding]) -> Iterator[Fact]:
    """The fact that the model is of a class of the project that extends one of transformers, or lengthens its input."""
    named = [binding.origin for binding in bindings if binding.field in _IDENTITIES]
    for record in records:
        cls = record.receiver_object
        if isinstance(cls, ClassValue) and (base := _extended(record)) is not None:
            identity = record.argument("pretrained_model_name_or_path", 0)
            if identity is not None and first_origin(identity) in named:
                yield Fact("extends", f"{cls.name}, a class of the program that extends {base}", record.origin)
                return
        elif isinstance(cls, ClassValue) and is_hub_class(cls) and _adds_to_the_input(cls):
            said = f"{cls.name}, a class of the program that gives the model keys or embeddings of its own"
            yield Fact("extends", said, record.origin)
            return


_ADDED = ("past_key_values", "inputs_embeds")
"""Arguments of a model with which a prefix or a prompt makes its sequences longer."""


def _adds_to_the_input(cls: ClassValue) -> bool:
    """Whether the forward pass of a class gives its model keys or embeddings that it makes itself."""
    forward = class_attribute(cls, "forward")
    if not isinstance(forward, FunctionValue) or isinstance(forward.node, ast.Lambda):
        return False
    inner = list(ast.walk(forward.node))
    made = {one.id for one in inner if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    taken = {one.arg for one in inner if isinstance(one, ast.arg)} - made
    return any(
        isinstance(one, ast.keyword) and one.arg in _ADDED and not _is_passed_on(one.value, taken) for one in inner
    )


def _is_passed_on(value: ast.expr, taken: Collection[str]) -> bool:
    """Whether an argument is one that the function has been given, or none."""
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Name) and value.id in taken)


def model_bindings(records: Sequence[CallRecord], project: Project, parameters: Collection[str] = ()) -> list[Binding]:
    """Bindings of every model made (the last of a kind wins), of adapters and of quantisation."""
    read = {id(record): _model_of(record, records, project, parameters) for record in records}
    models = [record for record in records if _identifies(read[id(record)])]
    objects = _shown(records)
    beside = [one for one in models if _copied(one, project) is None and not _aside(one, project)]
    chosen = _chosen(beside, objects, read)
    owners = {id(one): _owner(one, models, objects) for one in chosen}
    several = [] if chosen and all(owners.values()) else list(_several(chosen, read, project))
    another = objects.another([one.value for one in chosen if one.value is not None])
    if another is not None and not several and not any(owners.values()):
        several = [_beside(another, chosen[-1])]
    found: list[Binding] = []
    for record in records:
        bindings = read[id(record)]
        copied = _copied(record, project) if bindings else None
        if not bindings:
            found += under(record.conditions, read_call(calls(), record))
        elif copied is not None:
            found += under(record.conditions, [bind(copied, Const(1), None, record.origin)])
        elif record in chosen:
            owner = owners[id(record)]
            bindings = [b for b in bindings if not (several and b.field.startswith(_DESCRIBING))]
            if owner is None and all(map(_of_pipeline, chosen)):
                bindings = [_beside_denoiser(record)]
            bindings = _unless_rebuilt(record, bindings, records, objects)
            found += under(record.conditions, [_part_of(owner, record)] if owner is not None else bindings)
        elif record not in models and not _aside(record, project):
            found += under(record.conditions, bindings)
    return [*found, *several]


def beside_what_is_trained(records: Sequence[CallRecord]) -> list[Binding]:
    """The model is unknown where a program loads one, and trains a class of its own or a layer beside it."""
    objects = trained(records)
    made = [one for one in records if makes_model(one) and one.value is not None and objects.beside(one.value)]
    return [_part_of(objects.objects[0].made_by, made[-1])] if made else []


def _copied(record: CallRecord, project: Project) -> str | None:
    """The field of a copy of the weights that a call makes, by the name that it is assigned to."""
    said = words(" ".join(targets(record, project)))
    return next((field for field, names in _COPIES.items() if said & names), None)


def _owner(record: CallRecord, models: Sequence[CallRecord], objects: Trained) -> str | None:
    """The class of the project that the model of a call is a part of, if that has more."""
    others = [one.value for one in models if one.value is not None and not exclude_each_other(one, record)]
    return objects.larger(record.value, others) if record.value is not None else None


def _shown(records: Sequence[CallRecord]) -> Trained:
    """What is trained; where the text does not show it, any module of the project may be."""
    found = trained(records)
    if found.objects:
        return found
    made = [record.value for record in records if record.reached]
    modules = [one for one in made if isinstance(one, Instance) and is_module(one.cls)]
    inside = {id(part) for one in modules for part in reachable(one) if part is not one}
    return Trained((), tuple(one for one in modules if id(one) not in inside))


def _aside(record: CallRecord, project: Project) -> bool:
    return bool(words(" ".join(targets(record, project))) & _ASIDE)


def _chosen(models: Sequence[CallRecord], objects: Trained, read: Mapping[int, Sequence[Binding]]) -> list[CallRecord]:
    """The models that are trained, as far as the text shows what is trained. A call that the run does not reach, of a
    model that nothing names, says nothing beside a class that is trained: nanoGPT's `from_pretrained`."""
    shown = [one for one in models if one.value is not None and objects.has(one.value)]
    if shown or objects.of_project():
        kept = [one for one in models if one in shown or not one.reached or one.value is None]
        return [one for one in kept if one in shown or one.reached or _is_named(read[id(one)])]
    return list(models)


def _is_named(bindings: Sequence[Binding]) -> bool:
    """Whether what a call says of its model holds a name or dimensions, and not only that they are unknown."""
    return any(one.field in _IDENTITIES and not has_unknown(one.expr) for one in bindings)


def _several(
    models: Sequence[CallRecord], read: Mapping[int, Sequence[Binding]], project: Project
) -> Iterator[Binding]:
    """Different models beside each other, of which the text does not show which one is trained."""
    always = [one for one in models if not one.conditions and one.reached]
    kept = {_slot(one, project): one for one in always}
    identities = [next(b.expr for b in read[id(one)] if b.field in _IDENTITIES) for one in kept.values()]
    if any(not same(identities[0], other) for other in identities[1:]):
        last = always[-1]
        reason = "the program makes several models, and which of them it trains is not known"
        yield Binding("model.name", Const(Unknown(reason, Cause.not_modelled), last.origin), Rank.literal, last.origin)


def _slot(record: CallRecord, project: Project) -> object:
    """Where a model is kept: of several that one name is assigned to, the last is used."""
    alone = isinstance(next(iter(around(record, project)), None), (ast.Assign, ast.AnnAssign))
    return (record.path, record.function, targets(record, project)) if alone else id(record)


def _model_of(
    record: CallRecord, records: Sequence[CallRecord], project: Project, parameters: Collection[str]
) -> list[Binding]:
    """The bindings of a call that makes a model; empty if it makes none."""
    return _hub_model(record, records, project) or _named_model(record, parameters) or _trainers_model(record, project)


def _identifies(bindings: Sequence[Binding]) -> bool:
    return any(binding.field in _IDENTITIES for binding in bindings)


def _part_of(owner: str, record: CallRecord) -> Binding:
    """The model is unknown: what is trained is a class of the project, and this is a part of it or stands beside it."""
    kind = "a layer of torch" if owner.startswith("torch.nn.") else "a class of the project"
    words_ = f"what is trained is {owner}, {kind}, and {record.name}() makes another part"
    why = Unknown(words_, Cause.not_modelled, _OF_A_PART)
    return Binding("model.name", Const(why, record.origin), Rank.literal, record.origin)


def _beside(another: str, record: CallRecord) -> Binding:
    """The model is unknown: a large module of the program's own is trained beside it."""
    why = Unknown(f"the program trains {another} beside the model that {record.name}() makes", Cause.not_modelled)
    return Binding("model.name", Const(why, record.origin), Rank.literal, record.origin)


def _of_pipeline(record: CallRecord) -> bool:
    """Whether a call loads a part of a pipeline of diffusers that is not its denoiser."""
    folder = record.argument("subfolder")
    return folder is not None and str(constant(folder)).startswith(_OTHER_PARTS)


_OTHER_PARTS = ("vae", "vqvae", "movq", "text_encoder", "image_encoder", "safety_checker")


def _beside_denoiser(record: CallRecord) -> Binding:
    """The model is unknown: a pipeline's name stands for its denoiser, and another part of it is trained."""
    words_ = f"{record.name}() loads a part of the pipeline that is trained alone, and its memory is not modelled"
    return Binding("model.name", Const(Unknown(words_, Cause.not_modelled), record.origin), Rank.literal, record.origin)


def _unless_rebuilt(
    record: CallRecord, bindings: list[Binding], records: Sequence[CallRecord], objects: Trained
) -> list[Binding]:
    """The bindings of a model; it is unknown where the program cuts its layers or puts others in their place."""
    model = record.value
    part = rebuilt_part(model, records) if isinstance(model, Instance) else None
    if part is not None:
        said = f"the program changes {part} of the model that {record.name}() makes"
    elif model is not None and objects.cut(model):
        said = f"what is trained has some layers of the model that {record.name}() makes"
    else:
        return bindings
    why = Unknown(said, Cause.not_modelled)
    stated = {"model.name", *(one.field for one in bindings if one.field in _IDENTITIES)}
    unknown = [Binding(name, Const(why, record.origin), Rank.literal, record.origin) for name in sorted(stated)]
    return [*(one for one in bindings if one.field not in _IDENTITIES), *unknown]


def is_part(binding: Binding) -> bool:
    """Whether a binding says that the model is a class of the project, of which a library's model is a part."""
    value = binding.expr.value if isinstance(binding.expr, Const) else None
    return isinstance(value, Unknown) and value.cause is Cause.not_modelled and value.fields == _OF_A_PART


_CHOICES = Unknown("each choice of a sample is a sequence, and the samples say how many", Cause.run_time)


def _hub_model(record: CallRecord, records: Sequence[CallRecord], project: Project) -> list[Binding]:
    name = _model_class(record)
    if name is None:
        of_project = record.method == "from_pretrained" and is_hub_class(record.receiver_object)
        return _loading(record) if of_project else []
    task = task_of(name)
    found = [bind("task", Const(task, record.origin))] if task else []
    if task == "other":
        found += _perceiving(record, name)
    if name.endswith("ForMultipleChoice"):
        found.append(bind("train.sequences_per_sample", Const(_CHOICES, record.origin)))
    if name in table()["encoders"]:
        # an encoder with a head of the program's own: the head is small where there is no vocabulary in it
        found = [bind("task", Const("sequence-classification"), Rank.default)]
    if record.method != "from_pretrained":
        return [*found, *configuration(record.object("config", 0), records)]
    identity = record.argument("pretrained_model_name_or_path", 0) or record.argument("model_name")
    given = record.object("pretrained_model_name_or_path", 0) or record.object("model_name")
    if isinstance(given, External):  # its name says what it is called, and not what it is
        identity = unknown(f"{given.name} is in code that was not read", record.origin, Cause.out_of_project)
    if identity is not None:
        value = constant(identity)
        local = isinstance(value, str) and project.exists(f"{value.rstrip('/')}/config.json")
        found.append(bind("model.path" if local else "model.name", identity))
    return [*found, *changes(record.object("config"), records), *_loading(record)]


def _perceiving(record: CallRecord, name: str) -> list[Binding]:
    """The class of the model, if its architecture has several, and the number of labels."""
    found = [bind("model.config.architectures", Const(name, record.origin))] if name in table()["classes"] else []
    labels = constant(record.argument("id2label"))
    count = record.argument("num_labels") or (Const(len(labels)) if isinstance(labels, Mapping) else None)
    return [*found, *([bind("model.config.num_labels", count)] if count is not None else [])]


def _trainers_model(record: CallRecord, project: Project) -> list[Binding]:
    """`SFTTrainer(model="org/name", ...)`: a trainer of TRL loads the model that it is given by name."""
    task: str | None = table()["trl_trainers"].get(record.method)
    model = record.argument("model", 0)
    if task is None or model is None or not record.name.startswith(("trl.", "unsloth")):
        return []
    value, made = constant(model), record.object("model", 0)
    if not isinstance(value, str) and (isinstance(model, Const) or made is None or not is_expr(made)):
        return []  # an object made elsewhere, or nothing known
    local = isinstance(value, str) and project.exists(f"{value.rstrip('/')}/config.json")
    return [bind("model.path" if local else "model.name", model), bind("task", Const(task), Rank.default)]


def _loading(record: CallRecord) -> list[Binding]:
    """Keywords of from_pretrained that decide memory."""
    found = dtype_and_attention(record.kwargs)
    if (checkpoints := record.argument("gradient_checkpointing")) is not None:  # of the configuration
        found.append(bind("train.gradient_checkpointing", when(checkpoints, Const(True), Const(None))))
    configured = record.object("quantization_config")
    if configured is not None and not is_expr(configured):
        return [*found, *_length(record)]  # it decides, where both are given (quantizers/auto.py)
    for bits, kind in (("load_in_4bit", "fp4"), ("load_in_8bit", "int8")):
        loaded = record.argument(bits)
        if loaded is not None and constant(loaded) is not False:
            found.append(bind("train.quantization.type", when(loaded, Const(kind), Const(None))))
    return [*found, *_length(record)]


def _length(record: CallRecord) -> list[Binding]:
    length = record.argument("max_seq_length")
    return [bind("train.seq_len", length)] if length is not None else []


def _named_model(record: CallRecord, parameters: Collection[str]) -> list[Binding]:
    """Models of torchvision, timm, open_clip, CLIP, sentence-transformers and torch.hub."""
    if record.receiver is None and record.name.startswith("torchvision.models.") and _builds(record):
        if record.method == "get_model" and record.args:
            return _target("torchvision", record.args[0], record)
        return _target("torchvision", Const(record.method, record.origin), record)
    if record.name.startswith("segmentation_models_pytorch.") and record.method[:1].isupper():
        return _segmenter(record)
    looked_up = _looked_up(record, parameters)
    if looked_up is not None:
        return _target("torchvision", looked_up, record)
    name = record.argument("model_name", 0)
    if record.name in ("timm.create_model", "timm.models.create_model") and name is not None:
        return _of_timm(name, record)
    if record.name in ("open_clip.create_model_and_transforms", "open_clip.create_model", "clip.load") and record.args:
        said = record.args[0]
        return [bind("model.name", spelled_exactly(said, table()["clip_names"])), bind("task", Const("contrastive"))]
    if record.name.startswith("sentence_transformers") and record.method in _EMBEDDERS:
        return read_call(calls(), record)
    if record.name == "torch.hub.load" and len(record.args) > 1 and "pytorch/vision" in str(constant(record.args[0])):
        return _target("torchvision", record.args[1], record)
    return []


def _builds(record: CallRecord) -> bool:
    """Whether a function of torchvision.models makes a model, and does not list, load or look into one."""
    if ".feature_extraction." in record.name or "._" in record.name or ".utils." in record.name:
        return False
    name = record.method
    return name[:1].islower() and (name == "get_model" or not name.startswith(("get_", "list_", "load_")))


def _of_timm(name: Expr, record: CallRecord) -> list[Binding]:
    """A model of timm by its name, which may be one that the program registers itself: then it is no model of timm."""
    if isinstance(record.value, Const) and isinstance(record.value.value, Unknown):
        return [Binding("model.name", record.value, Rank.literal, record.origin)]
    own = isinstance(record.value, Instance) and record.value.cls is not None
    return [] if own else _target("timm", name, record)


def _segmenter(record: CallRecord) -> list[Binding]:
    """`smp.Unet("resnet34", classes=11)`."""
    if record.method.endswith(("Loss", "Dataset", "Metric")):
        return []
    target = Const(f"segmentation_models_pytorch:{record.method}", record.origin)
    found = [bind("model.target", target), bind("task", Const("other"), Rank.default)]
    given = {"encoder_name": record.argument("encoder_name", 0), **record.kwargs}
    kept = {k: v for k, v in given.items() if v is not None and k in ("encoder_name", "classes", "in_channels")}
    return [*found, *(bind(f"model.kwargs.{name}", value) for name, value in kept.items())]


def _looked_up(record: CallRecord, parameters: Collection[str]) -> Expr | None:
    """`models.__dict__[args.arch]()`, `getattr(models, args.arch)()`: the name, if it is a parameter or a literal."""
    if isinstance(record.callee, (FunctionValue, ClassValue)):
        return None  # of a module of the project that is called `models`
    made = record.node.func if isinstance(record.node, ast.Call) else None
    key: ast.expr | None = None
    if isinstance(made, ast.Subscript) and record.receiver == "torchvision.models.__dict__":
        key = made.slice
    elif isinstance(made, ast.Call) and ast.unparse(made.func) == "getattr" and len(made.args) > 1:
        key = made.args[1] if ast.unparse(made.args[0]).endswith("models") else None
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return Const(key.value, record.origin)
    name = key.attr if isinstance(key, ast.Attribute) else key.id if isinstance(key, ast.Name) else None
    return Ref(name, record.origin) if name is not None and name in parameters else None


def spelled_exactly(expr: Expr, names: Mapping[str, str]) -> Expr:
    """As `spelled`, but upper and lower case differ."""
    value = constant(expr)
    if not isinstance(value, Unknown):
        known = names.get(str(value))
        return Const(
            known if known else Unknown(f"{value} is not a model that preflight knows", Cause.model_unknown),
            first_origin(expr),
        )
    return Op("get", (Const(dict(names)), expr), expr.origin)


_PLAIN = frozenset(
    {"model_name", "name", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "pretrained_strict", "cache_dir"}
    | {"checkpoint_path", "weights", "weights_backbone", "pretrained_backbone", "progress"}
    | {"num_classes", "img_size", "in_chans", "global_pool", "drop_rate", "drop_path_rate", "scriptable", "exportable"}
    | {"no_jit", "box_detections_per_img", "box_score_thresh", "box_nms_thresh", "rpn_score_thresh"}
)
"""Arguments of timm's and torchvision's constructors that leave what training keeps as it is, or have fields of their
own. DropPath and the dropout before the head keep a mask, of a number for each sample and of the features."""


def _target(library: str, name: Expr, record: CallRecord) -> list[Binding]:
    value = constant(name)
    prefix = Const(f"{library}:")
    whole: Expr = fold(Op("concat", (prefix, name)), first_origin(name))
    task = "other" if any(part in record.name for part in (".detection.", ".segmentation.")) else "image-classification"
    found = [bind("model.target", whole), bind("task", Const(task), Rank.default)]
    classes = record.argument("num_classes")
    if classes is not None and is_dimension(classes):
        found.append(bind("model.kwargs.num_classes", classes))
    if library == "timm" and (side := record.kwargs.get("img_size")) is not None:
        found.append(bind("train.image_size", side, Rank.default))
    others = {
        name: given for name, given in record.kwargs.items() if name not in _PLAIN and constant(given) is not None
    }
    found += [bind(f"model.kwargs.{name}", given) for name, given in others.items()]
    if isinstance(value, str) and (size := re.search(r"(?:patch\d+|window\d+)_(\d{3})", value)):
        found.append(bind("train.image_size", Const(int(size.group(1))), Rank.default, first_origin(name)))
    return found


def batch_norm(bindings: Sequence[Binding], records: Sequence[CallRecord]) -> list[Fact]:
    """Whether the model has BatchNorm layers: it is a known convolutional model, or the program makes such layers."""
    for record in records:
        if record.name.startswith("torch.nn.") and record.method in (
            "BatchNorm1d",
            "BatchNorm2d",
            "BatchNorm3d",
            "SyncBatchNorm",
        ):
            return [Fact("batch_norm", True, record.origin)]
    for binding in bindings:
        target = constant(binding.expr)
        if binding.field == "model.target" and isinstance(target, str) and of_target(target) is True:
            return [Fact("batch_norm", True, binding.origin)]
    return []
