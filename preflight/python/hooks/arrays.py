"""torch and numpy: the arrays that their functions and methods make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from preflight.python.arrays import (
    Array,
    Shape,
    arithmetic,
    array_of,
    broadcast,
    dtype_of,
    floating,
    known,
    make,
    new,
    number,
    product,
    result_type,
    shape_of,
    view,
)
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.known_kinds import DRAWN, DRAWN_WHOLE, kind_of_number
from preflight.python.objects import (
    Abstract,
    CallRecord,
    Container,
    Instance,
    is_expr,
    sequence,
    to_expr,
)
from preflight.vocabulary.values import Const, unknown

_Maker = Callable[[Array, CallRecord, Evaluator], Array | None]


def library_of(record: CallRecord) -> str:
    return "numpy" if record.qualified.startswith(("numpy", "np.", "cupy")) else "torch"


def given_dtype(record: CallRecord, default: str, position: int | None = None) -> str | None:
    given = record.object("dtype", position)
    return default if given is None else dtype_of(given, library_of(record))


def _filled(default: str, fixed: int | None = None) -> Hook:
    """`torch.randn(3, 224, 224)`, `np.zeros((3, 4), dtype)`: `fixed` arguments at most are the size."""

    def hook(record: CallRecord, ev: Evaluator) -> Abstract | None:
        library = library_of(record)
        dtype = given_dtype(record, "float64" if library == "numpy" and default == "float32" else default, fixed)
        size = record.object("size") or record.object("shape")
        given = [size] if size is not None else list(record.arguments[:fixed])
        shape = shape_of(ev, given) if given else None
        return make(record, Array(shape, dtype, library)) if shape is not None and dtype is not None else None

    return hook


def _drawn(at: int, default: str, dtype_at: int | None = None) -> Hook:
    """`np.random.uniform(low, high, size)`, `torch.normal(mean, std, size)`: without a size, one number."""

    def hook(record: CallRecord, ev: Evaluator) -> Abstract | None:
        size = record.object("size", at)
        dtype = given_dtype(record, default, dtype_at)
        if size is None:
            return unknown(DRAWN, record.origin) if library_of(record) == "numpy" else None
        shape = shape_of(ev, [size])
        return make(record, Array(shape, dtype, library_of(record))) if shape is not None and dtype else None

    return hook


def _randint(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`torch.randint([low, ]high, size)`."""
    size = record.object("size") or next((a for a in record.arguments if not is_expr(a)), None)
    shape = shape_of(ev, [size]) if size is not None else None
    dtype = given_dtype(record, "int64")
    return make(record, Array(shape, dtype)) if shape is not None and dtype else None


def _range(record: CallRecord, ev: Evaluator) -> Abstract | None:
    whole = [to_expr(a) for a in record.arguments if is_expr(a)]
    if len(whole) == 1 and (known(whole[0]) or kind_of_number(whole[0], ev) == "int"):
        default = "float32" if isinstance(ev.value_of(whole[0]), float) else "int64"
        dtype = given_dtype(record, default)
        return make(record, Array((whole[0],), dtype, library_of(record))) if dtype else None
    return None


def _spaced(record: CallRecord, ev: Evaluator) -> Abstract | None:
    steps = record.argument("steps" if library_of(record) == "torch" else "num", 2)
    default = "float32" if library_of(record) == "torch" else "float64"
    return make(record, Array((steps,), default, library_of(record))) if steps is not None and known(steps) else None


def _eye(record: CallRecord, ev: Evaluator) -> Abstract | None:
    size = record.argument("n", 0)
    columns = record.argument("m", 1) or size
    if size is None or columns is None or not known(size) or not known(columns):
        return None
    default = "float64" if library_of(record) == "numpy" else "float32"
    return make(record, Array((size, columns), given_dtype(record, default) or default, library_of(record)))


def _like(record: CallRecord, ev: Evaluator) -> Abstract | None:
    array = array_of(record.object("input", 0))
    dtype = given_dtype(record, array.dtype) if array is not None else None
    return make(record, new(array, dtype=dtype)) if array is not None and dtype else None


