"""Which of several bindings a Job field obeys: the highest rank, then the last; the others stay visible."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.dialects.reading import Binding
from preflight.records import dataclass, field, replace
from preflight.study.model import Bound
from preflight.study.scope import MARK, Scope, fixed, unmark
from preflight.values import Const, Expr, Origin, Unknown, names, origins

DEFAULT_RANK, TEXT_RANK = 1, 2
MAP_RANK = 4
"""A project's own spelling, stated by its user, beats what was read from the program."""
SET_RANK = 5
OVERRIDE_RANK = 6
UNKNOWN_RANK = -1
"""As `preflight.libraries.common` has it: something is passed, nobody can say what."""
LAST_RANK = -2
"""Below everything, also below an argument that cannot be followed."""


@dataclass(frozen=True)
class Candidate:
    """A binding with its expression over marked axes."""

    rank: int
    order: int
    expr: Expr
    origin: Origin | None
    source: str
    setting: str = ""


@dataclass
class Gathered:
    """Candidates per Job field, and every setting by its own name."""

    candidates: dict[str, list[Candidate]] = field(default_factory=dict)
    constants: dict[str, Expr] = field(default_factory=dict)

    def add(self, binding: Binding, scope: Scope, source: str, rank: int | None = None, setting: str = "") -> None:
        expr = scope.resolve(binding.expr)
        found = self.candidates.setdefault(binding.field, [])
        found.append(
            Candidate(binding.rank if rank is None else rank, len(found), expr, binding.origin, source, setting)
        )


def winner(name: str, candidates: list[Candidate], held: Mapping[str, Const]) -> Bound | None:
    """The candidate that the program would obey; None where all of them leave the field to the default.

    An unknown of the lowest rank ("something is passed, nobody can say what") rules a library's default out. Where the
    winner names something that is set nowhere, a setting whose name suggests the field is the better witness.
    """
    here = [replace(one, expr=fixed(one.expr, held)) for one in candidates]
    here = [_as_default(replace(one, origin=next(origins(one.expr), None) or one.origin)) for one in here]
    ordered = sorted(here, key=lambda one: (one.rank, one.order), reverse=True)
    if any(one.rank == UNKNOWN_RANK for one in ordered):
        ordered = [one for one in ordered if one.rank != DEFAULT_RANK]
    stated = [one for one in ordered if not (isinstance(one.expr, Const) and one.expr.value is None)]
    if ordered and ordered[0].rank >= SET_RANK:
        stated = ordered
    if not stated:
        return None
    best = stated[0]
    if _nowhere(best.expr):
        best = next((one for one in stated if one.rank == 0 and not _nowhere(one.expr)), best)
    losers = tuple(dict.fromkeys(o.origin for o in stated if o is not best and o.origin not in (None, best.origin)))
    expr = unmark(best.expr)
    source = best.source if best.rank != DEFAULT_RANK else f"default of the library, as {best.source} uses it"
    return Bound(
        name,
        expr,
        best.origin,
        tuple(o for o in losers if o is not None),
        best.rank == DEFAULT_RANK,
        source,
        best.setting,
    )


def _as_default(candidate: Candidate) -> Candidate:
    """What no file says is a library's default, whatever was seen to read it (a flag left alone)."""
    written = candidate.origin is not None or any(True for _ in names(candidate.expr))
    if written or candidate.rank != TEXT_RANK or _nowhere(candidate.expr):
        return candidate
    return replace(candidate, rank=DEFAULT_RANK)


def _nowhere(expr: Expr) -> bool:
    if isinstance(expr, Const):
        return isinstance(expr.value, Unknown)
    return any(not name.startswith(MARK) for name in names(expr))
