"""The parameters of a library's model or layer that is a part of a class of the project, at least.

`self.encoder = AutoModel.from_pretrained(name)` and `self.backbone = torchvision.models.resnet50()` hold the whole
model but for its head, which classes of the project replace: `part_parameters.json` has the counts without heads. A
call that makes something else of the model (other dimensions, weights in another type, some of its layers) is not
counted. Layers of timm's transformers are counted by their arguments (timm 0.9 and 1.0, `layers/` and
`models/vision_transformer.py`); what their switches add is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypedDict, cast

from preflight.program.bindings import constant, fold, is_unknown
from preflight.program.call_site import is_module
from preflight.program.layer_parameters import NotCounted, times, total
from preflight.program.model_configurations import table
from preflight.program.trained import is_slice
from preflight.python.access import PARTS
from preflight.python.objects import Abstract, Attribute, CallRecord, Instance, alternatives
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown


class _Table(TypedDict):
    hub: dict[str, int]
    towers: dict[str, dict[str, int]]
    torchvision: dict[str, int]
    timm: dict[str, list[int]]
    """Without its head; of these, the first layer and the embeddings of positions; its stages; how many they are."""
    heads: list[str]
    first_layers: dict[str, dict[str, int]]


_HARMLESS = frozenset({
    "pretrained_model_name_or_path", "num_labels", "cache_dir", "output_hidden_states", "output_attentions",
    "return_dict", "add_pooling_layer", "local_files_only", "token", "use_auth_token", "trust_remote_code", "revision",
    "attn_implementation", "ignore_mismatched_sizes", "torchscript", "use_safetensors",
    "model_name", "pretrained", "weights", "progress", "num_classes", "drop_rate", "drop_path_rate", "global_pool",
    "checkpoint_path",
})  # fmt: skip
"""Arguments that change neither the layers below the head nor the type of the weights."""
_PARTLY = ("Encoder", "TextModel", "VisionModel", "Decoder", "EncoderModel", "WithProjection", "DecoderModel")
"""How classes of transformers end that hold a part of a model; those of `towers` are counted by themselves."""


class _Counts(dict[str, int]):
    """Name -> parameters, as a part of expressions: there is one of each table."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@lru_cache(maxsize=1)
def _table() -> _Table:
    return cast(_Table, json.loads(Path(__file__).with_name("part_parameters.json").read_bytes()))


@lru_cache(maxsize=16)
def _hub(kind: str) -> _Counts:
    """The counts of a class by whole hub ids and by their last parts, which is how older programs name them."""
    full = _table()["towers"].get(kind) or _table()["hub"]
    return _Counts({**{name.rpartition("/")[2]: count for name, count in full.items()}, **full})


@lru_cache(maxsize=1)
def _torchvision() -> _Counts:
    return _Counts(_table()["torchvision"])


@lru_cache(maxsize=16)
def _timm(stages: bool, last: int | None, first: bool, positions: bool) -> _Counts:
    """The counts of timm's models, or of their stages up to the `last`; without the first layer, which has as many
    channels as the samples, and without what has as many positions as they are large, where these are not the usual."""
    found = _Counts()
    for name, (whole, *less, of_stages, count) in _table()["timm"].items():
        if not stages or (count and (last is None or last % count == count - 1)):
            left_out = sum(size for size, out in zip(less, (first, positions), strict=True) if out)
            found[name] = (of_stages if stages else whole) - left_out
    return found


_OF_TIMM = frozenset({"features_only", "out_indices", "in_chans", "img_size"})
"""Arguments of timm's constructor that are counted with."""


def _counts_of_timm(record: CallRecord) -> _Counts | None:
    """The counts of `timm.create_model(name, features_only=True, out_indices=(0, 1, 2, 3), in_chans=1)`."""
    given = {name: constant(record.kwargs[name]) for name in _OF_TIMM & record.kwargs.keys()}
    stages, kept = given.get("features_only", False), given.get("out_indices")
    if not isinstance(stages, bool) or (kept is not None and not isinstance(kept, tuple)):
        return None
    indices = [one for one in kept or () if isinstance(one, int)]
    if kept is not None and (not indices or len(indices) < len(kept)):
        return None
    last = None if kept is None else -1 if -1 in indices else max(indices)
    return _timm(stages, last, given.get("in_chans", 3) != 3, given.get("img_size") is not None)


