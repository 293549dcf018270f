"""Array jobs: the index of a task as an axis of a search space, stated by `--array` or by the lines that it chooses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from preflight.dialects.shell.outputs import element, indices_of
from preflight.vocabulary.reading import Link, Request
from preflight.vocabulary.values import Axis, Choices, Const, Expr, Op, Origin, Value, names, origins

ARRAY_INDEX = "SLURM_ARRAY_TASK_ID"


def stated_axis(request: Request | None) -> Axis | None:
    """The index of an array job as an axis: each element is a separate job."""
    if request is None or not isinstance(request.array, str):
        return None
    from preflight.dialects.slurm.schema import array_indices

    indices = array_indices(request.array)
    if indices is None or len(indices) < 2:
        return None
    return Axis(ARRAY_INDEX, Choices(indices, tuple(None for _ in indices)), request.origins.get("array"))


def with_lines(axis: Axis, links: Iterable[Link]) -> Axis:
    """The axis with the place of the line of a file that each index chooses, if it chooses one."""
    exprs = [expr for link in links for expr in exprs_of(link)]
    values = axis.domain.values if isinstance(axis.domain, Choices) else ()
    found = tuple(next((place for expr in exprs for place in _lines(expr, value)), None) for value in values)
    return replace(axis, domain=Choices(values, found)) if any(found) else axis


def axis_of_lines(links: Iterable[Link]) -> Axis | None:
    """The index where no `--array` is stated: every index for which each list that it chooses from has an element."""
    possible: set[int] | None = None
    places: list[Origin] = []
    for expr in (expr for link in links for expr in exprs_of(link)):
        own = indices_of(expr, ARRAY_INDEX)
        if own is not None:
            possible = own if possible is None else possible & own
            places += origins(expr)
    if not possible:
        return None
    indices: tuple[Value, ...] = tuple(sorted(possible))
    return Axis(ARRAY_INDEX, Choices(indices, tuple(None for _ in indices)), places[0] if places else None)


def exprs_of(link: Link) -> Iterator[Expr]:
    """The values of a link's words, and the numbers of its processes."""
    for word in link.words:
        if word.value is not None:
            yield word.value
    for expr in (link.launch.nodes, link.launch.ranks_per_node, link.launch.total_ranks):
        if expr is not None:
            yield expr


def _lines(expr: Expr, value: Value) -> Iterator[Origin]:
    """The places that one value of the index chooses."""
    if not isinstance(expr, Op):
        return
    if expr.operator == "get" and ARRAY_INDEX in names(expr.operands[1]):
        one = element(expr.operands[0], Const(value))
        if one is not None and one.origin is not None:
            yield one.origin
        return
    for operand in expr.operands:
        yield from _lines(operand, value)
