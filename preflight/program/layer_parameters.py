"""The parameters of one layer of torch.nn, as an expression over the arguments that make it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from preflight.program.bindings import constant, fold, is_unknown
from preflight.python.objects import Abstract, CallRecord, Instance
from preflight.vocabulary.values import Const, Expr, Op

_CONVOLUTIONS = {f"{kind}{size}d": (size, at) for kind, at in (("Conv", 6), ("ConvTranspose", 6)) for size in (1, 2, 3)}
"""Layer -> dimensions of its kernel, position of `groups`; `bias` follows it (torch.nn.modules.conv)."""
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
WITHOUT_PARAMETERS = frozenset({
    "Identity", "Flatten", "Unflatten", "ReLU", "ReLU6", "LeakyReLU", "GELU", "SiLU", "ELU", "CELU", "SELU", "GLU",
    "Mish", "Sigmoid", "LogSigmoid", "Tanh", "Tanhshrink", "Softplus", "Softsign", "Softmax", "Softmax2d",
    "LogSoftmax", "Softmin", "Hardtanh", "Hardswish", "Hardsigmoid", "Hardshrink", "Softshrink", "RReLU", "Threshold",
    "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "MaxPool1d", "MaxPool2d",
    "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
    "MaxUnpool3d", "LPPool1d", "LPPool2d", "FractionalMaxPool2d", "Upsample", "UpsamplingNearest2d",
    "UpsamplingBilinear2d", "PixelShuffle", "PixelUnshuffle", "ChannelShuffle", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
    "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d",
    "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "CircularPad1d", "CircularPad2d", "Fold", "Unfold",
    "CosineSimilarity", "PairwiseDistance", "LocalResponseNorm", "CrossMapLRN2d",
})  # fmt: skip
"""Layers of torch.nn without parameters; its losses end in "Loss"."""
_MADE = ("zeros", "ones", "randn", "rand", "empty", "full", "Tensor", "FloatTensor")


class NotCounted(Exception):
    """A part whose parameters are not known, in words."""


def _size(record: CallRecord, name: str, position: int | None, default: int | None = None) -> Expr:
    found = record.argument(name, position)
    if found is None and default is not None:
        return Const(default)
    if found is None or is_unknown(found) or isinstance(constant(found), bool):
        raise NotCounted(f"{name} of torch.nn.{record.method} is not known")
    return found


def _has(record: CallRecord, name: str, position: int | None, default: bool = True) -> Expr:
    """1 where a switch of a layer is on, as an expression."""
    found = record.argument(name, position)
    if found is None:
        return Const(int(default))
    if is_unknown(found):
        raise NotCounted(f"{name} of torch.nn.{record.method} is not known")
    return fold(Op("if", (found, Const(1), Const(0))))


def _linear(record: CallRecord) -> Mapping[str, Expr]:
    inside, outside = _size(record, "in_features", 0), _size(record, "out_features", 1)
    return {"weight": times(inside, outside), "bias": times(outside, _has(record, "bias", 2))}


def _convolution(record: CallRecord) -> Mapping[str, Expr]:
    size, at = _CONVOLUTIONS[record.method]
    inside, outside = _size(record, "in_channels", 0), _size(record, "out_channels", 1)
    kernel = constant(_size(record, "kernel_size", 2))
    if isinstance(kernel, int):
        cells: Expr = Const(kernel**size)
    elif isinstance(kernel, tuple) and all(isinstance(one, int) for one in kernel):
        cells = Const(math.prod(int(str(one)) for one in kernel) if len(kernel) > 1 else int(str(kernel[0])) ** size)
    else:
        side = _size(record, "kernel_size", 2)
        sides = side.operands if isinstance(side, Op) and side.operator == "tuple" else [side] * size
        cells = times(*sides)
    whole = times(inside, outside, cells)
    groups = _size(record, "groups", at, 1)
    weight = whole if constant(groups) == 1 else fold(Op("//", (whole, groups)))
    return {"weight": weight, "bias": times(outside, _has(record, "bias", at + 1))}


def _normalising(name: str, at: int, default: bool = True) -> Callable[[CallRecord], Mapping[str, Expr]]:
    def count(record: CallRecord) -> Mapping[str, Expr]:
        width = times(_size(record, name, 1 if name == "num_channels" else 0), _has(record, "affine", at, default))
        return {"weight": width, "bias": width}

    return count


def _layer_norm(record: CallRecord) -> Mapping[str, Expr]:
    shape = _size(record, "normalized_shape", 0)
    width = times(*shape.operands) if isinstance(shape, Op) and shape.operator == "tuple" else shape
    if isinstance(found := constant(width), tuple):
        width = Const(math.prod(int(str(one)) for one in found))
    width = times(width, _has(record, "elementwise_affine", 2))
    return {"weight": width, "bias": Const(0) if record.method == "RMSNorm" else times(width, _has(record, "bias", 3))}


def _embedding(record: CallRecord) -> Mapping[str, Expr]:
    return {"weight": times(_size(record, "num_embeddings", 0), _size(record, "embedding_dim", 1))}


def _bilinear(record: CallRecord) -> Mapping[str, Expr]:
    outside = _size(record, "out_features", 2)
    weight = times(_size(record, "in1_features", 0), _size(record, "in2_features", 1), outside)
    return {"weight": weight, "bias": times(outside, _has(record, "bias", 3))}


def _recurrent(record: CallRecord) -> Mapping[str, Expr]:
    """torch.nn.modules.rnn: two weights and two biases for each layer and direction."""
    if constant(record.argument("proj_size") or Const(0)) != 0 or (record.method == "RNN" and len(record.args) > 3):
        raise NotCounted(f"torch.nn.{record.method} is not counted")
    inside, hidden = _size(record, "input_size", 0), _size(record, "hidden_size", 1)
    layers = _size(record, "num_layers", 2, 1)
    ways = fold(Op("+", (Const(1), _has(record, "bidirectional", 6, False))))
    biases = times(Const(2), _has(record, "bias", 3))
    first = times(hidden, total([inside, hidden, biases]))
    later = times(hidden, total([times(hidden, ways), hidden, biases]))
    more = fold(Op("-", (layers, Const(1))))
    return {"all": times(Const(_GATES[record.method]), ways, total([first, times(more, later)]))}


def _cell(record: CallRecord) -> Mapping[str, Expr]:
    inside, hidden = _size(record, "input_size", 0), _size(record, "hidden_size", 1)
    gates = Const(_GATES[record.method.removesuffix("Cell")])
    return {"all": times(gates, hidden, total([inside, hidden, times(Const(2), _has(record, "bias", 2))]))}


def _attention(record: CallRecord) -> Mapping[str, Expr]:
    if {"kdim", "vdim", "add_bias_kv"} & set(record.kwargs) or len(record.args) > 4:
        raise NotCounted("torch.nn.MultiheadAttention with other widths is not counted")
    return {"all": _attends(_size(record, "embed_dim", 0), _has(record, "bias", 3))}


def _attends(width: Expr, bias: Expr) -> Expr:
    """Query, key, value and the output projection."""
    return times(Const(4), width, total([width, bias]))


def _block(record: CallRecord) -> Mapping[str, Expr]:
    """TransformerEncoderLayer and TransformerDecoderLayer (torch.nn.modules.transformer)."""
    if constant(record.argument("bias") or Const(True)) is not True:
        raise NotCounted(f"torch.nn.{record.method} without biases is not counted")
    width, wide = _size(record, "d_model", 0), _size(record, "dim_feedforward", 2, 2048)
    return {"all": _transformer_layer(width, wide, 2 if "Decoder" in record.method else 1)}


def _transformer_layer(width: Expr, wide: Expr, attentions: int) -> Expr:
    forward = total([times(Const(2), width, wide), wide, width])
    norms = times(Const(2 * (attentions + 1)), width)
    return total([times(Const(attentions), _attends(width, Const(1))), forward, norms])


def _transformer(record: CallRecord) -> Mapping[str, Expr]:
    width, wide = _size(record, "d_model", 0, 512), _size(record, "dim_feedforward", 4, 2048)
    encoder, decoder = _size(record, "num_encoder_layers", 2, 6), _size(record, "num_decoder_layers", 3, 6)
    if {"custom_encoder", "custom_decoder", "bias"} & set(record.kwargs):
        raise NotCounted("torch.nn.Transformer with parts of its own is not counted")
    layers = [times(encoder, _transformer_layer(width, wide, 1)), times(decoder, _transformer_layer(width, wide, 2))]
    return {"all": total([*layers, times(Const(4), width)])}


def _prelu(record: CallRecord) -> Mapping[str, Expr]:
    return {"weight": _size(record, "num_parameters", 0, 1)}


LAYERS: Mapping[str, Callable[[CallRecord], Mapping[str, Expr]]] = {
    "Linear": _linear, "Bilinear": _bilinear, "Embedding": _embedding, "EmbeddingBag": _embedding, "PReLU": _prelu,
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"), _normalising("num_features", 3)),
    **dict.fromkeys(("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"), _normalising("num_features", 3, False)),
    "GroupNorm": _normalising("num_channels", 3), "LayerNorm": _layer_norm, "RMSNorm": _layer_norm,
    **dict.fromkeys(_GATES, _recurrent), **{f"{name}Cell": _cell for name in _GATES},
    "MultiheadAttention": _attention, "TransformerEncoderLayer": _block, "TransformerDecoderLayer": _block,
    "Transformer": _transformer,
}  # fmt: skip
"""Layer of torch.nn -> its parameters by name ("all": not told apart)."""


def numbers(value: Abstract | None) -> Expr:
    """The elements of a tensor that a function of torch makes of its sizes."""
    if isinstance(value, Instance) and value.record is not None:
        record = value.record
        home, _, name = value.made_by.rpartition(".")
        if home == "torch" and name in _MADE and record.complete:
            sizes: Sequence[Expr] = record.args[:1] if name == "full" else record.args
            shape = record.argument("size")
            sizes = [shape] if shape is not None else list(sizes)
            if len(sizes) == 1 and isinstance(sizes[0], Op) and sizes[0].operator == "tuple":
                sizes = sizes[0].operands
            if len(sizes) == 1 and isinstance(found := constant(sizes[0]), tuple):
                sizes = [Const(one) for one in found]
            if sizes and not any(is_unknown(one) for one in sizes):
                return times(*sizes)
            if record.arguments and not record.args:
                return Const(1)
    raise NotCounted("the size of a torch.nn.Parameter is not known")


# --- sums -------------------------------------------------------------------------------------------------------------


def total(terms: Sequence[Expr]) -> Expr:
    """The sum with all constants as one, and equal terms counted once."""
    known, rest = 0, []
    for term in terms:
        value = constant(term)
        if isinstance(value, int):
            known += value
        elif is_unknown(term):
            raise NotCounted("a size is not known")
        else:
            rest.append(term)
    found: Expr | None = Const(known) if known or not rest else None
    counted: dict[Expr, int] = {}
    for term in rest:
        counted[term] = counted.get(term, 0) + 1
    for term, times in counted.items():
        one = term if times == 1 else Op("*", (Const(times), term))
        found = one if found is None else Op("+", (found, one))
    return found if found is not None else Const(0)


def times(*factors: Expr) -> Expr:
    """The product with all constants as one."""
    known, rest = 1, []
    for factor in factors:
        value = constant(factor)
        if isinstance(value, int):
            known *= int(value)
        elif is_unknown(factor):
            raise NotCounted("a size is not known")
        else:
            rest.append(factor)
    if known == 0 or not rest:
        return Const(known)
    found: Expr | None = Const(known) if known != 1 else None
    for factor in rest:
        found = factor if found is None else Op("*", (found, factor))
    return found if found is not None else Const(1)