def model_part(value: Instance) -> Expr | None:
    """At least how many parameters a library's model has, without its head; None where that is not known.

    Parts that the program put in the place of the head, or of the first layer, are left to the caller.
    """
    record = value.record
    if record is None or not record.complete or record.more:
        return None
    library, name = _named(record)
    harmless = _HARMLESS | _OF_TIMM if library == "timm" else _HARMLESS
    if library is None or name is None or is_unknown(name) or record.kwargs.keys() - harmless:
        return None
    if library == "hub":
        counts: _Counts | None = _hub(_class_of(record))
    else:
        counts = _counts_of_timm(record) if library == "timm" else _torchvision()
    if counts is None:
        return None
    replaced = {key for key in value.attributes if key not in _table()["heads"]}
    known = constant(name)
    if not isinstance(known, str):
        return None if replaced else _looked_up(counts, name)
    count = counts.get(known)
    first = _table()["first_layers"]
    if count is None or any(known not in first.get(str(key), {}) for key in replaced):
        return None
    return Const(count - sum(first[str(key)][known] for key in replaced))


_POOLED_LAST = ("resnet", "resnext", "wide_resnet", "convnext", "efficientnet", "mobilenet_v3", "vgg", "alexnet",
                "regnet")  # fmt: skip
"""Models of torchvision whose head comes behind a layer that pools: both are the last children."""
_OF_CHILDREN_ALONE = ("vit_",)
"""Models of torchvision that hold parameters beside their children."""


def without_last_children(model: Instance, cut: str) -> Expr | None:
    """At least the parameters of the first children of a model of torchvision (`[:-1]`: without its head)."""
    name = model.made_by.rpartition(".")[2]
    last = {"[:-1]": ("",), "[:-2]": _POOLED_LAST}.get(cut, ())
    known = model.made_by.startswith("torchvision.models.") and name.startswith(last)
    return model_part(model) if known and not name.startswith(_OF_CHILDREN_ALONE) and not model.attributes else None


def _looked_up(counts: _Counts, name: Expr) -> Expr:
    """The count of a model whose name is a setting; unknown for other models."""
    words = Unknown("how many parameters the part of that name has is not known", Cause.model_unknown)
    known = Const(counts)
    return Op("if", (Op("in", (name, known)), Op("get", (known, name)), Const(words, name.origin)), name.origin)


def _class_of(record: CallRecord) -> str:
    """The class of a call of `from_pretrained`."""
    return record.name.split(".")[-2]


def _named(record: CallRecord) -> tuple[str | None, Expr | None]:
    """The library of a call that makes a model, and the model's name there."""
    if record.name.startswith("torchvision.models.") and record.method[:1].islower():
        return "torchvision", Const(record.method, record.origin)
    if record.name in ("timm.create_model", "timm.models.create_model") and len(record.args) <= 2:
        return "timm", record.argument("model_name", 0)
    if record.name.startswith("transformers.") and record.method == "from_pretrained" and len(record.args) <= 1:
        kind = _class_of(record)
        partly = kind.endswith(_PARTLY) and kind not in _table()["towers"]
        partly = partly or kind.startswith(("Flax", "TF")) or kind.endswith(tuple(table()["not_models"]))
        return (None, None) if partly else ("hub", record.argument("pretrained_model_name_or_path", 0))
    return None, None


_MAKERS = ("torchvision.models.", "timm.create_model", "timm.models.", "torch.hub.load", "segmentation_models_pytorch.",
           "open_clip.create_model", "efficientnet_pytorch.", "monai.networks.nets.", "diffusers.")  # fmt: skip
"""How the names of calls begin that make a library's model."""


def is_library_model(record: CallRecord) -> bool:
    """Whether a call makes a model of a library."""
    return record.qualified.startswith(_MAKERS) or _named(record)[0] is not None


_OF_HEADS = frozenset(
    {"score", "qa_outputs", "cls", "classification_head", "out_proj", "avgpool", "global_pool", "config"}
    | {"generation_config"}
)
"""Parts that are small, or no layers, whatever stands in their place, beside the heads of the table."""
_LAYERS_OF_LAYERS = ("torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.Identity")


_LENGTHENING = ("pop", "insert", "append", "extend")
"""Methods of a list of layers that make it shorter or longer."""


def rebuilt_part(model: Instance, records: Sequence[CallRecord]) -> str | None:
    """The path of a part of a library's model, not of its head, that the program cuts, deletes or gives layers of its
    own: `model.encoder.layer = model.encoder.layer[:6]`, `model.encoder.layer.pop(0)`, and `layer.mlp.up.weight.data =
    torch.chunk(weight, ranks)[rank]` of tensor parallelism by hand. None if there is none."""
    own = {key: value for key, value in model.attributes.items() if isinstance(key, str)}
    deep = model.state.get(PARTS)
    for path, value in {**own, **(deep if isinstance(deep, dict) else {})}.items():
        if not _is_small(path) and (value is None or any(map(_rebuilds, alternatives(value)))):
            return str(path)
    called = (_path_in(model, one.receiver_object) for one in records if one.method in _LENGTHENING)
    return next((path for path in called if path and not _is_small(path)), None)


