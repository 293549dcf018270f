"""What a model gets where the program makes the tensors itself -> train.batch_size, train.seq_len, train.image_size.

`torch.randint(0, V, (batch, 128))` that the trained model is called with has a batch and a length; one sample of
`TensorDataset(torch.randn(1000, 3, 160, 160), labels)` has the size of an image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.program.bindings import bind, constant, fold
from preflight.program.call_site import evaluates, is_module
from preflight.program.trained import trained
from preflight.python.arrays import Array, Shape, array_of
from preflight.python.objects import Abstract, CallRecord, Container, Instance
from preflight.python.steps import sample_of
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Expr, Op

_CHANNELS = (1, 3, 4)
"""The first dimension of an image: grey, with colours, with an alpha channel."""


def made_input_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """The batch and the sizes of the first tensor that a library's model gets in a step. Different ones say nothing."""
    objects = trained(records)
    if not any(one.method == "backward" for one in records):
        return []
    models = ((one, one.callee) for one in records if isinstance(one.callee, Instance) and not evaluates(one))
    found = [list(_of_call(one)) for one, model in models if not is_module(model.cls) and objects.has(model)]
    said = [one for one in found if one]
    alike = all([(b.field, b.expr) for b in one] == [(b.field, b.expr) for b in said[0]] for one in said)
    return said[0] if said and alike and len(said) == len(found) else []


def _of_call(record: CallRecord) -> Iterator[Binding]:
    array = next((one for one in map(array_of, (*record.arguments, *record.keywords.values())) if one), None)
    if array is None or not array.shape:
        return
    sizes = list(_sizes(array, array.shape[1:], record))
    if sizes:
        yield bind("train.batch_size", array.shape[0], Rank.read, record.origin)
        yield from sizes


def sample_shape_bindings(record: CallRecord) -> list[Binding]:
    """The length or the image's side of one sample of a loader, by its first tensor."""
    first: Abstract | None = sample_of(record.value)
    while isinstance(first, Container) and first.items and not first.open:
        first = next(iter(first.items.values()))
    array = array_of(first)
    return [] if array is None else list(_sizes(array, array.shape, record))


def _sizes(array: Array, shape: Shape, record: CallRecord) -> Iterator[Binding]:
    """What the dimensions of one sample are: of whole numbers a length, of others channels and sides."""
    if array.library != "torch" or any(constant(size) == 0 for size in shape):
        return
    if array.dtype in ("int64", "int32") and len(shape) == 1:
        yield bind("train.seq_len", shape[0], Rank.read, record.origin)
    elif array.dtype.startswith("float") and len(shape) == 3 and constant(shape[0]) in _CHANNELS:
        side: Expr = shape[1] if shape[1] == shape[2] else fold(Op("max", (shape[1], shape[2])))
        yield bind("train.image_size", side, Rank.read, record.origin)
