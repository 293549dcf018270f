"""Arrays as the static evaluator knows them: shape, type and library of a tensor, an ndarray or a decoded picture.

An array is an Instance whose state has an `Array`. Only what decides its bytes is known of it. A shape holds
expressions, so that a size may depend on the program's parameters. What is not known has no Array.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from preflight.python.evaluator import Evaluator
from preflight.python.objects import (
    ARRAY,
    Abstract,
    CallRecord,
    Container,
    Either,
    External,
    Frame,
    Instance,
    is_expr,
    to_expr,
)
from preflight.vocabulary.values import Const, Expr, Op, Origin, Unknown

WIDTHS = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
          "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1, "complex64": 8}  # fmt: skip
"""Bytes of an element."""
_NAMES = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32", "short": "int16",
          "byte": "uint8", "bool_": "bool", "f4": "float32", "f8": "float64", "f2": "float16", "i8": "int64",
          "i4": "int32", "i2": "int16", "i1": "int8", "u1": "uint8", "u2": "uint16", "b1": "bool", "float_": "float64",
          "single": "float32", "u4": "uint32", "u8": "uint64", "cfloat": "complex64"}  # fmt: skip
_OF_NUMPY = {"float": "float64", "int": "int64", "int_": "int64"}
"""Python's own names, which mean other types to numpy."""

H5 = "h5"
"""The library of a data set of an HDF5 file, whose items are arrays of numpy; and the key of an open file's state."""

Shape = tuple[Expr, ...]


class Array(Struct, frozen=True):
    """`library`: torch, numpy, h5 or pil (a picture, whose shape is height, width, channels). `storage`: the id of the
    array whose memory it is; `mapped`: pages of a file; `whole`: it is not a view of a part of its storage;
    `by_numpy`: a tensor in memory that numpy made."""

    shape: Shape
    dtype: str
    library: str = "torch"
    storage: int = 0
    mapped: bool = False
    whole: bool = True
    by_numpy: bool = False


def array_of(value: Abstract | None) -> Array | None:
    """The array that a value is; of those that conditions choose from, if they are alike. Values that conditions share
    are looked at once: their number doubles with each condition."""
    first: Array | None = None
    left, seen = [value], set[int]()
    while left:
        one = left.pop()
        if isinstance(one, Either):
            left += () if id(one) in seen else (one.otherwise, one.then)
            seen.add(id(one))
            continue
        found = one.state.get(ARRAY) if isinstance(one, Instance) else None
        if not isinstance(found, Array) or (first is not None and found.shape != first.shape):
            return None
        first = first or found
    return first


def make(record: CallRecord, array: Array | None) -> Instance | None:
    """The object that a call makes: a new array, or one that shares the memory of another."""
    if array is None:
        return None
    made = Instance(record.qualified, record=record, origin=record.origin)
    made.state[ARRAY] = array if array.storage else replace(array, storage=id(made))
    return made


def derived(value: Abstract, array: Array, origin: Origin | None = None) -> Instance:
    """An array that an operation makes of another, whose memory it has where `array` has its storage."""
    made = Instance(value.made_by if isinstance(value, Instance) else "array", origin=origin)
    made.state[ARRAY] = array if array.storage else replace(array, storage=id(made))
    return made


def new(array: Array, shape: Shape | None = None, dtype: str | None = None, library: str | None = None) -> Array:
    """An array of its own memory, like another."""
    return Array(array.shape if shape is None else shape, dtype or array.dtype, library or array.library)


def view(array: Array, shape: Shape, whole: bool | None = None) -> Array:
    """An array with the memory of another."""
    return replace(array, shape=shape, whole=array.whole if whole is None else whole)


# --- types and shapes -------------------------------------------------------------------------------------------------


