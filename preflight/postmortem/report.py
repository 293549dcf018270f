"""A whole post-mortem, ready to be printed."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.postmortem.cause import Conclusion
from preflight.postmortem.collect import Found
from preflight.postmortem.compare import Compared
from preflight.vocabulary.outcome import Outcome


@dataclass(frozen=True)
class Postmortem:
    """What the logs say, what the estimate had said, and what `check` says of the configuration (None: none known).

    `configuration` are the files, `from_logs` whether the logs named them; `notes` are said once, at the end.
    """

    found: Found
    conclusion: Conclusion
    compared: tuple[Compared, ...] = ()
    outcome: Outcome | None = None
    configuration: tuple[str, ...] = ()
    from_logs: bool = False
    notes: tuple[str, ...] = ()
