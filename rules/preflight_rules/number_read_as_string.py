from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, Rule
from preflight_rules.shared.programs import LOOP, SWEEP


class NumberReadAsString(Rule):
    """A number is written in a form that the tool reads as text.

    `wandb sweep` reads YAML 1.1, where a number with an exponent needs a dot and a sign, as in `1.0e-5`: `1e-5` is the
    string "1e-5". The client hands the text on, and W&B's server reads it again, as a number. So there is one finding
    for a file, as information. It is an error if the client itself needs the number: it refuses a `min` or `max` that
    is text if the parameter has no `distribution`. It is a warning with `controller: {type: local}`, which computes
    with the text.

    The fix writes all these numbers in a form that is read as a number. It is safe, because nothing else can be meant.
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
            "Bounds whose types decide the distribution",
            {"sweep.yaml": SWEEP + "  lr:\n    min: 1e-5\n    max: 1e-3\n", "train.py": LOOP},
            fixed={"sweep.yaml": SWEEP + "  lr:\n    min: 1.0e-5\n    max: 1.0e-3\n"},
            says=("refuses bounds", "1 number more"),
        ),
        Example(
            "With its dot it is a number",
            {"sweep.yaml": SWEEP + "  lr:\n    values: [1.0e-5, 1.0e-4]\n", "train.py": LOOP},
            finds=0,
        ),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        yield from self.from_problems(case)