def converted(value: Abstract, ev: Evaluator, library: str, dtype: str | None = None) -> Array | None:
    """The array that nested lists, numbers and arrays become."""
    array = array_of(value)
    if array is not None:
        return new(array, dtype=dtype, library=library)
    if isinstance(value, Container) and value.is_sequence and not value.open:
        items = list(value.items.values())
        inner = [converted(one, ev, library, dtype) for one in items]
        if not items or any(one is None for one in inner):
            return None
        first = inner[0]
        assert first is not None
        wide = next((one for one in inner if one is not None and one.dtype.startswith("float")), first)
        return new(wide, (Const(len(items)), *first.shape))
    if isinstance(value, Container) and value.kind == "list" and value.count is not None and len(value.items) == 1:
        one = converted(value.items[0], ev, library, dtype) if 0 in value.items else None
        return new(one, (value.count, *one.shape)) if one is not None else None
    if is_expr(value):
        found = kind_of_number(to_expr(value), ev)
        default = {"float": "float32" if library == "torch" else "float64", "int": "int64", "bool": "bool"}.get(found)
        return Array((), dtype or default, library) if default is not None else None
    return None


def _tensor(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`torch.tensor(data, dtype)`, `np.array(data)`: a copy; `as_tensor`, `asarray` and `from_numpy` share memory."""
    data = record.object("data", 0) or record.object("object", 0) or record.object("a", 0)
    if data is None:
        return None
    library, dtype = library_of(record), None
    if record.object("dtype", 1) is not None:
        dtype = given_dtype(record, "float32", 1)
        if dtype is None:
            return None
    array = array_of(data)
    shares = record.method in ("as_tensor", "asarray", "from_numpy", "ascontiguousarray", "asanyarray")
    if array is not None and shares and array.library != "pil" and dtype in (None, array.dtype):
        return make(record, replace(array, library=library, by_numpy=array.library == "numpy" or array.by_numpy))
    if library == "torch" and array is not None and record.method == "FloatTensor":
        dtype = "float32"
    return make(record, converted(data, ev, library, dtype))


def _typed(dtype: str) -> Hook:
    """`torch.FloatTensor(data)`, `torch.LongTensor(data)`, `np.float32(x)`."""

    def hook(record: CallRecord, ev: Evaluator) -> Abstract | None:
        if not record.arguments:
            return None
        sizes = record.method.endswith("Tensor") and all(is_expr(a) for a in record.arguments)
        shape = shape_of(ev, record.arguments) if sizes else None
        if shape is not None:
            return make(record, Array(shape, dtype))
        return make(record, converted(record.arguments[0], ev, library_of(record), dtype))

    return hook


def _items(record: CallRecord, ev: Evaluator) -> list[Array] | None:
    given = record.arguments[0] if record.arguments else record.object("tensors")
    items = ev.iterate(given) if given is not None else None
    found = [array_of(one) for one in items or ()]
    return [one for one in found if one is not None] if found and all(found) else None


def _stack(record: CallRecord, ev: Evaluator) -> Abstract | None:
    found, at = _items(record, ev), record.argument("dim", 1) or record.argument("axis", 1) or Const(0)
    where = number(at)
    if found is None or where is None:
        return None
    rank = len(found[0].shape) + 1
    where = where if where >= 0 else where + rank
    shape = (*found[0].shape[:where], Const(len(found)), *found[0].shape[where:])
    return make(record, new(found[0], shape))


def _cat(record: CallRecord, ev: Evaluator) -> Abstract | None:
    found, at = _items(record, ev), record.argument("dim", 1) or record.argument("axis", 1) or Const(0)
    where = number(at)
    if found is None or where is None or not -len(found[0].shape) <= where < len(found[0].shape):
        return None
    where = where if where >= 0 else where + len(found[0].shape)
    if any(len(other.shape) != len(found[0].shape) for other in found):
        return None
    size = found[0].shape[where]
    for other in found[1:]:
        size = arithmetic(ev, "+", size, other.shape[where])
    return make(record, new(found[0], (*found[0].shape[:where], size, *found[0].shape[where + 1 :])))


def _pad_sequence(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """The longest of the arrays decides; those of one kind have one length."""
    found, first = _items(record, ev), record.argument("batch_first", 1)
    if found is None:
        return None
    batch, shape = Const(len(found)), found[0].shape
    in_front = first is not None and ev.value_of(first) is True
    return make(record, new(found[0], (batch, *shape) if in_front else (*shape[:1], batch, *shape[1:])))


# --- methods ----------------------------------------------------------------------------------------------------------


def _method(maker: _Maker) -> Hook:
    def hook(record: CallRecord, ev: Evaluator) -> Abstract | None:
        array = array_of(record.receiver_object)
        if array is None:
            return None
        made = maker(array, record, ev)
        return (
            make(record, made) if made is not None else unknown("the array that it makes is not known", record.origin)
        )

    return hook


def _function(maker: _Maker) -> Hook:
    """The same as a function, whose first argument is the array."""

    def hook(record: CallRecord, ev: Evaluator) -> Abstract | None:
        array = array_of(record.arguments[0]) if record.arguments else None
        rest = replace(record, arguments=record.arguments[1:], args=record.args[1:])
        made = maker(array, rest, ev) if array is not None else None
        return make(record, made)

    return hook


def _numbers(record: CallRecord, ev: Evaluator, *names: str) -> list[int] | None:
    """The whole numbers that a call is given, as `(1, 2)` or `1, 2`, or by name."""
    given = next((record.object(name) for name in names if record.object(name) is not None), None)
    values: Sequence[Abstract] = [given] if given is not None else record.arguments
    if len(values) == 1 and (items := ev.iterate(values[0])) is not None:
        values = items
    found = [number(to_expr(one)) if is_expr(one) else _negative(one, ev) for one in values]
    return [one for one in found if one is not None] if None not in found else None


def _negative(value: Abstract, ev: Evaluator) -> int | None:
    found = ev.value_of(to_expr(value))
    return found if isinstance(found, int) else None


def _permute(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
    order = _numbers(record, ev, "dims", "axes")
    if not order:
        return view(array, array.shape[::-1]) if order is not None and array.library == "numpy" else None
    rank = len(array.shape)
    if any(not -rank <= at < rank for at in order):
        return None
    if record.method in ("transpose", "swapaxes") and len(order) == 2 and (array.library == "torch" or rank != 2):
        shape = list(array.shape)
        shape[order[0]], shape[order[1]] = shape[order[1]], shape[order[0]]
        return view(array, tuple(shape))
    return view(array, tuple(array.shape[at] for at in order)) if len(order) == rank else None


def _reshape(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
    given = list(record.arguments)
    if len(given) == 1 and (items := ev.iterate(given[0])) is not None:
        given = items
    sizes = [to_expr(one) for one in given]
    values = [ev.value_of(one) for one in sizes]
    if -1 not in values:
        return view(array, tuple(sizes)) if all(known(one) for one in sizes) else None
    rest = product(ev, [one for one, value in zip(sizes, values, strict=True) if value != -1])
    missing = arithmetic(ev, "//", product(ev, array.shape), rest)
    return view(array, tuple(missing if value == -1 else one for one, value in zip(sizes, values, strict=True)))


def _unsqueeze(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
    at = _numbers(record, ev, "dim", "axis")
    if not at:
        return None
    where = at[0] if at[0] >= 0 else at[0] + len(array.shape) + 1
    return view(array, (*array.shape[:where], Const(1), *array.shape[where:]))


def _squeeze(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
    at = _numbers(record, ev, "dim", "axis")
    if at is None:
        return None
    gone = {one % max(1, len(array.shape)) for one in at} if at else set(range(len(array.shape)))
    return view(array, tuple(s for i, s in enumerate(array.shape) if i not in gone or number(s) != 1))


def _flatten(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
    bounds = (record.argument("start_dim", 0) or Const(0), record.argument("end_dim", 1) or Const(-1))
    rank, (first, last) = len(array.shape), [ev.value_of(one) for one in bounds]
    if not isinstance(first, int) or not isinstance(last, int) or not rank:
        return None
    first, end = first % rank, last % rank + 1
    return view(array, (*array.shape[:first], product(ev, array.shape[first:end]), *array.shape[end:]))


def _cast(dtype: str) -> _Maker:
    def cast(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
        return array if array.dtype == dtype else new(array, dtype=dtype)

    return cast


def _to(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
    """`x.to(torch.float32)`, `x.to(device)`, `x.astype(np.int64)`."""
    given = [*record.arguments, *record.keywords.values()]
    dtypes = [found for one in given if (found := dtype_of(one, array.library)) is not None]
    if record.method in ("astype", "type") and not dtypes:
        return None
    return new(array, dtype=dtypes[0]) if dtypes and (dtypes[0] != array.dtype or record.method == "astype") else array


def _copy(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
    return new(array)


def _same(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
    return array


def _shared(library: str) -> _Maker:
    def shared(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
        return replace(array, library=library)

    return shared


def _elementwise(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
    """A function of each element. The type of whole numbers follows from it, and from what they meet."""
    given, name = record.arguments[0] if record.arguments else None, record.method
    other = array_of(given)
    shape = array.shape if other is None else broadcast(array.shape, other.shape)
    dtype: str | None = array.dtype
    if name == "sort" and array.library == "torch":
        return None  # values and their places
    if name == "abs" and dtype == "complex64":
        return new(array, shape, "float32")
    if name in _FRACTIONS or (name == "floor" and array.library == "numpy"):
        fraction = "float32" if array.library == "torch" else floating(array.dtype)
        dtype = array.dtype if floating(array.dtype) == array.dtype else None if name == "floor" else fraction
    elif name == "cumsum" and floating(array.dtype) != array.dtype:
        dtype = "int64"
    elif name in _MEETING:
        for one in (*record.arguments, *record.keywords.values()):
            met = array_of(one) or one
            if dtype is not None and not (isinstance(met, Const) and met.value is None):
                dtype = result_type(new(array, dtype=dtype), met, array.library)
        dtype = "float32" if name == "div" and dtype is not None and floating(dtype) != dtype else dtype
    return new(array, shape, dtype) if dtype is not None else None


_FRACTIONS = ("sqrt", "exp", "log", "log1p", "sigmoid", "tanh", "softmax", "sin", "cos")
_MEETING = ("add", "sub", "mul", "div", "pow", "clamp", "clip", "clamp_min", "clamp_max")


def _repeat(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
    times = _numbers(record, ev)
    if not times or array.library != "torch" or len(times) < len(array.shape):
        return None
    shape = (*[Const(1)] * (len(times) - len(array.shape)), *array.shape)
    return new(array, tuple(arithmetic(ev, "*", s, Const(t)) for s, t in zip(shape, times, strict=True)))


def _expand(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
    times = _numbers(record, ev)
    if not times or len(times) < len(array.shape):
        return None
    shape = (*[Const(1)] * (len(times) - len(array.shape)), *array.shape)
    return new(array, tuple(s if t == -1 else Const(t) for s, t in zip(shape, times, strict=True)))


def _reduced(array: Array, record: CallRecord, ev: Evaluator) -> Array | None:
    """`x.mean()`, `x.sum(dim=1)`: without the dimensions that are summed over."""
    at = _numbers(record, ev, "dim", "axis")
    keeps = record.argument("keepdim") or record.argument("keepdims")
    if at is None:
        return None
    kept = keeps is not None and ev.value_of(keeps) is True
    gone = {one % max(1, len(array.shape)) for one in at} if at else set(range(len(array.shape)))
    shape: Shape = tuple(Const(1) if i in gone else s for i, s in enumerate(array.shape) if kept or i not in gone)
    return new(array, shape)


def _size(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`x.size()`, `x.size(0)`."""
    array, at = array_of(record.receiver_object), _numbers(record, ev, "dim")
    if array is None or at is None:
        return None
    if not at:
        return sequence(list(array.shape), "tuple", record.origin)
    return array.shape[at[0]] if -len(array.shape) <= at[0] < len(array.shape) else None


def _item(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`x.item()`: a number of the array's kind, in a data set; what a loop reads of its loss is no concern."""
    array = array_of(record.receiver_object)
    if array is None or ev.ledger is not None:
        return None
    return unknown(DRAWN_WHOLE if floating(array.dtype) != array.dtype else DRAWN, record.origin)


def _to_list(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`array.tolist()`: numbers of Python's, in lists of the array's sizes."""
    array = array_of(record.receiver_object)
    if array is None or ev.ledger is not None:
        return None
    found: Abstract = unknown(DRAWN_WHOLE if floating(array.dtype) != array.dtype else DRAWN, record.origin)
    for size in reversed(array.shape):
        if not known(size):
            return None
        found = Container("list", {0: found}, record.origin, {"open": True}, count=size)
    return found


def _generator(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """A method of `np.random.default_rng()`."""
    if not isinstance(record.receiver_object, Instance) or "default_rng" not in record.receiver_object.made_by:
        return None
    at = {"random": 0, "standard_normal": 0, "integers": 2, "uniform": 2, "normal": 2}[record.method]
    default = "int64" if record.method == "integers" else "float64"
    return _drawn(at, default, 1 if at == 0 else None)(record, ev)


_SAME_SHAPE = ("abs", "clamp", "clip", "clamp_", "div", "div_", "mul", "mul_", "add", "add_", "sub", "sub_", "sqrt",
               "exp",
               "log", "log1p", "sigmoid", "tanh", "relu", "softmax", "sort", "flip", "roll", "round", "floor", "cumsum",
               "normal_", "uniform_", "fill_", "zero_", "random_", "sin", "cos", "pow", "sign", "masked_fill",
               "nan_to_num", "fliplr", "flipud", "tril", "triu", "clamp_min", "clamp_max")  # fmt: skip
_IN_PLACE = ("contiguous", "cpu", "detach", "requires_grad_", "pin_memory", "share_memory_", "cuda")
_REDUCED = ("mean", "sum", "std", "var", "prod", "argmax", "argmin", "amax", "amin", "norm", "any", "all", "median")
_MAKERS: Mapping[str, _Maker] = {
    **dict.fromkeys(("permute", "transpose", "swapaxes"), _permute),
    **dict.fromkeys(("reshape", "view"), _reshape),
    **dict.fromkeys(_SAME_SHAPE, _elementwise), **dict.fromkeys(_IN_PLACE, _same), **dict.fromkeys(_REDUCED, _reduced),
    **dict.fromkeys(("clone", "copy"), _copy), **dict.fromkeys(("to", "astype", "type"), _to),
    **dict.fromkeys(("flatten", "ravel"), _flatten),
    **{name: _cast(dtype) for name, dtype in (("float", "float32"), ("double", "float64"), ("half", "float16"),
                                              ("long", "int64"), ("int", "int32"), ("bool", "bool"),
                                              ("byte", "uint8"), ("bfloat16", "bfloat16"))},
    "unsqueeze": _unsqueeze, "squeeze": _squeeze, "numpy": _shared("numpy"), "repeat": _repeat, "expand": _expand,
    "min": _reduced, "max": _reduced,
}  # fmt: skip
_FILLED = {"zeros": "float32", "ones": "float32", "empty": "float32", "full": "float32"}
_SHARED_NAMES = ("stack", "concatenate", "cat", "vstack")

HOOKS: Mapping[str, Hook] = {
    **{f"torch.{name}": _filled(dtype, 1 if name == "full" else None) for name, dtype in _FILLED.items()},
    **{f"numpy.{name}": _filled(dtype, 1) for name, dtype in _FILLED.items()},
    **dict.fromkeys(("torch.rand", "torch.randn"), _filled("float32")),
    **dict.fromkeys(("numpy.random.rand", "numpy.random.randn"), _filled("float32")),
    **dict.fromkeys(("numpy.random.random", "numpy.random.random_sample", "numpy.random.standard_normal"),
                    _drawn(0, "float64")),
    **dict.fromkeys(("numpy.random.uniform", "numpy.random.normal"), _drawn(2, "float64")),
    "numpy.random.randint": _drawn(2, "int64", 3), "torch.normal": _drawn(2, "float32"), "torch.randint": _randint,
    "torch.randperm": _range, "torch.arange": _range, "numpy.arange": _range, "numpy.random.permutation": _range,
    "torch.linspace": _spaced, "numpy.linspace": _spaced, "torch.eye": _eye, "numpy.eye": _eye,
    **{f"{library}.{name}_like": _like for library in ("torch", "numpy")
       for name in ("zeros", "ones", "empty", "rand", "randn", "full")},
    **dict.fromkeys(("torch.tensor", "torch.as_tensor", "torch.from_numpy", "torch.asarray", "numpy.array",
                     "numpy.asarray", "numpy.ascontiguousarray", "numpy.asanyarray"), _tensor),
    "torch.FloatTensor": _typed("float32"), "torch.LongTensor": _typed("int64"), "torch.Tensor": _typed("float32"),
    "torch.IntTensor": _typed("int32"), "torch.ByteTensor": _typed("uint8"), "torch.BoolTensor": _typed("bool"),
    **{f"numpy.{name}": _typed(name) for name in ("float32", "float64", "int64", "int32", "uint8", "float16")},
    "torch.stack": _stack, "numpy.stack": _stack, "torch.cat": _cat, "torch.concat": _cat, "numpy.concatenate": _cat,
    "torch.nn.utils.rnn.pad_sequence": _pad_sequence,
    **{f"*.{name}": _method(maker) for name, maker in _MAKERS.items()},
    **{f"{library}.{name}": _function(_MAKERS[name]) for library in ("torch", "numpy")
       for name in (*_SAME_SHAPE, *_REDUCED, "permute", "transpose", "reshape", "unsqueeze", "squeeze", "flatten",
                    "clone", "copy")},
    "numpy.expand_dims": _function(_unsqueeze),
    "*.size": _size, "*.item": _item, "*.tolist": _to_list,
    **{f"*.{name}": _generator for name in ("random", "standard_normal", "integers", "uniform", "normal")},
}  # fmt: skip
