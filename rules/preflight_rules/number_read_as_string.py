from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, Rule
from preflight_rules.shared.programs import LOOP, SWEEP


class NumberReadAsString(Rule):
    """A number is written in a form that the tool reads as text.

    `wandb sweep` reads YAML 1.1, where a number with an exponent needs a dot and a sign, as in `1.0e-5`: `1e-5` is the
    string "1e-5". W&B refuses such a sweep if the text is a `min` or `max`. In `values` it hands the text to the
    program, which then compares a string with a number.

    The fix writes the number in a form that is read as a number. It is safe, because nothing else can be meant.
    """

    name = "number-read-as-string"
    summary = "A number is written so that the tool reads it as text"
    tags = ("configuration",)
    examples = (
        Example(
            "PyYAML reads 1e-5 as text",
            {"sweep.yaml": SWEEP + "  lr:\n    values: [1e-5, 1.0e-4]\n", "train.py": LOOP},
            fixed={"sweep.yaml": SWEEP + "  lr:\n    values: [1.0e-5, 1.0e-4]\n"},
            says=("1e-5",),
        ),
        Example(
            "With its dot it is a number",
            {"sweep.yaml": SWEEP + "  lr:\n    values: [1.0e-5, 1.0e-4]\n", "train.py": LOOP},
            finds=0,
        ),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        yield from self.from_problems(case)
