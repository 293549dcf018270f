"""The command line with an estimate that fits in the head: one GiB, and 1 MiB per token of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from preflight.vocabulary.estimates import DeviceEstimate, Interval
from preflight.vocabulary.findings import Change, Confidence, Finding, Proposal, Safety, Severity
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.rule import Case, Rule
from preflight.vocabulary.tracing import TRACE, Tracing
from preflight.vocabulary.values import Unknown

GIB = 2**30

PROGRAM = """\
import argparse

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--max_length", type=int, default=128)
args = parser.parse_args()

model = AutoModelForCausalLM.from_pretrained("gpt2")
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(data, batch_size=args.batch_size):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
"""
SWEEP = """\
program: train.py
method: grid
parameters:
  batch_size: {value: 64}  # as in the paper
  max_length: {value: 512}
"""


def estimate(
    job: Job, gpu: Gpu | None = None, tracing: Tracing = TRACE, verdict_alone: bool = False
) -> DeviceEstimate | Unknown:
    batch, length = job.train.batch_size, job.train.seq_len
    if batch is None or length is None:
        return Unknown("batch or length is not known")
    activations = batch * length * 2**20
    process = Interval(GIB + activations, GIB + activations, GIB + activations)
    capacity = gpu.capacity if gpu is not None else None
    largest = None if capacity is None else max(0, (capacity - GIB) // (length * 2**20)) or None
    return DeviceEstimate(
        requested=process,
        allocated=process,
        reserved=process,
        process=process,
        phase="backward",
        where="h.0",
        breakdown={"weights": GIB, "activations": activations},
        phases={"backward": GIB + activations},
        largest_allocation=None,
        capacity=capacity,
        verdict=process.verdict(capacity),
        find_largest_batch=lambda: largest,
    )


def bound(job: Job, gpu: Gpu | None = None, tracing: Tracing = TRACE) -> tuple[int, int] | None:
    found = estimate(job, gpu)
    return (found.process.expected, found.process.high) if isinstance(found, DeviceEstimate) else None


class TooLarge(Rule):
    """The job does not fit.

    Use a smaller batch.
    """

    name = "too-large"
    summary = "The job does not fit"

    def check(self, case: Case) -> Iterator[Finding]:
        device = case.estimates.device
        if device is None or device.verdict != "exceeds" or device.largest_batch_size is None:
            return
        change = Change("train.batch_size", device.largest_batch_size)
        yield Finding(
            self.name,
            Severity.error,
            Confidence.high,
            f"needs {device.process.expected / GIB:.1f} GiB",
            case.origin("train.batch_size"),
            ("train.batch_size",),
            proposals=(Proposal(f"batch {device.largest_batch_size}", (change,), Safety.safe),),
        )


class Raises(Rule):
    """It always fails."""

    name = "raises"
    summary = "A rule with a bug"

    def check(self, case: Case) -> Iterator[Finding]:
        raise ZeroDivisionError("a bug of ours")


@dataclass(frozen=True)
class Run:
    status: int
    out: str
    err: str


def fake_engine(monkeypatch: pytest.MonkeyPatch, *rules: type[Rule]) -> None:
    """Replaces laws and rules; everything else is real."""
    from preflight.engine import registry
    from preflight.memory import device

    known = {rule.name: rule for rule in (rules or (TooLarge,))}
    monkeypatch.setattr(device, "estimate", estimate, raising=False)
    monkeypatch.setattr(device, "bound", bound, raising=False)
    monkeypatch.setattr(registry, "rules", lambda trusted=(): known)


def preflight(capsys: pytest.CaptureFixture[str], *arguments: str) -> Run:
    """One command line, in this process."""
    from preflight.cli import run

    capsys.readouterr()
    status = run(arguments)
    captured = capsys.readouterr()
    return Run(status, captured.out, captured.err)


Command = Callable[..., Run]
FITTING = SWEEP.replace("64", "8")

__all__ = ["FITTING", "GIB", "PROGRAM", "SWEEP", "Command", "Raises", "Run", "TooLarge", "fake_engine", "preflight"]
