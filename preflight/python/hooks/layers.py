"""Layers of torch.nn and functions of torch.nn.functional, called on arrays: the shapes that they give, and what they
keep for the backward pass. They count only while a step of a program is interpreted for one sample (`steps`).

What is kept follows from the formulas of the derivatives (tools/autograd/derivatives.yaml of torch 2.13): a product
keeps its input, a function of which the derivative is told by its value keeps that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from preflight.python.arrays import (
    Array,
    Shape,
    arithmetic,
    array_bytes,
    array_of,
    make,
    new,
    noted,
    number,
    product,
    view,
)
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.objects import Abstract, CallRecord, Container, Instance, is_expr, to_expr
from preflight.vocabulary.values import Const, Expr

_Shape = Callable[[CallRecord, Array, Evaluator], "Shape | None"]


def _same(made: CallRecord, array: Array, ev: Evaluator) -> Shape | None:
    return array.shape


def _linear(made: CallRecord, array: Array, ev: Evaluator) -> Shape | None:
    at = 0 if made.method == "LazyLinear" else 1
    out = made.argument("out_features", at)
    return (*array.shape[:-1], out) if out is not None and array.shape else None


def _embedding(made: CallRecord, array: Array, ev: Evaluator) -> Shape | None:
    width = made.argument("embedding_dim", 1)
    return (*array.shape, width) if width is not None else None


def _numbers(made: CallRecord, name: str, at: int | None, rank: int, default: int, ev: Evaluator) -> list[int] | None:
    """A size of each side, as a number for all or one by one."""
    given = made.object(name, at)
    if given is None:
        return [default] * rank
    items = ev.iterate(given)
    values = [ev.value_of(to_expr(one)) for one in ([given] if items is None else items) if is_expr(one)]
    found = [one for one in values if isinstance(one, int)]
    if len(found) != len(values) or not found:
        return None
    return found * rank if len(found) == 1 else found if len(found) == rank else None


def _sides(sizes: Sequence[Expr], windows: Sequence[tuple[int, int, int, int]], ev: Evaluator) -> list[Expr]:
    """(size + 2 padding - dilation (kernel - 1) - 1) // stride + 1 of each side."""
    found = []
    for size, (kernel, stride, padding, dilation) in zip(sizes, windows, strict=True):
        room = arithmetic(ev, "+", size, Const(2 * padding - dilation * (kernel - 1) - 1))
        found.append(arithmetic(ev, "+", arithmetic(ev, "//", room, Const(stride)), Const(1)))
    return found


def _rank(name: str) -> int:
    return int(name[-2])


def _convolution(made: CallRecord, array: Array, ev: Evaluator) -> Shape | None:
    rank, lazy = _rank(made.method), made.method.startswith("Lazy")
    shift = 1 if lazy else 0
    out, padding = made.argument("out_channels", 1 - shift), made.argument("padding", 4 - shift)
    kernel = _numbers(made, "kernel_size", 2 - shift, rank, 1, ev)
    stride = _numbers(made, "stride", 3 - shift, rank, 1, ev)
    dilation = _numbers(made, "dilation", 5 - shift, rank, 1, ev)
    if out is None or kernel is None or stride is None or dilation is None or len(array.shape) < rank + 1:
        return None
    if padding is not None and ev.value_of(padding) == "same":
        return (*array.shape[: -rank - 1], out, *array.shape[-rank:])
    pads = [0] * rank if padding is not None and ev.value_of(padding) == "valid" else None
    pads = pads or _numbers(made, "padding", 4 - shift, rank, 0, ev)
    if pads is None:
        return None
    windows = list(zip(kernel, stride, pads, dilation, strict=True))
    return (*array.shape[: -rank - 1], out, *_sides(array.shape[-rank:], windows, ev))


