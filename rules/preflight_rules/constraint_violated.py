from __future__ import annotations

from collections.abc import Iterator

from preflight.api import (
    Box,
    Case,
    Example,
    Finding,
    Origin,
    Rule,
    Severity,
    Violation,
    assignment_text,
    broken_constraints,
    parse_constraints,
)
from preflight_rules.shared.programs import LOOP, SWEEP


class ConstraintViolated(Rule):
    """A constraint that you stated in `[tool.preflight.constraints]` does not hold for these settings.

    A constraint is an inequality over the settings of the project: `graph_vocab_size >= graph_d * (path_len - 1) + 1`.
    In a search it must hold for every combination. Fixes of other rules respect constraints. This rule reports where
    the files already break one.

    There is no fix, because only you know which of the settings should change.
    """

    name = "constraint-violated"
    summary = "A stated constraint does not hold"
    tags = ("configuration",)
    examples = (
        Example(
            "The longest text times the largest batch is above what was agreed",
            {"sweep.yaml": SWEEP, "train.py": LOOP},
            says=("batch_size * max_length <= 16384", "batch_size=64"),
            options={"constraints": {"tokens": "batch_size * max_length <= 16384"}},
        ),
        Example(
            "It holds for every combination",
            {"sweep.yaml": SWEEP, "train.py": LOOP},
            finds=0,
            options={"constraints": {"tokens": "batch_size * max_length <= 32768"}},
        ),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        yield from self.from_problems(case)
        for verdict in case.space.boxes:
            for violation in broken_constraints(parse_constraints(case.settings.constraints), verdict.box):
                yield self._violated(verdict.box, violation)

    def _violated(self, box: Box, violation: Violation) -> Finding:
        places = [place for name in violation.values if (place := _place(box, name)) is not None]
        constraint, assignment = violation.constraint, violation.assignment
        where = "" if violation.everywhere or not assignment else f" for {assignment_text(assignment)}"
        return self.finding(
            f"{constraint.name} ({constraint.text}) does not hold{where}: {assignment_text(violation.values)}",
            places[0][0] if places else None,
            Severity.error,
            settings=tuple(violation.values),
            related=tuple(places[1:]),
            label="breaks a stated constraint",
        )


def _place(box: Box, name: str) -> tuple[Origin, str] | None:
    """Where a setting, an axis or a Job field is written."""
    axis = next((axis for axis in box.axes if axis.name == name), None)
    bound, expr = box.fields.get(name), box.constants.get(name)
    for origin in (
        axis.origin if axis is not None else None,
        expr.origin if expr is not None else None,
        bound.origin if bound is not None else None,
    ):
        if origin is not None:
            return origin, f"{name} is set here"
    return None
