"""Device memory: the need of a Job on one GPU, in each phase.

A job's law (a symbolic tape, shipped or traced) gives the requested bytes; its replay through a model of the caching
allocator gives allocated and reserved; context and libraries on top give what nvidia-smi shows.
"""

from __future__ import annotations

from preflight.memory.device.estimate import bound, estimate, may_fit
from preflight.memory.device.step.intervals import blocks

__all__ = ["blocks", "bound", "estimate", "may_fit"]
