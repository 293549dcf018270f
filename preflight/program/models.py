"""Calls that make models -> model.*, task, train.quantization, train.peft, train.attention, checkpointing, copies.

A model is known by what it was made with: a hub name, a configuration, a constructor of torchvision, timm or
open_clip. A second model that is called reference, teacher or EMA is a copy of the weights, not what is trained.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from preflight.program.adaptations import dtype_and_attention
from preflight.program.bindings import bind, constant, first_origin, fold, under, when
from preflight.program.call_site import parents, targets, words
from preflight.program.rows import calls, read_call
from preflight.python.objects import CallRecord, Instance, is_expr
from preflight.vocabulary.batch_statistics import of_target
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Fact, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Ref, Unknown

_HUB = ("transformers", "diffusers", "unsloth", "peft", "optimum")
_COPIES = {
    "train.copies.reference": {"ref", "reference", "teacher", "target", "frozen"},
    "train.copies.ema": {"ema", "averaged"},
}
_EMBEDDERS = ("SentenceTransformer", "CrossEncoder", "Transformer")
_ASIDE = {"reward", "judge", "critic", "scorer", "metric", "evaluator"}


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """The shipped names."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("models.json").read_bytes())
    return loaded


def task_of(class_name: str) -> str | None:
    """The task of a model class of transformers, by its name; None if the name does not tell."""
    tasks: dict[str, str] = table()["tasks"]
    if class_name in tasks:
        return tasks[class_name]
    return next(
        (task for suffix, task in tasks.items() if suffix.startswith(("For", "LM")) and class_name.endswith(suffix)),
        None,
    )


def _model_class(record: CallRecord) -> str | None:
    """The class of transformers or diffusers that a call makes a model of; None if it makes no model."""
    if not record.name.startswith(_HUB) or record.receiver is not None:
        return None
    parts = record.name.split(".")
    name = parts[-2] if record.method in ("from_pretrained", "from_config", "_from_config") else parts[-1]
    if not name[:1].isupper() or name.endswith(tuple(table()["not_models"])):
        return None
    made = (
        record.method in ("from_pretrained", "from_config", "_from_config") or task_of(name) or name.endswith("Model")
    )
    return name if made else None


def model_bindings(records: Sequence[CallRecord], project: Project, parameters: Collection[str] = ()) -> list[Binding]:
    """Bindings of every model made (the last of a kind wins), of adapters and of quantisation."""
    found: list[Binding] = []
    for record in records:
        bindings = _hub_model(record, project) or _named_model(record, parameters) or _trainers_model(record, project)
        if not bindings:
            found += under(record.conditions, read_call(calls(), record))
            continue
        aside = words(" ".join(targets(record, project)))
        copied = next((field for field, said in _COPIES.items() if aside & said), None)
        if copied is not None:
            found += under(record.conditions, [bind(copied, Const(1), None, record.origin)])
        elif not aside & _ASIDE:
            found += under(record.conditions, bindings)
    return found


def _hub_model(record: CallRecord, project: Project) -> list[Binding]:
    name = _model_class(record)
    if name is None:
        return []
    task = task_of(name)
    found = [bind("task", Const(task, record.origin))] if task else []
    if task == "other":
        found += _perceiving(record, name)
    if name in table()["encoders"]:
        # an encoder with a head of the program's own: the head is small where there is no vocabulary in it
        found = [bind("task", Const("sequence-classification"), Rank.default)]
    if record.method != "from_pretrained":
        return [*found, *configuration(record.object("config", 0), name)]
    identity = record.argument("pretrained_model_name_or_path", 0) or record.argument("model_name")
    if identity is not None:
        value = constant(identity)
        local = isinstance(value, str) and project.exists(f"{value.rstrip('/')}/config.json")
        found.append(bind("model.path" if local else "model.name", identity))
    return [*found, *_loading(record)]


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
    for bits, kind in (("load_in_4bit", "fp4"), ("load_in_8bit", "int8")):
        loaded = record.argument(bits)
        if loaded is not None and constant(loaded) is not False:
            found.append(bind("train.quantization.type", when(loaded, Const(kind), Const(None))))
    if (length := record.argument("max_seq_length")) is not None:
        found.append(bind("train.seq_len", length))
    return found


