"""GPU memory for checkpoints: loading one that training resumes from, and writing them.

Writing one takes nothing as a rule: torch.save copies storages to the host one after the other. Two things do. Weights
that sharding cut up, when every parameter is gathered on each GPU at once (`train.saves`: gathered; FSDP's
FULL_STATE_DICT without CPU offload). And bitsandbytes 0.38's int8 layers, whose `_save_to_state_dict`
(bitsandbytes/nn/modules.py) puts each weight into rows again on the GPU for the dictionary, and leaves the layer with
a clone of its weight in addition to the one that it computes with: one copy more for good, and another while the
dictionary lives.

Reading one: see `train.resumes` in docs/design-notes.md. Until torch 2.1 an optimizer deep-copied the states that it
was given (torch/optim/optimizer.py, load_state_dict); since then they become its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from preflight.memory.device.step.effect import Effect, Passage
from preflight.memory.device.step.prepared import PreparedJob
from preflight.vocabulary.job import Job
from preflight.vocabulary.notation import NEWEST, release

DOUBLES = ((0, 38), (0, 39))
"""From which release on, and before which, bitsandbytes' int8 layers are doubled by a state dictionary."""
SHALLOW = (2, 1)
"""The release of torch from which an optimizer takes loaded states over as they are."""


class Checkpoints(Effect):
    """Checkpoints that a job resumes from, and those that it writes."""

    def before(self, prepared: PreparedJob) -> Iterator[Passage]:
        """Storages on the GPU in addition to the model when training begins from a checkpoint."""
        how = prepared.job.train.resumes
        taken_over = (release(prepared.job.software.get("torch")) or NEWEST) >= SHALLOW
        states = prepared.optimizer.states
        if how == "trainer" and prepared.rank.layout.scheme == "ddp":  # transformers: on each GPU where several train
            yield Passage("resume", "weights", passing=states if taken_over else (*states, *states))
        if how not in ("device", "kept"):
            return
        adapted = prepared.job.train.peft.method not in (None, "none")
        weights = tuple(math.ceil(n * each) for n, each, trains in prepared.rank.rows if trains or not adapted)
        bound = weights if taken_over else (*weights, *states)  # what the name still holds that nothing else does
        if how == "kept":
            yield Passage("resume", "weights", bound, states)
        else:
            yield Passage("resume", "weights", passing=(*bound, *states))

    def after(self, prepared: PreparedJob) -> Iterator[Passage]:
        """The memory of writing a checkpoint."""
        doubled = tuple(_doubled(prepared))
        whole: tuple[int, ...] = ()
        if prepared.job.train.saves == "gathered" and prepared.rank.layout.sharded:
            whole = tuple(math.ceil(n * each) for n, each, _ in prepared.parameters)
        if doubled or whole:
            yield Passage("save", "weights", doubled, (*doubled, *whole))

    def notes(self, prepared: PreparedJob) -> Iterator[str]:
        if _doubles(prepared.job):
            yield "bitsandbytes 0.38 doubles int8 weights when a checkpoint is saved; 0.37 and 0.39 do not"


def _doubled(prepared: PreparedJob) -> Iterator[int]:
    if _doubles(prepared.job):
        yield from (math.ceil(n * each) for n, each, trains in prepared.rank.rows if each == 1 and not trains)


def _doubles(job: Job) -> bool:
    installed = release(job.software.get("bitsandbytes"))
    return installed is not None and job.train.quantization.type == "int8" and DOUBLES[0] <= installed < DOUBLES[1]