def dtype_of(value: Abstract | None, library: str) -> str | None:
    """`torch.float32`, `np.uint8`, `"float32"`, `float`: the type's name; None if it is not known."""
    if isinstance(value, External):
        name = value.name.rpartition(".")[2]
        if "." not in value.name:
            name = {"float": "float64", "int": "int64", "bool": "bool"}.get(name, name)
    elif isinstance(value, Const) and isinstance(value.value, str):
        name = value.value.lstrip("<>=|").rpartition(".")[2]
    else:
        return None
    name = (_OF_NUMPY if library == "numpy" else {}).get(name) or _NAMES.get(name, name)
    return name if name in WIDTHS else None


def shape_of(ev: Evaluator, given: Sequence[Abstract]) -> Shape | None:
    """`f(3, 224, 224)`, `f((3, 224, 224))`, `f(size)`: the sizes; None if one of them is not known."""
    if len(given) == 1:
        items = ev.iterate(given[0])
        if items is not None:
            given = items
    if any(isinstance(one, (Container, Instance)) for one in given):
        return None
    found = tuple(to_expr(one) for one in given if is_expr(one))
    return found if len(found) == len(given) and all(known(one) for one in found) else None


def known(size: Expr) -> bool:
    """Whether nothing of a size is unknown."""
    if isinstance(size, Op):
        return all(known(operand) for operand in size.operands)
    return not (
        isinstance(size, Const)
        and (isinstance(size.value, Unknown) or not isinstance(size.value, (int, float, str, bool)))
    )


def number(size: Expr) -> int | None:
    return size.value if isinstance(size, Const) and isinstance(size.value, int) else None