def _is_small(path: str) -> bool:
    return bool(set(path.split(".")) & {*_table()["heads"], *_OF_HEADS})


def _path_in(model: Instance, part: Abstract | None) -> str:
    """The path of a part that is not known otherwise; empty if it is not of the model."""
    path: list[str] = []
    while isinstance(part, Attribute):
        path.insert(0, part.name)
        part = part.receiver
    return ".".join(path) if part is model else ""


def _rebuilds(value: Abstract) -> bool:
    if _is_piece(value):
        return True
    if isinstance(value, Attribute):
        return is_slice(value)
    return isinstance(value, Instance) and (is_module(value.cls) or value.made_by in _LAYERS_OF_LAYERS)


_CUTS = ("split", "chunk", "tensor_split", "narrow")
"""Functions of torch and methods of tensors that give pieces of a tensor."""


def _is_piece(value: Abstract | None) -> bool:
    """Whether a value is a piece of a tensor that the program cut, wherever it was moved to:
    `torch.split(weight, rows)[rank].to(device)`."""
    while value is not None:
        if isinstance(value, Attribute):
            value = value.receiver
        elif isinstance(value, Instance) and value.record is not None:
            if value.record.method in _CUTS:
                return True
            value = value.record.receiver_object
        else:
            return False
    return False


# --- layers of timm ---------------------------------------------------------------------------------------------------


def layer_part(record: CallRecord) -> Expr | None:
    """At least the parameters of a layer of timm's; None for another call. Raises NotCounted."""
    layer = _LAYERS.get(record.method) if record.name.startswith("timm.") else None
    return None if layer is None or not record.complete else layer(record)


def _size(record: CallRecord, name: str, position: int, default: Expr | None = None) -> Expr:
    found = record.argument(name, position)
    if found is not None and constant(found) is None and default is not None:
        return default
    found = default if found is None else found
    if found is None or is_unknown(found):
        raise NotCounted(f"{name} of {record.name} is not known")
    return found


def _biased(record: CallRecord, position: int) -> Expr:
    found = record.argument("qkv_bias", position) or Const(False)
    if is_unknown(found):
        return Const(0)
    return fold(Op("if", (found, Const(1), Const(0))))


def _attention(width: Expr, bias: Expr) -> Expr:
    """Query, key and value in one layer, then the projection with its bias."""
    return total([times(Const(4), width, width), times(Const(3), width, bias), width])


def _mlp(width: Expr, hidden: Expr, out: Expr) -> Expr:
    return total([times(width, hidden), hidden, times(hidden, out), out])


def _of_attention(record: CallRecord) -> Expr:
    return _attention(_size(record, "dim", 0), _biased(record, 2))


def _of_mlp(record: CallRecord) -> Expr:
    width = _size(record, "in_features", 0)
    return _mlp(width, _size(record, "hidden_features", 1, width), _size(record, "out_features", 2, width))


def _of_block(record: CallRecord) -> Expr:
    width = _size(record, "dim", 0)
    ratio = _size(record, "mlp_ratio", 2, Const(4.0))
    hidden = fold(Op("int", (Op("*", (width, ratio)),)))
    norms = times(Const(4), width)
    return total([norms, _attention(width, _biased(record, 3)), _mlp(width, hidden, width)])


def _of_patches(record: CallRecord) -> Expr:
    side, width = _size(record, "patch_size", 1, Const(16)), _size(record, "embed_dim", 3, Const(768))
    channels = _size(record, "in_chans", 2, Const(3))
    square = constant(side)
    if isinstance(square, tuple) and len(square) == 2 and all(isinstance(one, int) for one in square):
        cells: Expr = Const(int(str(square[0])) * int(str(square[1])))
    elif isinstance(square, tuple):
        raise NotCounted("the patches of timm's PatchEmbed are not known")
    else:
        cells = times(side, side)
    return total([times(channels, width, cells), width])


_LAYERS: Mapping[str, Callable[[CallRecord], Expr]] = {
    "Attention": _of_attention, "Mlp": _of_mlp, "Block": _of_block, "PatchEmbed": _of_patches,
    **dict.fromkeys(("DropPath", "Identity"), lambda record: Const(0)),
}  # fmt: skip
