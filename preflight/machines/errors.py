"""The error of this package."""

from __future__ import annotations


class MachineError(Exception):
    """A machine cannot be found or its file is wrong; the message says where (exit status 2)."""
