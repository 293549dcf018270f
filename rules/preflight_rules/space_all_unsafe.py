from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, DeviceEstimate, Example, Finding, Origin, Rule, Severity, gib, several
from preflight_rules.shared import gpu, spaces
from preflight_rules.shared.programs import LOOP, SWEEP


class SpaceAllUnsafe(Rule):
    """No combination of a search fits: every trial will run out of memory.

    The cause is a setting outside the search, or every value of a parameter is too large. The message names the worst
    combination and its need.

    The fix is one of those of `gpu-memory-exceeded` or `host-memory-exceeded`, for a setting that all combinations
    share.
    """

    name = "space-all-unsafe"
    summary = "No combination of a search fits"
    tags = ("gpu-memory", "search")
    examples = (
        Example(
            "Every batch size is too large",
            {
                "sweep.yaml": SWEEP.replace("[8, 16, 64]", "[64, 128]").replace("[128, 512]", "[384, 512]"),
                "train.py": LOOP,
            },
            says=("none of the 4 combinations fits",),
            options={"gpu": "T4"},
        ),
        Example("Some of it fits", {"sweep.yaml": SWEEP, "train.py": LOOP}, finds=0, options={"gpu": "T4"}),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        counts = case.space.counts
        if not several(case) or not spaces.all_unsafe(case):
            return
        severity = Severity.error if counts.exceeds else Severity.warning
        total = case.space.combinations
        number = f"none of the {total:,} combinations fits"
        estimate = spaces.binding(case)
        sure = f" ({counts.at_risk:,} at risk)" if counts.at_risk else ""
        worst = spaces.worst_text(case)
        if isinstance(estimate, DeviceEstimate) and estimate.capacity is not None:
            states = sum(gpu.states_of(case, estimate).values())
            worst += f", {gib(states)} of it weights, gradients and optimizer states"
        yield spaces.space_finding(self, case, f"{number}{sure}", worst, _blamed(case), severity)


def _blamed(case: Case) -> list[tuple[Origin, str]]:
    """Settings outside the search first, because all combinations share them."""
    shared = [(case.origin(field), f"{field} = {case.job.get(field)}") for field in ("train.vocab_size", *gpu.FIELDS)]
    found = [(origin, words) for origin, words in shared if origin is not None]
    return found or spaces.axis_places(case)
