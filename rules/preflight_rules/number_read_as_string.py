from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, Rule
from preflight_rules.shared.programs import LOOP, SWEEP


class NumberReadAsString(Rule):
    """A number is written so that the tool which reads the file takes it for text.

    YAML 1.1, which `wandb sweep` reads, wants a dot and a sign in `1.0e-5`: `1e-5` is the string "1e-5". In `min` or
    `max` the sweep is refused; in `values` it is passed on, and the program compares a string with a number.

    The fix writes the number so that it is read as one; it is safe, since no other reading makes sense.
    """

    name = "number-read-as-string"
    summary = "A number that its reader takes for text"
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
