"""Models of transformers' automatic classes, from their configurations."""

from __future__ import annotations

from typing import Any


def from_config(auto: Any, config: Any, setup: dict[str, Any]) -> Any:
    """A model with the attention of `setup`, or written out where it has no other. Raises ValueError for what cannot be
    built."""
    if setup.get("attention") == "eager":
        return auto.from_config(config, attn_implementation="eager")
    try:
        return auto.from_config(config, attn_implementation="sdpa")
    except ValueError as error:
        if "does not support" not in str(error):
            raise
    return auto.from_config(config, attn_implementation="eager")
