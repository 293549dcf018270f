"""torch.distributed._tools.mem_tracker.MemTracker around two training steps on the meta device.

What it counts are the bytes of tensors: requested, and allocated up to the rounding of blocks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks.accuracy.peers.base import Answer, Refused, adapts, installed, quantised
from benchmarks.accuracy.peers.models import build
from benchmarks.accuracy.truth import Tier
from preflight.vocabulary.job import Job

if TYPE_CHECKING:
    import torch

_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


class MemTracker:
    name = "memtracker"
    tiers: tuple[Tier, ...] = ("requested", "allocated")

    def __init__(self) -> None:
        self.version = installed("torch")

    def estimate(self, job: Job) -> Answer | Refused:
        """Two steps, so that the optimizer's states are there; the peak of both."""
        reason = _beyond(job)
        if reason:
            return Refused(reason)
        train = job.train
        attention = "eager" if train.attention == "eager" else "sdpa"
        model = build(job, attention, _DTYPES[train.precision or "fp32"])
        if isinstance(model, Refused):
            return model
        try:
            peak = _peak(model, job)
        except Exception as error:  # an operator without a meta kernel, a data-dependent branch
            return Refused(f"{type(error).__name__}: {str(error).splitlines()[0][:80]}")
        return {"requested": peak, "allocated": peak}


def _beyond(job: Job) -> str:
    train = job.train
    if adapts(job):
        return "it cannot follow frozen parameters (register_hook on them raises)"
    if quantised(job):
        return "no quantised weights on the meta device"
    if train.precision not in _DTYPES:
        return "autocast does not act on meta tensors"
    if train.batch_size is None or (job.model.target is None and train.seq_len is None):
        return "batch size and length have to be stated"
    if job.parallel.strategy not in (None, "none"):
        return "one GPU only"
    if train.optimizer not in ("adamw", "adam", "sgd", "sgd-momentum"):
        return f"no {train.optimizer} on the meta device"
    return "compiled models are not run" if train.compile else ""


def _peak(model: torch.nn.Module, job: Job) -> int:
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker as Tracker

    kind = torch.optim.SGD if (job.train.optimizer or "").startswith("sgd") else torch.optim.AdamW
    options = {"momentum": 0.9} if job.train.optimizer == "sgd-momentum" else {}
    optimizer = kind(model.parameters(), lr=1e-3, foreach=True, **options)
    if job.train.gradient_checkpointing and hasattr(model, "gradient_checkpointing_enable"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    inputs = _inputs(model, job)
    tracker = Tracker()
    tracker.track_external(model, optimizer, *inputs)
    with tracker, _answers():
        for step in range(2):
            _loss(model, inputs, job).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 0:
                tracker.reset_mod_stats()
    snapshot: dict[Any, dict[Any, int]] = tracker.get_tracker_snapshot("peak")
    return next(sizes["Total"] for device, sizes in snapshot.items() if device.type == "meta")


@contextlib.contextmanager
def _answers() -> Iterator[None]:
    """What transformers would look up in the data to find packed sequences: there are none."""
    try:
        import transformers.masking_utils as masks
    except ImportError:
        yield
        return
    with mock.patch.object(masks, "find_packed_sequence_indices", return_value=None):
        yield


def _inputs(model: Any, job: Job) -> list[torch.Tensor]:
    import torch

    batch = job.train.batch_size or 1
    if job.model.target is None:
        return [torch.zeros(batch, job.train.seq_len or 1, dtype=torch.long, device="meta")]
    side = job.train.image_size or model.default_cfg["input_size"][-1]
    return [torch.zeros(batch, 3, side, side, device="meta"), torch.zeros(batch, dtype=torch.long, device="meta")]


def _loss(model: Any, inputs: list[torch.Tensor], job: Job) -> torch.Tensor:
    import torch

    if job.model.target is None:
        loss: torch.Tensor = model(input_ids=inputs[0], labels=inputs[0], use_cache=False).loss
        return loss
    return torch.nn.functional.cross_entropy(model(inputs[0]), inputs[1])
