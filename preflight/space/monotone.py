"""Whether an expression rises, falls or stays as an axis grows, and between which numbers it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from preflight.vocabulary.values import Axis, Choices, Const, Expr, Op, Range, Ref, names

Interval = tuple[float, float]
Ranges = Mapping[str, Interval]

_KEEP = frozenset({"int", "float", "round", "ceil", "floor"})
"""Operations on one number that keep the order of numbers."""

INCREASING = (
    "train.batch_size", "train.sequences_per_sample", "train.seq_len", "train.target_len", "train.text_len",
    "train.image_size", "train.vocab_size",
    "train.grad_accum", "train.peft.r", "train.copies.", "validation.batch_size", "validation.seq_len",
    "validation.samples", "validation.max_new_tokens", "validation.beams", "validation.eval_accumulation",
    "data.workers", "data.prefetch", "data.samples", "data.sample_bytes", "data.in_memory_bytes", "data.worker_bytes",
    "data.validation_workers", "parallel.trials_per_gpu", "model.config.", "model.parameters", "model.least_parameters",
    "model.activation_bytes",
)  # fmt: skip
"""Fields (or prefixes of fields) whose larger values never need less memory if everything else is equal. Accumulation
needs more only from one micro-batch to several: gradients then live through the next forward pass."""


def increasing(field: str) -> bool:
    """Whether memory never falls when the field grows."""
    return any(field == name or (name.endswith(".") and field.startswith(name)) for name in INCREASING)


def ranges(axes: Iterable[Axis]) -> dict[str, Interval]:
    """The smallest and largest number of each numeric axis."""
    found: dict[str, Interval] = {}
    for axis in axes:
        domain = axis.domain
        if isinstance(domain, Range):
            found[axis.name] = (domain.low, domain.high)
        elif isinstance(domain, Choices):
            numbers = [v for v in domain.values if isinstance(v, (int, float)) and not isinstance(v, bool)]
            if numbers and len(numbers) == len(domain.values):
                found[axis.name] = (min(numbers), max(numbers))
    return found


def interval(expr: Expr, known: Ranges) -> Interval | None:
    """Bounds of a numeric expression; None if they are unknown."""
    if isinstance(expr, Const):
        value = expr.value
        return (value, value) if isinstance(value, (int, float)) else None
    if isinstance(expr, Ref):
        return known.get(expr.name)
    parts = [interval(operand, known) for operand in expr.operands]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or not found:
        return None
    return _interval_of(expr.operator, found)


def _interval_of(operator: str, parts: list[Interval]) -> Interval | None:
    (low, high), rest = parts[0], parts[1:]
    if operator == "+" and rest:
        return low + rest[0][0], high + rest[0][1]
    if operator == "-" and rest:
        return low - rest[0][1], high - rest[0][0]
    if operator == "*" and rest:
        products = [a * b for a in parts[0] for b in rest[0]]
        return min(products), max(products)
    if operator in ("/", "//") and rest and rest[0][0] > 0:
        quotients = [a / b for a in parts[0] for b in rest[0]]
        return min(quotients) - (operator == "//"), max(quotients)
    if operator == "neg":
        return -high, -low
    if operator in ("min", "max"):
        pick = min if operator == "min" else max
        return pick(a for a, _ in parts), pick(b for _, b in parts)
    if operator in _KEEP:
        return low - 1, high + 1
    if operator == "**" and rest and low >= 1 and rest[0][0] >= 0 and high ** min(rest[0][1], 64) < 2**128:
        return low ** rest[0][0], high ** rest[0][1]
    return None


def direction(expr: Expr, axis: str, known: Ranges) -> int | None:
    """+1: never falls as the axis grows. -1: never rises. 0: does not depend on it. None: unknown."""
    if axis not in names(expr):
        return 0
    if isinstance(expr, Ref):
        return 1
    if not isinstance(expr, Op):
        return 0
    ways = [direction(operand, axis, known) for operand in expr.operands]
    if expr.operator in ("+", "min", "max", *_KEEP):
        return _common(ways)
    if expr.operator == "-":
        return _common([ways[0], _opposite(ways[1])]) if len(ways) > 1 else None
    if expr.operator == "neg":
        return _opposite(ways[0])
    if expr.operator in ("*", "/", "//") and len(ways) == 2:
        return _product(expr, ways, known)
    if expr.operator == "**" and len(ways) == 2:
        base, exponent = (interval(operand, known) for operand in expr.operands)
        fine = base is not None and exponent is not None and base[0] >= 1 and exponent[0] >= 0
        return _common(ways) if fine else None
    if expr.operator == "if" and ways[0] == 0:
        return _common(ways[1:])
    return None


def _product(expr: Op, ways: list[int | None], known: Ranges) -> int | None:
    left, right = (interval(operand, known) for operand in expr.operands)
    second = ways[1] if expr.operator == "*" else _opposite(ways[1])
    return _common([_signed(ways[0], right), _signed(second, left)])


def _signed(way: int | None, other: Interval | None) -> int | None:
    """The direction of a factor whose other factor is in the interval `other`."""
    if way == 0 or way is None:
        return way
    if other is None:
        return None
    return way if other[0] >= 0 else -way if other[1] <= 0 else None


def _opposite(way: int | None) -> int | None:
    return None if way is None else -way


def _common(ways: Iterable[int | None]) -> int | None:
    """The direction that all parts have, apart from those that do not depend on the axis."""
    found = set(ways) - {0}
    if not found:
        return 0
    return found.pop() if len(found) == 1 else None


def first_true(low: int, high: int, test: Callable[[int], bool]) -> int:
    """The first number from `low` to below `high` for which a rising test holds; `high` where there is none.

    As `bisect` does, which takes no range of more than 63 bits.
    """
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle + 1, high)
    return low