def configuration(config: object, model_class: str) -> list[Binding]:
    """model.architecture and model.config.* of a `XConfig(...)` object; empty if the object is not known."""
    made = config.record if isinstance(config, Instance) else None
    if made is None:
        return []
    if made.method == "from_pretrained":
        identity = made.argument("pretrained_model_name_or_path", 0)
        return [] if identity is None else [bind("model.name", identity)]
    kind = made.method.removesuffix("Config")
    if not made.method.endswith("Config") or not kind:
        return []
    found = [bind("model.architecture", Const(table()["model_types"].get(kind, kind.lower()), made.origin))]
    return found + [bind(f"model.config.{key}", expr) for key, expr in made.kwargs.items() if _dimension(expr)]


def _dimension(expr: Expr) -> bool:
    value = constant(expr)
    return isinstance(value, (int, float, str, bool)) or (isinstance(value, Unknown) and not isinstance(expr, Const))


def _named_model(record: CallRecord, parameters: Collection[str]) -> list[Binding]:
    """Models of torchvision, timm, open_clip, CLIP, sentence-transformers and torch.hub."""
    builds = record.receiver is None and record.method[:1].islower() and record.method != "get_weight"
    if builds and record.name.startswith("torchvision.models."):
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
        return _target("timm", name, record)
    if record.name in ("open_clip.create_model_and_transforms", "open_clip.create_model", "clip.load") and record.args:
        said = record.args[0]
        return [bind("model.name", spelled_exactly(said, table()["clip_names"])), bind("task", Const("contrastive"))]
    if record.name.startswith("sentence_transformers") and record.method in _EMBEDDERS:
        return read_call(calls(), record)
    if record.name == "torch.hub.load" and len(record.args) > 1 and "pytorch/vision" in str(constant(record.args[0])):
        return _target("torchvision", record.args[1], record)
    return []


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


def _target(library: str, name: Expr, record: CallRecord) -> list[Binding]:
    value = constant(name)
    prefix = Const(f"{library}:")
    whole: Expr = fold(Op("concat", (prefix, name)), first_origin(name))
    task = "other" if any(part in record.name for part in (".detection.", ".segmentation.")) else "image-classification"
    found = [bind("model.target", whole), bind("task", Const(task), Rank.default)]
    classes = record.argument("num_classes")
    if classes is not None and _dimension(classes):
        found.append(bind("model.kwargs.num_classes", classes))
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


# Parts of a model that get no gradients -> train.frozen: prefixes of module names.
#
# `for p in model.vision_model.parameters(): p.requires_grad = False` and `model.vision_model.requires_grad_(False)`,
# for models that a library made (their module names are known). A whole model that is frozen is not a part of it:
# adapters or a new head say what trains then.

_LIBRARIES = ("transformers.", "torchvision.", "timm.", "open_clip.")


def frozen_bindings(records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """One binding with every frozen part; empty if no part is frozen."""
    parts = [(part, record) for record in records if (part := _part(record, project)) is not None]
    if not parts:
        return []
    names = tuple(dict.fromkeys(part for part, _ in parts))
    last = parts[-1][1]
    return list(under(last.conditions, [bind("train.frozen", Const(names, last.origin), Rank.read)]))


def _part(record: CallRecord, project: Project) -> str | None:
    """The module path that the call freezes; None if it freezes none."""
    if record.receiver is None or not record.receiver.startswith(_LIBRARIES):
        return None
    if record.method == "requires_grad_":
        wanted = constant(record.argument("requires_grad", 0))
        path = record.name.split(".")[:-1] if wanted is False else []
    elif record.method in ("parameters", "named_parameters") and _clears_gradients(record, project):
        path = record.name.split(".")[:-1]
    else:
        return None
    inner = path[2:] if path[:1] == ["self"] else path[1:]
    return ".".join(inner) or None


def _clears_gradients(record: CallRecord, project: Project) -> bool:
    """Whether a `for` iterates over the call, and its body always sets `requires_grad = False`."""
    loop = parents(record.path, project).get(record.node)
    if not isinstance(loop, ast.For) or loop.iter is not record.node:
        return False
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and node.value.value is False
        and any(isinstance(target, ast.Attribute) and target.attr == "requires_grad" for target in node.targets)
        for node in loop.body
    )
