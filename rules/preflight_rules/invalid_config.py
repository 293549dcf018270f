from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, Rule
from preflight_rules.shared.programs import LOOP, SWEEP


class InvalidConfig(Rule):
    """A file says something that the tool it is written for does not accept.

    A value of the wrong type, an unknown key in a schema that allows none, two options that exclude each other: the
    finding points at the value. The rest of the file is still read.

    Where exactly one repair exists it is offered as a fix.
    """

    name = "invalid-config"
    summary = "A file says something that its own tool does not accept"
    examples = (
        Example(
            "A parameter of a sweep is a mapping, not a number",
            {"sweep.yaml": SWEEP.replace("max_length:\n    values: [128, 512]", "max_length: 512"), "train.py": LOOP},
            says=("max_length",),
        ),
        Example("As W&B wants it", {"sweep.yaml": SWEEP, "train.py": LOOP}, finds=0),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        yield from self.from_problems(case)