def _transposed(made: CallRecord, array: Array, ev: Evaluator) -> Shape | None:
    rank, out = _rank(made.method), made.argument("out_channels", 1)
    kernel, stride = _numbers(made, "kernel_size", 2, rank, 1, ev), _numbers(made, "stride", 3, rank, 1, ev)
    padding, more = _numbers(made, "padding", 4, rank, 0, ev), _numbers(made, "output_padding", 5, rank, 0, ev)
    if out is None or not kernel or not stride or not padding or not more or len(array.shape) < rank + 1:
        return None
    sizes = []
    for at, size in enumerate(array.shape[-rank:]):
        inner = arithmetic(ev, "*", arithmetic(ev, "-", size, Const(1)), Const(stride[at]))
        sizes.append(arithmetic(ev, "+", inner, Const(kernel[at] - 2 * padding[at] + more[at])))
    return (*array.shape[: -rank - 1], out, *sizes)


def _pool(made: CallRecord, array: Array, ev: Evaluator) -> Shape | None:
    rank = _rank(made.method) if made.method[-1] == "d" else 2
    at = 1 if made.method[0].islower() else 0
    kernel = _numbers(made, "kernel_size", at, rank, 1, ev)
    given = made.argument("stride", at + 1)
    stride = kernel if given is None else _numbers(made, "stride", at + 1, rank, 1, ev)
    padding = _numbers(made, "padding", at + 2, rank, 0, ev)
    if not kernel or not stride or not padding or len(array.shape) < rank + 1:
        return None
    windows = [(k, s, p, 1) for k, s, p in zip(kernel, stride, padding, strict=True)]
    return (*array.shape[:-rank], *_sides(array.shape[-rank:], windows, ev))


def _adaptive(made: CallRecord, array: Array, ev: Evaluator) -> Shape | None:
    rank = _rank(made.method)
    sizes = _numbers(made, "output_size", 1 if made.method[0].islower() else 0, rank, 1, ev)
    return (*array.shape[:-rank], *map(Const, sizes)) if sizes and len(array.shape) > rank else None


def _resized(made: CallRecord, array: Array, ev: Evaluator) -> Shape | None:
    """`nn.Upsample(scale_factor=2)`, `F.interpolate(x, size=(64, 64))`."""
    at, rank = (1 if made.method == "interpolate" else 0), len(array.shape) - 2
    if rank < 1:
        return None
    if made.object("size", at) is not None:
        sizes = _numbers(made, "size", at, rank, 1, ev)
        return (*array.shape[:2], *map(Const, sizes)) if sizes else None
    factors = _numbers(made, "scale_factor", at + 1, rank, 1, ev)
    if made.object("scale_factor", at + 1) is None or not factors:
        return None
    scaled = [arithmetic(ev, "*", size, Const(by)) for size, by in zip(array.shape[2:], factors, strict=True)]
    return (*array.shape[:2], *scaled)


def _flat(made: CallRecord, array: Array, ev: Evaluator) -> Shape | None:
    start = made.argument("start_dim", 0) or Const(1)
    first = number(start)
    if first is None or made.argument("end_dim", 1) is not None:
        return None
    return (*array.shape[:first], product(ev, array.shape[first:]))


INPUT, OUTPUT, MASK, PLACES, NOTHING, BOTH = "input", "output", "mask", "places", "nothing", "both"
"""What a layer keeps: its input, its output, numbers of the size of its output, the places of maxima (of 8 bytes)."""

