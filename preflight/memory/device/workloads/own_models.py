"""Classes of the project whose forward pass and step are read, and not executed (`preflight/tracer/own.py`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from preflight.memory.device.law.made import MadeLaw, Runner
from preflight.memory.device.law.workload import Resolved, Workload, WorkloadRequest
from preflight.memory.device.workloads.own_step import begin, digest, without_mask
from preflight.vocabulary.job import Job
from preflight.vocabulary.own_code import PREFIX, kept, plain
from preflight.vocabulary.values import Cause, Unknown


class OwnModel(Workload, frozen=True):
    """A class of the project, with the step of the loop that trains it. Its law is a function of the batch."""

    kind: ClassVar[str] = "own"
    target: str
    kwargs: Mapping[str, object]

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        return (asked.target or "").startswith(PREFIX)

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        target = asked.target or ""
        code = kept(target)
        if code is None:
            words = f"the text of {plain(target)} is not at hand: check the program that trains it"
            return Unknown(words, Cause.model_unknown)
        setup = begin(asked, adapts=False)
        if isinstance(setup, Unknown):
            return setup
        if setup.compile or asked.job.train.compile:
            return Unknown(f"{plain(target)} is compiled, and such a step is not read", Cause.not_modelled)
        lengths = {"b": asked.job.train.batch_size or 1}
        found = cls(target, asked.job.model.kwargs or {})
        return Resolved(
            found,
            plain(target),
            "other",
            {},
            lengths,
            replace(without_mask(setup), channels_last=bool(asked.job.train.channels_last)),
        )

    def wire(self) -> dict[str, Any]:
        code = kept(self.target)
        return {"kind": self.kind, "given": dict(self.kwargs), **(code.described if code is not None else {})}

    @property
    def filed(self) -> str:
        return f"own-{digest((self.target, json.dumps(dict(self.kwargs), sort_keys=True, default=str)))}"

    @property
    def unshipped(self) -> str | None:
        code = kept(self.target)
        if code is None:
            return None
        return f"what is trained is {code.name}, a class of the project ({code.path}, line {code.line})"

    @property
    def convolutional(self) -> bool:
        return True

    def make(self, resolved: Resolved, kind: str, run: Runner) -> MadeLaw:
        from preflight.memory.device.fit.one_model import make_at

        return make_at(self.wire(), kind, resolved.setup, resolved.lengths, run, self.free)

    def notes(self, job: Job, resolved: Resolved) -> Iterator[str]:
        code = kept(self.target)
        if code is not None:
            step = code.described["step"]
            where = f"the step of {step['path']}:{step['line']}"
            yield f"{code.name} was read from {code.path}:{code.line} with {where}, not executed"
