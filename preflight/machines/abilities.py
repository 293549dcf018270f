"""What a GPU cannot compute, whatever fits into its memory: types of numbers and kernels that older cards lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.vocabulary.job import Job

SINCE: Mapping[str, tuple[int, int]] = {
    "bf16": (
        8,
        0,
    ),  # CUDA C++ Programming Guide, arithmetic by compute capability; AMD: every card of the table
    "flash": (8, 0),  # flash-attention's README: Ampere, Ada or Hopper
    "fp8": (8, 9),  # transformer-engine's README: Ada or Hopper
}
"""Ability -> the first compute capability that has it. AMD's numbers are those that PyTorch reports for them."""


def needed(job: Job) -> Iterator[str]:
    """The abilities that a job asks for: a card without them stops, or is many times slower."""
    train = job.train
    quantized = train.quantization.type not in (None, "none")
    types = [train.precision, train.weights_dtype, train.quantization.compute_dtype if quantized else None]
    if any(str(one).startswith("bf16") for one in types):
        yield "bf16"
    if train.attention == "flash":
        yield "flash"
    if train.optimizer == "adamw-fp8":
        yield "fp8"


def able(capability: tuple[int, int], job: Job) -> bool:
    """Whether a GPU of this compute capability can do what the job asks for."""
    return all(capability >= SINCE[one] for one in needed(job))