def arithmetic(ev: Evaluator, operator: str, one: Expr, other: Expr) -> Expr:
    """`one operator other`, as a constant where both are."""
    a, b = number(one), number(other)
    if a is not None and b is not None and operator in ("//", "-", "+", "*") and (b or operator != "//"):
        value = {"+": a + b, "-": a - b, "*": a * b, "//": a // b if b else 0}[operator]
        return Const(value, one.origin)
    return ev.op(operator, (one, other), one.origin)


def product(ev: Evaluator, sizes: Sequence[Expr]) -> Expr:
    """The number of elements."""
    found: Expr = Const(1)
    for size in sizes:
        found = size if number(found) == 1 else arithmetic(ev, "*", found, size)
    return found


def array_bytes(ev: Evaluator, array: Array) -> Expr:
    """The bytes of its elements."""
    return arithmetic(ev, "*", product(ev, array.shape), Const(WIDTHS[array.dtype]))


def broadcast(one: Shape, other: Shape) -> Shape:
    """The shape of an operation on two arrays."""
    pairs = zip_longest(reversed(one), reversed(other))
    return tuple(reversed([b if a is None or (number(a) == 1 and b is not None) else a for a, b in pairs]))


def noted(
    ev: Evaluator,
    made: Abstract | None,
    given: Sequence[Array | None],
    keeps: bool = False,
    weights: bool = False,
    copies: Expr | None = None,
) -> None:
    """Counts the array that an operation made, while a step is interpreted: a gradient flows through it if it does
    through one of those `given`, or if the operation has `weights`. `keeps`: those wait for the backward pass;
    `copies`: bytes of copies that the operation takes for a moment."""
    ledger, array = ev.ledger, array_of(made)
    if ledger is None or array is None or array.storage in ledger.seen:
        return
    arrays = [one for one in given if one is not None]
    if not weights and not any(one.storage in ledger.through for one in arrays):
        return
    ledger.seen.add(array.storage)
    ledger.through.add(array.storage)
    ledger.alive.append(made)
    size = array_bytes(ev, array)
    ledger.passing.append(arithmetic(ev, "+", size, copies if copies is not None else size))
    for one in arrays if keeps else ():
        ledger.keep(one.storage, array_bytes(ev, one))


# --- operations -------------------------------------------------------------------------------------------------------


def operation(node: ast.expr, left: Abstract, right: Abstract, origin: Origin) -> Abstract | None:
    """An arithmetic operation or a comparison with an array; None if neither operand is one."""
    one, other = array_of(left), array_of(right)
    found = one or other
    if found is None or (one is None and not _is_number(left)) or (other is None and not _is_number(right)):
        return None
    shape = found.shape if one is None or other is None else broadcast(one.shape, other.shape)
    library = "torch" if any(a is not None and a.library == "torch" for a in (one, other)) else found.library
    dtype: str | None = "bool"
    if not isinstance(node, ast.Compare):
        dtype = result_type(found, other if one is not None and other is not None else right if one else left, library)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and dtype in _WHOLE:
            dtype = _DEFAULT[library]
    return derived(left if one else right, Array(shape, dtype, library), origin) if dtype is not None else None


_WHOLE = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
_DEFAULT = {"torch": "float32", "numpy": "float64", "pil": "float64", H5: "float64"}
"""What a whole number becomes beside a fraction of Python's."""


def result_type(array: Array, other: Abstract | Array, library: str) -> str | None:
    """The type of an array and of another, or of a number of Python's, which has a kind alone; None: not known.

    torch takes the type of the higher kind; numpy one that holds the values of both (the documentation of
    torch.result_type and numpy.result_type).
    """
    mine = array.dtype
    if isinstance(other, Array):
        return _joined(mine, other.dtype, library)
    value = other.value if isinstance(other, Const) else None
    if mine not in _WHOLE or (isinstance(value, bool) and mine in _WHOLE):
        return mine
    if isinstance(value, int):
        return "int64" if mine == "bool" else mine
    return _DEFAULT[library] if isinstance(value, float) else None


def _joined(one: str, other: str, library: str) -> str | None:
    if one == other or "bool" in (one, other):
        return other if one == "bool" else one
    whole = [name for name in (one, other) if name in _WHOLE]
    wide, narrow = sorted((one, other), key=WIDTHS.__getitem__, reverse=True)
    if len(whole) == 2:
        if (wide[0] == "u" != narrow[0]) or WIDTHS[wide] == WIDTHS[narrow]:  # the sign takes a bit more
            return f"int{16 * WIDTHS[wide]}" if WIDTHS[wide] < 8 else None
        return wide
    if "complex64" in (one, other):
        double = "float64" in (one, other) or (library != "torch" and any(floating(w) == "float64" for w in whole))
        return None if double else "complex64"
    if not whole:
        return wide if WIDTHS[wide] > WIDTHS[narrow] else "float32"
    [fraction] = {one, other} - {*whole}
    if library == "torch":
        return fraction
    return max(fraction, floating(whole[0]), key=WIDTHS.__getitem__)


def floating(dtype: str) -> str:
    """The type of numpy's roots, logarithms and the like of a whole number: fractions that hold its values."""
    return {1: "float16", 2: "float32"}.get(WIDTHS[dtype], "float64") if dtype in _WHOLE else dtype


def _is_number(value: Abstract) -> bool:
    return isinstance(value, (Const, Op)) or is_expr(value)


def subscript(ev: Evaluator, value: Abstract, array: Array, node: ast.Subscript, frame: Frame) -> Abstract | None:
    """`array[index]`; None if it is not known how much it takes."""
    if array.library == "pil":
        return None
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    shape, rest, copied = list[Expr](), list(array.shape), False
    left_over = len(array.shape) - sum(not _is_new(p) and not _is_dots(p) for p in parts)
    for part in parts:
        if _is_dots(part):
            shape, rest = shape + rest[:left_over], rest[left_over:]
        elif _is_new(part):
            shape.append(Const(1))
        elif not rest:
            return None
        elif isinstance(part, ast.Slice):
            size = _sliced(ev, rest.pop(0), part, frame)
            if size is None:
                return None
            shape.append(size)
        else:
            index, size = ev.evaluate(part, frame), rest.pop(0)
            picked = _picked(ev, index, size)
            if picked is None:
                return None
            shape, copied = shape + list(picked), copied or bool(picked)
    made = tuple(shape + rest)
    if array.library == H5:
        return derived(value, Array(made, array.dtype, "numpy"), frame.module.origin(node))
    found = Array(made, array.dtype, array.library, mapped=False) if copied else view(array, made, whole=False)
    return derived(value, found, frame.module.origin(node))


def _is_new(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and node.value is None) or ast.unparse(node) in (
        "np.newaxis",
        "numpy.newaxis",
    )


def _is_dots(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _picked(ev: Evaluator, index: Abstract, size: Expr) -> Shape | None:
    """The sizes that an index leaves of one: none for a number, as many as a list of indices has."""
    given = array_of(index)
    if given is not None:
        return None if given.dtype == "bool" else given.shape
    if is_expr(index):
        return ()
    items = ev.iterate(index) if isinstance(index, Container) else None
    return None if items is None else (Const(len(items)),)


def _sliced(ev: Evaluator, size: Expr, node: ast.Slice, frame: Frame) -> Expr | None:
    """The size of a slice; `x[i : i + n]` is n for any i."""
    low = to_expr(ev.evaluate(node.lower, frame)) if node.lower is not None else None
    high = to_expr(ev.evaluate(node.upper, frame)) if node.upper is not None else None
    step = number(to_expr(ev.evaluate(node.step, frame))) if node.step is not None else 1
    if step is None:
        return None
    if low is None and high is None:
        return size if step in (1, -1) else arithmetic(ev, "//", size, Const(abs(step)))
    if high is None and low is not None and known(low):
        return arithmetic(ev, "-", size, low) if (number(low) or 0) >= 0 else Op("neg", (low,))
    if high is not None and low is not None:
        return _difference(ev, low, high)
    if high is None or not known(high):
        return None
    bound, whole = number(high), number(size)
    if bound is None:
        return high
    if bound < 0:
        return arithmetic(ev, "+", size, high)
    return high if whole is None else Const(min(bound, whole), high.origin)


def _difference(ev: Evaluator, low: Expr, high: Expr) -> Expr | None:
    """`high - low`, as a sum whose equal terms cancel each other."""
    first, second = _terms(low, 1), _terms(high, 1)
    if first is None or second is None:
        return None
    numbers, names = 0, dict[str, int]()
    for sign, terms in ((-1, first), (1, second)):
        numbers += sign * terms.pop("", 0)
        for name, times in terms.items():
            names[name] = names.get(name, 0) + sign * times
    return Const(numbers) if not any(names.values()) and numbers >= 0 else None


def _terms(expr: Expr, sign: int) -> dict[str, int] | None:
    """A sum of products with a number as text -> how often; "" is the number that is added. None: it is no such sum."""
    value = number(expr)
    if value is not None:
        return {"": sign * value}
    if isinstance(expr, Op) and expr.operator in ("+", "-"):
        found: dict[str, int] = {}
        for at, operand in enumerate(expr.operands):
            part = _terms(operand, -sign if at and expr.operator == "-" else sign)
            if part is None:
                return None
            for name, times in part.items():
                found[name] = found.get(name, 0) + times
        return found
    if isinstance(expr, Op) and expr.operator == "*" and len(expr.operands) == 2:
        for one, other in (expr.operands, expr.operands[::-1]):
            factor, part = number(one), _terms(other, sign)
            if factor is not None and part is not None:
                return {name: factor * times for name, times in part.items()}
        return None
    if isinstance(expr, Const) and not isinstance(expr.value, Unknown):
        return None
    return {_text(expr): sign}


def _text(expr: Expr) -> str:
    """What tells an expression from another; an unknown one by the object that it is."""
    if isinstance(expr, Op):
        return f"{expr.operator}({','.join(map(_text, expr.operands))})"
    if isinstance(expr, Const):
        return f"#{id(expr.value)}" if isinstance(expr.value, Unknown) else repr(expr.value)
    return expr.name
