"""Models of remote code (`trust_remote_code`) that are estimated with the law of another architecture.

Which model is like which: `workloads/remote.py`. Here is what a likeness says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Terms: TypeAlias = "tuple[tuple[int, Mapping[str, int]], ...]"
"""(coefficient, {dimension: power}) summed: elements in the dtype that the model computes in."""


@dataclass(frozen=True)
class Likeness:
    """The architecture whose law is used for a model of remote code, and what the two differ in."""

    architecture: str
    """The `model_type` of transformers whose law is used."""
    config: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Its own config -> one of that type. Raises KeyError for a dimension that is not there."""
    note: str
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Its own names of layers that adapters stand beside -> those of the type that stands for it."""
    targets: tuple[str, ...] = ()
    """Where its users put adapters when nothing is said (its own names)."""
    wider: tuple[float, float] = (0.0, 0.0)
    """What the difference widens the interval by, below and above, as fractions."""
    held: Terms = ()
    """Elements that live through the whole step beside the type's tape."""
    pulse: Terms = ()
    """Elements that live for a moment in forward."""
    attention: str | None = None
    """The attention that its own code computes whatever is asked for."""


def elements(terms: Terms, dims: Mapping[str, int]) -> tuple[int, ...]:
    """Each term's elements at dimensions; those of the width where a law has heads and their size alone."""
    known = {**dims, "h": dims.get("h") or dims["a"] * dims["d"]}
    found = []
    for count, powers in terms:
        for name, power in powers.items():
            count *= known[name] ** power
        found.append(count)
    return tuple(found)