_ELEMENTS = {
    **dict.fromkeys(("ReLU", "Sigmoid", "Tanh", "Softmax", "LogSoftmax"), OUTPUT),
    **dict.fromkeys(("GELU", "SiLU", "LeakyReLU", "ELU", "Hardswish", "Hardtanh", "ReLU6", "Softplus", "Mish",
                     "Hardsigmoid", "LogSigmoid", "PReLU", "SELU", "CELU", "Softsign"), INPUT),
    **dict.fromkeys(("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"), MASK), "Identity": NOTHING,
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LayerNorm", "GroupNorm", "RMSNorm",
                     "LazyBatchNorm2d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"), INPUT),
}  # fmt: skip
_LAYERS: Mapping[str, tuple[_Shape, str]] = {
    **{name: (_same, keeps) for name, keeps in _ELEMENTS.items()},
    "Linear": (_linear, INPUT), "LazyLinear": (_linear, INPUT), "Embedding": (_embedding, NOTHING),
    **{f"{lazy}Conv{n}d": (_convolution, INPUT) for n in (1, 2, 3) for lazy in ("", "Lazy")},
    **{f"ConvTranspose{n}d": (_transposed, INPUT) for n in (1, 2, 3)},
    **{f"AvgPool{n}d": (_pool, INPUT) for n in (1, 2, 3)}, **{f"MaxPool{n}d": (_pool, PLACES) for n in (1, 2, 3)},
    **{f"AdaptiveAvgPool{n}d": (_adaptive, INPUT) for n in (1, 2, 3)},
    **{f"AdaptiveMaxPool{n}d": (_adaptive, PLACES) for n in (1, 2, 3)},
    **dict.fromkeys(("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"), (_resized, NOTHING)),
}  # fmt: skip
_WITH_WEIGHTS = ("Linear", "Conv", "Embedding", "Norm", "PReLU")
_FUNCTIONS: Mapping[str, tuple[_Shape, str]] = {
    **dict.fromkeys(("relu", "sigmoid", "tanh", "softmax", "log_softmax", "relu_"), (_same, OUTPUT)),
    **dict.fromkeys(("gelu", "silu", "leaky_relu", "elu", "softplus", "mish", "hardswish", "normalize"),
                    (_same, INPUT)),
    **dict.fromkeys(("dropout", "dropout2d"), (_same, MASK)), "interpolate": (_resized, NOTHING),
    **{f"avg_pool{n}d": (_pool, INPUT) for n in (1, 2, 3)}, **{f"max_pool{n}d": (_pool, PLACES) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": (_adaptive, INPUT) for n in (1, 2, 3)},
}  # fmt: skip
_LOSSES = ("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
           "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "gaussian_nll_loss",
           "triplet_margin_loss", "cosine_embedding_loss", "margin_ranking_loss", "multilabel_soft_margin_loss",
           "soft_margin_loss")  # fmt: skip


def _layer(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """A call of a layer that the program made."""
    layer, given = record.callee, record.arguments
    if ev.ledger is None or not isinstance(layer, Instance):
        return None
    return _applied(layer, given, record, ev)


def _applied(layer: Instance, given: Sequence[Abstract], record: CallRecord, ev: Evaluator) -> Abstract | None:
    name, made = layer.made_by.rpartition(".")[2], layer.record
    if name.endswith("Loss"):
        return _loss(record, ev)
    array = array_of(given[0]) if given else None
    if made is None or array is None or ev.ledger is None:
        return None
    if name == "Sequential":
        return _in_turn(layer, made, given[0], record, ev)
    if name == "Flatten":
        shape = _flat(made, array, ev)
        return make(record, view(array, shape)) if shape is not None else _unknown(ev)
    if name not in _LAYERS:
        return _unknown(ev)
    shape_of, keeps = _LAYERS[name]
    shape = shape_of(made, array, ev)
    return _gives(array, shape, keeps, record, ev, name)


def _in_turn(layer: Instance, made: CallRecord, given: Abstract, record: CallRecord, ev: Evaluator) -> Abstract | None:
    """The layers of nn.Sequential, one after the other."""
    layers: list[Abstract] = list(made.arguments) if made.complete else []
    if len(layers) == 1 and isinstance(layers[0], Container):
        layers = list(layers[0].items.values())
    layers += layer.attributes.values()
    value: Abstract | None = given
    for one in layers:
        if not isinstance(one, Instance) or value is None:
            return _unknown(ev)
        value = ev.call(one, (value,)) if one.cls is not None else _applied(one, (value,), record, ev)
    return value if layers else _unknown(ev)


def _function(name: str) -> Hook:
    shape_of, keeps = _FUNCTIONS[name]

    def hook(record: CallRecord, ev: Evaluator) -> Abstract | None:
        array = array_of(record.object("input", 0))
        if array is None or (ev.ledger is None and name != "interpolate"):
            return None
        shape = shape_of(record, array, ev)
        if ev.ledger is None:  # a data set resizes its pictures
            return make(record, new(array, shape)) if shape is not None else None
        return _gives(array, shape, keeps, record, ev)

    return hook


def _gives(
    array: Array, shape: Shape | None, keeps: str, record: CallRecord, ev: Evaluator, layer: str = ""
) -> Abstract | None:
    """What a layer, or a function, gives for an array. Where no gradient flows, nothing is kept."""
    weights = any(word in layer for word in _WITH_WEIGHTS)
    if shape is None or ev.ledger is None:
        return _unknown(ev)
    floats = "float32" if array.dtype in ("int64", "int32") else array.dtype
    made = make(record, new(array, shape, floats))
    given = array_of(made)
    if made is None or given is None:
        return None
    flows = array.storage in ev.ledger.through
    noted(ev, made, (array,), weights=weights, copies=_blocked(layer, array, given, ev))
    if flows or weights:
        if keeps in (INPUT, BOTH):
            ev.ledger.keep(array.storage, array_bytes(ev, array))
        if keeps in (OUTPUT, BOTH):
            ev.ledger.keep(given.storage, array_bytes(ev, given))
        if keeps == MASK:
            ev.ledger.keep(-given.storage, array_bytes(ev, given))
        if keeps == PLACES:
            ev.ledger.keep(array.storage, array_bytes(ev, array))
            ev.ledger.keep(-given.storage, arithmetic(ev, "*", product(ev, given.shape), Const(8)))
    return made


_BLOCK, _PLAIN = 16, 3
"""oneDNN's convolutions for AVX-512 (ONEDNN_VERBOSE of torch 2.13): outputs have blocks of 16 channels, and so do
inputs of more than three channels."""


def _blocked(name: str, array: Array, made: Array, ev: Evaluator) -> Expr | None:
    """Bytes of the copies that a convolution makes of its input and output, with channels in whole blocks."""
    if "Conv" not in name:
        return None
    return _sum(ev, [_in_blocks(one, _rank(name), ev) for one in (array, made) if _wide(one, name) or one is made])


def _sum(ev: Evaluator, sizes: Sequence[Expr]) -> Expr:
    total = sizes[0]
    for one in sizes[1:]:
        total = arithmetic(ev, "+", total, one)
    return total


def _wide(array: Array, name: str) -> bool:
    channels = number(array.shape[-_rank(name) - 1])
    return channels is None or channels > _PLAIN


def _in_blocks(array: Array, rank: int, ev: Evaluator) -> Expr:
    at = len(array.shape) - rank - 1
    blocks = arithmetic(ev, "//", arithmetic(ev, "+", array.shape[at], Const(_BLOCK - 1)), Const(_BLOCK))
    whole = arithmetic(ev, "*", blocks, Const(_BLOCK))
    return array_bytes(ev, new(array, (*array.shape[:at], whole, *array.shape[at + 1 :])))


def _loss(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """A loss: one number; of the logits it keeps their logarithms, or themselves."""
    array = array_of(record.object("input", 0))
    return None if ev.ledger is None or array is None else _gives(array, (), INPUT, record, ev)


def _unknown(ev: Evaluator) -> Abstract | None:
    """Nothing is known of what a layer gives, nor of what it keeps."""
    if ev.ledger is not None:
        ev.ledger.unknown = True
    return None


def _backward(record: CallRecord, ev: Evaluator) -> Abstract | None:
    if ev.ledger is not None:
        ev.ledger.backward()
    return None


_NN, _F = "torch.nn", "torch.nn.functional"
_KINDS = (*_LAYERS, "Sequential", "Flatten", "LSTM", "GRU", "RNN", "MultiheadAttention", "TransformerEncoder",
          "TransformerEncoderLayer", "Transformer", "TransformerDecoder", "EmbeddingBag", "Bilinear", "PixelShuffle",
          *(f"{name}Loss" for name in ("CrossEntropy", "MSE", "L1", "SmoothL1", "Huber", "BCE", "BCEWithLogits", "NLL",
                                       "KLDiv")))  # fmt: skip

HOOKS: Mapping[str, Hook] = {
    **{f"{_NN}.{name}.__call__": _layer for name in _KINDS},
    **{f"{_F}.{name}": _function(name) for name in _FUNCTIONS},
    **{f"{_F}.{name}": _loss for name in _LOSSES},
    "*.backward": _backward,
}
