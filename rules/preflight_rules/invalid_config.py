from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, Rule
from preflight_rules.shared.programs import LOOP, SWEEP


class InvalidConfig(Rule):
    """A file has a value that the tool it is written for does not accept.

    Examples are a value of the wrong type, an unknown key where the schema allows none, and two options that exclude
    each other. The finding points at the value. The rest of the file is still read.

    Only what the tool refuses, or does without, is reported. A template, a program for another version of Python, a
    value that a program may mean as "off" (0, -1), and a value that only preflight cannot use are no findings: the
    value is unknown then. W&B warns of an unknown key at the top of a sweep and does without it, so that is a warning.

    A fix is offered if exactly one repair is possible.
    """

    name = "invalid-config"
    summary = "A file has a value that its tool does not accept"
    tags = ("configuration",)
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
